"""Watermark alignment in running tasks: what is beyond the bound waits, and nothing else: neither barriers, nor splits
that are handed out, nor the end."""

from collections.abc import Sequence
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import Bench, HandSource, task
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink
from tidegate.connectors.rotation import RotatingReader
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK
from tidegate.operators.contracts import SourceContext, SourceReader
from tidegate.runtime.control import (
    AlignWatermarks,
    Drain,
    TaskEnded,
    WatermarkReported,
    decode_to_job_manager,
    decode_to_worker,
    encode,
)

STRATEGY: tg.WatermarkStrategy[int] = (
    tg.WatermarkStrategy.for_monotonous_timestamps()
    .with_timestamp_assigner(lambda record: record)
    .with_watermark_alignment("g", "100ms", "1s")
)


class PausingSource(HandSource):
    """Its readers can leave splits out."""

    def open_reader(self, context: SourceContext) -> SourceReader:
        return RotatingReader(lambda split, most: self.read(split.id, split.position, min(most, 1)))


class Aligned:
    """A job whose one source is aligned, and the JobManager's part of it."""

    def __init__(self, *splits: str, source: HandSource | None = None, before: "Aligned | None" = None) -> None:
        self.source = source or (PausingSource() if before is None else before.source)
        self.sink = CollectionSink()
        job = tg.Job("aligned")
        strategy = STRATEGY if before is None else STRATEGY.with_idleness("5s")
        stream = job.source(self.source, name="src", watermarks=strategy)
        stream.map(lambda record: record, name="same").sink(self.sink, name="out")
        storage, restored = (None, []) if before is None else (before.bench.storage, before.bench.restorable(1))
        attempt = 1 if before is None else 2
        self.bench = Bench(job, storage=storage, restored=restored, attempt=attempt, last_checkpoint=attempt - 1)
        for split in splits:
            self.source.put(split)
        self.bench.deploy()
        kept = [] if before is None else [s for one in before.bench.snapshots(1, "src") for s in one.splits]
        self.bench.assign(kept or [SplitState(split, 0) for split in splits], no_more=False)
        self.bench.finish()

    def bound(self, watermark: int) -> None:
        """The group lets it read so far."""
        self.bench.tell(AlignWatermarks(task("src"), watermark))
        self.come()

    def come(self, seconds: float = 1.0) -> None:
        for _ in range(int(8 * seconds)):
            self.bench.clock.time += 0.125
            self.bench.finish()

    @property
    def read(self) -> list[int]:
        return sorted([*self.sink.committed, *(r for records in self.sink.open.values() for r in records)])

    @property
    def reports(self) -> list[tuple[int, bool]]:
        return [(said.watermark, said.is_idle) for said in self.bench.heard(WatermarkReported)]


def test_a_split_is_read_until_its_watermark_is_known_and_then_as_far_as_the_bound() -> None:
    aligned = Aligned("a", "b")
    aligned.source.put("a", 100, 200, 300, 400)
    aligned.source.put("b", 50, 60)
    aligned.come()
    assert aligned.read == [50, 100]
    aligned.bound(220)
    assert aligned.read == [50, 60, 100, 200, 300]
    aligned.bound(1000)
    assert aligned.read == [50, 60, 100, 200, 300, 400]


def test_reports_come_at_once_and_in_every_interval_new_or_not() -> None:
    aligned = Aligned("a", "b")
    assert aligned.reports == [(MIN_WATERMARK, False)]
    aligned.source.put("a", 100)
    aligned.source.put("b", 50)
    aligned.come(3.0)
    assert aligned.reports == [(MIN_WATERMARK, False), (49, False), (49, False), (49, False)]


def test_much_progress_is_reported_early_but_not_all_the_time() -> None:
    aligned = Aligned("a")
    aligned.bound(MAX_WATERMARK)
    for number in range(1, 9):
        aligned.source.put("a", 100 * number, 100 * number + 24)
        aligned.come(0.125)
    assert aligned.reports[2:] == [(100 * number + 23, False) for number in range(1, 9)]
    before = len(aligned.reports)
    for number in range(1000, 1100):
        aligned.source.put("a", 100 * number)
        aligned.bench.clock.time += 0.001
        aligned.bench.finish()
    assert len(aligned.reports) - before <= 3


def test_a_task_without_splits_reports_that_it_is_not_to_be_waited_for() -> None:
    assert Aligned().reports == [(MIN_WATERMARK, True)]


@pytest.mark.parametrize("kind", [PausingSource, HandSource])
def test_barriers_and_new_splits_pass_while_everything_waits(kind: type[HandSource]) -> None:
    aligned = Aligned("a", source=kind())
    aligned.source.put("a", *range(1000, 9000))
    aligned.come()
    count = len(aligned.read)
    assert count < 8000
    aligned.bench.checkpoint(1)
    aligned.come()
    assert aligned.bench.positions(1) == {"a": count}
    assert len(aligned.sink.committed) == count
    aligned.source.put("b", 7)
    aligned.bench.assign([SplitState("b", 0)], no_more=False)
    aligned.come()
    assert 7 in aligned.read
    # A reader that cannot pause reads on in all splits when one of them is behind.
    assert (len(aligned.read) == count + 1) is (kind is PausingSource)


def test_a_drain_ends_what_waits() -> None:
    aligned = Aligned("a")
    aligned.source.put("a", 100, 200)
    aligned.come()
    aligned.bench.tell(Drain())
    aligned.come()
    assert task("src") in [end.task for end in aligned.bench.heard(TaskEnded)]
    aligned.bench.checkpoint(1)
    assert aligned.bench.positions(1) == {"a": 1}


def test_the_end_of_a_split_that_waits_comes_when_it_may_be_read_again() -> None:
    aligned = Aligned("a", "b")
    aligned.source.put("a", 100, 200, ends=True)
    aligned.source.put("b", 50, ends=True)
    aligned.bench.assign([], no_more=True)
    aligned.come()
    assert aligned.read == [50, 100]
    aligned.bound(MAX_WATERMARK)
    assert aligned.read == [50, 100, 200]
    assert task("src") in [end.task for end in aligned.bench.heard(TaskEnded)]


def test_a_reader_that_cannot_pause_waits_when_all_its_splits_are_ahead_and_only_then() -> None:
    aligned = Aligned("a", "b", source=HandSource())
    aligned.source.put("a", 1000)
    aligned.come()
    aligned.source.put("a", 2000)
    aligned.come()
    assert aligned.read == [1000, 2000]
    aligned.source.put("b", 500)
    aligned.come()
    aligned.source.put("b", 600)
    polls = aligned.source.polls
    aligned.come()
    assert (aligned.read, aligned.source.polls) == ([500, 1000, 2000], polls)
    aligned.bound(550)
    assert aligned.read == [500, 600, 1000, 2000]


def test_after_a_restore_nothing_is_read_before_the_group_says_so_and_it_is_not_idle() -> None:
    before = Aligned("a", "b")
    before.source.put("a", 100)
    before.source.put("b", 300)
    before.come()
    before.bench.checkpoint(1)
    after = Aligned(before=before)
    after.source.put("a", 200)
    after.come(20.0)
    assert (after.read, after.reports[-1]) == ([], (99, False))
    after.bound(199)
    assert (after.read, after.reports[-1]) == ([200], (199, False))


def test_W01_a_split_that_waits_for_its_group_does_not_become_idle() -> None:
    aligned = Aligned("a", "b", before=started())
    aligned.source.put("a", 100, 110)
    aligned.source.put("b", 500)
    aligned.come()
    aligned.bound(200)
    aligned.source.put("a", 120)
    aligned.come(4.0)
    aligned.source.put("a", 130)
    aligned.come(4.0)
    assert aligned.reports[-1] == (129, False)
    aligned.come(3.0)
    # Now the slow one has become idle; the other one, whose last record is longer ago, has not.
    assert aligned.reports[-1] == (499, False)
    aligned.bound(600)
    aligned.come(3.0)
    assert aligned.reports[-1] == (499, False)
    aligned.come(3.0)
    assert aligned.reports[-1] == (499, True)


def started() -> Aligned:
    """An attempt with a checkpoint, which knew nothing of its splits."""
    before = Aligned()
    before.bench.checkpoint(1)
    return before


def test_a_source_that_is_not_aligned_reports_nothing_and_waits_for_nobody() -> None:
    source, sink, job = PausingSource(), CollectionSink(), tg.Job("plain")
    strategy = tg.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record: record)
    job.source(source, name="src", watermarks=strategy).sink(sink, name="out")
    source.put("a", 100, 9000, 20_000)
    bench = Bench(job).deploy()
    bench.read(no_more=False)
    for _ in range(50):
        bench.clock.time += 0.1
        bench.finish()
    bench.checkpoint(1)
    assert (sink.committed, bench.heard(WatermarkReported)) == ([100, 9000, 20_000], [])


@pytest.mark.parametrize(
    "message", [AlignWatermarks(task("src"), bound) for bound in (MIN_WATERMARK, 0, MAX_WATERMARK)]
)
def test_a_bound_crosses_a_wire(message: Any) -> None:
    assert decode_to_worker(encode(message)) == message


def test_a_report_crosses_a_wire() -> None:
    reports: Sequence[WatermarkReported] = [WatermarkReported(task("src"), MIN_WATERMARK, True)]
    assert [decode_to_job_manager(encode(report)) for report in reports] == reports
