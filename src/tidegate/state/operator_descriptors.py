"""Declarations of state without keys: lists of a subtask (`OperatorListState`) and maps that all subtasks have alike
(`BroadcastState`). They hold no value; `operator_state` has the backend."""

from typing import Any, Literal, TypeVar, overload

from tidegate.errors import InternalError, InvalidError
from tidegate.serializers import Pickled, Serialized, list_serializer, serializer_for
from tidegate.state.descriptors import MapState, StateDescriptor
from tidegate.state.handles import ListHandle

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")

SPLIT = "list-split"
UNION = "list-union"
BROADCAST = "broadcast"


class OperatorListState(StateDescriptor[ListHandle[T]]):
    """A list that belongs to no key but to a subtask: `pending = tg.OperatorListState(Order)`.

    `redistribution` says what the lists of all subtasks become when the operator goes on at another parallelism:
    'split': all elements, in the order of the subtasks, are dealt out in pieces of equal length, as even as possible.
    'union': each subtask gets all elements of all, also at the same parallelism, and keeps what it wants.
    """

    is_keyed = False

    @overload
    def __init__(
        self: "OperatorListState[S]",
        type: type[S] | Pickled[S] | Serialized[S],
        *,
        redistribution: Literal["split", "union"] = "split",
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self: "OperatorListState[Any]",
        type: object,
        *,
        redistribution: Literal["split", "union"] = "split",
        name: str = "",
    ) -> None: ...
    def __init__(self, type: Any, *, redistribution: Literal["split", "union"] = "split", name: str = "") -> None:
        if redistribution not in ("split", "union"):
            raise InvalidError(
                f"an OperatorListState has redistribution={redistribution!r}", remedy='Give "split" or "union".'
            )
        self.kind = SPLIT if redistribution == "split" else UNION
        self.declared = type
        super().__init__(name)

    def _make_serializers(self, label: str) -> None:
        self.element = serializer_for(self.declared, label)
        self.stored = list_serializer(self.declared, label)


class InternalOperatorListState(OperatorListState[T]):
    """A list that the engine keeps beside the user's state: '.requests'. Its name begins with a dot, which no user's
    state can."""

    def _check_name(self) -> None:
        if not self.name.startswith("."):
            raise InternalError(f"the engine's own state is called {self.name!r}, as a user's could be")


class BroadcastState(MapState[K, V]):
    """A map that every subtask has alike, made of what is broadcast: `rules = tg.BroadcastState(str, Rule)`.

    It is written in `process_broadcast_element` and read everywhere. At another parallelism each subtask gets the copy
    of one earlier subtask.
    """

    kind = BROADCAST
    is_keyed = False

    @overload
    def __init__(
        self: "BroadcastState[R, S]",
        key_type: type[R],
        value_type: type[S] | Pickled[S] | Serialized[S],
        *,
        name: str = "",
    ) -> None: ...
    @overload
    def __init__(self: "BroadcastState[R, Any]", key_type: type[R], value_type: object, *, name: str = "") -> None: ...
    @overload
    def __init__(self: "BroadcastState[Any, Any]", key_type: object, value_type: object, *, name: str = "") -> None: ...
    def __init__(self, key_type: Any, value_type: Any, *, name: str = "") -> None:
        super().__init__(key_type, value_type, name=name)
