"""The fingerprint: the same program gives the same one in every process; another program another one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, Order, RunningTotal, Split, Total, orders
from tidegate.graph.logical import Fingerprint


def program(
    job_name: str = "shop",
    totals: str = "totals",
    function: tg.KeyedProcessFunction[str, Order, Total] | None = None,
    parallelism: int | None = None,
    between: Callable[[tg.Stream[Order]], tg.Stream[Order]] = lambda stream: stream,
) -> Fingerprint:
    job = tg.Job(job_name)
    keyed = between(orders(job)).key_by(lambda order: order.user, name="by-user")
    keyed.process(function or RunningTotal(), name=totals, parallelism=parallelism).sink(NullSink(), name="out")
    return job.graph().fingerprint()


class Declaring(tg.KeyedProcessFunction[str, Order, Total]):
    """Does nothing; derived classes declare states."""

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        pass


class FloatTotal(Declaring):
    total = tg.ValueState(float, default=0.0)


class ListTotal(Declaring):
    total = tg.ListState(int)


class Renamed(Declaring):
    sum = tg.ValueState(int, default=0)


class OneMoreState(RunningTotal):
    count = tg.ValueState(int, default=0)


def split(stream: tg.Stream[Order]) -> tg.Stream[Order]:
    return stream.process(Split(), name="look")


def side_of_split(stream: tg.Stream[Order]) -> tg.Stream[Order]:
    return split(stream).side_output(Split.large)


OTHERS: dict[str, Callable[[], Fingerprint]] = {
    "another job": lambda: program(job_name="shop2"),
    "another name": lambda: program(totals="sums"),
    "another type of state": lambda: program(function=FloatTotal()),
    "another kind of state": lambda: program(function=ListTotal()),
    "another name of a state": lambda: program(function=Renamed()),
    "one more state": lambda: program(function=OneMoreState()),
    "another parallelism": lambda: program(parallelism=2),
    "one more operator": lambda: program(between=lambda s: s.map(lambda o: o, name="look")),
    "another kind of operator": lambda: program(between=lambda s: s.filter(bool, name="look")),
    "one more side output": lambda: program(between=split),
    "another edge": lambda: program(between=side_of_split),
}


def test_the_same_program_has_the_same_fingerprint() -> None:
    assert program() == program()


@pytest.mark.parametrize("change", OTHERS)
def test_another_program_has_another_fingerprint(change: str) -> None:
    assert OTHERS[change]().digest != program().digest


def test_all_the_other_programs_differ_from_each_other() -> None:
    digests = [make().digest for make in OTHERS.values()]
    assert len(set(digests)) == len(digests)


def test_the_lines_show_what_differs() -> None:
    before, after = program().lines, program(function=FloatTotal()).lines
    (old,) = [line for line in before if line not in after]
    (new,) = [line for line in after if line not in before]
    assert "totals" in old
    assert ("int" in old, "float" in new) == (True, True)


def test_side_outputs_and_states_have_an_order_of_their_own() -> None:
    first, second = tg.SideOutput[int]("first"), tg.SideOutput[int]("second")

    def with_side_outputs(*tags: tg.SideOutput[int]) -> Fingerprint:
        return program(between=lambda s: s.process(Split(), name="look", side_outputs=tags))

    assert with_side_outputs(first, second) == with_side_outputs(second, first)


def test_another_process_with_other_string_hashes_computes_the_same_fingerprint() -> None:
    code = "from tests.unit.graph.test_fingerprint import program; print(program().digest)"
    root = Path(__file__).parents[3]
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}:{root / 'src'}"},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert digests == [program().digest] * 2
