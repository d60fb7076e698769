"""The physical graph: chains of fused operators (vertices), their subtasks, and the channels between them. Data only.

Worker i runs subtask i of every vertex that has one. Every process of a job computes the same physical graph from the
same logical graph and the same parallelism, so nothing of it is ever sent.
"""

from dataclasses import dataclass

import msgspec

from tidegate.graph.logical import LogicalGraph, LogicalNode, Partitioning
from tidegate.graph.partitioned import check_widths
from tidegate.ids import OperatorName, SubtaskIndex, TaskId, VertexName, WorkerIndex


class ChannelId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One channel: from one subtask to another over one edge of the physical graph."""

    edge: int
    source: SubtaskIndex
    target: SubtaskIndex


@dataclass(frozen=True)
class Vertex:
    """A chain. `operators` in the order in which records pass them; a source can only be first, a sink only last."""

    name: VertexName
    operators: tuple[OperatorName, ...]
    parallelism: int
    room: int | None = None
    """How many records its tasks take in at once, where they keep them for a while: no more should pile up before them.
    """

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        return tuple(TaskId(self.name, SubtaskIndex(i)) for i in range(self.parallelism))


@dataclass(frozen=True)
class Edge:
    """From the main output (`tag` None) or a side output of one operator of a chain to the first operator of
    another."""

    index: int
    source: VertexName
    source_operator: OperatorName
    tag: str | None
    target: VertexName
    partitioning: Partitioning
    input: int = 0
    """Which of the target's inputs it leads to."""


@dataclass(frozen=True)
class PhysicalGraph:
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int

    def vertex(self, name: VertexName) -> Vertex:
        return next(vertex for vertex in self.vertices if vertex.name == name)

    @property
    def workers(self) -> int:
        """How many workers the job needs."""
        return max(vertex.parallelism for vertex in self.vertices)

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        return tuple(task for vertex in self.vertices for task in vertex.tasks)

    def outputs(self, vertex: VertexName) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == vertex)

    def inputs(self, vertex: VertexName) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target == vertex)

    def channels_into(self, task: TaskId) -> tuple[ChannelId, ...]:
        """The channels that a task reads, in a fixed order."""
        return tuple(
            ChannelId(edge.index, source, task.subtask)
            for edge in self.inputs(task.vertex)
            for source in self._senders(edge, task.subtask)
        )

    def channels_out_of(self, task: TaskId, edge: Edge) -> tuple[ChannelId, ...]:
        """The channels of one edge that a task writes; index i is the channel to subtask i (one only for FORWARD)."""
        if edge.partitioning is Partitioning.FORWARD:
            return (ChannelId(edge.index, task.subtask, task.subtask),)
        targets = self.vertex(edge.target).parallelism
        return tuple(ChannelId(edge.index, task.subtask, SubtaskIndex(i)) for i in range(targets))

    def _senders(self, edge: Edge, target: SubtaskIndex) -> tuple[SubtaskIndex, ...]:
        if edge.partitioning is Partitioning.FORWARD:
            return (target,)
        return tuple(SubtaskIndex(i) for i in range(self.vertex(edge.source).parallelism))


def worker_of(task: TaskId) -> WorkerIndex:
    return WorkerIndex(task.subtask)


def build_physical(graph: LogicalGraph, parallelism: int, max_parallelism: int) -> PhysicalGraph:
    """Chain what can be chained: an operator joins its upstream's chain when it is the only consumer of the upstream's
    main output, has no other input, makes no watermarks and no asynchronous calls, the edge is FORWARD (or both ends
    have one subtask), and parallelism is equal. Raises InvalidError where keys that the input partitions cannot be so
    at this parallelism."""
    width = {node.name: node.parallelism or parallelism for node in graph.nodes}
    check_widths(graph, width)
    head: dict[OperatorName, OperatorName] = {}
    for node in graph.nodes:
        upstream = _chained_to(node, graph, width)
        head[node.name] = head[upstream] if upstream else node.name
    vertices = tuple(
        Vertex(
            VertexName(name),
            tuple(n.name for n in graph.nodes if head[n.name] == name),
            width[name],
            graph.node(name).asynchronous,
        )
        for name in dict.fromkeys(head.values())
    )
    edges: list[Edge] = []
    for node in graph.nodes:
        if head[node.name] != node.name:
            continue
        for edge in node.inputs:
            partitioning = _partitioning(edge.partitioning, width[edge.upstream], width[node.name])
            source = VertexName(head[edge.upstream])
            target = VertexName(node.name)
            edges.append(Edge(len(edges), source, edge.upstream, edge.tag, target, partitioning, edge.input))
    return PhysicalGraph(vertices, tuple(edges), max_parallelism)


def _partitioning(wanted: Partitioning, source: int, target: int) -> Partitioning:
    if wanted is Partitioning.FORWARD and source != target:
        return Partitioning.REBALANCE
    return wanted


def _chained_to(node: LogicalNode, graph: LogicalGraph, width: dict[OperatorName, int]) -> OperatorName | None:
    if len(node.inputs) != 1 or node.inputs[0].tag is not None or node.watermarks is not None:
        return None
    if node.asynchronous is not None:
        return None
    edge = node.inputs[0]
    consumers = [
        other.name for other in graph.nodes for e in other.inputs if e.upstream == edge.upstream and e.tag is None
    ]
    same_width = width[edge.upstream] == width[node.name]
    single = same_width and width[node.name] == 1
    if consumers != [node.name] or not same_width or not (edge.partitioning is Partitioning.FORWARD or single):
        return None
    return edge.upstream
