"""Graphs with keys that the input's partitions already keep together (`key_by(partitions=)`): whether a graph can have
them, and which sources must be read partition by partition.

Such keys rest on one thing: from the source to the operator with the state a record never changes its subtask. Whatever
could move one is refused here, before anything runs. Nothing here changes a graph.
"""

from collections.abc import Mapping, Sequence

from tidegate.errors import InvalidError, place
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.ids import OperatorName
from tidegate.operators.partitioned import PartitionedSource, SplitPlaces
from tidegate.state.key_partitions import KeyPartitions

_LEAVE_OUT = "leave partitions= out, so that records go to the subtasks of their keys"
_AT_ONCE = ("map", "filter", "flat_map", "sample")
"""Kinds of operators that make what they emit of the records just given to them."""
_MOVED = {
    Partitioning.HASH: "by another key",
    Partitioning.REBALANCE: "in turn",
    Partitioning.BROADCAST: "by a broadcast",
}


def check_partitions(graph: LogicalGraph, max_parallelism: int) -> None:
    """Whether keys that are declared to be partitioned by the input can be so, at whatever parallelism. Raises
    InvalidError."""
    for node in graph.nodes:
        _check_inputs_agree(graph, node)
        if node.partitions is not None:
            node.partitions.require_groups(max_parallelism, place(node.name))
            edges = _edges_above(graph, node)
            for edge in edges:
                _check_stays(graph, node, edge)
            for edge in edges:
                _check_keeps_nothing(node, graph.node(edge.upstream))
    sources_by_partition(graph)


def check_widths(graph: LogicalGraph, width: Mapping[OperatorName, int]) -> None:
    """Whether they can be so when operators have this parallelism. Raises InvalidError."""
    for node in graph.nodes:
        for key_by in graph.key_bys(node):
            if key_by.partitions is not None:
                _check_width(key_by, node.name, key_by.name, width)
        if node.partitions is not None:
            for edge in _edges_above(graph, node):
                _check_width(node, node.name, edge.upstream, width)
    for name, partitions in sources_by_partition(graph).items():
        node = graph.node(name)
        if width[name] > 1 and _partitioned(node) is None:
            raise InvalidError(
                f"keys of what it reads are in {partitions}, and a {type(node.source).__name__} does not say which "
                f"partition is which, as {width[name]} subtasks need it",
                remedy=f"Read from Kafka, run the job with parallelism 1, or {_LEAVE_OUT}.",
                where=place(name),
            )


def sources_by_partition(graph: LogicalGraph) -> dict[OperatorName, KeyPartitions]:
    """The sources whose splits are to be assigned by partition. Raises InvalidError when two that read the same source
    do not agree on its partitions."""
    found: dict[OperatorName, LogicalNode] = {}
    for node in graph.nodes:
        upstream = {edge.upstream for edge in _edges_above(graph, node)} if node.partitions is not None else ()
        for source in graph.sources:
            if source.name not in upstream:
                continue
            other = found.setdefault(source.name, node)
            if other.partitions != node.partitions:
                raise InvalidError(
                    f"operators {other.name} and {node.name} have keys of what source {source.name} reads, the one in "
                    f"{other.partitions}, the other in {node.partitions}",
                    remedy=f"Say of both how the topic is partitioned; of keys that are no keys of it, {_LEAVE_OUT}.",
                    where=place(node.name),
                )
    return {name: node.partitions for name, node in found.items() if node.partitions is not None}


def split_places(graph: LogicalGraph, node: LogicalNode, max_parallelism: int) -> SplitPlaces | None:
    """Where the splits of a source belong; None where it does not matter, or where all are in one subtask anyway and
    the source does not know partitions."""
    partitions, source = sources_by_partition(graph).get(node.name), _partitioned(node)
    return None if partitions is None or source is None else SplitPlaces(source, partitions, max_parallelism)


def _partitioned(node: LogicalNode) -> PartitionedSource | None:
    source: object = node.source
    return source if isinstance(source, PartitionedSource) else None


def is_from_one_split(graph: LogicalGraph, chained: Sequence[OperatorName]) -> bool:
    """Whether all that leaves these operators, the first ones of a chain, while they have a batch of a source was made
    of that batch: none of them keeps records for later."""
    nodes = list(map(graph.node, chained))
    return bool(nodes) and nodes[0].source is not None and all(node.kind in _AT_ONCE for node in nodes[1:])


def _edges_above(graph: LogicalGraph, node: LogicalNode) -> tuple[InputEdge, ...]:
    """Every edge over which records come to `node` from the sources."""
    edges = dict.fromkeys(node.inputs)
    # Behind its readers first: whoever reads a node is behind it in the graph.
    for other in reversed(graph.nodes):
        if any(edge.upstream == other.name for edge in edges):
            edges.update(dict.fromkeys(other.inputs))
    return tuple(edges)


def _check_inputs_agree(graph: LogicalGraph, node: LogicalNode) -> None:
    first, *others = graph.key_bys(node) or (node,)
    for other in others:
        if other.partitions != first.partitions:
            said = [f"those of {one.name} {_spelled(one.partitions)}" for one in (first, other)]
            raise InvalidError(
                f"the state of a key would be in two subtasks: {', '.join(said)}",
                remedy="Give every key_by before it the same partitions= and partitioner=, or none of them.",
                where=place(node.name),
            )


def _spelled(partitions: KeyPartitions | None) -> str:
    return "are exchanged" if partitions is None else f"are in {partitions}"


def _check_stays(graph: LogicalGraph, key_by: LogicalNode, edge: InputEdge) -> None:
    if edge.partitioning is Partitioning.FORWARD:
        return
    readers = ", ".join(node.name for node in graph.nodes if edge in node.inputs)
    raise InvalidError(
        f"its keys are in {key_by.partitions}, but records do not stay in the subtask that has read them: those of "
        f"{edge.upstream} go to {readers} {_MOVED[edge.partitioning]}",
        remedy=f"Call key_by before that, or {_LEAVE_OUT}.",
        where=place(key_by.name),
    )


def _check_keeps_nothing(key_by: LogicalNode, node: LogicalNode) -> None:
    """State without keys is dealt out anew when parallelism changes, records that wait for calls included."""
    if node.states and not node.keyed:
        what = "calls" if node.asynchronous is not None else "what its state holds"
        raise InvalidError(
            f"its keys are in {key_by.partitions}, and operator {node.name} before it may keep records, in {what}, "
            "which go to other subtasks when parallelism changes",
            remedy=f"Put {node.name} behind the operator with the keyed state, or {_LEAVE_OUT}.",
            where=place(key_by.name),
        )


def _check_width(
    key_by: LogicalNode, one: OperatorName, other: OperatorName, width: Mapping[OperatorName, int]
) -> None:
    if width[one] != width[other]:
        raise InvalidError(
            f"its keys are in {key_by.partitions}, and parallelism changes on the way from the source to their state: "
            f"{one} has {width[one]}, {other} has {width[other]}",
            remedy=f"Give all of them the same parallelism, or {_LEAVE_OUT}.",
            where=place(key_by.name),
        )
