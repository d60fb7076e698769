"""The graph while the program is still adding to it: nodes by name, in the order in which they were added.

An operator can only be added after what it reads, so that order is topological. Nothing is ever removed or changed.
"""

from tidegate.api.validation import check_broadcasts, check_graph, check_name
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode
from tidegate.graph.partitioned import check_partitions
from tidegate.ids import JobName, OperatorName


class GraphBuilder:
    """Collects the nodes of one job."""

    def __init__(self, job: JobName) -> None:
        self.job = job
        self._nodes: dict[OperatorName, LogicalNode] = {}
        self._broadcasts: list[InputEdge] = []

    def name(self, kind: str, given: str | None, default: str | None = None) -> OperatorName:
        """The name of the next operator: the one given, or `default`, or `<kind>-<n>` where it is the n-th of its kind.

        Raises InvalidError when it cannot be a name or another operator has it.
        """
        count = 1 + sum(node.kind == kind for node in self._nodes.values())
        name = OperatorName(check_name("an operator", given if given is not None else default or f"{kind}-{count}"))
        if name in self._nodes:
            raise InvalidError(
                f"job {self.job} has two operators named {name} ({self._nodes[name].kind} and {kind})",
                remedy="Give each a name= of its own: state and transactions are found again by it.",
            )
        return name

    def add(self, node: LogicalNode) -> None:
        """Add `node`, whose name came from `name`."""
        self._nodes[node.name] = node

    def add_broadcast(self, edge: InputEdge) -> None:
        """What is to come through `edge` must be connected to an operator in the end."""
        self._broadcasts.append(edge)

    def node(self, name: OperatorName) -> LogicalNode:
        return self._nodes[name]

    def build(self, max_parallelism: int) -> LogicalGraph:
        """The validated graph. Raises InvalidError."""
        check_graph(self.job, self._nodes, max_parallelism)
        check_broadcasts(self._broadcasts, self._nodes)
        graph = LogicalGraph(self.job, tuple(self._nodes.values()))
        check_partitions(graph, max_parallelism)
        return graph
