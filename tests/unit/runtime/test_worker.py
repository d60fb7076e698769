"""Whole jobs on workers: every way from one task to another, restores at other parallelisms, steps and waiting, and how
workers stop and fail."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, Total, by_key, task, totals_job, totals_of
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.errors import ErrorKind, UnavailableError
from tidegate.ids import OperatorName
from tidegate.runtime.control import (
    AssignSplits,
    RuntimeOptions,
    TaskEnded,
    TaskFailed,
    TaskRunning,
    WorkerMetrics,
    WorkerReady,
)

RECORDS = [(f"k{i % 7}", i) for i in range(400)]


class OddAside(tg.ProcessFunction[int, int]):
    odd = tg.SideOutput[int]("odd")

    def process_element(self, value: int, ctx: tg.Context) -> Iterator[int]:
        if value % 2:
            ctx.output(self.odd, value)
        else:
            yield value


def whole_run(job: tg.Job, parallelism: int, *sources: str) -> Bench:
    """Everything read, and one checkpoint completed."""
    bench = Bench(job, parallelism).deploy()
    for source in sources or ("src",):
        bench.read(source)
    bench.finish()
    assert sorted(message.task for message in bench.heard(TaskEnded)) == sorted(bench.physical.tasks)
    bench.checkpoint(1)
    return bench


# ---- from task to task -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_records_of_a_key_stay_in_order_between_workers(parallelism: int) -> None:
    records = [[(f"{split}{i % 5}", i) for i in range(200)] for split in "abc"]
    sink = CollectionSink()
    whole_run(totals_job(CollectionSource.of_splits(records), sink), parallelism)
    assert by_key(sink.committed) == totals_of([record for split in records for record in split])


def test_with_one_subtask_the_whole_job_is_one_task_without_a_channel() -> None:
    sink = CollectionSink()
    bench = whole_run(totals_job(CollectionSource(RECORDS), sink), 1)
    assert bench.physical.tasks == (task("src"),)
    assert by_key(sink.committed) == totals_of(RECORDS)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_side_outputs_fan_out_and_union_lose_and_double_nothing(parallelism: int) -> None:
    everything, even, again, job = CollectionSink(), CollectionSink(), CollectionSink(), tg.Job("split")
    numbers = job.source(CollectionSource(list(range(300)), splits=2), name="src")
    split = numbers.process(OddAside(), name="split")
    odd = split.side_output(OddAside.odd)
    split.sink(even, name="even")
    split.union(odd, name="both").sink(everything, name="everything")
    odd.map(lambda n: -n, name="negative").union(numbers, name="more").sink(again, name="again")
    whole_run(job, parallelism)
    assert sorted(even.committed) == list(range(0, 300, 2))
    assert sorted(everything.committed) == list(range(300))
    assert sorted(again.committed) == sorted([*range(300), *(-n for n in range(1, 300, 2))])


@pytest.mark.parametrize(("wide", "narrow"), [(3, 1), (1, 3), (2, 3)])
def test_operators_of_different_parallelism_deal_the_records_in_turn(wide: int, narrow: int) -> None:
    sink, job = CollectionSink(), tg.Job("rebalanced")
    job.source(CollectionSource(list(range(500)), splits=3), name="src", parallelism=wide).map(
        lambda n: n + 1, name="next", parallelism=narrow
    ).sink(sink, name="out", parallelism=narrow)
    bench = whole_run(job, 2)
    assert sorted(sink.committed) == list(range(1, 501))
    assert len(bench.workers) == 3


def test_senders_of_few_batches_do_not_all_deal_to_the_same_receiver() -> None:
    job = tg.Job("few")
    stream = job.source(CollectionSource([1, 2], splits=2), name="src", parallelism=2)
    stream.map(lambda n: n, name="next", parallelism=3).sink(CollectionSink(), name="out", parallelism=3)
    bench = whole_run(job, 2)
    metrics = [bench.task("next", i).metrics()[0].records_in for i in range(3)]
    assert metrics == [1, 1, 0]


def test_a_barrier_cuts_all_inputs_at_the_same_records() -> None:
    fast, slow = HandSource(), HandSource()
    fast.put("a", *(("fast", 1) for _ in range(1000)))
    slow.put("b", ("slow", 1))
    sink, job = CollectionSink(), tg.Job("skewed")
    one, two = job.source(fast, name="one"), job.source(slow, name="two")
    both = one.union(two, name="both").key_by(lambda r: r[0], name="key")
    both.process(Total(), name="total").sink(sink, name="out")
    bench = Bench(job, 2, options=RuntimeOptions(linger=0.0, step_target=0.0)).deploy()
    bench.read("one", no_more=False)
    bench.read("two", no_more=False)
    for _ in range(10):
        bench.step()
    bench.trigger(1)
    bench.finish()
    bench.complete(1)
    bench.finish()
    counts = by_key(sink.committed)
    at = bench.positions(1, "one")["a"], bench.positions(1, "two")["b"]
    assert (len(counts.get("fast", [])), len(counts.get("slow", []))) == at
    assert 0 < at[0] < 1000


# ---- restoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
@pytest.mark.parametrize("inline_limit", [0, 10_000])
def test_a_job_goes_on_at_another_parallelism_with_its_state_and_positions(
    before: int, after: int, inline_limit: int
) -> None:
    options = RuntimeOptions(linger=0.0, inline_limit=inline_limit)
    sources = [[(f"k{i % 7}", i) for i in range(first, first + 100)] for first in (0, 1000)]
    source = HandSource()
    for split, records in zip("ab", sources, strict=True):
        source.put(split, *records[:60])
    sink = CollectionSink()
    first = Bench(totals_job(source, sink), before, options=options).deploy()
    first.read(no_more=False)
    first.finish()
    first.checkpoint(1)
    for split, records in zip("ab", sources, strict=True):
        source.put(split, *records[60:], ends=True)
    first.clock.time += 1
    first.settle()
    splits = [split for snapshot in first.snapshots(1, "src") for split in snapshot.splits]
    assert {split.id: split.position for split in splits} == {"a": 60, "b": 60}
    second = Bench(
        totals_job(source, sink),
        after,
        options=options,
        storage=first.storage,
        attempt=2,
        restored=first.restorable(1),
        last_checkpoint=1,
    ).deploy()
    second.assign(splits)
    second.finish()
    second.checkpoint(2)
    records = [*sources[0][:60], *sources[1][:60], *sources[0][60:], *sources[1][60:]]
    got = by_key(sink.committed)
    assert {key: numbers[-1] for key, numbers in got.items()} == {
        key: numbers[-1] for key, numbers in totals_of(records).items()
    }
    assert len(sink.committed) == len(records)


def test_operators_that_had_ended_do_not_repeat_what_they_did_at_the_end() -> None:
    from tests.unit.runtime.farewell import farewell_job

    sink = CollectionSink()
    first = whole_run(farewell_job(CollectionSource([1, 2], splits=1), sink), 1)
    assert sink.committed == [1, 2, "bye"]
    second = Bench(farewell_job(CollectionSource([1, 2]), sink), 1, attempt=2, restored=first.restorable(1)).deploy()
    second.assign(list(first.snapshot(1, "src").splits))
    second.finish()
    second.checkpoint(2)
    assert sink.committed == [1, 2, "bye"]
    assert second.heard(TaskEnded) == [TaskEnded(task("src"))]
    assert second.snapshot(2, "farewell").ended


def test_state_that_the_program_does_not_declare_is_refused_by_name() -> None:
    class Renamed(tg.KeyedProcessFunction[str, tuple[str, int], int]):
        count = tg.ValueState(int, default=0)

        def process_element(self, value: tuple[str, int], ctx: tg.KeyedContext[str]) -> None:
            self.count.update(self.count.value() + 1)

    sink = CollectionSink()
    first = whole_run(totals_job(CollectionSource(RECORDS), sink), 1)
    job = tg.Job("totals")
    source = CollectionSource(RECORDS)
    job.source(source, name="src").key_by(lambda r: r[0]).process(Renamed(), name="total").sink(sink, name="out")
    second = Bench(job, attempt=2, restored=first.restorable(1)).deploy()
    assert second.failure.kind is ErrorKind.INVALID
    assert "state total of operator total, which the program does not declare" in second.failure.message


def test_a_barrier_of_the_past_is_ignored_after_a_restore() -> None:
    source = HandSource()
    source.put("a", *RECORDS[:10])
    bench = Bench(totals_job(source, CollectionSink()), 2, attempt=2, last_checkpoint=5).deploy()
    bench.read(no_more=False)
    bench.trigger(5)
    bench.finish()
    assert set(bench.acknowledged(5)) == {task("src", 0), task("src", 1)}
    bench.trigger(6)
    bench.finish()
    assert len(bench.acknowledged(6)) == 4


def test_a_piece_of_state_that_cannot_be_read_fails_the_attempt_before_any_record() -> None:
    sink = CollectionSink()
    options = RuntimeOptions(linger=0.0, inline_limit=0)
    first = Bench(totals_job(CollectionSource(RECORDS), sink), options=options).deploy()
    first.read()
    first.finish()
    first.checkpoint(1)
    path = f"totals/{first.snapshot(1, 'total').handles[0].path}"
    first.storage.delete(path)
    second = Bench(
        totals_job(CollectionSource(RECORDS), sink), storage=first.storage, attempt=2, restored=first.restorable(1)
    ).deploy()
    assert second.failure.kind is ErrorKind.CORRUPT
    assert second.heard(TaskRunning) == []


# ---- failing, stopping, counting -------------------------------------------------------------------------------------


def test_a_worker_says_who_it_is_and_which_program_it_has() -> None:
    bench = Bench(totals_job(CollectionSource([]), CollectionSink()), 2).deploy()
    ready = bench.heard(WorkerReady)
    assert [message.worker for message in ready] == [0, 1]
    assert {message.fingerprint for message in ready} == {bench.graph.fingerprint()}


def test_stopping_leaves_open_and_prepared_transactions_as_they_are() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", ("k", 1))
    bench = Bench(totals_job(source, sink)).deploy()
    bench.read(no_more=False)
    bench.finish()
    bench.trigger(1)
    bench.finish()
    source.put("a", ("k", 2))
    bench.clock.time += 1
    bench.settle()
    bench.stop()
    assert bench.workers[0].is_stopped
    assert list(sink.open.values()) == [[("k", 1)], [("k", 3)]]
    assert sink.committed == []
    assert bench.step() == bench.step()
    assert bench.heard(TaskFailed) == []


def test_a_worker_that_is_stopped_while_it_restores_has_nothing_to_complain_of() -> None:
    sink = CollectionSink()
    first = whole_run(totals_job(CollectionSource(RECORDS), sink), 1)
    second = Bench(totals_job(CollectionSource(RECORDS), sink), attempt=2, restored=first.restorable(1))
    second.begin_deploying()
    second.stop()
    second.executor.run_all()
    assert second.heard(TaskFailed) == []
    assert second.heard(TaskRunning) == []


def test_user_code_that_raises_in_close_keeps_no_other_from_closing_and_the_worker_stops() -> None:
    closed: list[str] = []

    class Closing(tg.ProcessFunction[int, int]):
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self.name, self.error = name, error

        def process_element(self, value: int, ctx: tg.Context) -> list[int]:
            return [value]

        def close(self) -> None:
            closed.append(self.name)
            if self.error is not None:
                raise self.error

        def __deepcopy__(self, memo: object) -> "Closing":
            return self

    job = tg.Job("closing")
    stream = job.source(CollectionSource([1]), name="src").process(Closing("a", ValueError("in vain")), name="a")
    stream.process(Closing("b"), name="b").sink(CollectionSink(), name="out")
    stream.process(Closing("c"), name="c").sink(CollectionSink(), name="out2")
    bench = Bench(job).deploy()
    bench.stop()
    assert bench.workers[0].is_stopped
    assert closed == ["a", "b", "c"]
    assert "ValueError in close: in vain" in bench.failure.message


def test_a_failing_open_fails_the_attempt_with_the_place_of_the_operator() -> None:
    class Unconnected(tg.ProcessFunction[int, int]):
        def open(self, ctx: tg.Context) -> None:
            raise ConnectionError("no database")

        def process_element(self, value: int, ctx: tg.Context) -> None: ...

    job = tg.Job("unconnected")
    job.source(CollectionSource([1]), name="src").process(Unconnected(), name="it").sink(CollectionSink(), name="out")
    bench = Bench(job).deploy()
    assert bench.failure.kind is ErrorKind.USER_CODE
    assert bench.failure.where == "operator it, subtask 0, attempt 1"
    assert bench.heard(TaskRunning) == []


def test_a_failed_task_does_nothing_more_and_the_others_go_on() -> None:
    class Fragile(tg.KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
        seen = tg.ValueState(int, default=0)

        def process_element(self, value: tuple[str, int], ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
            if value[1] == 50:
                raise ValueError("fifty")
            yield value

    source, sink, job = HandSource(), CollectionSink(), tg.Job("fragile")
    source.put("a", *RECORDS[:100])
    job.source(source, name="src").key_by(lambda r: r[0]).process(Fragile(), name="it").sink(sink, name="out")
    bench = Bench(job, 2).deploy()
    bench.read(no_more=False)
    bench.finish()
    (failed,) = bench.heard(TaskFailed)
    assert failed.task is not None
    assert failed.task.vertex == "it"
    assert failed.failure.where == f"operator it, subtask {failed.task.subtask}, attempt 1"
    assert "in process_element" in failed.failure.traceback
    bench.trigger(1)
    bench.finish()
    assert set(bench.acknowledged(1)) == {*bench.physical.tasks} - {failed.task}
    assert len(bench.heard(TaskFailed)) == 1


def test_a_lost_frame_ends_the_attempt_and_is_told_once_however_many_follow() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", *RECORDS)
    bench = Bench(totals_job(source, sink), 2, options=RuntimeOptions(linger=0.0, batch_size=10)).deploy()
    bench.read(no_more=False)
    bench.workers[0].step()
    bench.workers[0].step()
    assert bench.frames_under_way > 2
    bench.lose_frame()
    bench.finish()
    assert bench.failure.kind is ErrorKind.UNAVAILABLE
    assert "frames lost between workers" in bench.failure.message
    bench.trigger(1)
    bench.finish()
    assert task("total", 1) not in bench.acknowledged(1)


def test_splits_for_a_task_that_is_not_here_are_told_and_end_nothing_else() -> None:
    bench = Bench(totals_job(CollectionSource([]), CollectionSink())).deploy()
    bench.workers[0].receive(AssignSplits(OperatorName("src"), task("nowhere"), (SplitState("a", 0),), False))
    assert bench.failure.kind is ErrorKind.INTERNAL
    assert "nowhere[0]" in bench.failure.message


def test_a_source_that_cannot_be_opened_fails_the_attempt() -> None:
    class Unreachable(CollectionSource):
        def open_reader(self, context: Any) -> Any:
            raise UnavailableError("no broker")

    bench = Bench(totals_job(Unreachable([]), CollectionSink())).deploy()
    assert (bench.failure.kind, bench.failure.message) == (ErrorKind.UNAVAILABLE, "no broker")
    assert "operator src" in bench.failure.where


def test_records_are_counted_by_operator_and_told_when_they_change_and_at_the_end() -> None:
    sink = CollectionSink()
    source = HandSource()
    source.put("a", *RECORDS[:30])
    bench = Bench(totals_job(source, sink), options=AT_ONCE).deploy()
    bench.read(no_more=False)
    bench.settle()
    bench.clock.time += 1.0
    bench.settle()
    told = len(bench.heard(WorkerMetrics))
    bench.clock.time += 1.0
    bench.settle()
    assert len(bench.heard(WorkerMetrics)) == told
    counts = {row.operator: (row.records_in, row.records_out) for row in bench.heard(WorkerMetrics)[-1].operators}
    assert counts == {"src": (30, 30), "src-key": (30, 30), "total": (30, 30), "out": (30, 0)}
    source.put("a", *RECORDS[30:40])
    bench.clock.time += 0.1
    bench.settle()
    bench.stop()
    assert [row.records_in for row in bench.heard(WorkerMetrics)[-1].operators if row.operator == "src"] == [40]
