"""Tasks on a bench: where barriers cut, what an acknowledgement waits for, what happens to failing records, and how a
task ends."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.checkpoint.failing_storage import FailingStorage
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, Total, task
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.errors import ErrorKind, UnavailableError
from tidegate.ids import CheckpointId
from tidegate.runtime.control import RuntimeOptions, TaskFailed

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


def step_until_open(bench: Bench, sink: CollectionSink, records: int) -> None:
    """Step until so many records are in the sink's open transactions."""
    for _ in range(1000):
        if sum(map(len, sink.open.values())) >= records:
            return
        bench.step()
    raise AssertionError(f"{records} records do not arrive")


def step_until_acknowledged(bench: Bench, checkpoint: int) -> None:
    """By the only task, and not one step further."""
    for _ in range(1000):
        if bench.acknowledged(checkpoint):
            return
        bench.step()
        bench.executor.run_all()
    raise AssertionError(f"checkpoint {checkpoint} is not acknowledged")


# ---- where barriers cut ----------------------------------------------------------------------------------------------


def test_the_position_at_a_barrier_is_behind_the_last_emitted_record_whatever_the_source_has_ready() -> None:
    source = HandSource()
    source.put("a", *range(1000))
    bench, sink = copying(source, RuntimeOptions(linger=0.0, step_target=0.0))
    bench.read(no_more=False)
    step_until_open(bench, sink, 1)
    (written,) = sink.open.values()
    assert 0 < len(written) < 1000
    bench.trigger(1)
    step_until_acknowledged(bench, 1)
    assert bench.positions(1) == {"a": len(written)}
    bench.settle()
    bench.complete(1)
    bench.executor.run_all()
    assert sink.committed == written


def test_a_checkpoint_after_every_step_cuts_the_records_without_gap_or_overlap() -> None:
    source = HandSource()
    source.put("a", *range(500))
    source.put("b", *range(1000, 1300))
    bench, sink = copying(source, RuntimeOptions(linger=0.0, step_target=0.0))
    bench.read(no_more=False)
    number, cuts = 0, set()
    while len(sink.committed) < 800:
        number += 1
        bench.trigger(number)
        step_until_acknowledged(bench, number)
        bench.complete(number)
        bench.executor.run_all()
        positions = bench.positions(number)
        assert sorted(sink.committed) == [*range(positions["a"]), *range(1000, 1000 + positions["b"])]
        cuts.add(len(sink.committed))
        bench.step()
        bench.clock.time += 0.001
    assert len(cuts) > 5


def test_a_barrier_waits_until_everything_before_it_has_left_the_chain() -> None:
    def many(record: int) -> Iterator[int]:
        yield from range(record * 1000, record * 1000 + 1000)

    sink, job = CollectionSink(), tg.Job("many")
    source = HandSource()
    source.put("a", 1, 2)
    job.source(source, name="src").flat_map(many, name="many").sink(sink, name="out")
    bench = Bench(job, options=RuntimeOptions(batch_size=10, linger=0.0, step_target=0.0)).deploy()
    bench.read(no_more=False)
    bench.step()
    bench.step()
    bench.trigger(1)
    bench.step()
    bench.executor.run_all()
    assert bench.acknowledged(1) == {}
    bench.finish()
    assert bench.positions(1) == {"a": 2}
    assert [len(values) for values in sink.open.values()] == [2000]


def test_state_is_that_of_the_barrier_and_not_of_when_it_is_stored() -> None:
    source = HandSource()
    source.put("a", ("k", 1), ("k", 2))
    bench, sink = totals(source)
    bench.read(no_more=False)
    bench.finish()
    bench.trigger(1)
    bench.settle()
    source.put("a", ("k", 100))
    bench.executor.run("sink")
    bench.clock.time += 1
    bench.settle()
    assert [("k", 103)] in sink.open.values()
    bench.finish()
    again, sink = totals(CollectionSource([("k", 10)]), restored=bench.restorable(1), attempt=2)
    again.assign([SplitState("0", 0, stop=1)])
    again.finish()
    assert list(sink.open.values()) == [[("k", 13)]]


def test_records_of_a_split_that_is_assigned_behind_a_trigger_are_not_in_that_checkpoint() -> None:
    source = HandSource()
    source.put("a", 1)
    source.put("b", 2)
    bench, _ = copying(source)
    bench.assign([SplitState("a", 0)], no_more=False)
    bench.trigger(1)
    bench.assign([SplitState("b", 0)], no_more=False)
    bench.trigger(2)
    bench.finish()
    assert bench.positions(1) == {"a": 0}
    assert set(bench.positions(2)) == {"a", "b"}


# ---- what an acknowledgement waits for -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("sink", "upload"), ("upload", "sink")])
def test_a_task_acknowledges_when_its_state_is_stored_and_its_sink_prepared(order: tuple[str, str]) -> None:
    bench, _ = totals(CollectionSource(RECORDS))
    bench.read()
    bench.finish()
    bench.trigger(1)
    bench.settle()
    for kind in order:
        assert bench.acknowledged(1) == {}
        bench.executor.run(kind)
    assert list(bench.acknowledged(1)) == [task("src")]
    assert len(bench.snapshot(1, "out").pending) == 1
    assert bench.snapshot(1, "total").handles


def test_a_sink_that_fails_to_prepare_fails_the_task_and_acknowledges_nothing() -> None:
    bench, _ = totals(CollectionSource(RECORDS))
    bench.read()
    bench.finish()
    bench.trigger(1)
    bench.settle()
    bench.executor.fail("sink", UnavailableError("not every record is durable"))
    bench.finish()
    assert bench.acknowledged(1) == {}
    assert (bench.failure.kind, bench.failure.where) == (
        ErrorKind.UNAVAILABLE,
        "operator out, subtask 0, attempt 1",
    )


def test_batches_are_held_back_while_the_sink_prepares_and_come_out_afterwards() -> None:
    source = HandSource()
    source.put("a", 1)
    bench, sink = copying(source)
    bench.read(no_more=False)
    bench.settle()
    bench.trigger(1)
    bench.settle()
    source.put("a", 2)
    bench.clock.time += 1
    bench.settle()
    assert list(sink.open.values()) == [[1]]
    assert bench.step().worked is False
    bench.executor.run("sink")
    bench.settle()
    assert list(sink.open.values()) == [[1], [2]]


def test_a_source_puts_in_the_next_barrier_while_its_sink_holds_batches_back() -> None:
    source = HandSource()
    source.put("a", 1)
    bench, sink = copying(source)
    bench.read(no_more=False)
    bench.settle()
    bench.trigger(1)
    bench.settle()
    bench.abandon(1)
    bench.trigger(2)
    source.put("a", 2)
    bench.settle()
    assert bench.executor.lanes.count("upload:src[0]") == 2
    assert list(sink.open.values()) == [[1]]
    bench.finish()
    assert bench.positions(2) == {"a": 1}
    assert [p.checkpoint for p in bench.snapshot(2, "out").pending] == [1]
    bench.complete(2)
    bench.finish()
    assert sink.committed == [1]


def test_a_checkpoint_whose_state_cannot_be_stored_is_declined_and_its_records_stay_pending() -> None:
    storage = FailingStorage(before=1)
    source = HandSource()
    source.put("a", ("k", 1))
    bench, sink = totals(source, storage=storage, options=RuntimeOptions(linger=0.0, inline_limit=0))
    bench.read(no_more=False)
    bench.settle()
    bench.trigger(1)
    bench.finish()
    assert bench.declined(1) == [task("src")]
    assert bench.acknowledged(1) == {}
    bench.abandon(1)
    source.put("a", ("k", 2))
    bench.clock.time += 1
    bench.finish()
    bench.trigger(2)
    bench.finish()
    assert [p.checkpoint for p in bench.snapshot(2, "out").pending] == [1, 2]
    bench.complete(2)
    bench.finish()
    assert sink.committed == [("k", 1), ("k", 3)]


def test_state_beyond_the_memory_presets_limit_declines_the_checkpoint_and_loses_nothing() -> None:
    bench, sink = totals(
        CollectionSource(RECORDS), options=RuntimeOptions(linger=0.0, state_in_job_manager=True, memory_limit=10)
    )
    bench.read()
    bench.finish()
    bench.trigger(1)
    bench.finish()
    assert bench.declined(1) == [task("src")]
    assert bench.heard(TaskFailed) == []
    assert sum(map(len, sink.open.values())) == len(RECORDS)


def test_a_value_of_a_wrong_type_in_the_state_fails_the_task_at_the_barrier() -> None:
    class Wrong(tg.KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
        last = tg.ValueState(int)

        def process_element(self, value: tuple[str, int], ctx: tg.KeyedContext[str]) -> None:
            self.last.update("text")  # type: ignore[arg-type]

    sink, job = CollectionSink(), tg.Job("wrong")
    source = CollectionSource(RECORDS)
    job.source(source, name="src").key_by(lambda r: r[0]).process(Wrong(), name="w").sink(sink, name="out")
    bench = Bench(job).deploy()
    bench.read()
    bench.finish()
    bench.trigger(1)
    bench.finish()
    assert bench.failure.kind is ErrorKind.INVALID


# ---- abandoned checkpoints -------------------------------------------------------------------------------------------


def test_an_abandoned_checkpoint_unblocks_the_gate_and_its_late_barriers_do_nothing() -> None:
    first, second = HandSource(), HandSource()
    first.put("a", *range(100))
    second.put("b", *range(100))
    sink, job = CollectionSink(), tg.Job("joined")
    one, two = job.source(first, name="one"), job.source(second, name="two")
    one.union(two, name="both").sink(sink, name="out")
    bench = Bench(job).deploy()
    bench.read("one", no_more=False)
    bench.settle()
    bench.executor.run_all()
    trigger_only(bench, "one", 1)
    bench.settle()
    first.put("a", *range(100, 200))
    bench.clock.time += 1
    bench.settle()
    assert sum(map(len, sink.open.values())) == 100
    bench.abandon(1)
    bench.settle()
    assert sum(map(len, sink.open.values())) == 200
    bench.read("two", no_more=False)
    trigger_only(bench, "two", 1)
    bench.finish()
    assert task("both") not in bench.acknowledged(1)
    assert sum(map(len, sink.open.values())) == 300
    bench.checkpoint(2)
    assert len(sink.committed) == 300


def trigger_only(bench: Bench, source: str, checkpoint: int) -> None:
    """As if the trigger had not reached the others yet."""
    bench.task(source).trigger(CheckpointId(checkpoint))


def test_a_trigger_that_is_abandoned_before_its_turn_puts_no_barrier_into_the_stream() -> None:
    source = HandSource()
    source.put("a", 1)
    bench, _ = copying(source)
    bench.trigger(1)
    bench.assign([SplitState("a", 0)], no_more=False)
    bench.abandon(1)
    bench.trigger(2)
    bench.finish()
    assert bench.acknowledged(1) == {}
    assert bench.positions(2) == {"a": 0}
