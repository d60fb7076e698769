"""Streams: what the program holds while it adds operators to its job. Each method adds one named operator to the graph.

A stream is only a place in the graph. The same one may be used several times: each use gets all the records, and
therefore no function may change a record that it was given.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from tidegate.api.asynchronous import AsyncMethods
from tidegate.api.batches import BatchMethods
from tidegate.api.builder import GraphBuilder
from tidegate.api.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from tidegate.api.functions import ProcessFunction, SideOutput
from tidegate.api.keyed_stream import KeyedStream, check_same_job, spelled
from tidegate.api.processes import PROCESS, add_process
from tidegate.api.validation import (
    check_fails_on_error,
    check_function,
    check_instance,
    check_key_partitions,
    check_key_type,
    check_not_aligned,
    check_parallelism,
    check_side_output,
    check_watermarks,
    error_policy,
)
from tidegate.errors import InvalidError
from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.graph.logical import ErrorPolicy, InputEdge, LogicalNode, Partitioning
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator, Sink
from tidegate.operators.sampling import Sampler, check_fraction
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapOperator,
    UnionOperator,
)
from tidegate.operators.user_code import OnError
from tidegate.state.key_groups import KeyChecker
from tidegate.state.key_partitions import KeyPartitions, partitioned_key_type

T = TypeVar("T")
Record = TypeVar("Record", covariant=True)
Result = TypeVar("Result")
Other = TypeVar("Other")
Key = TypeVar("Key", bound=Hashable)

OnErrorArgument = Literal["fail", "skip"] | SideOutput[Any]
"""What `on_error=` takes: fail the attempt (default), leave the record out and count it, or send it, as it came in, to
a side output that the program reads."""


class Stream(AsyncMethods[Record], BatchMethods[Record], Generic[Record]):
    """Records of one type, in order per subtask.

    Every method takes `name=`. Without one, an operator is called by its kind and its place among the operators of that
    kind, `map-1`; adding another before it then renames it, which does no harm while it has no state. `parallelism=` is
    the number of subtasks; the job's when left out.
    """

    def __init__(self, builder: GraphBuilder, operator: OperatorName, tag: str | None = None) -> None:
        """For the engine; programs get streams from `Job.source` and from each other."""
        self._builder = builder
        self._operator = operator
        self._tag = tag

    def map(
        self,
        function: Callable[[Record], Result],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Result]":
        """One record for each: `function(record)`."""
        return self._function_operator("map", MapOperator, function, name, parallelism, on_error)

    def filter(
        self,
        function: Callable[[Record], object],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Record]":
        """The records for which `function` returns something true."""
        return self._function_operator("filter", FilterOperator, function, name, parallelism, on_error)

    def flat_map(
        self,
        function: Callable[[Record], Iterable[Result]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Result]":
        """Any number of records for each: what `function(record)` yields or returns.

        With `on_error` other than "fail" the outputs of one record are held in memory until it is done, so that a
        record goes either to the output or to the side output, never in part to both.
        """
        return self._function_operator("flat_map", FlatMapOperator, function, name, parallelism, on_error)

    def sample(
        self,
        fraction: float,
        *,
        by: Callable[[Record], Hashable],
        name: str | None = None,
        seed: int = 0,
        parallelism: int | None = None,
    ) -> "Stream[Record]":
        """About `fraction` (0 to 1) of the records: all of one `by(record)`, a user for example, or none of them.

        It depends on what `by` gives and on `seed` alone: the same records are taken in every attempt and in other jobs
        that sample by the same, and a larger fraction takes what a smaller one takes, and more. `by` gives what could
        be a key.
        """
        operator = self._builder.name("sample", name)
        check_function(operator, "sample", by)
        check_fraction(operator, fraction, seed)
        return self._function_operator(
            "sample", FilterOperator, Sampler(fraction, by, seed), operator, parallelism, "fail"
        )

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy[Record], *, name: str | None = None, parallelism: int | None = None
    ) -> "Stream[Record]":
        """The same records with timestamps and watermarks made anew; those that they had are left behind. Given to
        `Job.source` a strategy knows the source's splits and is better: here each subtask's records are taken for
        one."""
        operator = self._builder.name("timestamps", name)
        check_watermarks(operator, strategy)
        check_not_aligned(operator, strategy)
        width = check_parallelism(operator, parallelism)
        self._builder.add(LogicalNode(operator, "timestamps", (self._edge(),), width, watermarks=strategy))
        return Stream(self._builder, operator)

    def key_by(
        self,
        selector: Callable[[Record], Key],
        *,
        key_type: type[Key] | None = None,
        partitions: int | None = None,
        partitioner: Literal["murmur2", "crc32"] = "murmur2",
        name: str | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "KeyedStream[Key, Record]":
        """The same records, those of one key all in the same subtask of what follows, in order.

        Keys are compared by how they are serialised and all have one type: `key_type`, or that of the first key. The
        selector runs where the records come from, as an operator called `<upstream>-key`.

        `partitions`: the topics that the stream comes from have so many, and each record is in the one that the
        `partitioner` of its producer gives the key: "murmur2" (Java's clients and Tidegate's) or "crc32" (librdkafka's,
        so confluent-kafka's, unless they are told otherwise). Then nothing is sent between workers: each subtask reads
        the partitions whose keys it has. The selector gives the key that the record has in the topic; keys are str or
        bytes, which `key_type` says. Both become part of the keys' type and never change while there is state. A record
        that is in another partition stops the job.
        """
        operator = self._builder.name("key_by", name, default=f"{self._operator}-key")
        check_function(operator, "key_by", selector)
        declared = check_key_type(operator, key_type)
        co_partitioned = check_key_partitions(operator, declared, partitions, partitioner)
        if co_partitioned is not None:
            declared = partitioned_key_type(declared, co_partitioned)
        self._add_function_operator(
            operator,
            "key_by",
            lambda errors: KeyByOperator(selector, KeyChecker(operator, key_type, co_partitioned).check, errors),
            self._builder.node(self._operator).parallelism,
            on_error,
            key_type=declared,
            partitions=co_partitioned,
        )
        return KeyedStream(self._builder, operator, self._behind)

    def process(
        self,
        function: ProcessFunction[Record, Result],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
        on_error: Literal["fail"] = "fail",
    ) -> "Stream[Result]":
        """What `function` makes of each record; see `ProcessFunction`. `side_outputs`: those that it writes to and does
        not have as class attributes. A function with state needs a `name`, by which it is found again."""
        check_fails_on_error(name or "process", "process", on_error)
        inputs = (self._edge(),)
        return self._behind(add_process(self._builder, PROCESS, function, inputs, name, parallelism, side_outputs))

    def broadcast(self) -> BroadcastStream[Record]:
        """The same records, each to every subtask of the operator that they are connected to."""
        edge = InputEdge(self._operator, Partitioning.BROADCAST, self._tag, input=1)
        self._builder.add_broadcast(edge)
        return BroadcastStream(self._builder, edge)

    @overload
    def connect(self, other: BroadcastStream[Other]) -> BroadcastConnectedStream[Record, Other]: ...
    @overload
    def connect(self, other: "Stream[Other]") -> ConnectedStreams[Record, Other]: ...
    def connect(
        self, other: "BroadcastStream[Other] | Stream[Other]"
    ) -> "BroadcastConnectedStream[Record, Other] | ConnectedStreams[Record, Other]":
        """This stream and `other` for one operator that tells their records apart; see `CoProcessFunction` and, for
        one that is broadcast, `BroadcastProcessFunction`."""
        if isinstance(other, BroadcastStream):
            check_same_job(self, other)
            return BroadcastConnectedStream(self._builder, (self._edge(), other._edge), self._behind)
        if not isinstance(other, Stream):
            raise InvalidError(
                f"{self!r} is connected with {spelled(other)}",
                remedy="Give another stream or stream.broadcast(). For state by key call key_by on both.",
            )
        check_same_job(self, other)
        second = replace(other._edge(), input=1)
        return ConnectedStreams(self._builder, (self._edge(), second), self._behind)

    def union(
        self, *others: "Stream[Other]", name: str | None = None, parallelism: int | None = None
    ) -> "Stream[Record | Other]":
        """The records of this stream and of `others`, mixed; each stream's own stay in order."""
        operator = self._builder.name("union", name)
        if not others:
            raise InvalidError(f"operator {operator} is a union of one stream", remedy="Give it the other streams.")
        edges = (self._edge(), *(self._edge_of_other(operator, other) for other in others))
        if len(set(edges)) != len(edges):
            raise InvalidError(
                f"operator {operator} is a union with the same stream twice, which would double its records",
                remedy="Give each stream once; to double records on purpose use flat_map.",
            )
        self._builder.add(
            LogicalNode(operator, "union", edges, check_parallelism(operator, parallelism), factory=UnionOperator)
        )
        return Stream(self._builder, operator)

    def side_output(self, tag: SideOutput[Other]) -> "Stream[Other]":
        """The records that the operator of this stream sent to its side output `tag`."""
        if self._tag is not None:
            raise InvalidError(
                f"side output {self._tag!r} of operator {self._operator} has no side outputs itself",
                remedy="Call side_output on the stream that the operator returned.",
            )
        name = check_side_output(self._operator, tag, self._builder.node(self._operator).side_outputs)
        return Stream(self._builder, self._operator, name)

    def sink(self, sink: Sink, *, name: str, parallelism: int | None = None) -> None:
        """Write the records to `sink`, each exactly once."""
        operator = self._builder.name("sink", name)
        check_instance(operator, "a sink", sink, ("open_writer", "open_recovery"))
        self._builder.add(
            LogicalNode(operator, "sink", (self._edge(),), check_parallelism(operator, parallelism), sink=sink)
        )

    def _behind(self, operator: OperatorName) -> "Stream[Any]":
        """What `operator`, which was just added, emits."""
        return Stream(self._builder, operator)

    def __repr__(self) -> str:
        return f"Stream({self._operator}{f', side output {self._tag}' if self._tag else ''})"

    def _edge(self) -> InputEdge:
        return InputEdge(self._operator, Partitioning.FORWARD, self._tag)

    def _edge_of_other(self, union: OperatorName, other: object) -> InputEdge:
        if not isinstance(other, Stream):
            raise InvalidError(
                f"operator {union} is a union with a {type(other).__name__}",
                remedy="Give streams; call key_by behind the union, not before it.",
            )
        if other._builder is not self._builder:
            raise InvalidError(
                f"operator {union} is a union with {other._operator}, a stream of job {other._builder.job}",
                remedy="All streams of a graph begin at the same Job object.",
            )
        return other._edge()

    def _function_operator(
        self,
        kind: str,
        operator_class: Callable[[Callable[[Any], Any], OnError], Operator],
        function: Callable[[Any], Any],
        name: str | None,
        parallelism: int | None,
        on_error: OnErrorArgument,
    ) -> "Stream[Any]":
        operator = self._builder.name(kind, name)
        check_function(operator, kind, function)
        self._add_function_operator(operator, kind, partial(operator_class, function), parallelism, on_error)
        return Stream(self._builder, operator)

    def _add_function_operator(
        self,
        operator: OperatorName,
        kind: str,
        make: Callable[[OnError], Operator],
        parallelism: int | None,
        on_error: OnErrorArgument,
        key_type: str = "",
        partitions: KeyPartitions | None = None,
    ) -> None:
        policy, tag = error_policy(operator, on_error)
        errors = OnError(skip=policy is ErrorPolicy.SKIP, tag=tag)
        self._builder.add(
            LogicalNode(
                operator,
                kind,
                (self._edge(),),
                check_parallelism(operator, parallelism),
                factory=partial(make, errors),
                key_type=key_type,
                partitions=partitions,
                side_outputs=(tag,) if tag is not None else (),
                on_error=policy,
                error_tag=tag,
            )
        )
