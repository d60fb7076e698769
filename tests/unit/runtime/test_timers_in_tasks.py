"""Timers on processing time in running tasks: when they fire, and over checkpoints, restores and every parallelism."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource
from tidegate.connectors.collections import CollectionSink
from tidegate.runtime.control import RestoredOperator, RuntimeOptions, TaskFailed


class Later(tg.KeyedProcessFunction[str, tuple[str, int], tuple[str, str, int]]):
    """Each record says in how many milliseconds its key is to be heard of."""

    def process_element(self, value: tuple[str, int], ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, str, int]]:
        at = ctx.timer_service.current_processing_time() + value[1]
        ctx.timer_service.register_processing_time_timer(at)
        yield "record", ctx.key, at

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, str, int]]:
        yield "timer", ctx.key, timestamp


class Timed:
    """A job with timers, whose clock a test moves. Attempt n takes checkpoint n, from which n + 1 goes on."""

    def __init__(
        self,
        parallelism: int = 1,
        before: "Timed | None" = None,
        function: Any = None,
        now: float | None = None,
        options: RuntimeOptions = AT_ONCE,
    ) -> None:
        self.source, self.sink = HandSource(), CollectionSink()
        job = tg.Job("timed")
        keyed = job.source(self.source, name="src").key_by(lambda record: record[0])
        keyed.process(function or Later(), name="later").sink(self.sink, name="out")
        attempt = 1 if before is None else before.bench.attempt + 1
        restored = [] if before is None else before.bench.restorable(attempt - 1)
        self.bench = Bench(
            job,
            parallelism,
            options=options,
            storage=None if before is None else before.bench.storage,
            restored=[operator for operator in restored if operator.name == "later"],
            attempt=attempt,
            last_checkpoint=attempt - 1,
        )
        if now is not None:
            self.bench.clock.time = now
        self.bench.deploy()

    @property
    def milliseconds(self) -> int:
        return int(self.bench.clock.now().wall * 1000)

    def put(self, *records: tuple[str, int]) -> None:
        for key, wait in records:
            self.source.put(f"split of {key}", (key, wait))
        self.bench.read(no_more=False)
        self.bench.finish()

    def fired(self) -> list[tuple[str, int]]:
        """Keys and times of what has fired so far, in order."""
        written = [*self.sink.committed, *(record for records in self.sink.open.values() for record in records)]
        return [(key, at) for kind, key, at in written if kind == "timer"]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_timer_fires_when_its_time_has_come_without_any_record(parallelism: int) -> None:
    timed = Timed(parallelism)
    start = timed.milliseconds
    timed.put(("a", 1500), ("b", 500))
    timed.bench.clock.time += 0.499
    timed.bench.finish()
    assert timed.fired() == []
    timed.bench.clock.time += 0.001
    timed.bench.finish()
    assert timed.fired() == [("b", start + 500)]
    timed.bench.clock.time += 10
    timed.bench.finish()
    assert timed.fired() == [("b", start + 500), ("a", start + 1500)]
    timed.bench.checkpoint(1)
    assert len(timed.sink.committed) == 4


def test_the_task_says_when_it_wants_to_be_woken_and_then_has_something_to_do() -> None:
    timed = Timed(2)
    timed.put(("a", 2345))
    for _ in range(100):
        progress = timed.bench.step()
        if timed.fired():
            break
        if not progress.worked:
            deadlines = [worker.step().wake_at for worker in timed.bench.workers]
            timed.bench.clock.time = max(timed.bench.clock.time, min(at for at in deadlines if at is not None))
    assert [key for key, _ in timed.fired()] == ["a"]


def test_an_idle_task_with_a_timer_is_not_woken_before_it_is_due() -> None:
    timed = Timed(2)
    timed.put(("a", 5000))
    owner = next(worker for worker in timed.bench.workers if any(t._timers.wake_at for t in worker._tasks.values()))
    task = next(task for task in owner._tasks.values() if task._timers.wake_at is not None)
    progress = task.step()
    assert not progress.worked
    assert progress.wake_at == pytest.approx(timed.bench.clock.time + 5.0)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4)])
def test_W03_what_was_due_while_nothing_ran_fires_once_after_the_restore_and_the_rest_in_time(
    before: int, after: int
) -> None:
    timed = Timed(before)
    start = timed.milliseconds
    keys = [f"k{number}" for number in range(9)]
    timed.put(*((key, 10_000 if number < 5 else 60_000) for number, key in enumerate(keys)))
    timed.bench.checkpoint(1)
    again = Timed(after, timed, now=timed.bench.clock.time + 30)
    again.bench.finish()
    assert sorted(again.fired()) == [(key, start + 10_000) for key in keys[:5]]
    again.bench.clock.time += 30
    again.bench.finish()
    assert sorted(again.fired()) == sorted((key, start + (10_000 if n < 5 else 60_000)) for n, key in enumerate(keys))
    again.bench.checkpoint(2)
    third = Timed(2, again, now=again.bench.clock.time + 1000)
    third.bench.finish()
    assert third.fired() == []


def test_a_timer_that_fired_behind_the_barrier_fires_again_after_the_restore_of_that_checkpoint() -> None:
    timed = Timed()
    timed.put(("a", 100))
    timed.bench.checkpoint(1)
    timed.bench.clock.time += 1
    timed.bench.finish()
    assert len(timed.fired()) == 1
    again = Timed(1, timed, now=timed.bench.clock.time)
    again.bench.checkpoint(2)
    assert again.fired() == timed.fired()


def test_a_timer_that_fired_before_the_barrier_does_not_fire_again() -> None:
    timed = Timed()
    timed.put(("a", 100))
    timed.bench.clock.time += 1
    timed.bench.finish()
    timed.bench.checkpoint(1)
    again = Timed(1, timed, now=timed.bench.clock.time + 1000)
    again.bench.finish()
    assert again.fired() == []


def test_timers_that_are_not_due_at_the_end_of_the_input_do_not_fire() -> None:
    timed = Timed()
    timed.source.put("s", ("a", 100), ("b", 0), ends=True)
    timed.bench.read()
    timed.bench.finish()
    assert timed.bench.task("src")._end_is_told
    timed.bench.clock.time += 3600
    timed.bench.checkpoint(1)
    assert "a" not in [key for key, _ in timed.fired()]
    assert [kind for kind, *_ in timed.sink.committed].count("record") == 2


class Flood(Later):
    """Its timers are due for ever: each registers the next for the moment that has just passed."""

    fired = 0

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, str, int]]:
        ctx.timer_service.register_processing_time_timer(timestamp - 1)
        yield "timer", ctx.key, timestamp


@pytest.mark.parametrize("parallelism", [1, 2])
def test_timers_without_end_hold_back_neither_records_nor_barriers(parallelism: int) -> None:
    timed = Timed(parallelism, function=Flood(), options=RuntimeOptions(linger=0.0, batch_size=8))
    timed.source.put("s", ("a", -1), *((f"k{number}", 10**7) for number in range(50)))
    timed.bench.read(no_more=False)
    timed.bench.trigger(1)
    for _ in range(400):
        timed.bench.step()
        timed.bench.executor.run_all()
        timed.bench.clock.time += 0.001
    assert set(timed.bench.acknowledged(1)) == set(timed.bench.physical.tasks)
    timed.bench.complete(1)
    timed.bench.executor.run_all()
    written = [*timed.sink.committed, *(record for records in timed.sink.open.values() for record in records)]
    assert sum(kind == "record" for kind, _, _ in written) == 51
    assert sum(kind == "timer" for kind, _, _ in written) > 51


def test_timers_wait_while_the_sink_holds_back() -> None:
    timed = Timed()
    timed.put(("a", 100))
    timed.bench.trigger(1)
    timed.bench.settle()
    assert any(lane.startswith("sink") for lane in timed.bench.executor.lanes), "the old transaction is being prepared"
    timed.bench.clock.time += 1
    timed.bench.settle()
    assert timed.fired() == []
    timed.bench.finish()
    assert [key for key, _ in timed.fired()] == ["a"]


def test_a_barrier_that_passes_while_the_sink_holds_back_lets_no_timer_through() -> None:
    timed = Timed()
    timed.put(("a", 100))
    timed.bench.trigger(1)
    timed.bench.settle()
    timed.bench.abandon(1)
    timed.bench.clock.time += 1
    timed.bench.trigger(2)
    timed.bench.settle()
    assert timed.bench.heard(TaskFailed) == []
    assert timed.fired() == []
    timed.bench.finish()
    timed.bench.complete(2)
    timed.bench.finish()
    assert [key for key, _ in timed.fired()] == ["a"]
    assert [kind for kind, *_ in timed.sink.committed] == ["record"]


def test_timers_of_an_operator_that_had_ended_do_not_fire() -> None:
    timed = Timed()
    timed.put(("a", 100))
    timed.bench.checkpoint(1)
    job = tg.Job("timed")
    sink = CollectionSink()
    job.source(HandSource(), name="src").key_by(lambda r: r[0]).process(Later(), name="later").sink(sink, name="out")
    ended = [RestoredOperator(o.name, True, o.snapshots) for o in timed.bench.restorable(1) if o.name == "later"]
    bench = Bench(job, storage=timed.bench.storage, restored=ended, attempt=2, last_checkpoint=1)
    bench.clock.time += 3600
    bench.deploy()
    bench.finish()
    assert sink.open == {} or not any(sink.open.values())
