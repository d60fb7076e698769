"""State without keys and broadcasts in running tasks: over checkpoints, restores and every parallelism."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import Bench, HandSource
from tidegate.connectors.collections import CollectionSink
from tidegate.errors import ErrorKind
from tidegate.ids import OperatorName
from tidegate.runtime.control import RestoredOperator, RuntimeOptions, TaskRunning

IN_FILES = RuntimeOptions(linger=0.0, inline_limit=0)


# ---- lists without keys ----------------------------------------------------------------------------------------------


class Collecting(tg.ProcessFunction[int, tuple[str, int]]):
    """Holds its numbers back until 0 comes, which each subtask answers with all of its own."""

    mine = tg.OperatorListState(int)
    all_of_us = tg.OperatorListState(int, redistribution="union")

    def process_element(self, value: int, ctx: tg.Context) -> Iterator[tuple[str, int]]:
        if value:
            self.mine.add(value)
            self.all_of_us.add(value)
        else:
            yield from (("mine", number) for number in self.mine)
            yield from (("all", number) for number in self.all_of_us)


def collecting(
    parallelism: int, numbers: Sequence[int], restored: Sequence[RestoredOperator] = (), storage: Any = None
) -> tuple[Bench, CollectionSink]:
    source, sink, job = HandSource(), CollectionSink(), tg.Job("collecting")
    for subtask in range(parallelism):
        source.put(f"s{subtask}", *numbers[subtask::parallelism])
    job.source(source, name="src").process(Collecting(), name="collect").sink(sink, name="out")
    attempt, last = (2, 1) if restored else (1, 0)
    bench = Bench(
        job,
        parallelism,
        options=IN_FILES,
        storage=storage,
        restored=restored,
        attempt=attempt,
        last_checkpoint=last,
    ).deploy()
    bench.read(no_more=False)
    return bench, sink


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 4)])
def test_lists_are_split_and_united_at_another_parallelism(before: int, after: int) -> None:
    numbers = list(range(1, 12))
    bench, _ = collecting(before, numbers)
    bench.finish()
    bench.checkpoint(1)
    restored = [RestoredOperator(OperatorName("collect"), False, tuple(bench.snapshots(1, "collect")))]
    again, sink = collecting(after, [0] * after, restored, bench.storage)
    again.finish()
    again.checkpoint(2)
    mine = [number for kind, number in sink.committed if kind == "mine"]
    everything = [number for kind, number in sink.committed if kind == "all"]
    assert sorted(mine) == numbers
    assert Counter(everything) == dict.fromkeys(numbers, after)


def test_the_state_of_a_list_is_that_of_the_barrier_and_is_stored_as_elements() -> None:
    bench, _ = collecting(1, [1, 2, 3])
    bench.finish()
    bench.trigger(1)
    bench.settle()
    bench.finish()
    (snapshot,) = bench.snapshots(1, "collect")
    assert [(info.name, info.kind) for info in snapshot.operator_states] == [
        ("mine", "list-split"),
        ("all_of_us", "list-union"),
    ]
    (handle,) = snapshot.operator_handles
    assert (handle.form, handle.inline) == ("elements", None)
    assert (snapshot.states, snapshot.handles) == ((), ())


class Silent(tg.ProcessFunction[int, tuple[str, int]]):
    def process_element(self, value: int, ctx: tg.Context) -> None:
        pass


@pytest.mark.parametrize("allow", [False, True])
def test_state_without_keys_that_the_program_has_dropped_is_refused_unless_that_is_allowed(allow: bool) -> None:
    bench, _ = collecting(1, [1])
    bench.finish()
    bench.checkpoint(1)
    job = tg.Job("collecting")
    job.source(HandSource(), name="src").process(Silent(), name="collect").sink(CollectionSink(), name="out")
    options = RuntimeOptions(linger=0.0, allow_non_restored_state=allow)
    again = Bench(
        job, options=options, storage=bench.storage, restored=bench.restorable(1), attempt=2, last_checkpoint=1
    )
    again.deploy()
    if allow:
        assert again.heard(TaskRunning)
    else:
        assert again.failure.kind is ErrorKind.INVALID
        assert "state mine, all_of_us of operator collect" in again.failure.message


# ---- broadcasts ------------------------------------------------------------------------------------------------------


class Pricing(tg.KeyedBroadcastProcessFunction[str, str, tuple[str, int], tuple[str, int]]):
    """Adds up the prices of what each key buys, at the prices that were broadcast."""

    prices = tg.BroadcastState(str, int)
    total = tg.ValueState(int, default=0)

    def process_element(self, value: str, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() + self.prices.get(value, 0))
        yield ctx.key, self.total.value()

    def process_broadcast_element(self, value: tuple[str, int], ctx: tg.Context) -> Iterator[tuple[str, int]]:
        self.prices.put(*value)
        yield f"subtask {ctx.subtask}", len(self.prices.keys())


class Shop:
    """Things that are bought, and their prices, each from a source of its own."""

    def __init__(self, parallelism: int, before: "Shop | None" = None) -> None:
        self.bought, self.prices, self.sink = HandSource(), HandSource(), CollectionSink()
        job = tg.Job("shop")
        prices = job.source(self.prices, name="prices", parallelism=1).broadcast()
        keyed = job.source(self.bought, name="bought").key_by(lambda thing: f"buyer of {thing}")
        keyed.connect(prices).process(Pricing(), name="pricing").sink(self.sink, name="out")
        self.number = before.number if before is not None else 0
        self.bench = Bench(
            job,
            parallelism,
            options=IN_FILES,
            storage=before.bench.storage if before is not None else None,
            restored=[] if before is None else self._state_of(before),
            attempt=before.bench.attempt + 1 if before is not None else 1,
            last_checkpoint=self.number,
        ).deploy()

    @staticmethod
    def _state_of(before: "Shop") -> list[RestoredOperator]:
        """That of the operator; the sources begin anew."""
        return [operator for operator in before.bench.restorable(before.number) if operator.name == "pricing"]

    def put(self, bought: Sequence[str] = (), prices: Sequence[tuple[str, int]] = ()) -> None:
        """Once: prices first."""
        if prices:
            self.prices.put("p", *prices)
            self.bench.read("prices", no_more=False)
            self.bench.finish()
        for split, thing in enumerate(bought):
            self.bought.put(f"b{split}", thing)
        if bought:
            self.bench.read("bought", no_more=False)
            self.bench.finish()

    def checkpoint(self) -> list[Any]:
        """What it makes visible."""
        before = len(self.sink.committed)
        self.number += 1
        self.bench.checkpoint(self.number)
        return sorted(self.sink.committed[before:])


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_subtask_gets_all_that_is_broadcast(parallelism: int) -> None:
    shop = Shop(parallelism)
    shop.put(["tea", "tea", "milk"], [("tea", 2), ("milk", 1)])
    subtasks = [(f"subtask {subtask}", count) for subtask in range(parallelism) for count in (1, 2)]
    assert shop.checkpoint() == sorted([("buyer of tea", 2), ("buyer of tea", 4), ("buyer of milk", 1), *subtasks])


def test_broadcast_state_and_keyed_state_go_on_at_every_parallelism() -> None:
    shop = Shop(2)
    things = [f"thing {number}" for number in range(7)]
    shop.put(things, [(thing, 10**number) for number, thing in enumerate(things)])
    shop.checkpoint()
    for times, parallelism in enumerate((3, 1, 4), start=2):
        shop = Shop(parallelism, shop)
        shop.put(things)
        wanted = [(f"buyer of {thing}", times * 10**number) for number, thing in enumerate(things)]
        assert shop.checkpoint() == sorted(wanted)


def test_a_barrier_is_aligned_over_both_inputs() -> None:
    shop = Shop(1)
    shop.put(["tea"], [("tea", 2)])
    shop.bench.trigger(1)
    shop.bench.settle()
    shop.put([], [("tea", 100)])
    shop.bench.finish()
    shop.number = 1
    shop.bench.complete(1)
    again = Shop(1, shop)
    again.put(["tea"])
    assert again.checkpoint() == [("buyer of tea", 4)]


def test_the_input_has_ended_when_both_inputs_have() -> None:
    shop = Shop(1)
    shop.bought.put("b", "tea", ends=True)
    shop.bench.read("bought")
    shop.bench.finish()
    assert not shop.bench.task("pricing")._input_has_ended
    shop.prices.put("p", ("tea", 2), ends=True)
    shop.bench.read("prices")
    shop.bench.finish()
    assert shop.bench.task("pricing")._input_has_ended
    assert shop.checkpoint() == [("buyer of tea", 0), ("subtask 0", 1)]
