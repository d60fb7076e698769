"""Idleness of tasks that are slow, held back or stopped: what waits to be read is not late because of it."""

import msgspec
import pytest

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandClock, HandSource
from tests.unit.runtime.test_event_time_in_tasks import STRATEGY, Later, Said, Timed
from tidegate.checkpoint.protocol import SplitState
from tidegate.clock import Now
from tidegate.connectors.collections import CollectionSink, CollectionSinkWriter, CollectionTransaction
from tidegate.event_time.progress import EventTimeProgress
from tidegate.operators.contracts import SinkContext
from tidegate.runtime.event_time import WatermarkTurns

RECORDS = 150


class PassingClock(HandClock):
    """Each look takes `cost` seconds: every record of a slow task takes several of them."""

    cost = 0.0

    def now(self) -> Now:
        self.time += self.cost
        return super().now()


def late_records(cost: float, stop: float, in_the_middle: bool, parallelism: int) -> list[Said]:
    """Two splits with as many records are read at the same pace, by a task that is slow, or is stopped for a while.
    None of them is idle."""
    timed = Timed(parallelism, strategy=STRATEGY.with_idleness("5s"), in_the_middle=in_the_middle)
    timed.put("a", ("x", 100))
    timed.put("b", ("y", 100))
    clock = timed.bench.clock
    clock.__class__ = PassingClock
    assert isinstance(clock, PassingClock)
    clock.cost = cost
    timed.source.put("a", *(("x", 110 + number) for number in range(RECORDS)))
    timed.source.put("b", *(("y", 110 + number) for number in range(RECORDS)))
    clock.time += stop
    for _ in range(50_000):
        timed.bench.step()
        if sum(kind == "record" for kind, *_ in timed.said) == 2 * RECORDS + 2:
            break
        timed.bench.executor.run_all()
    assert sum(kind == "record" for kind, *_ in timed.said) == 2 * RECORDS + 2
    return [row for row in timed.said if row[0] == "record" and row[2] <= row[3]]


@pytest.mark.parametrize(("in_the_middle", "parallelism"), [(False, 1), (True, 2)])
@pytest.mark.parametrize(("cost", "stop"), [(0.15, 0.0), (0.004, 3600.0)])
def test_W01_what_waits_behind_slow_records_or_a_stopped_process_is_not_late(
    cost: float, stop: float, in_the_middle: bool, parallelism: int
) -> None:
    assert late_records(cost, stop, in_the_middle, parallelism) == []


class FullWriter(CollectionSinkWriter):
    """Has no room while its sink has none."""

    def __init__(self, sink: "FullSink") -> None:
        super().__init__(sink._store)
        self._sink = sink

    def has_room(self, txn: CollectionTransaction) -> bool:
        return not self._sink.is_full


class FullSink(CollectionSink):
    is_full = True

    def open_writer(self, context: SinkContext) -> FullWriter:
        return FullWriter(self)


def late_behind_back_pressure() -> list[Said]:
    """A subtask has read some records of its first split when the sink, and all in front of it, is full for a
    minute."""
    source, sink, job = HandSource(), FullSink(), tg.Job("full")
    stream = job.source(source, name="src", watermarks=STRATEGY.with_idleness("5s"))
    stream.key_by(lambda record: record[0]).process(Later(), name="later").sink(sink, name="out")
    options = msgspec.structs.replace(AT_ONCE, channel_records=5, channel_bytes=100, batch_size=5)
    bench = Bench(job, 2, options=options).deploy()
    for split, first in (("a", 1000), ("b", 110)):
        source.put(split, *((split, first + number) for number in range(RECORDS)))
    source.put("c", ends=True)
    bench.assign([SplitState(split, 0) for split in ("a", "c", "b")], no_more=False)
    for _ in range(600):
        bench.settle()
        bench.clock.time += 0.1
    sink.is_full = False
    for _ in range(100):
        bench.clock.time += 0.01
        bench.finish()
    bench.checkpoint(1)
    records = [row for row in sink.committed if row[0] == "record"]
    assert len(records) == 2 * RECORDS
    return [row for row in records if row[2] <= row[3]]


def test_W01_a_minute_of_back_pressure_makes_no_split_idle() -> None:
    assert late_behind_back_pressure() == []


def test_the_check_finds_a_task_that_counts_the_time_in_which_it_did_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_counts(progress: EventTimeProgress, seconds: float, found_nothing: bool) -> None:
        progress.able += seconds

    monkeypatch.setattr(EventTimeProgress, "passed", all_counts)
    assert len(late_records(0.15, 0.0, in_the_middle=False, parallelism=1)) > 10


def test_the_check_finds_a_task_that_counts_the_time_in_which_it_was_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(turns: WatermarkTurns, now: float, could_go_on: bool, found_nothing: bool) -> None:
        turns._progress.able = now

    monkeypatch.setattr(WatermarkTurns, "stepped", always)
    assert len(late_behind_back_pressure()) > 10
