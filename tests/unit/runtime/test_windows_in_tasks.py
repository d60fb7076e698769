"""Windows in running tasks: what they have given is not given again, however far each old subtask had come."""

from typing import Any

import msgspec

import tidegate as tg
from tests.unit.runtime.harness import MAX_PARALLELISM, Bench, HandSource
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink
from tidegate.runtime.control import RestoredOperator
from tidegate.state.key_groups import key_group, subtask_of

Record = tuple[str, int]
"""Key and timestamp."""
STRATEGY: tg.WatermarkStrategy[Record] = tg.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda record: record[1]
)
KEYS = [f"key-{number}" for number in range(20)]


def counting(source: HandSource, sink: CollectionSink, parallelism: int, **restored: Any) -> Bench:
    job = tg.Job("counting")
    stream = job.source(source, name="src", watermarks=STRATEGY).key_by(lambda record: record[0], key_type=str)
    windows = stream.window(tg.SlidingEventTimeWindows("20ms", "10ms"))
    counts = windows.aggregate(tg.aggregates.count(), lambda key, window, count: (key, window.end, count), name="count")
    counts.sink(sink, name="out")
    return Bench(job, parallelism, **restored).deploy()


def come(bench: Bench) -> None:
    for _ in range(4):
        bench.finish()
        bench.clock.time += 0.2
    bench.finish()


def given(sink: CollectionSink) -> list[Any]:
    return sorted([*sink.committed, *(record for records in sink.open.values() for record in records)])


def test_subtasks_that_had_come_differently_far_become_one_and_give_nothing_twice() -> None:
    source, first, second = HandSource(), CollectionSink(), CollectionSink()
    source.put("a", *((key, 15) for key in KEYS), ("end", 21))
    bench = counting(source, first, 2)
    bench.assign([SplitState("a", 0)], no_more=False)
    come(bench)
    assert given(first) == sorted((key, 20, 1) for key in KEYS)
    bench.checkpoint(1)
    slow, fast = bench.snapshots(1, "count")
    # As if event time of the first subtask had not come there yet.
    snapshots = msgspec.structs.replace(slow, watermark=10), fast
    restored = [
        RestoredOperator(one.name, one.ended, snapshots if one.name == "count" else one.snapshots)
        for one in bench.restorable(1)
    ]
    again = counting(source, second, 1, storage=bench.storage, restored=restored, attempt=2, last_checkpoint=1)
    again.assign([split for snapshot in bench.snapshots(1, "src") for split in snapshot.splits], no_more=False)
    source.put("a", ("end", 25))
    come(again)
    of_the_slow = [key for key in KEYS if subtask_of(key_group(key, MAX_PARALLELISM), 2, MAX_PARALLELISM) == 0]
    assert 0 < len(of_the_slow) < len(KEYS)
    assert given(second) == sorted((key, 20, 1) for key in of_the_slow)
