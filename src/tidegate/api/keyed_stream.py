"""Streams with keys: what `Stream.key_by` gives, on its way to an operator with state of each key."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.connected import (
    BroadcastStream,
    KeyedBroadcastConnectedStream,
    KeyedConnectedStreams,
)
from tidegate.api.functions import KeyedProcessFunction, SideOutput
from tidegate.api.joins import KeyedJoins
from tidegate.api.processes import KEYED, add_process
from tidegate.api.ready_operators import add_deduplicate, add_top_n
from tidegate.api.rolling import add_aggregate
from tidegate.api.validation import (
    check_fails_on_error,
    check_function,
    check_parallelism,
    declarations,
    reduced_state,
)
from tidegate.api.windowed import Aggregate, WindowedStream
from tidegate.api.windowing import Windowing, windowing
from tidegate.errors import InvalidError
from tidegate.event_time.triggers import Trigger
from tidegate.event_time.windows import CountWindows, GlobalWindows, SessionWindows, WindowAssigner
from tidegate.graph.logical import InputEdge, LogicalNode, Partitioning
from tidegate.ids import OperatorName
from tidegate.operators.keyed import ReduceOperator
from tidegate.serializers import Pickled, Serialized

T = TypeVar("T")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
Result = TypeVar("Result")
Other = TypeVar("Other")
Key = TypeVar("Key", bound=Hashable)

if TYPE_CHECKING:
    from tidegate.api.stream import Stream


class KeyedStream(KeyedJoins[Key, T], Generic[Key, T]):
    """Records with keys, on their way to an operator with state.

    It has only what uses the key. `map`, `filter` and the others are missing on purpose: behind a `map` nothing could
    say whether the key still fits the record. Call them before `key_by`, or call `key_by` again behind them.
    """

    def __init__(
        self, builder: GraphBuilder, key_by: OperatorName, behind: "Callable[[OperatorName], Stream[Any]]"
    ) -> None:
        """For the engine; programs get keyed streams from `Stream.key_by`."""
        self._builder = builder
        self._key_by = key_by
        self._behind = behind

    def process(
        self,
        function: KeyedProcessFunction[Key, T, Result],
        *,
        name: str,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
        on_error: Literal["fail"] = "fail",
    ) -> "Stream[Result]":
        """What `function` makes of each record and the state of its key; see `KeyedProcessFunction`.

        State is found again by `name` after a restart. `side_outputs` as in `Stream.process`.
        """
        check_fails_on_error(name, "process", on_error)
        inputs = (self._edge(),)
        return self._behind(add_process(self._builder, KEYED, function, inputs, name, parallelism, side_outputs))

    def window(
        self,
        assigner: WindowAssigner | SessionWindows | GlobalWindows,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: str | timedelta = "0",
        late: SideOutput[T] | None = None,
    ) -> WindowedStream[Key, T]:
        """The records of each key cut into windows. They give a result when they are complete, or when `trigger` says
        so. A window of event time that is complete still takes records for `allowed_lateness`, and without a trigger
        gives its result anew with each; what comes later than that goes to the side output `late`, read from the stream
        behind, or is counted as skipped."""
        how = windowing(assigner, trigger, allowed_lateness, late)
        return WindowedStream(self._builder, self._edge(), how, self._behind)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[Key, T]:
        """Windows of `size` records of a key, in the order in which they come, that begin every `slide` records, or one
        behind the other. A window gives its result with its last record: one that never becomes full gives none.
        Windows are `CountWindow`s. State: an accumulator for each piece that windows share, at most
        `size / gcd(size, slide)`, and one number for each key, for ever."""
        assigner = CountWindows(size, size if slide is None else slide)
        return WindowedStream(self._builder, self._edge(), Windowing(assigner, None, 0, None), self._behind)

    @overload
    def connect(self, other: BroadcastStream[Other]) -> KeyedBroadcastConnectedStream[Key, T, Other]: ...
    @overload
    def connect(self, other: "KeyedStream[Key, Other]") -> KeyedConnectedStreams[Key, T, Other]: ...
    def connect(
        self, other: "BroadcastStream[Other] | KeyedStream[Key, Other]"
    ) -> "KeyedBroadcastConnectedStream[Key, T, Other] | KeyedConnectedStreams[Key, T, Other]":
        """This stream and `other` for one operator that tells their records apart and has state by key; see
        `KeyedCoProcessFunction` and, for one that is broadcast, `KeyedBroadcastProcessFunction`."""
        if isinstance(other, BroadcastStream):
            check_same_job(self, other)
            return KeyedBroadcastConnectedStream(self._builder, (self._edge(), other._edge), self._behind)
        return KeyedConnectedStreams(self._builder, self._inputs_with(other), self._behind)

    def reduce(
        self,
        function: Callable[[T, T], T],
        *,
        name: str,
        type: type[T] | Pickled[T] | None = None,
        parallelism: int | None = None,
        on_error: Literal["fail"] = "fail",
    ) -> "Stream[T]":
        """Rolling reduce: for every record, `function` of all records of its key so far, in order.

        The first record of a key is emitted as it is, then `function(so far, record)`. What was emitted is also the
        state of the key, found again by `name`: nothing may change it. `type` says how it is serialised; left out, it
        is what `function` is annotated to return.
        """
        operator = self._builder.name("reduce", name)
        check_function(operator, "reduce", function)
        check_fails_on_error(operator, "reduce", on_error)
        state = reduced_state(operator, function, type)
        self._builder.add(
            LogicalNode(
                operator,
                "reduce",
                (self._edge(),),
                check_parallelism(operator, parallelism),
                factory=lambda: ReduceOperator(function, state),
                keyed=True,
                states=declarations({"value": state}),
            )
        )
        return self._behind(operator)

    @overload
    def aggregate(
        self, aggregate: Aggregate[T, Acc, Out], *, name: str, parallelism: int | None = None
    ) -> "Stream[Out]": ...
    @overload
    def aggregate(
        self,
        aggregate: Aggregate[T, Acc, Out],
        result_function: Callable[[Key, Out], Result],
        *,
        name: str,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def aggregate(
        self,
        aggregate: Aggregate[T, Acc, Out],
        result_function: Callable[[Key, Out], Any] | None = None,
        *,
        name: str,
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """Rolling aggregate: for every record, `result_function(key, result)` of the aggregate's result for all records
        of its key so far, in order, or that result itself, with the record's timestamp.

        The accumulators are the state, found again by `name`, for ever: there is no time to live. `merge` is not used.
        Neither function may change what it is given.
        """
        edge = self._edge()
        return self._behind(add_aggregate(self._builder, edge, name, aggregate, result_function, parallelism))

    def deduplicate(
        self,
        within: str | timedelta,
        *,
        name: str,
        clock: Literal["event", "processing"] = "event",
        allowed_lateness: str | timedelta = "0",
        late: SideOutput[T] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[T]":
        """The records without duplicates: one passes when none of its key has passed `within` of it.

        In event time that is a record whose timestamp is less than `within` away, before it or after it: out of order,
        too, the one that comes first is the one that passes. What passed is remembered until the watermark is `within`
        and `allowed_lateness` beyond it. Of a record that comes later than allowed nobody could say whether it is a
        duplicate: it goes to the side output `late`, read from the stream behind, or is counted as skipped.

        In processing time a key is remembered for `within` on the machine's clock; timestamps mean nothing.

        State: a timestamp and a timer for each record that passed, as long as it is remembered; no records.
        """
        edge = self._edge()
        return self._behind(
            add_deduplicate(self._builder, edge, name, within, clock, allowed_lateness, late, parallelism)
        )

    @overload
    def top_n(
        self,
        n: int,
        by: Callable[[T], Any],
        *,
        name: str,
        type: type[T] | Pickled[T] | Serialized[T],
        parallelism: int | None = None,
    ) -> "Stream[list[T]]": ...
    @overload
    def top_n(
        self,
        n: int,
        by: Callable[[T], Any],
        ranking_function: Callable[[Key, list[T]], Result],
        *,
        name: str,
        type: type[T] | Pickled[T] | Serialized[T],
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def top_n(
        self,
        n: int,
        by: Callable[[T], Any],
        ranking_function: Callable[[Key, list[T]], Any] | None = None,
        *,
        name: str,
        type: type[T] | Pickled[T] | Serialized[T],
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """Rolling ranking: the `n` records of a key so far with the largest `by(record)`, best first, put out by each
        record that changes them: as a list, or as what `ranking_function(key, records)` makes of it.

        Of equals the record that came first is the better one; None from `by` leaves a record out. `type`, that of the
        records, says how they are serialised. State: at most `n` records for each key, for ever.
        """
        edge = self._edge()
        return self._behind(add_top_n(self._builder, edge, name, n, by, ranking_function, type, parallelism))

    def side_output(self, tag: SideOutput[Other]) -> "Stream[Other]":
        """The records on which the key selector raised, where `key_by` has `on_error=tag`."""
        return self._behind(self._key_by).side_output(tag)

    def __repr__(self) -> str:
        return f"KeyedStream({self._key_by})"

    def _inputs_with(self, other: KeyedJoins[Any, Any]) -> tuple[InputEdge, InputEdge]:
        if not isinstance(other, KeyedStream):
            raise InvalidError(
                f"{self!r} is connected with {spelled(other)}, whose records have no keys",
                remedy="Call key_by on it, too, with keys of the same type, or broadcast() it to every subtask.",
            )
        check_same_job(self, other)
        return self._edge(), replace(other._edge(), input=1)

    def _edge(self) -> InputEdge:
        is_exchanged = self._builder.node(self._key_by).partitions is None
        return InputEdge(self._key_by, Partitioning.HASH if is_exchanged else Partitioning.FORWARD)


def check_same_job(one: Any, other: Any) -> None:
    """Whether two streams, with keys, without or broadcast, are of one job. Raises InvalidError."""
    if one._builder is not other._builder:
        raise InvalidError(
            f"{one!r} of job {one._builder.job} is connected with {other!r}, a stream of job {other._builder.job}",
            remedy="All streams of a graph begin at the same Job object.",
        )


def spelled(other: object) -> str:
    """Whatever a stream was connected with, for an error."""
    return repr(other) if hasattr(other, "_builder") else f"an object of type {type(other).__name__}"
