"""How far a restored task had come in event time, where each subtask has the time of its own partitions."""

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, RunningTotal
from tests.unit.graph.test_partitioned import by_user, topic
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import MIN_WATERMARK
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import build_physical
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.runtime.control import RestoredOperator
from tidegate.runtime.restored_times import restored_watermark

FOUR = "str in 4 partitions by murmur2"
NAMES = ("orders", "orders-key", "totals", "out")


def program(partitions: int | None = 4) -> LogicalGraph:
    job = tg.Job("shop")
    by_user(topic(job), partitions=partitions).process(RunningTotal(), name="totals").sink(NullSink(), name="out")
    return job.graph()


def restored(
    watermarks: list[int | None], key_type: str = FOUR, names: tuple[str, ...] = NAMES
) -> dict[OperatorName, RestoredOperator]:
    """A chain of one time in each subtask."""

    def snapshot(name: str, watermark: int | None) -> OperatorSnapshot:
        keyed = key_type if name == "totals" else ""
        return OperatorSnapshot(OperatorName(name), key_type=keyed, watermark=watermark)

    return {
        OperatorName(name): RestoredOperator(
            OperatorName(name), False, tuple(snapshot(name, watermark) for watermark in watermarks)
        )
        for name in names
    }


def times(
    graph: LogicalGraph, parallelism: int, found: dict[OperatorName, RestoredOperator], vertex: int = 0
) -> list[int | None]:
    physical = build_physical(graph, parallelism, 128)
    of_all = [
        restored_watermark(graph, physical.vertices[vertex], SubtaskIndex(subtask), 128, found)
        for subtask in range(parallelism)
    ]
    return [None if watermark == MIN_WATERMARK else watermark for watermark in of_all]


@pytest.mark.parametrize(
    ("before", "parallelism", "expected"),
    [
        ([1000, 10], 2, [1000, 10]),
        ([1000, None], 2, [1000, None]),
        ([1000, 10], 4, [1000, 1000, 10, 10]),
        ([1000, 10], 1, [10]),
        ([400, 300, 200, 100], 2, [300, 100]),
        # Partitions are with subtasks 0, 1, 3 and 4 of six; the others know nothing, and nobody asks them.
        ([400, 300, None, 200, 100, None], 2, [300, 100]),
        ([400, 300, None, 200, 100, None], 6, [400, 300, None, 200, 100, None]),
    ],
)
def test_W07_each_subtask_goes_on_with_the_time_of_the_partitions_whose_keys_it_has(
    before: list[int | None], parallelism: int, expected: list[int | None]
) -> None:
    assert times(program(), parallelism, restored(before)) == expected


def test_where_keys_were_in_no_partition_or_in_others_the_least_counts() -> None:
    assert times(program(), 2, restored([1000, 10], "str")) == [10, 10]
    assert times(program(), 2, restored([1000, 10], "str in 8 partitions by murmur2")) == [10, 10]
    assert times(program(None), 2, restored([1000, 10]), vertex=1) == [10, 10]


def test_nothing_is_known_without_a_restore_and_of_operators_that_are_new() -> None:
    assert times(program(), 2, {}) == [None, None]
    assert times(program(), 2, restored([1000, 10], names=("orders", "orders-key"))) == [10, 10]
