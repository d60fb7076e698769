"""Event time in running tasks: watermarks through every kind of edge, timers that wait for them, checkpoints, restores,
other parallelism, the end of the input."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, task
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink
from tidegate.elements import MIN_WATERMARK
from tidegate.runtime.control import Drain

Record = tuple[str, int]
"""Key and timestamp."""
Said = tuple[str, str, int, int]
"""'record' or 'timer', the key, the time, the watermark at that moment."""
STRATEGY: tg.WatermarkStrategy[Record] = tg.WatermarkStrategy.for_bounded_out_of_orderness(
    "5ms"
).with_timestamp_assigner(lambda record: record[1])
INTERVAL = AT_ONCE.watermark_interval


class Later(tg.KeyedProcessFunction[str, Record, Said]):
    """Each record's key is to be heard of ten milliseconds after it."""

    def process_element(self, value: Record, ctx: tg.KeyedContext[str]) -> Iterator[Said]:
        assert ctx.timestamp == value[1]
        ctx.timer_service.register_event_time_timer(value[1] + 10)
        yield "record", ctx.key, value[1], ctx.timer_service.current_watermark()

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[Said]:
        assert (ctx.time_domain, ctx.timestamp) == ("event", timestamp)
        yield "timer", ctx.key, timestamp, ctx.timer_service.current_watermark()


class Timed:
    """A job in event time. Attempt n takes checkpoint n, from which n + 1 goes on."""

    def __init__(
        self,
        parallelism: int = 1,
        before: "Timed | None" = None,
        strategy: tg.WatermarkStrategy[Record] = STRATEGY,
        *,
        in_the_middle: bool = False,
        splits: tuple[str, ...] = ("a", "b"),
    ) -> None:
        self.sink = CollectionSink()
        self.source = HandSource() if before is None else before.source
        job = tg.Job("timed")
        if in_the_middle:
            stream = job.source(self.source, name="src").assign_timestamps_and_watermarks(strategy, name="times")
        else:
            stream = job.source(self.source, name="src", watermarks=strategy)
        stream.key_by(lambda record: record[0]).process(Later(), name="later").sink(self.sink, name="out")
        attempt = 1 if before is None else before.bench.attempt + 1
        restored = [] if before is None else before.bench.restorable(attempt - 1)
        storage = None if before is None else before.bench.storage
        self.bench = Bench(
            job, parallelism, storage=storage, restored=restored, attempt=attempt, last_checkpoint=attempt - 1
        )
        self.bench.clock.time = 100.0 if before is None else before.bench.clock.time
        for split in splits:
            self.source.put(split)
        self.bench.deploy()
        kept = [] if before is None else before.kept(attempt - 1)
        self.bench.assign(kept or [SplitState(split, 0) for split in splits], no_more=False)
        self.come()

    def kept(self, checkpoint: int) -> list[SplitState]:
        return [split for snapshot in self.bench.snapshots(checkpoint, "src") for split in snapshot.splits]

    def put(self, split: str, *records: Record) -> None:
        self.source.put(split, *records)
        self.come()

    def come(self) -> None:
        """What is there is read, and a watermark has time to be made of it."""
        for _ in range(4):
            self.bench.finish()
            self.bench.clock.time += INTERVAL / 2
        self.bench.finish()

    def checkpoint(self) -> None:
        self.bench.checkpoint(self.bench.attempt)

    @property
    def said(self) -> list[Said]:
        return [*self.sink.committed, *(record for records in self.sink.open.values() for record in records)]

    def fired(self) -> list[Record]:
        return [(key, at) for kind, key, at, _ in self.said if kind == "timer"]

    def watermark(self, operator: str = "later") -> set[int | None]:
        """What the checkpoint of this attempt keeps of it, in all subtasks."""
        return {snapshot.watermark for snapshot in self.bench.snapshots(self.bench.attempt, operator)}


@pytest.mark.parametrize(("parallelism", "in_the_middle"), [(1, False), (2, False), (3, False), (1, True), (2, True)])
def test_a_timer_fires_when_the_watermark_has_passed_it(parallelism: int, in_the_middle: bool) -> None:
    timed = Timed(parallelism, in_the_middle=in_the_middle)
    timed.put("a", ("x", 100), ("y", 90))
    timed.put("b", ("x", 115))
    assert timed.fired() == ([] if not in_the_middle or parallelism > 1 else [("y", 100)])
    timed.put("a", ("x", 121))
    timed.put("b", ("y", 121))
    assert sorted(timed.fired()) == [("x", 110), ("y", 100)]


def test_timers_fire_in_the_order_of_their_times() -> None:
    timed = Timed(splits=("a",))
    timed.put("a", ("x", 30), ("y", 10), ("x", 20), ("z", 100))
    assert timed.fired() == [("y", 20), ("x", 30), ("x", 40)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_slowest_split_holds_event_time_back_and_an_idle_one_does_not(parallelism: int) -> None:
    timed = Timed(parallelism, strategy=STRATEGY.with_idleness("5s"))
    timed.put("a", ("x", 100), ("x", 200))
    assert timed.fired() == []
    for _ in range(10):
        timed.bench.clock.time += 1.0
        timed.put("a", ("x", 200))
    assert timed.fired() == [("x", 110)]
    timed.put("b", ("late", 50), ("in time", 198))
    assert [(key, at) for kind, key, at, now in timed.said if kind == "record" and at <= now] == [("late", 50)]


def test_W01_a_task_that_is_held_back_does_not_take_its_splits_for_idle() -> None:
    timed = Timed(strategy=STRATEGY.with_idleness("5s"))
    timed.put("a", ("x", 100), ("x", 200))
    timed.put("b", ("y", 50))
    timed.bench.step()
    room = timed.bench.task("src").__dict__["_event_time"]
    for _ in range(10):
        room.stepped(timed.bench.clock.time, could_go_on=False, found_nothing=False)
        timed.bench.clock.time += 1.0
    timed.come()
    assert timed.fired() == []


def test_a_subtask_without_splits_holds_nothing_back() -> None:
    timed = Timed(3, splits=("a",))
    timed.put("a", ("x", 100), ("x", 200))
    assert timed.fired() == [("x", 110)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_W07_lateness_after_a_restore_is_what_it_would_have_been(parallelism: int) -> None:
    before = Timed(2)
    before.put("a", ("x", 200))
    before.put("b", ("y", 300))
    before.checkpoint()
    assert before.watermark() == {194}
    after = Timed(parallelism, before)
    after.put("b", ("y", 195), ("y", 194))
    assert sorted(row for row in after.said if row[0] == "record") == [
        ("record", "y", 194, 194),
        ("record", "y", 195, 194),
    ]
    after.put("a", ("x", 290))
    assert sorted(after.fired()) == [("x", 210), ("y", 204), ("y", 205)]


def test_W03_a_restored_timer_waits_for_the_watermark_and_fires_once() -> None:
    before = Timed(2)
    before.put("a", ("x", 100))
    before.put("b", ("y", 100))
    before.checkpoint()
    after = Timed(1, before)
    assert after.fired() == []
    after.put("a", ("x", 150))
    after.put("b", ("y", 150))
    assert sorted(after.fired()) == [("x", 110), ("y", 110)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_at_the_end_of_the_input_everything_that_waits_fires(parallelism: int) -> None:
    timed = Timed(parallelism)
    timed.put("a", ("x", 100))
    timed.source.put("a", ends=True)
    timed.source.put("b", ("y", 500), ends=True)
    timed.bench.assign([], no_more=True)
    timed.come()
    assert sorted(timed.fired()) == [("x", 110), ("y", 510)]


def test_a_drained_job_fires_all_and_a_later_start_is_not_at_the_end_of_time() -> None:
    before = Timed()
    before.put("a", ("x", 100))
    before.put("b", ("y", 120))
    before.bench.tell(Drain())
    before.come()
    assert sorted(before.fired()) == [("x", 110), ("y", 130)]
    before.checkpoint()
    assert before.watermark() == {94}


def test_without_a_strategy_event_time_stands_still_until_the_end() -> None:
    source, sink = HandSource(), CollectionSink()

    class Now(tg.KeyedProcessFunction[str, str, int]):
        def process_element(self, value: str, ctx: tg.KeyedContext[str]) -> Iterator[int]:
            ctx.timer_service.register_event_time_timer(7)
            yield ctx.timer_service.current_watermark()

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[int]:
            yield timestamp

    job = tg.Job("timeless")
    job.source(source, name="src").key_by(lambda text: text).process(Now(), name="now").sink(sink, name="out")
    bench = Bench(job).deploy()
    source.put("a", "x", ends=True)
    bench.read()
    bench.finish()
    bench.checkpoint(1)
    assert sink.committed == [MIN_WATERMARK, 7]


def test_very_many_timers_at_once_do_not_make_one_endless_step() -> None:
    timed = Timed(splits=("a",))
    count = 3 * AT_ONCE.batch_size
    timed.put("a", *((f"k{number}", 100) for number in range(count)))
    timed.put("a", ("x", 1000))
    assert len(timed.fired()) == count


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (tg.WatermarkStrategy.for_monotonous_timestamps(), "have no timestamps"),
        (STRATEGY.with_timestamp_assigner(lambda record: record[2]), "IndexError when taking the timestamp of record"),
        (STRATEGY.with_timestamp_assigner(lambda record: 1.5), "1.5 is no timestamp"),
        (STRATEGY.with_timestamp_assigner(lambda record: None), "None is no timestamp"),
        (STRATEGY.with_timestamp_assigner(lambda record: 2**63), "is no timestamp"),
    ],
)
def test_a_record_without_a_time_fails_the_attempt_with_a_reason(strategy: Any, said: str) -> None:
    timed = Timed(strategy=strategy)
    timed.put("a", ("x", 100))
    assert said in timed.bench.failure.message
    assert task("src").vertex in timed.bench.failure.where
