"""Inputs that end where they are because somebody wants it: in order with triggers and splits, for this run only."""

import tidegate as tg
from tests.unit.runtime.harness import Bench, HandSource, Total, task
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink
from tidegate.runtime.control import Drain, TaskEnded, decode_to_worker, encode

RECORDS = [(f"k{i % 5}", i) for i in range(40)]


def totals(source: HandSource, parallelism: int = 1) -> tuple[Bench, CollectionSink]:
    sink, job = CollectionSink(), tg.Job("totals")
    job.source(source, name="src").key_by(lambda r: r[0]).process(Total(), name="total").sink(sink, name="out")
    return Bench(job, parallelism).deploy(), sink


def test_every_task_ends_and_the_positions_stay_where_reading_stopped() -> None:
    source = HandSource()
    source.put("a", *RECORDS)
    bench, sink = totals(source, 2)
    bench.read(no_more=False)
    bench.finish()
    source.put("a", ("k0", 99))
    bench.tell(Drain())
    bench.finish()
    assert sorted(end.task for end in bench.heard(TaskEnded)) == sorted(bench.physical.tasks)
    bench.checkpoint(1)
    assert bench.positions(1) == {"a": 40}
    assert len(sink.committed) == 40


def test_what_was_read_before_the_order_is_in_front_of_the_end() -> None:
    source = HandSource()
    source.put("a", *RECORDS)
    bench, sink = totals(source)
    bench.read(no_more=False)
    bench.step()
    bench.tell(Drain())
    bench.finish()
    bench.checkpoint(1)
    assert len(sink.committed) == bench.positions(1)["a"]


def test_a_barrier_that_was_triggered_before_the_order_is_in_front_of_the_end() -> None:
    source = HandSource()
    source.put("a", *RECORDS)
    bench, _ = totals(source)
    bench.read(no_more=False)
    bench.trigger(1)
    bench.tell(Drain())
    bench.trigger(2)
    bench.finish()
    assert not bench.snapshot(1, "src").ended
    assert not bench.snapshot(1, "total").ended
    assert bench.snapshot(2, "src").ended
    assert bench.snapshot(2, "total").ended


def test_a_split_that_is_assigned_behind_the_order_is_kept_with_its_position_and_not_read() -> None:
    source = HandSource()
    source.put("a", *RECORDS)
    bench, sink = totals(source)
    bench.tell(Drain())
    bench.assign([SplitState("a", 7)], no_more=True)
    bench.finish()
    bench.checkpoint(1)
    assert bench.positions(1) == {"a": 7}
    assert sink.committed == []


def test_an_order_to_a_source_that_has_ended_or_was_drained_changes_nothing() -> None:
    source = HandSource()
    source.put("a", *RECORDS, ends=True)
    bench, _ = totals(source)
    bench.read()
    bench.finish()
    for _ in range(2):
        bench.tell(Drain())
        bench.finish()
    assert bench.heard(TaskEnded).count(TaskEnded(task("src"))) == 1
    bench.checkpoint(1)
    assert bench.snapshot(1, "src").splits[0].finished


def test_an_abandoned_checkpoint_does_not_take_the_order_with_it() -> None:
    source = HandSource()
    source.put("a", *RECORDS)
    bench, _ = totals(source)
    bench.read(no_more=False)
    bench.trigger(1)
    bench.tell(Drain())
    bench.abandon(1)
    bench.finish()
    assert len(bench.heard(TaskEnded)) == len(bench.physical.tasks)


def test_the_order_is_written_and_read_as_it_is() -> None:
    assert decode_to_worker(encode(Drain())) == Drain()
