"""The logical graph: what the user wrote, as data. Named operators and the edges between them.

The graph holds the user's objects (functions, sources, sinks) but never calls them; everything that must be the same in
every process of a job is in `fingerprint`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import xxhash

from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.ids import JobName, OperatorName
from tidegate.operators.contracts import OperatorFactory, Sink, Source
from tidegate.state.key_partitions import KeyPartitions


class Partitioning(Enum):
    """How records of an edge find their subtask."""

    FORWARD = "forward"
    """Subtask i to subtask i; both ends have the same parallelism. Edges of this kind can be chained."""
    HASH = "hash"
    """By key group of the record's key."""
    REBALANCE = "rebalance"
    """Batch by batch, in turn."""
    BROADCAST = "broadcast"
    """Every record to every subtask. Edges of this kind are never chained."""


class ErrorPolicy(Enum):
    """What is done with a record that cannot be decoded or on which the user's function raises (`on_error=`)."""

    FAIL = "fail"
    SKIP = "skip"
    """Leave it out and count it."""
    SIDE_OUTPUT = "side output"
    """Send it to the side output named in `LogicalNode.error_tag`."""


@dataclass(frozen=True)
class InputEdge:
    """Where an operator's records come from: the main output of `upstream`, or its side output `tag`."""

    upstream: OperatorName
    partitioning: Partitioning
    tag: str | None = None
    input: int = 0
    """Which of the operator's inputs it leads to: a union has one with several edges, a connection has two."""


@dataclass(frozen=True)
class StateDeclaration:
    """One declared state, as far as the fingerprint, the validation and the check against a checkpoint need it."""

    name: str
    kind: str
    value_type: str
    serializer: str = "msgpack/1"
    """Id and version of how its values are written."""

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}[{self.value_type}] as {self.serializer}"


@dataclass(frozen=True)
class LogicalNode:
    """One named operator. Exactly one of `source`, `sink`, `factory` is present; none where only watermarks are
    made."""

    name: OperatorName
    kind: str
    """The method that made it: 'source', 'map', 'process', 'sink' …"""
    inputs: tuple[InputEdge, ...] = ()
    """Several for a union, whose records are mixed, and for a connection, whose inputs the operator tells apart."""
    parallelism: int | None = None
    """None: the job's."""
    source: Source | None = None
    sink: Sink | None = None
    factory: OperatorFactory | None = None
    keyed: bool = False
    """Has keyed state: its inputs are partitioned by HASH, or FORWARD where all come from a `key_by` with partitions;
    but for one that is broadcast."""
    states: tuple[StateDeclaration, ...] = ()
    key_type: str = ""
    """Of a `key_by` that declares one: the type of its keys, as checkpoints spell it."""
    partitions: KeyPartitions | None = None
    """Of a `key_by` whose keys the partitions of the input already keep together: nothing is exchanged behind it."""
    side_outputs: tuple[str, ...] = ()
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    error_tag: str | None = None
    watermarks: WatermarkStrategy[Any] | None = None
    """Its records get timestamps, and its tasks make watermarks of them."""
    asynchronous: int | None = None
    """Its factory makes an `AsyncOperator`, which takes in so many records at once. It begins a chain, because they
    wait for their calls before it."""


class Fingerprint(msgspec.Struct, frozen=True):
    """What two processes compare to know that they run the same program."""

    digest: str
    lines: tuple[str, ...]
    """One a node; the difference of two programs' lines is what the error shows."""


@dataclass(frozen=True)
class LogicalGraph:
    """A validated graph: nodes in topological order, sources first."""

    job: JobName
    nodes: tuple[LogicalNode, ...]

    def node(self, name: OperatorName) -> LogicalNode:
        return next(node for node in self.nodes if node.name == name)

    def select(self, wanted: Callable[[LogicalNode], bool]) -> tuple[LogicalNode, ...]:
        return tuple(node for node in self.nodes if wanted(node))

    @property
    def sources(self) -> tuple[LogicalNode, ...]:
        return self.select(lambda node: node.source is not None)

    @property
    def sinks(self) -> tuple[LogicalNode, ...]:
        return self.select(lambda node: node.sink is not None)

    def key_types(self, node: LogicalNode) -> tuple[str, ...]:
        """What is declared of the keys that a keyed operator gets."""
        return tuple(key_by.key_type for key_by in self.key_bys(node) if key_by.key_type)

    def key_bys(self, node: LogicalNode) -> tuple[LogicalNode, ...]:
        """What gives the records of a keyed operator their keys; none for another operator."""
        if not node.keyed:
            return ()
        upstream = {edge.upstream for edge in node.inputs if edge.partitioning is not Partitioning.BROADCAST}
        return self.select(lambda other: other.name in upstream)

    def partitioned_key_by(self, node: LogicalNode) -> LogicalNode | None:
        """What gives a keyed operator keys that the input's partitions keep together; None where they are exchanged."""
        return next((key_by for key_by in self.key_bys(node) if key_by.partitions is not None), None)

    def fingerprint(self) -> Fingerprint:
        """Names, kinds, states, edges; nothing that depends on the process."""
        lines = tuple(_describe(node) for node in self.nodes)
        return Fingerprint(xxhash.xxh3_128_hexdigest("\n".join((self.job, *lines)).encode()), lines)


def _describe(node: LogicalNode) -> str:
    inputs = ", ".join(map(_describe_input, node.inputs))
    states = ", ".join(map(str, node.states))
    parts = [f"{node.kind} {node.name}"]
    parts += [f"from {inputs}"] if inputs else []
    parts += [f"state {states}"] if states else []
    parts += [f"keys in {node.partitions}"] if node.partitions else []
    parts += [f"parallelism {node.parallelism}"] if node.parallelism else []
    parts += [f"watermarks {node.watermarks}"] if node.watermarks else []
    parts += [f"side outputs {', '.join(node.side_outputs)}"] if node.side_outputs else []
    return "; ".join(parts)


def _describe_input(edge: InputEdge) -> str:
    output = f"{edge.upstream}#{edge.tag}" if edge.tag else edge.upstream
    place = f" as input {edge.input}" if edge.input else ""
    return f"{output}/{edge.partitioning.value}{place}"
