"""What becomes of records on which user code fails, and how a task begins and ends."""

from typing import Any

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, Total, by_key, task, totals_of
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.errors import ErrorKind, Failure, UnavailableError
from tidegate.operators.contracts import Deserializer
from tidegate.runtime.control import RuntimeOptions, TaskEnded, TaskFailed, TaskRunning

RECORDS = [(f"k{i % 5}", i) for i in range(300)]


def copying(source: Any, options: RuntimeOptions = AT_ONCE) -> tuple[Bench, CollectionSink]:
    """One task: a source and a sink."""
    sink, job = CollectionSink(), tg.Job("copying")
    job.source(source, name="src").sink(sink, name="out")
    return Bench(job, options=options).deploy(), sink


def totals(source: Any, parallelism: int = 1, **settings: Any) -> tuple[Bench, CollectionSink]:
    sink, job = CollectionSink(), tg.Job("totals")
    job.source(source, name="src").key_by(lambda r: r[0]).process(Total(), name="total").sink(sink, name="out")
    return Bench(job, parallelism, **settings).deploy(), sink


# ---- failing records -------------------------------------------------------------------------------------------------


class Number(Deserializer):
    def decode(self, raw: list[Any]) -> list[Any]:
        return [int(text) for text in raw]

    def decode_one(self, raw: Any) -> Any:
        return int(raw)


def numbers(*records: str, on_error: Any) -> tuple[Bench, CollectionSink, CollectionSink]:
    source, good, dead = HandSource(Number()), CollectionSink(), CollectionSink()
    source.put("a", *records)
    job = tg.Job("numbers")
    decoded = job.source(source, name="src", on_error=on_error)
    decoded.sink(good, name="out")
    if isinstance(on_error, tg.SideOutput):
        decoded.side_output(on_error).sink(dead, name="dead")
    bench = Bench(job).deploy()
    bench.read(no_more=False)
    bench.finish()
    return bench, good, dead


def test_a_poison_record_fails_the_task_once_with_the_users_traceback_and_the_place() -> None:
    bench, good, _ = numbers("1", "x", "3", on_error="fail")
    failure = bench.failure
    assert failure.kind is ErrorKind.USER_CODE
    assert "on record 'x'" in failure.message
    assert failure.where == "operator src, subtask 0, attempt 1"
    assert failure.traceback.count("Traceback") == 1
    assert "in decode_one" in failure.traceback
    bench.trigger(1)
    bench.clock.time += 10
    bench.finish()
    assert len(bench.heard(TaskFailed)) == 1
    assert bench.acknowledged(1) == {}
    assert good.open == {}


def test_of_several_failures_of_a_task_the_first_is_told() -> None:
    source = HandSource(Number())
    source.put("a", "1")
    bench, _ = copying(source)
    bench.read(no_more=False)
    bench.settle()
    bench.trigger(1)
    bench.settle()
    bench.executor.fail("sink", UnavailableError("no broker"))
    bench.executor.fail("upload", ValueError("too late to matter"))
    source.put("a", "x")
    bench.clock.time += 1
    bench.finish()
    assert bench.failure.message == "no broker"


def test_a_failed_task_leaves_its_commits_to_recovery() -> None:
    bench, good, _ = numbers("1", on_error="fail")
    bench.trigger(1)
    bench.finish()
    bench.task("src").fail(Failure(ErrorKind.USER_CODE, "elsewhere"))
    bench.complete(1)
    assert not [lane for lane in bench.executor.lanes if lane.startswith("sink")]
    assert list(good.open.values()) == [[1]]


def test_skipped_records_move_the_position_and_are_counted() -> None:
    bench, good, _ = numbers("x", "y", on_error="skip")
    bench.checkpoint(1)
    assert bench.positions(1) == {"a": 2}
    assert good.committed == []
    (row,) = [row for row in bench.task("src").metrics() if row.operator == "src"]
    assert (row.records_in, row.records_out, row.records_skipped) == (2, 0, 2)


def test_records_for_the_dead_letter_output_are_committed_with_the_position_that_passed_them() -> None:
    bench, good, dead = numbers("1", "x", "3", on_error=tg.SideOutput[Any]("dead"))
    assert (good.committed, dead.committed) == ([], [])
    bench.checkpoint(1)
    assert bench.positions(1) == {"a": 3}
    assert (good.committed, dead.committed) == ([1, 3], ["x"])


# ---- the end of the input --------------------------------------------------------------------------------------------


def test_a_task_says_once_that_it_has_ended_and_takes_part_in_checkpoints_afterwards() -> None:
    bench, sink = totals(CollectionSource(RECORDS))
    bench.read()
    bench.finish()
    assert bench.heard(TaskEnded) == [TaskEnded(task("src"))]
    bench.checkpoint(1)
    bench.checkpoint(2)
    assert all(snapshot.ended for snapshot in bench.acknowledged(2)[task("src")])
    assert bench.heard(TaskEnded) == [TaskEnded(task("src"))]
    assert by_key(sink.committed) == totals_of(RECORDS)


def test_the_end_comes_behind_the_last_record_of_every_input() -> None:
    bench, _ = totals(CollectionSource(RECORDS, splits=3), 2)
    bench.read()
    bench.finish()
    ended = [message.task for message in bench.heard(TaskEnded)]
    assert sorted(ended) == sorted([task("src", 0), task("src", 1), task("total", 0), task("total", 1)])
    assert ended.index(task("total", 0)) > max(ended.index(task("src", 0)), ended.index(task("src", 1)))
    bench.checkpoint(1)
    assert all(s.ended for name in ("src", "total", "out") for s in bench.snapshots(1, name))


def test_before_the_end_no_operator_is_recorded_as_ended() -> None:
    source = HandSource()
    source.put("a", ("k", 1))
    bench, _ = totals(source)
    bench.read(no_more=False)
    bench.checkpoint(1)
    assert not any(snapshot.ended for snapshot in bench.acknowledged(1)[task("src")])


def test_a_split_that_ends_without_records_ends_the_source() -> None:
    bench, _ = copying(CollectionSource.of_splits([[], []]))
    bench.read()
    bench.finish()
    assert bench.heard(TaskEnded) == [TaskEnded(task("src"))]
    bench.checkpoint(1)
    assert bench.snapshot(1, "src").ended


def test_a_subtask_without_splits_ends_when_no_more_will_come() -> None:
    bench, _ = totals(CollectionSource(RECORDS, splits=1), 3)
    bench.read()
    bench.finish()
    assert len(bench.heard(TaskEnded)) == 6


def test_a_source_that_will_get_more_splits_does_not_end() -> None:
    bench, _ = copying(CollectionSource([1]))
    bench.read(no_more=False)
    bench.finish()
    assert bench.heard(TaskEnded) == []
    bench.assign([])
    bench.finish()
    assert bench.heard(TaskEnded) == [TaskEnded(task("src"))]


# ---- running ---------------------------------------------------------------------------------------------------------


def test_a_task_says_that_it_runs_when_its_sink_has_opened_a_transaction() -> None:
    sink, job = CollectionSink(), tg.Job("copying")
    job.source(CollectionSource([1]), name="src").sink(sink, name="out")
    bench = Bench(job)
    bench.begin_deploying()
    bench.executor.run("restore")
    bench.settle()
    assert bench.heard(TaskRunning) == []
    bench.executor.run("sink")
    bench.settle()
    assert bench.heard(TaskRunning) == [TaskRunning(task("src"))]
