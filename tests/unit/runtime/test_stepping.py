"""Steps take their time and not more, and whoever cannot go on waits without working."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import Bench, HandReader, HandSource, Total, totals_job
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.operators.contracts import Fetched, SourceContext
from tidegate.runtime.control import (
    RuntimeOptions,
    TaskEnded,
)
from tidegate.runtime.pacing import LONGEST_PAUSE

# ---- steps and waiting -----------------------------------------------------------------------------------------------


def slow_job(bench_of: list[Bench], seconds: float, source: Any, sink: CollectionSink) -> tg.Job:
    """Each record takes so long, by the bench's clock."""

    def slowly(record: int) -> int:
        bench_of[0].clock.time += seconds
        return record

    job = tg.Job("slow")
    job.source(source, name="src").map(slowly, name="slow").sink(sink, name="out")
    return job


def test_slow_user_code_makes_batches_small_until_a_step_takes_its_time() -> None:
    benches: list[Bench] = []
    source, sink = HandSource(), CollectionSink()
    source.put("a", *range(500))
    bench = Bench(slow_job(benches, 0.005, source, sink), options=RuntimeOptions(linger=0.0, step_target=0.02))
    benches.append(bench)
    bench.deploy().read(no_more=False)
    durations = []
    while sum(map(len, sink.open.values())) < 500:
        before = bench.clock.time
        bench.step()
        durations.append(bench.clock.time - before)
    assert durations[0] == pytest.approx(64 * 0.005)
    # What is begun before the time is over is one more piece, of at most the target.
    assert max(durations[1:]) <= 2 * 0.02


def test_a_large_batch_of_slow_records_from_another_task_is_cut_down_while_it_is_worked_on() -> None:
    benches: list[Bench] = []

    def slowly(record: tuple[str, int]) -> tuple[str, int]:
        benches[0].clock.time += 0.01
        return record

    sink, job = CollectionSink(), tg.Job("slow")
    keyed = job.source(CollectionSource([("k", i) for i in range(300)]), name="src").key_by(lambda r: r[0])
    keyed.process(Total(), name="total").map(slowly, name="slow").sink(sink, name="out")
    bench = Bench(job, 2, options=RuntimeOptions(linger=1000.0, step_target=0.02))
    benches.append(bench)
    bench.deploy().read()
    durations = []
    while sum(map(len, sink.open.values())) < 300:
        before = bench.clock.time
        bench.step()
        durations.append(round(bench.clock.time - before, 6))
    assert durations.count(0.64) == 1
    assert sorted(durations)[-2] <= 0.03


def test_waiting_for_room_does_not_count_as_slow_user_code() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", *(("k", i) for i in range(20_000)))
    job = totals_job(source, sink)
    bench = Bench(job, 2, options=RuntimeOptions(linger=0.0, channel_records=64, channel_bytes=256)).deploy()
    bench.read(no_more=False)
    for _ in range(200):
        bench.workers[0].step()
        bench.clock.time += 5.0
        bench.step()
    assert bench.task("src")._parts.pacer.limit == RuntimeOptions().batch_size


def test_very_much_output_of_one_record_is_handed_on_step_by_step() -> None:
    for vertex_parallelism in (None, 2):
        benches: list[Bench] = []

        def many(record: int, benches: list[Bench] = benches) -> Iterator[int]:
            for i in range(10_000):
                benches[0].clock.time += 0.001
                yield i

        sink, job = CollectionSink(), tg.Job("many")
        source = job.source(CollectionSource([1]), name="src")
        source.flat_map(many, name="many").sink(sink, name="out", parallelism=vertex_parallelism)
        bench = Bench(job, options=RuntimeOptions(batch_size=10, linger=0.0, step_target=0.02))
        benches.append(bench)
        bench.deploy().read()
        longest = 0.0
        while not bench.heard(TaskEnded):
            before = bench.clock.time
            bench.step()
            longest = max(longest, bench.clock.time - before)
        bench.finish()
        assert longest <= 0.02 + 10 * 0.001 + 1e-6
        assert sum(map(len, sink.open.values())) == 10_000


def test_an_output_without_room_stops_the_task_and_leaves_nothing_to_wait_for_but_the_receiver() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", *(("k", i) for i in range(5000)))
    bench = Bench(totals_job(source, sink), 2, options=RuntimeOptions(linger=0.0, channel_records=100)).deploy()
    bench.read(no_more=False)
    reader = bench.task("src")
    while reader.step().worked:
        pass
    progress = reader.step()
    assert (progress.worked, progress.wake_at) == (False, None)
    polls = source.polls
    for _ in range(100):
        assert not reader.step().worked
    assert source.polls == polls
    bench.settle()
    assert sum(map(len, sink.open.values())) == 5000


def test_a_source_that_has_nothing_is_asked_only_when_its_pause_is_over() -> None:
    source = HandSource()
    source.put("a")
    bench = Bench(totals_job(source, CollectionSink())).deploy()
    bench.read(no_more=False)
    bench.settle()
    waits = []
    for _ in range(10):
        polls = source.polls
        progress = bench.step()
        assert progress.wake_at is not None
        assert not progress.worked
        waits.append(progress.wake_at - bench.clock.time)
        bench.step()
        assert source.polls == polls
        bench.clock.time = progress.wake_at
        bench.step()
        assert source.polls == polls + 1
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(LONGEST_PAUSE)


class WideReader(HandReader):
    """Looks at a part of its splits in each poll: it has nothing only when it has looked at all."""

    def __init__(self, source: HandSource) -> None:
        super().__init__(source)
        self._looks = 0

    def poll(self, max_records: int) -> Fetched | None:
        self._looks += 1
        found = super().poll(max_records)
        if found is not None or self._looks % 4 == 0:
            return found
        return next((Fetched(split, [], position) for split, position in self._positions.items()), None)


class WideSource(HandSource):
    def open_reader(self, context: SourceContext) -> WideReader:
        return WideReader(self)


def test_a_look_at_some_of_many_splits_makes_the_pause_behind_all_of_them_no_shorter() -> None:
    source = WideSource()
    source.put("a")
    bench = Bench(totals_job(source, CollectionSink())).deploy()
    bench.read(no_more=False)
    bench.settle()
    waits = []
    for _ in range(10):
        polls = source.polls
        progress = bench.step()
        assert progress.wake_at is not None
        waits.append(progress.wake_at - bench.clock.time)
        bench.clock.time = progress.wake_at
        bench.settle()
        assert source.polls == polls + 4
    assert waits[-1] == pytest.approx(LONGEST_PAUSE)


def test_what_waits_for_company_is_sent_when_its_time_has_come() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", ("k", 1))
    bench = Bench(totals_job(source, sink), 2, options=RuntimeOptions(linger=1.0)).deploy()
    bench.read(no_more=False)
    begun = bench.clock.time
    while not sink.open:
        progress = bench.step()
        if not progress.worked:
            assert progress.wake_at is not None
            assert bench.clock.time < progress.wake_at <= begun + 1.0
            bench.clock.time = progress.wake_at
    assert bench.clock.time == begun + 1.0


def test_after_its_end_a_task_waits_for_nothing() -> None:
    bench = Bench(totals_job(CollectionSource([("k", 1)]), CollectionSink()), 2).deploy()
    bench.read()
    bench.finish()
    progress = bench.step()
    assert (progress.worked, progress.wake_at) == (False, None)
