"""What a program says when it joins two keyed streams: the arguments that all joins have, checked, and the operator
that they become. It adds one node to the graph and knows no kind of join."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.api.functions import SideOutput
from tidegate.api.validation import check_function, check_late, check_parallelism, declarations
from tidegate.api.windowing import Assigner, state_name
from tidegate.config.values import parse_duration
from tidegate.errors import InvalidError
from tidegate.event_time.durations import seconds_of
from tidegate.event_time.windows import window_type
from tidegate.graph.logical import LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.contracts import OperatorFactory
from tidegate.operators.joins.base import JoinSpec
from tidegate.operators.joins.interval import Rows
from tidegate.operators.joins.windowed import Lists
from tidegate.serializers import Pickled, Serialized, list_of
from tidegate.state.descriptors import InternalMapState, StateDescriptor

if TYPE_CHECKING:
    from tidegate.api.joins import KeyedJoins
    from tidegate.api.stream import Stream

T = TypeVar("T")
Duration = str | timedelta
Stored = type[T] | Pickled[T] | Serialized[T]
"""How records are serialised."""


@dataclass(frozen=True)
class JoinCall:
    """One call of one of the methods, as far as they are alike."""

    method: str
    streams: "tuple[KeyedJoins[Any, Any], KeyedJoins[Any, Any]]"
    name: str
    function: Callable[[Any, Any], Any]
    how: str
    types: Any
    late: SideOutput[Any] | None
    parallelism: int | None

    @property
    def kind(self) -> str:
        return self.method.replace("_", " ")

    @property
    def operator(self) -> OperatorName:
        """Its name; raises InvalidError when it cannot be one."""
        return self.streams[0]._builder.name(self.kind, self.name)

    def check(self, kinds: Sequence[str]) -> None:
        """Raises InvalidError. `kinds`: what `how` may be."""
        operator = self.operator
        check_function(operator, self.method, self.function)
        if self.how not in kinds:
            raise InvalidError(
                f"operator {operator}: {self.method} has how={self.how!r}", remedy=f"Give one of: {', '.join(kinds)}."
            )
        if not isinstance(self.types, tuple) or len(self.types) != len(self.streams):
            raise InvalidError(
                f"operator {operator}: {self.method} has types={self.types!r}",
                remedy="Give the types of the records of both streams, the left one's first: types=(Order, Price).",
            )
        check_late(self.late, f"operator {operator}: ")

    def milliseconds(self, argument: str, duration: Duration, parse: Callable[[object], float] = parse_duration) -> int:
        """Of a duration that it was given. Raises InvalidError."""
        return round(seconds_of(f"operator {self.operator}: {argument}", duration, parse) * 1000)

    def rows(self, name: str, input: int) -> Rows:
        """The state of the records of one input. Raises InvalidError for a type that cannot be stored."""
        return self._state(tuple[int, int], self.types[input], name)

    def windows(self, assigner: Assigner) -> tuple[Lists, Lists]:
        """The states of the records of each input by window. Raises as `rows`."""
        name, kind = state_name(assigner).removeprefix("."), window_type(assigner)
        left, right = (list_of(declared) for declared in self.types)
        return self._state(kind, left, f".left-{name}"), self._state(kind, right, f".right-{name}")

    def _state(self, key_type: Any, declared: Any, name: str) -> InternalMapState[Any, Any]:
        try:
            return InternalMapState(key_type, declared, name=name)
        except InvalidError as error:
            message = f"operator {self.operator}: {error.failure.message}"
            raise InvalidError(message, remedy=error.failure.remedy) from error

    @property
    def spec(self) -> JoinSpec:
        keeps = self.how in ("left", "full"), self.how in ("right", "full")
        return JoinSpec(self.function, keeps, None if self.late is None else self.late.name)

    def add(self, states: Iterable[StateDescriptor[Any]], factory: OperatorFactory, more: str = "") -> "Stream[Any]":
        """The stream of what the operator gives, which is added to the job. more: what its kind says besides."""
        left, right = self.streams
        operator = self.operator
        left._builder.add(
            LogicalNode(
                operator,
                f"{self.kind} {more}".rstrip(),
                left._inputs_with(right),
                check_parallelism(operator, self.parallelism),
                factory=factory,
                keyed=True,
                states=declarations({state.name: state for state in states}),
                side_outputs=() if self.late is None else (self.late.name,),
            )
        )
        return left._behind(operator)


def signed_duration(duration: object) -> float:
    """As `parse_duration`; also what is negative."""
    if isinstance(duration, str) and duration.startswith("-"):
        return -parse_duration(duration[1:])
    if isinstance(duration, timedelta) and duration < timedelta(0):
        return -parse_duration(-duration)
    return parse_duration(duration)
