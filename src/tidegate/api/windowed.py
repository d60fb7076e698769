"""Windows of a keyed stream: `stream.key_by(...).window(TumblingEventTimeWindows("60s")).aggregate(...)`.

What a program says here becomes one operator, of `operators/windows`. It adds to the graph and runs nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import SideOutput
from tidegate.api.validation import check_function, check_parallelism, declarations, reduced_state
from tidegate.api.window_functions import ProcessWindowFunction, Results, results_of_all, results_of_one
from tidegate.api.windowing import Functions, Windowing, window_spec
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.keyed import ByValue
from tidegate.operators.windows import window_operator, window_states
from tidegate.operators.windows.functions import WindowContext
from tidegate.serializers import Pickled, Serialized, list_of

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
    """How the records of a window, or all of a key, become one result, one by one, without being kept.

    type: of the accumulator, the only thing that is stored. create() makes an empty one, add(accumulator, record) and
    merge(accumulator, other) return it with more in it and may change their first argument, result(accumulator) is what
    is put out, and must not be something that `add` changes later (in Flink: AggregateFunction).
    """

    type: Stored
    create: Callable[[], Acc]
    add: Callable[[Acc, In], Acc]
    merge: Callable[[Acc, Acc], Acc]
    result: Callable[[Acc], Out]


@dataclass(frozen=True)
class ValueAggregate(Aggregate[In, Any, Out]):
    """One that `add`s a record by adding `of(record)`, unless that is None: a loop can do so without calling `add`."""

    of: Callable[[In], Any]
    add_value: Callable[[Any, Any], Any]
    """Accumulator and value to accumulator; may change the first."""


def by_value(aggregate: Aggregate[Any, Any, Any]) -> ByValue | None:
    """How it adds a record, taken apart; None where it is not one that says so."""
    return ByValue(aggregate.of, aggregate.add_value) if isinstance(aggregate, ValueAggregate) else None


def check_aggregate(operator: OperatorName, aggregate: object) -> None:
    """Raises InvalidError for what is none."""
    if not isinstance(aggregate, Aggregate):
        raise InvalidError(
            f"operator {operator} was given {type(aggregate).__name__} where an aggregate is needed",
            remedy="Make one: Aggregate(type, create, add, merge, result).",
        )


class WindowedStream(Generic[Key, In]):
    """A keyed stream cut into windows, on its way to what is made of each; programs get it from `KeyedStream.window`
    and `KeyedStream.count_window`.

    Without a trigger every window of every key gives its result when it is complete: when the watermark, or for windows
    of processing time the clock, has passed its end. In event time it gives one more for each record that comes later
    than that but within the allowed lateness.

    Results of windows of event time have the window's newest possible timestamp. Those of global and count windows have
    that of the record, or of the timer on event time, that brought them about; all others have none.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        edge: InputEdge,
        windowing: Windowing,
        behind: "Callable[[OperatorName], Stream[Any]]",
    ) -> None:
        """For the engine."""
        self._builder = builder
        self._edge = edge
        self._windowing = windowing
        self._behind = behind

    @overload
    def aggregate(
        self, aggregate: Aggregate[In, Acc, Out], *, name: str, parallelism: int | None = None
    ) -> "Stream[Out]": ...
    @overload
    def aggregate(
        self,
        aggregate: Aggregate[In, Acc, Out],
        window_function: Callable[[Key, Any, Out], Result] | ProcessWindowFunction[Key, Out, Result],
        *,
        name: str,
        side_outputs: Iterable[SideOutput[Any]] = (),
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def aggregate(
        self,
        aggregate: Aggregate[In, Acc, Out],
        window_function: Callable[[Key, Any, Out], Any] | ProcessWindowFunction[Key, Out, Any] | None = None,
        *,
        name: str,
        side_outputs: Iterable[SideOutput[Any]] = (),
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """A stream of one record for each result of a window: what `window_function(key, window, result)` makes of the
        aggregate's result, or that itself; or of what a `ProcessWindowFunction` makes of it, any number of records.
        Accumulators are found again by `name` after a restart. `side_outputs` as in `Stream.process`."""
        operator = self._builder.name("aggregate", name)
        check_aggregate(operator, aggregate)
        results = self._results_of_one(operator, window_function, aggregate.result, side_outputs)
        functions = aggregate.create, aggregate.add, aggregate.merge
        return self._add(operator, "aggregate", aggregate.type, functions, results, parallelism, by_value(aggregate))

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
        window_function: Callable[[Key, Any, In], Result] | ProcessWindowFunction[Key, In, Result],
        *,
        name: str,
        type: Stored | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def reduce(
        self,
        function: Callable[[In, In], In],
        window_function: Callable[[Key, Any, In], Any] | ProcessWindowFunction[Key, In, Any] | None = None,
        *,
        name: str,
        type: Stored | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """As `aggregate`, with the records reduced to one of their own type. `function` must not depend on how they are
        grouped, because windows that overlap share what they have in common. `type` as in `KeyedStream.reduce`."""
        operator = self._builder.name("reduce", name)
        check_function(operator, "reduce", function)
        stored = reduced_state(operator, function, type).declared
        results = self._results_of_one(operator, window_function, _itself, side_outputs)
        join = _Reduction(function)
        return self._add(operator, "reduce", stored, (_nothing, join, join), results, parallelism)

    def process(
        self,
        function: Callable[[WindowContext[Key], list[In]], Iterable[Result] | None]
        | ProcessWindowFunction[Key, In, Result],
        *,
        name: str,
        type: type[In] | Pickled[In] | Serialized[In],
        side_outputs: Iterable[SideOutput[Any]] = (),
        parallelism: int | None = None,
    ) -> "Stream[Result]":
        """A stream of what `function(context, records)` yields for each result of a window, with all of its records in
        the order in which they came, those of windows that overlap piece by piece; or of what a `ProcessWindowFunction`
        makes of them. They are kept until then: an aggregate needs far less. `type` is that of the records.
        `side_outputs` as in `Stream.process`."""
        operator = self._builder.name("process", name)
        results = results_of_all(operator, function, side_outputs, self._windowing.assigner)
        return self._add(operator, "process", list_of(type), (list, _appended, _extended), results, parallelism)

    def _results_of_one(
        self,
        operator: OperatorName,
        function: Any,
        result: Callable[[Any], Any],
        side_outputs: Iterable[SideOutput[Any]],
    ) -> Results:
        return results_of_one(operator, function, result, side_outputs, self._windowing.assigner)

    def _add(
        self,
        operator: OperatorName,
        kind: str,
        stored: Any,
        functions: Functions,
        results: Results,
        parallelism: int | None,
        by_value: ByValue | None = None,
    ) -> "Stream[Any]":
        windowing = self._windowing
        spec = window_spec(operator, windowing, stored, functions, results, by_value)
        states = window_states(windowing.assigner, spec) | {state.name: state for state in results.states}
        late = () if windowing.late is None else (windowing.late.name,)
        self._builder.add(
            LogicalNode(
                operator,
                f"{kind} over {windowing}",
                (self._edge,),
                check_parallelism(operator, parallelism),
                factory=lambda: window_operator(windowing.assigner, spec),
                keyed=True,
                states=declarations(states),
                side_outputs=tuple(sorted({*results.tags, *late})),
            )
        )
        return self._behind(operator)


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
