"""How far a restored task had come in event time, where each subtask has the time of its own partitions."""

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, RunningTotal
from tests.unit.graph.test_partitioned import by_user, topic
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.elements import MIN_WATERMARK
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import build_physical
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.runtime.control import RestoredOperator
from tidegate.runtime.restored_times import reached_by_key, restored_watermark
from tidegate.state.key_groups import grouping_of
from tidegate.state.keys import encode_key

FOUR = "str in 4 partitions by murmur2"
NAMES = ("orders", "orders-key", "totals", "out")


def program(partitions: int | None = 4) -> LogicalGraph:
    job = tg.Job("shop")
    by_user(topic(job), partitions=partitions).process(RunningTotal(), name="totals").sink(NullSink(), name="out")
    return job.graph()


def with_state(*ends: tuple[int, int, int]) -> dict[OperatorName, RestoredOperator]:
    """Of the totals: of each old subtask the watermark, and the first and the last group of its state."""
    name = OperatorName("totals")
    snapshots = tuple(
        OperatorSnapshot(name, handles=(StateHandle(first, last, 0, ""),), watermark=watermark)
        for watermark, first, last in ends
    )
    return {name: RestoredOperator(name, False, snapshots)}


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


@pytest.mark.parametrize("partitions", [4, None])
def test_of_keys_whose_old_subtasks_were_further_is_known_how_far(partitions: int | None) -> None:
    graph, keys = program(partitions), [f"user-{number}" for number in range(100)]
    totals = graph.node(OperatorName("totals"))
    grouping = grouping_of(FOUR if partitions else "str", 128)
    is_first = [grouping.group_of(encode_key(key)) < 64 for key in keys]
    reached = reached_by_key(graph, totals, 128, with_state((1000, 0, 63), (10, 64, 127)), 10)
    assert reached is not None
    assert [reached(key) for key in keys] == [1000 if first else 10 for first in is_first]
    assert {*is_first} == {True, False}


def test_where_no_old_subtask_was_further_keys_are_not_told_apart() -> None:
    totals = program().node(OperatorName("totals"))
    assert reached_by_key(program(), totals, 128, with_state((10, 0, 63), (10, 64, 127)), 10) is None
    assert reached_by_key(program(), totals, 128, {}, 10) is None
