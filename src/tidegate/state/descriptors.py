"""Declared state: class attributes of a process function, `total = tg.ValueState(int, default=0)`, and what a backend
needs to know of each. A descriptor holds no value; several functions in several tasks share it.

On the class a declaration gives itself, on an instance the handle of the current key. It is a non-data descriptor: the
engine puts the handle into the instance's `__dict__` under the attribute's name, so reaching it costs one look-up.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InternalError, InvalidError
from tidegate.ids import is_name
from tidegate.serializers import (
    Pickled,
    Serialized,
    Serializer,
    list_serializer,
    map_serializer,
    serializer_for,
)
from tidegate.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from tidegate.state.ttl import Ttl

H = TypeVar("H")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class StateDescriptor(Generic[H]):
    """One declared state. `H` is the type of its handle.

    name: by which it is found again; the attribute's, unless `name=` was given. type_name: the declared type, spelled
    so that a change shows. Raises InvalidError for a type that cannot be stored or a name that is none.
    """

    kind: str
    is_keyed: ClassVar[bool] = True
    """Whether it belongs to a key. What belongs to none is the business of `state.operator_state`, not of a keyed state
    backend."""
    stored: Serializer[Any]
    """Of all that one key has in this state."""
    element: Serializer[Any]
    """Of what is written through the handle."""
    ttl: Ttl | None = None
    """How long its values live; None: until they are removed."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._attribute = ""
        self._named()

    def __set_name__(self, owner: type, attribute: str) -> None:
        if self._attribute and self._attribute != attribute:
            raise InvalidError(
                f"one {type(self).__name__} is declared as {self._attribute} and as {attribute} of {owner.__name__}",
                remedy="Make one for each.",
            )
        self._attribute = attribute
        self.name = self.name or attribute
        self._named()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> H: ...
    def __get__(self, instance: object | None, owner: type) -> Self | H:
        if instance is None:
            return self
        raise InvalidError(
            f"state {self.name} of {owner.__name__} is used where it belongs to no record",
            remedy="Use state in process_element (and what it calls), never in __init__ or before the job runs.",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type_name}, name={self.name!r})"

    @property
    def type_name(self) -> str:
        return self.element.type_spelling

    @property
    def immutable(self) -> bool:
        """Whether what is written can never change afterwards, so that a capture may refer to it."""
        return self.element.immutable

    @property
    def info(self) -> StateInfo:
        """What a checkpoint says of this state."""
        return StateInfo(self.name, self.kind, self.type_name, self.stored.id)

    def _named(self) -> None:
        self._check_name()
        self._make_serializers(f"state {self.name}" if self.name else f"a {type(self).__name__}")

    def _check_name(self) -> None:
        if self.name and not is_name(self.name):
            raise InvalidError(f"{self.name!r} cannot name a state", remedy="Use up to 64 of A-Z a-z 0-9 _ -.")

    def _make_serializers(self, label: str) -> None:
        """Set `stored` and `element`, which call themselves `label` in errors."""
        raise NotImplementedError


class ValueState(StateDescriptor[ValueHandle[T]]):
    """One value for each key: `total = tg.ValueState(int, default=0)`; without a default `value()` is None at first.

    A default is shared by all keys and therefore must be of an immutable type; for others give `default_factory=list`.
    """

    kind = "value"

    @overload
    def __init__(
        self: "ValueState[S | None]",
        type: type[S] | Pickled[S] | Serialized[S],
        *,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "ValueState[S]",
        type: type[S] | Pickled[S] | Serialized[S],
        default: S,
        *,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "ValueState[S]",
        type: type[S] | Pickled[S] | Serialized[S],
        *,
        default_factory: Callable[[], S],
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "ValueState[Any]",
        type: object,
        default: Any = None,
        *,
        default_factory: Callable[[], Any] | None = None,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None: ...
    def __init__(
        self,
        type: Any,
        default: Any = None,
        *,
        default_factory: Callable[[], Any] | None = None,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None:
        self.ttl = ttl
        self.declared = type
        self.default_factory = default_factory
        super().__init__(name)
        self.default: Any = None if default is None else self._checked_default(default)

    def _checked_default(self, default: Any) -> Any:
        if self.default_factory is not None:
            raise InvalidError("a ValueState has a default and a default_factory", remedy="Give one of them.")
        if not self.immutable:
            raise InvalidError(
                f"the default of a ValueState of the mutable type {self.type_name} would be shared by all keys",
                remedy="Give default_factory=, for example default_factory=list: it makes a new object for each key.",
            )
        return self.element.admit(default)

    def _make_serializers(self, label: str) -> None:
        self.stored = self.element = serializer_for(self.declared, label)


class ListState(StateDescriptor[ListHandle[T]]):
    """A list for each key: `recent = tg.ListState(Event)`."""

    kind = "list"

    @overload
    def __init__(
        self: "ListState[S]", type: type[S] | Pickled[S] | Serialized[S], *, name: str = "", ttl: Ttl | None = None
    ) -> None: ...
    @overload
    def __init__(self: "ListState[Any]", type: object, *, name: str = "", ttl: Ttl | None = None) -> None: ...
    def __init__(self, type: Any, *, name: str = "", ttl: Ttl | None = None) -> None:
        self.ttl = ttl
        self.declared = type
        super().__init__(name)

    def _make_serializers(self, label: str) -> None:
        self.element = serializer_for(self.declared, label)
        self.stored = list_serializer(self.declared, label)


class MapState(StateDescriptor[MapHandle[K, V]]):
    """A map for each key: `by_device = tg.MapState(str, int)`. The type of its keys is immutable and never pickled."""

    kind = "map"
    key: Serializer[Any]
    """Of the map's keys."""

    @overload
    def __init__(
        self: "MapState[R, S]",
        key_type: type[R],
        value_type: type[S] | Pickled[S] | Serialized[S],
        *,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "MapState[R, Any]", key_type: type[R], value_type: object, *, name: str = "", ttl: Ttl | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: "MapState[Any, Any]", key_type: object, value_type: object, *, name: str = "", ttl: Ttl | None = None
    ) -> None: ...
    def __init__(self, key_type: Any, value_type: Any, *, name: str = "", ttl: Ttl | None = None) -> None:
        self.ttl = ttl
        self.declared_key = key_type
        self.declared = value_type
        super().__init__(name)

    @property
    def type_name(self) -> str:
        return f"{self.key.type_spelling} -> {self.element.type_spelling}"

    def _make_serializers(self, label: str) -> None:
        self.key = serializer_for(self.declared_key, f"a map key of {label}")
        if not self.key.immutable:
            raise InvalidError(
                f"{self.key.type_spelling} cannot be the type of a MapState's keys: its values can change",
                remedy="Use an immutable type: str, int, a tuple of such, a frozen struct.",
            )
        self.element = serializer_for(self.declared, label)
        self.stored = map_serializer(self.declared_key, self.declared, label)


class InternalMapState(MapState[K, V]):
    """A map that the engine keeps for each key beside the user's state: '.timers'. Its name begins with a dot, which no
    user's state can."""

    def _check_name(self) -> None:
        if not self.name.startswith("."):
            raise InternalError(f"the engine's own state is called {self.name!r}, as a user's could be")


class FoldedMapState(InternalMapState[K, V]):
    """One that is mostly filled and emptied for many keys at once: see `FoldingHandle`."""


class ReducingState(StateDescriptor[ReducingHandle[T]]):
    """All values of a key reduced to one of the same type: `highest = tg.ReducingState(int, max)`."""

    kind = "reducing"

    def __init__(
        self,
        type: type[T] | Pickled[T] | Serialized[T],
        reduce_function: Callable[[T, T], T],
        *,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None:
        self.ttl = ttl
        self.declared = type
        self.reduce_function = reduce_function
        super().__init__(name)

    def _make_serializers(self, label: str) -> None:
        self.stored = self.element = serializer_for(self.declared, label)


class AggregatingState(StateDescriptor[AggregatingHandle[T, R]]):
    """All values of a key aggregated: `mean = tg.AggregatingState(Sum, Sum, add, result)`.

    create() makes the accumulator of a key's first value, add(accumulator, value) returns it with one value more, and
    result(accumulator) is what `get` gives. `type` is that of the accumulator, the only thing that is stored.
    """

    kind = "aggregating"

    def __init__(
        self,
        type: type[V] | Pickled[V] | Serialized[V],
        create: Callable[[], V],
        add: Callable[[V, T], V],
        result: Callable[[V], R],
        *,
        name: str = "",
        ttl: Ttl | None = None,
    ) -> None:
        self.ttl = ttl
        self.declared = type
        self.create: Callable[[], Any] = create
        self.add_function: Callable[[Any, T], Any] = add
        self.result_function: Callable[[Any], R] = result
        super().__init__(name)

    def _make_serializers(self, label: str) -> None:
        self.stored = self.element = serializer_for(self.declared, label)


def collect_descriptors(function: object) -> dict[str, StateDescriptor[Any]]:
    """The declared states of a function (or of its class) by attribute, base classes first, in order of declaration.

    An attribute declared again in a derived class replaces the base's and must be of the same kind and type. Raises
    InvalidError if it is not, or if two attributes have states of one name.
    """
    cls = function if isinstance(function, type) else type(function)
    found: dict[str, StateDescriptor[Any]] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, StateDescriptor):
                _check_redeclared(cls, found.get(attribute), value)
                found[attribute] = value
            else:
                found.pop(attribute, None)
    attributes: dict[str, str] = {}
    for attribute, descriptor in found.items():
        if descriptor.name in attributes:
            raise InvalidError(
                f"{cls.__name__} declares two states with the name {descriptor.name!r}: "
                f"{attributes[descriptor.name]} and {attribute}",
                remedy="Give each a name of its own.",
            )
        attributes[descriptor.name] = attribute
    return found


def _check_redeclared(cls: type, old: StateDescriptor[Any] | None, new: StateDescriptor[Any]) -> None:
    if old is not None and old.name == new.name and (old.kind, old.type_name) != (new.kind, new.type_name):
        raise InvalidError(
            f"{cls.__name__} declares state {new.name} as {new.kind} of {new.type_name}, "
            f"its base class as {old.kind} of {old.type_name}",
            remedy="Give the new one another name.",
        )
