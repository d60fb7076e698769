"""Windows of a keyed stream: `stream.key_by(...).window(TumblingEventTimeWindows("60s")).aggregate(...)`.

What a program says here becomes one operator, `operators/windows.py`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import SideOutput
from tidegate.api.validation import check_function, check_parallelism, declarations, reduced_state
from tidegate.errors import InvalidError
from tidegate.event_time.durations import seconds_of
from tidegate.event_time.windows import EventTimeSessionWindows, TimeWindow, WindowAssigner
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator
from tidegate.operators.timers import EVENT_TIMERS
from tidegate.operators.user_code import NOT_RECORDS, refuse_outputs
from tidegate.operators.windows import Emit, SessionWindowOperator, WindowOperator, WindowSpec
from tidegate.serializers import Pickled, Serialized
from tidegate.state.descriptors import InternalMapState

if TYPE_CHECKING:
    from tidegate.api.stream import Stream

Key = TypeVar("Key")
In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
Result = TypeVar("Result")
Stored = type[Any] | Pickled[Any] | Serialized[Any]


@dataclass(frozen=True)
class Aggregate(Generic[In, Acc, Out]):
    """How the records of a window become one result, one by one, without being kept.

    type: of the accumulator, the only thing that is stored. create() makes an empty one, add(accumulator, record) and
    merge(accumulator, other) return it with more in it and may change their first argument, result(accumulator) is what
    the window gives (in Flink: AggregateFunction).
    """

    type: Stored
    create: Callable[[], Acc]
    add: Callable[[Acc, In], Acc]
    merge: Callable[[Acc, Acc], Acc]
    result: Callable[[Acc], Out]


class WindowContext:
    """What a `ProcessWindowFunction` knows of a window."""

    __slots__ = ("key", "window")

    def __init__(self, key: Any, window: TimeWindow) -> None:
        self.key = key
        self.window = window
        """Its bounds, in milliseconds since 1970."""


class WindowedStream(Generic[Key, In]):
    """A keyed stream cut into windows, on its way to what is made of each; programs get it from `KeyedStream.window`.

    Every window of every key gives its result when the watermark has passed its end, and once more for each record that
    comes later than that but within the allowed lateness. Results have the window's newest possible timestamp.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        edge: InputEdge,
        assigner: WindowAssigner | EventTimeSessionWindows,
        lateness: int,
        late: SideOutput[In] | None,
        behind: "Callable[[OperatorName], Stream[Any]]",
    ) -> None:
        """For the engine."""
        self._builder = builder
        self._edge = edge
        self._assigner = assigner
        self._lateness = lateness
        self._late = late
        self._behind = behind

    @overload
    def aggregate(
        self, aggregate: Aggregate[In, Acc, Out], *, name: str, parallelism: int | None = None
    ) -> "Stream[Out]": ...
    @overload
    def aggregate(
        self,
        aggregate: Aggregate[In, Acc, Out],
        window_function: Callable[[Key, TimeWindow, Out], Result],
        *,
        name: str,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def aggregate(
        self,
        aggregate: Aggregate[In, Acc, Out],
        window_function: Callable[[Key, TimeWindow, Out], Any] | None = None,
        *,
        name: str,
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """A stream of one record for each window: what `window_function(key, window, result)` makes of the aggregate's
        result, or that itself. Accumulators are found again by `name` after a restart."""
        operator = self._name("aggregate", name, window_function)
        if not isinstance(aggregate, Aggregate):
            raise InvalidError(
                f"operator {operator} was given {type(aggregate).__name__} where an aggregate is needed",
                remedy="Make one: Aggregate(type, create, add, merge, result).",
            )
        give = aggregate.result
        emit = _emits_result(give) if window_function is None else _emits_with(give, window_function)
        functions = aggregate.create, aggregate.add, aggregate.merge
        return self._add(operator, "aggregate", aggregate.type, functions, emit, parallelism)

    @overload
    def reduce(
        self,
        function: Callable[[In, In], In],
        *,
        name: str,
        type: Stored | None = None,
        parallelism: int | None = None,
    ) -> "Stream[In]": ...
    @overload
    def reduce(
        self,
        function: Callable[[In, In], In],
        window_function: Callable[[Key, TimeWindow, In], Result],
        *,
        name: str,
        type: Stored | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def reduce(
        self,
        function: Callable[[In, In], In],
        window_function: Callable[[Key, TimeWindow, In], Any] | None = None,
        *,
        name: str,
        type: Stored | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """As `aggregate`, with the records reduced to one of their own type. `function` must not depend on how they are
        grouped, because windows that overlap share what they have in common. `type` as in `KeyedStream.reduce`."""
        operator = self._name("reduce", name, window_function)
        check_function(operator, "reduce", function)
        stored = reduced_state(operator, function, type).declared
        emit = _emits_result(_itself) if window_function is None else _emits_with(_itself, window_function)
        join = _Reduction(function)
        return self._add(operator, "reduce", stored, (_nothing, join, join), emit, parallelism)

    def process(
        self,
        function: Callable[[WindowContext, list[In]], Iterable[Result]],
        *,
        name: str,
        type: type[In] | Pickled[In] | Serialized[In],
        parallelism: int | None = None,
    ) -> "Stream[Result]":
        """A stream of what `function(context, records)` yields for each window, with all of its records in the order in
        which they came, those of windows that overlap piece by piece. They are kept until then: an aggregate needs far
        less. `type` is that of the records."""
        operator = self._name("process", name, None)
        check_function(operator, "flat_map", function)
        stored: Any = list[type]  # type: ignore[valid-type]
        return self._add(operator, "process", stored, (list, _appended, _extended), _emits_all(function), parallelism)

    def _name(self, kind: str, name: str, window_function: object) -> OperatorName:
        operator = self._builder.name(kind, name)
        if window_function is not None:
            check_function(operator, "the window function", window_function)
        return operator

    def _add(
        self,
        operator: OperatorName,
        kind: str,
        stored: Any,
        functions: tuple[Callable[..., Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]],
        emit: Emit,
        parallelism: int | None,
    ) -> "Stream[Any]":
        name = state_name(self._assigner)
        state: InternalMapState[TimeWindow, Any] = InternalMapState(TimeWindow, stored, name=name)
        tag = None if self._late is None else self._late.name
        spec = WindowSpec(state, *functions, emit, self._lateness, tag)
        self._builder.add(
            LogicalNode(
                operator,
                f"{kind} over {self._assigner}",
                (self._edge,),
                check_parallelism(operator, parallelism),
                factory=lambda: _operator(self._assigner, spec),
                keyed=True,
                states=declarations({name: state, EVENT_TIMERS.name: EVENT_TIMERS}),
                side_outputs=() if tag is None else (tag,),
            )
        )
        return self._behind(operator)


def state_name(assigner: object) -> str:
    """Of the accumulators. It says how the windows are cut: those of other windows are no state of these, and a
    checkpoint that has them is refused."""
    return f".windows-{re.sub('[^A-Za-z0-9]+', '-', str(assigner))}"


def check_windows(assigner: object, allowed_lateness: str | timedelta, late: object) -> int:
    """The allowed lateness in milliseconds. Raises InvalidError when any of the three cannot be."""
    if not hasattr(assigner, "pane_of") and not isinstance(assigner, EventTimeSessionWindows):
        raise InvalidError(
            f"window was given {type(assigner).__name__}",
            remedy='Give an assigner, as TumblingEventTimeWindows("60s") is one.',
        )
    if late is not None and not isinstance(late, SideOutput):
        raise InvalidError(f"late={late!r} is no side output", remedy='Make one: SideOutput[Order]("late").')
    return round(seconds_of("allowed_lateness", allowed_lateness) * 1000)


def _operator(assigner: WindowAssigner | EventTimeSessionWindows, spec: WindowSpec) -> Operator:
    if isinstance(assigner, EventTimeSessionWindows):
        return SessionWindowOperator(assigner, spec)
    return WindowOperator(assigner, spec)


def _emits_result(result: Callable[[Any], Any]) -> Emit:
    return lambda key, window, accumulator: (result(accumulator),)


def _emits_all(function: Callable[[WindowContext, list[Any]], Iterable[Any]]) -> Emit:
    def emit(key: Any, window: TimeWindow, records: list[Any]) -> Iterable[Any]:
        # A copy: the function may keep or change what it is given, and late records are still to come.
        outputs: Any = function(WindowContext(key, window), list(records))
        if outputs.__class__ in NOT_RECORDS:
            refuse_outputs(outputs)
        return () if outputs is None else outputs

    return emit


def _emits_with(result: Callable[[Any], Any], function: Callable[[Any, TimeWindow, Any], Any]) -> Emit:
    return lambda key, window, accumulator: (function(key, window, result(accumulator)),)


_NOTHING: Any = object()


def _nothing() -> Any:
    """A reduction has no empty accumulator: this is put out of the way by the first record, and never stored."""
    return _NOTHING


class _Reduction:
    """A reduce function that takes nothing for what it is."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def __call__(self, one: Any, other: Any) -> Any:
        if one is _NOTHING:
            return other
        reduced = self._function(one, other)
        if reduced is None:
            raise TypeError("the reduce function returned None; it must return the new value")
        return reduced


def _itself(accumulator: Any) -> Any:
    return accumulator


def _appended(records: list[Any], record: Any) -> list[Any]:
    records.append(record)
    return records


def _extended(records: list[Any], others: list[Any]) -> list[Any]:
    records.extend(others)
    return records
