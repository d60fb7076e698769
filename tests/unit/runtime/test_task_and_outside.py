"""A task tells its source what completed, and waits for its sink to have room."""

from typing import Any

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, totals_job
from tidegate.checkpoint.protocol import CheckpointCompleted
from tidegate.connectors.collections import CollectionSink, CollectionSinkWriter, CollectionTransaction
from tidegate.ids import Attempt, CheckpointId
from tidegate.operators.contracts import SinkContext
from tidegate.runtime.control import TaskRunning


class NarrowSink(CollectionSink):
    """Its writers have room while `has_room` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = True

    def open_writer(self, context: SinkContext) -> Any:
        return NarrowWriter(self, super().open_writer(context))


class NarrowWriter(CollectionSinkWriter):
    def __init__(self, sink: NarrowSink, inner: Any) -> None:
        super().__init__(inner._store)
        self._sink = sink

    def has_room(self, txn: CollectionTransaction) -> bool:
        return self._sink.has_room


def running(source: HandSource, sink: CollectionSink) -> Bench:
    job = tg.Job("copying")
    job.source(source, name="src").sink(sink, name="out")
    bench = Bench(job, options=AT_ONCE).deploy()
    bench.read(no_more=False)
    bench.settle()
    return bench


# ---- what a source is told -------------------------------------------------------------------------------------------


def test_a_reader_is_told_what_a_completed_checkpoint_holds() -> None:
    source = HandSource()
    source.put("a", 1, 2)
    bench = running(source, CollectionSink())
    bench.trigger(1)
    bench.finish()
    source.put("a", 3)
    bench.settle()
    assert source.completed == []
    bench.complete(1)
    assert source.completed == [{"a": 2}]


def test_a_reader_is_not_told_of_what_was_abandoned_or_of_another_attempt() -> None:
    source = HandSource()
    source.put("a", 1, 2)
    bench = running(source, CollectionSink())
    bench.trigger(1)
    bench.finish()
    bench.tell(CheckpointCompleted(Attempt(7), CheckpointId(1)))
    bench.abandon(1)
    bench.complete(1)
    assert source.completed == []


# ---- a sink without room ---------------------------------------------------------------------------------------------


def test_records_wait_until_the_sink_has_room_and_lose_nothing() -> None:
    source, sink = HandSource(), NarrowSink()
    source.put("a", 1, 2)
    bench = running(source, sink)
    sink.has_room = False
    source.put("a", 3, 4)
    progress = bench.step()
    assert not progress.worked
    assert progress.wake_at is not None
    assert progress.wake_at - bench.clock.time < 0.01
    assert list(sink.open.values()) == [[1, 2]]
    sink.has_room = True
    bench.clock.time += 0.01
    bench.settle()
    assert list(sink.open.values()) == [[1, 2, 3, 4]]


def test_a_task_runs_whether_or_not_its_sink_has_room_at_that_moment() -> None:
    """Room may come between two questions of one step, and then nothing wakes the task for it."""
    sink = NarrowSink()
    sink.has_room = False
    job = tg.Job("copying")
    job.source(HandSource(), name="src").sink(sink, name="out")
    bench = Bench(job, options=AT_ONCE).deploy()
    bench.finish()
    assert [str(said.task) for said in bench.heard(TaskRunning)] == ["src[0]"]


def test_a_barrier_waits_behind_records_for_which_there_is_no_room() -> None:
    source, sink = HandSource(), NarrowSink()
    source.put("a", ("k", 1), ("k", 2))
    bench = Bench(totals_job(source, sink), 2, options=AT_ONCE).deploy()
    sink.has_room = False
    bench.read(no_more=False)
    bench.settle()
    bench.trigger(1)
    bench.finish()
    assert sink.open == {}
    assert {id.vertex for id in bench.acknowledged(1)} == {"src"}
    sink.has_room = True
    bench.finish()
    assert len(bench.acknowledged(1)) == 4
    bench.complete(1)
    bench.finish()
    assert sink.committed == [("k", 1), ("k", 3)]


def test_a_source_whose_sink_is_full_still_takes_a_barrier_between_two_batches() -> None:
    source, sink = HandSource(), NarrowSink()
    source.put("a", 1, 2)
    bench = running(source, sink)
    sink.has_room = False
    bench.trigger(1)
    bench.finish()
    assert bench.positions(1) == {"a": 2}
