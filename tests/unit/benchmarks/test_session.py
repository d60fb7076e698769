"""A session runs what is asked for, in turns, with what each system can; and what could not be prepared is named."""

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.suite import session
from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.workloads import Data
from tidegate.errors import InvalidError

EXACTLY_ONCE, AT_LEAST_ONCE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


class Named(NamedTuple):
    """A system that is never run."""

    name: str
    workloads: frozenset[Workload] = frozenset(Workload)
    guarantees: tuple[Guarantee, ...] = (EXACTLY_ONCE, AT_LEAST_ONCE)

    @property
    def title(self) -> str:
        return self.name.title()

    def prepare(self) -> None:
        if self.name == "missing":
            raise InvalidError("it is not there", remedy="Get it.")

    def settings(self) -> Mapping[str, str]:
        return {}

    def command(self, run: JobRun) -> Command:
        raise AssertionError


class Slow(Named):
    most_slots = 1

    def records_of(self, workload: Workload) -> int:
        return 10 if workload is Workload.TOTALS else 1_000


def _choice(*systems: Named, **others: object) -> session.Choice:
    chosen = session.Choice(systems, list(Workload), [1, 2], [EXACTLY_ONCE], Data(100), 1.0, 3)
    return chosen._replace(**others)  # type: ignore[arg-type]


def _runs(choice: session.Choice, round: int = 1) -> list[tuple[str, str, int]]:
    return [(plan.workload.value, system.name, plan.slots) for system, plan in session.plans(choice, round)]


def test_what_is_compared_runs_one_after_the_other_and_in_another_order_each_round() -> None:
    choice = _choice(Named("a"), Named("b"), workloads=[Workload.TOTALS])
    first = [("W1", "a", 1), ("W1", "b", 1), ("W1", "a", 2), ("W1", "b", 2)]
    second = [("W1", "b", 1), ("W1", "a", 1), ("W1", "b", 2), ("W1", "a", 2)]
    assert [_runs(choice, round) for round in (1, 2, 3)] == [first, second, first]


def test_a_system_runs_only_the_workloads_that_it_has() -> None:
    choice = _choice(Named("a", frozenset([Workload.TOTALS])), slots=[1])
    assert _runs(choice) == [("W1", "a", 1)]


def test_a_slow_system_gets_fewer_records_and_no_slots_that_it_cannot_use() -> None:
    runs = list(session.plans(_choice(Slow("a")), 1))
    assert [(plan.workload, plan.slots, plan.data.records) for _, plan in runs] == [
        ("W0", 1, 100),
        ("W1", 1, 10),
        ("W2", 1, 100),
    ]


def test_what_uses_one_slot_runs_once_where_only_more_are_asked_for() -> None:
    assert [slots for _, _, slots in _runs(_choice(Slow("a"), slots=[2, 4], workloads=[Workload.TOTALS]))] == [2]


def test_all_guarantees_that_a_system_has_run_beside_each_other_and_else_its_strongest() -> None:
    choice = _choice(Named("a"), Named("b", guarantees=(AT_LEAST_ONCE,)), slots=[1], workloads=[Workload.TOTALS])
    both = choice._replace(guarantees=[EXACTLY_ONCE, AT_LEAST_ONCE])
    assert [(system.name, plan.guarantee) for system, plan in session.plans(both, 1)] == [
        ("a", EXACTLY_ONCE),
        ("a", AT_LEAST_ONCE),
        ("b", AT_LEAST_ONCE),
    ]
    assert [(system.name, plan.guarantee) for system, plan in session.plans(choice, 1)] == [
        ("a", EXACTLY_ONCE),
        ("b", AT_LEAST_ONCE),
    ]


def test_what_cannot_be_prepared_is_left_out_and_its_remedy_told() -> None:
    said: list[str] = []
    systems = [Named("a"), Named("missing")]
    assert session.prepared(systems, said.append) == systems[:1]
    (line,) = said
    assert line.startswith("missing is left out: it is not there")
    assert "Get it." in line
