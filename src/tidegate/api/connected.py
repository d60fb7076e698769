"""Two streams on their way to one operator, as `connect` returns them, and a stream on its way to all subtasks, as
`broadcast` does. Each pair has only `process`, with the class of function that fits."""

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    SideOutput,
)
from tidegate.api.processes import BROADCAST_KIND, CO, KEYED_BROADCAST, KEYED_CO, ProcessKind, add_process
from tidegate.graph.logical import InputEdge
from tidegate.ids import OperatorName

if TYPE_CHECKING:
    from tidegate.api.stream import Stream

First = TypeVar("First")
Second = TypeVar("Second")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class BroadcastStream(Generic[Second]):
    """Records that go to every subtask of the operator behind it: `keyed.connect(rules.broadcast())`.

    All subtasks get the same records; those that one subtask sent, in its order. A broadcast adds no operator and has
    no name.
    """

    def __init__(self, builder: GraphBuilder, edge: InputEdge) -> None:
        """For the engine; programs get it from `Stream.broadcast`."""
        self._builder = builder
        self._edge = edge

    def __repr__(self) -> str:
        tag = f", side output {self._edge.tag}" if self._edge.tag else ""
        return f"BroadcastStream({self._edge.upstream}{tag})"


class _Connected(Generic[First, Second]):
    """Two inputs of an operator that is still to be named. `result` makes the stream of what an operator emits."""

    def __init__(
        self,
        builder: GraphBuilder,
        inputs: tuple[InputEdge, InputEdge],
        result: Callable[[OperatorName], "Stream[Any]"],
    ) -> None:
        """For the engine; programs get it from `connect`."""
        self._builder = builder
        self._inputs = inputs
        self._result = result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inputs[0].upstream}, {self._inputs[1].upstream})"

    def _process(
        self,
        kind: ProcessKind,
        function: object,
        name: str | None,
        parallelism: int | None,
        side_outputs: Iterable[SideOutput[Any]],
    ) -> "Stream[Any]":
        operator = add_process(self._builder, kind, function, self._inputs, name, parallelism, side_outputs)
        return self._result(operator)


class ConnectedStreams(_Connected[First, Second]):
    """Two streams for one operator that tells them apart."""

    def process(
        self,
        function: CoProcessFunction[First, Second, Result],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
    ) -> "Stream[Result]":
        """What `function` makes of each record of either; see `CoProcessFunction`. Otherwise as `Stream.process`."""
        return self._process(CO, function, name, parallelism, side_outputs)


class KeyedConnectedStreams(_Connected[First, Second], Generic[Key, First, Second]):
    """Two streams with the same keys, for one operator whose state they share."""

    def process(
        self,
        function: KeyedCoProcessFunction[Key, First, Second, Result],
        *,
        name: str,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
    ) -> "Stream[Result]":
        """What `function` makes of each record of either; see `KeyedCoProcessFunction`. Otherwise as
        `KeyedStream.process`."""
        return self._process(KEYED_CO, function, name, parallelism, side_outputs)


class BroadcastConnectedStream(_Connected[First, Second]):
    """A stream, and what is broadcast to every subtask beside it."""

    def process(
        self,
        function: BroadcastProcessFunction[First, Second, Result],
        *,
        name: str,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
    ) -> "Stream[Result]":
        """What `function` makes of each record; see `BroadcastProcessFunction`. Otherwise as `Stream.process`."""
        return self._process(BROADCAST_KIND, function, name, parallelism, side_outputs)


class KeyedBroadcastConnectedStream(_Connected[First, Second], Generic[Key, First, Second]):
    """A keyed stream, and what is broadcast to every subtask beside it."""

    def process(
        self,
        function: KeyedBroadcastProcessFunction[Key, First, Second, Result],
        *,
        name: str,
        parallelism: int | None = None,
        side_outputs: Iterable[SideOutput[Any]] = (),
    ) -> "Stream[Result]":
        """What `function` makes of each record; see `KeyedBroadcastProcessFunction`. Otherwise as
        `KeyedStream.process`."""
        return self._process(KEYED_BROADCAST, function, name, parallelism, side_outputs)
