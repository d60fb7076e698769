"""How far a task that is restored had come in event time: what was late before is late again.

Subtasks that get the same records have the same time, whatever their number was and is. Behind keys that the input
partitions they have not: each has the time of its own partitions, and a task goes on with that of those whose keys it
has now.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.elements import MIN_WATERMARK
from tidegate.graph.logical import LogicalGraph, LogicalNode
from tidegate.graph.physical import Vertex
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.partitioned import partition_subtask
from tidegate.runtime.control import RestoredOperator
from tidegate.state.key_groups import key_group


def restored_watermark(
    graph: LogicalGraph,
    vertex: Vertex,
    subtask: SubtaskIndex,
    max_parallelism: int,
    restored: Mapping[OperatorName, RestoredOperator],
) -> int:
    """Of one subtask of `vertex`, as far as its operators are among `restored`."""
    found = [restored[name] for name in vertex.operators if name in restored]
    own = [
        watermark
        for operator in found
        if (watermark := _of_own_partitions(graph, vertex, subtask, max_parallelism, operator)) is not None
    ]
    return min(own or [operator.watermark for operator in found], default=MIN_WATERMARK)


def reached_by_key(
    graph: LogicalGraph,
    node: LogicalNode,
    max_parallelism: int,
    restored: Mapping[OperatorName, RestoredOperator],
    watermark: int,
) -> Callable[[Any], int] | None:
    """How far the old subtask of each key of an operator had come, where some were further than `watermark`; None where
    none was."""
    watermarks = restored[node.name].watermarks if node.name in restored else {}
    if all(one == watermark for one in watermarks.values()):
        return None
    key_by = graph.partitioned_key_by(node)
    if key_by is None or key_by.partitions is None:
        return lambda key: watermarks.get(key_group(key, max_parallelism), watermark)
    group_of = key_by.partitions.group_of
    return lambda key: watermarks.get(group_of(key, max_parallelism), watermark)


def _of_own_partitions(
    graph: LogicalGraph, vertex: Vertex, subtask: SubtaskIndex, max_parallelism: int, operator: RestoredOperator
) -> int | None:
    """That of the old subtasks which had the keys of this one; None where the operator has no such keys, or had none.
    A chain is of one time, so each operator with such keys tells that of all."""
    key_by = graph.partitioned_key_by(graph.node(operator.name))
    if key_by is None or key_by.partitions is None:
        return None
    if any(snapshot.key_type != key_by.key_type for snapshot in operator.snapshots):
        return None
    partitions, before = key_by.partitions, len(operator.snapshots)
    had = {
        partition_subtask(partitions, partition, before, max_parallelism)
        for partition in range(partitions.count)
        if partition_subtask(partitions, partition, vertex.parallelism, max_parallelism) == subtask
    }
    return operator.watermark_of(sorted(had)) if had else None
