"""The handles of the object backend: dicts from key to object, reached through one shared cursor.

A call per record passes here, so each is a few look-ups: no property, no call that could be saved. A handle also knows
how its state is frozen at a barrier and filled at a restore; a frozen state shares nothing that can still change.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, TypeVar

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.serializers import Serializer
from tidegate.state.descriptors import ListState, MapState, ReducingState, StateDescriptor, ValueState

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Cursor:
    """The key that handles mean now."""

    __slots__ = ("key",)
    key: Any

    def __getattr__(self, name: str) -> NoReturn:
        """Reached only while `key` was never set."""
        if name != "key":
            raise AttributeError(name)
        raise InvalidError(
            "state was used without a current key",
            remedy="Use state in process_element (and what it calls), not in open() or close().",
        )


class FrozenState:
    """One state as it was at a barrier."""

    __slots__ = ("encode", "entries", "info")

    def __init__(self, info: StateInfo, entries: dict[Any, Any], encode: Callable[[Any], bytes]) -> None:
        self.info = info
        self.entries = entries
        """By key: immutable objects and copied containers of such, or bytes."""
        self.encode = encode


class ObjectHandle:
    """What the handles of all kinds share. Containers that are empty are never kept."""

    __slots__ = ("_admit", "_classes", "_cursor", "_entries", "_stored", "descriptor")

    def __init__(self, descriptor: StateDescriptor[Any], cursor: Cursor) -> None:
        self.descriptor = descriptor
        self._cursor = cursor
        self._entries: dict[Any, Any] = {}
        self._stored: Serializer[Any] = descriptor.stored
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], Any] = descriptor.element.admit

    def clear(self) -> None:
        self._entries.pop(self._cursor.key, None)

    def freeze(self) -> FrozenState:
        """Immutable values by reference, all others as bytes. Raises InvalidError for a value of another type."""
        info, encode = self.descriptor.info, self._encode
        if self.descriptor.immutable:
            return FrozenState(info, self._copy(), encode)
        return FrozenState(info, {key: encode(value) for key, value in self._entries.items()}, bytes)

    def fill(self, entries: dict[Any, bytes]) -> None:
        """Take over what was stored. Raises CorruptError when some of it is no value of the declared type."""
        decode = self._decode
        self._entries = {key: decode(data) for key, data in entries.items()}

    def _copy(self) -> dict[Any, Any]:
        return self._entries.copy()

    def _encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def _decode(self, data: bytes) -> Any:
        return self._stored.decode(data)


class ObjectValueHandle(ObjectHandle, Generic[T]):
    """A value a key; see `ValueHandle`."""

    __slots__ = ("_default",)

    def __init__(self, descriptor: ValueState[T], cursor: Cursor) -> None:
        super().__init__(descriptor, cursor)
        self._default: T = descriptor.default

    def value(self) -> T:
        value: T = self._entries.get(self._cursor.key, self._default)
        return value

    def update(self, value: T) -> None:
        if type(value) not in self._classes:
            value = self._admit(value)
        self._entries[self._cursor.key] = value


class ObjectFactoryHandle(ObjectValueHandle[T]):
    """A value a key, made by the `default_factory` and stored when it is first read."""

    __slots__ = ("_factory",)

    def __init__(self, descriptor: ValueState[T], factory: Callable[[], T], cursor: Cursor) -> None:
        super().__init__(descriptor, cursor)
        self._factory = factory

    def value(self) -> T:
        entries, key = self._entries, self._cursor.key
        if key in entries:
            kept: T = entries[key]
            return kept
        value = self._factory()
        if type(value) not in self._classes:
            value = self._admit(value)
        entries[key] = value
        return value


class ObjectReducingHandle(ObjectHandle, Generic[T]):
    """A reduced value a key; see `ReducingHandle`."""

    __slots__ = ("_reduce",)

    def __init__(self, descriptor: ReducingState[T], cursor: Cursor) -> None:
        super().__init__(descriptor, cursor)
        self._reduce = descriptor.reduce_function

    def get(self) -> T | None:
        return self._entries.get(self._cursor.key)

    def add(self, value: T) -> None:
        entries, key = self._entries, self._cursor.key
        if type(value) not in self._classes:
            value = self._admit(value)
        if key in entries:
            value = self._reduce(entries[key], value)
            if type(value) not in self._classes:
                value = self._admit(value)
        entries[key] = value


class ObjectListHandle(ObjectHandle, Generic[T]):
    """A list a key; see `ListHandle`."""

    __slots__ = ()

    def get(self) -> list[T]:
        return list(self._entries.get(self._cursor.key, ()))

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        entries, key = self._entries, self._cursor.key
        if type(value) not in self._classes:
            value = self._admit(value)
        if key in entries:
            entries[key].append(value)
        else:
            entries[key] = [value]

    def extend(self, values: Iterable[T]) -> None:
        added = self._admitted(values)
        if added:
            self._entries.setdefault(self._cursor.key, []).extend(added)

    def update(self, values: Iterable[T]) -> None:
        replaced = self._admitted(values)
        if replaced:
            self._entries[self._cursor.key] = replaced
        else:
            self.clear()

    def _admitted(self, values: Iterable[T]) -> list[T]:
        classes, admit = self._classes, self._admit
        return [value if type(value) in classes else admit(value) for value in values]

    def _copy(self) -> dict[Any, Any]:
        return {key: values.copy() for key, values in self._entries.items()}


class ObjectMapHandle(ObjectHandle, Generic[K, V]):
    """A map a key; see `MapHandle`."""

    __slots__ = ("_admit_key", "_conforms", "_key_classes")

    def __init__(self, descriptor: MapState[K, V], cursor: Cursor) -> None:
        super().__init__(descriptor, cursor)
        self._key_classes = descriptor.key.classes
        self._conforms = descriptor.key.conforms
        self._admit_key = descriptor.key.admit

    def get(self, key: K, default: Any = None) -> Any:
        return self._current(key).get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._current(key)

    def put(self, key: K, value: V) -> None:
        if type(key) not in self._key_classes or not self._conforms(key):
            key = self._admit_key(key)
        if type(value) not in self._classes:
            value = self._admit(value)
        entries, current = self._entries, self._cursor.key
        if current in entries:
            entries[current][key] = value
        else:
            entries[current] = {key: value}

    def remove(self, key: K) -> None:
        entries = self._current(key)
        entries.pop(key, None)
        if not entries:
            self.clear()

    def keys(self) -> list[K]:
        return list(self._entries.get(self._cursor.key, ()))

    def values(self) -> list[V]:
        return list(self._entries.get(self._cursor.key, {}).values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries.get(self._cursor.key, {}).items())

    def is_empty(self) -> bool:
        return self._cursor.key not in self._entries

    def _current(self, key: K) -> dict[K, V]:
        """The current map, for a look at `key`; a fresh one where there is none."""
        if not self._conforms(key):
            self._admit_key(key)
        return self._entries.get(self._cursor.key) or {}

    def _copy(self) -> dict[Any, Any]:
        return {key: entries.copy() for key, entries in self._entries.items()}

    def _encode(self, value: dict[K, V]) -> bytes:
        return self._stored.encode(list(value.items()))

    def _decode(self, data: bytes) -> Any:
        return dict(self._stored.decode(data))


def make_handle(descriptor: StateDescriptor[Any], cursor: Cursor) -> ObjectHandle:
    """The handle of a declared state. Raises InvalidError for a kind that this backend does not have."""
    if isinstance(descriptor, ValueState):
        if descriptor.default_factory is not None:
            return ObjectFactoryHandle(descriptor, descriptor.default_factory, cursor)
        return ObjectValueHandle(descriptor, cursor)
    if isinstance(descriptor, ReducingState):
        return ObjectReducingHandle(descriptor, cursor)
    if isinstance(descriptor, ListState):
        return ObjectListHandle(descriptor, cursor)
    if isinstance(descriptor, MapState):
        return ObjectMapHandle(descriptor, cursor)
    raise InvalidError(f"state {descriptor.name} is of kind {descriptor.kind}, which this state backend does not have")
