"""The handles of the object backend for lists and maps, and the choice of a handle for each kind of state.

What a capture gets of a list or a map of immutable values is a copy of the container: adding to it goes on meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from tidegate.errors import InvalidError
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.increments import REMOVED
from tidegate.state.object_handles import (
    Cursor,
    FactoryValueHandle,
    MutableValueHandle,
    ObjectAggregatingHandle,
    ObjectHandle,
    ObjectReducingHandle,
    ObjectValueHandle,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class ObjectListHandle(ObjectHandle, Generic[T]):
    """A list a key; see `ListHandle`."""

    __slots__ = ("_marks",)

    def __init__(self, descriptor: ListState[T], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._marks = not descriptor.immutable

    def get(self) -> list[T]:
        values = self._entries.get(self._cursor.key)
        if values is None:
            return []
        if self._marks:
            self._changes[self._cursor.key] = values
        return list(values)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        entries, key = self._entries, self._cursor.key
        if type(value) not in self._classes:
            value = self._admit(value)
        values = entries.get(key)
        if values is None:
            values = entries[key] = [value]
        else:
            values.append(value)
        self._changes[key] = values

    def extend(self, values: Iterable[T]) -> None:
        added = self._admitted(values)
        if added:
            key = self._cursor.key
            kept = self._entries.setdefault(key, [])
            kept.extend(added)
            self._changes[key] = kept

    def update(self, values: Iterable[T]) -> None:
        replaced = self._admitted(values)
        if replaced:
            key = self._cursor.key
            self._entries[key] = self._changes[key] = replaced
        else:
            self.clear()

    def _admitted(self, values: Iterable[T]) -> list[T]:
        classes, admit = self._classes, self._admit
        return [value if type(value) in classes else admit(value) for value in values]

    def _copied(self, changes: dict[Any, Any]) -> dict[Any, Any]:
        return {key: values if values is REMOVED else values.copy() for key, values in changes.items()}


class ObjectMapHandle(ObjectHandle, Generic[K, V]):
    """A map a key, with values that cannot change; see `MapHandle`."""

    __slots__ = ("_admit_key", "_conforms", "_fitting", "_key_classes")

    def __init__(self, descriptor: MapState[K, V], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._key_classes = descriptor.key.classes
        self._conforms = descriptor.key.conforms
        self._admit_key = descriptor.key.admit
        self._fitting: Any = REMOVED
        """The key that was found right last. It cannot change, and is often the same object: a window, a time."""
        self._write = partial(_write_map, descriptor.stored.encode)

    def get(self, key: K, default: Any = None) -> Any:
        if key is not self._fitting:
            self._check(key)
        entries = self._entries.get(self._cursor.key)
        return default if entries is None else entries.get(key, default)

    def __contains__(self, key: K) -> bool:
        if key is not self._fitting:
            self._check(key)
        return key in self._entries.get(self._cursor.key, ())

    def put(self, key: K, value: V) -> None:
        if key is not self._fitting and (type(key) not in self._key_classes or not self._conforms(key)):
            key = self._admit_key(key)
        self._fitting = key
        if type(value) not in self._classes:
            value = self._admit(value)
        current = self._cursor.key
        entries = self._entries.get(current)
        if entries is None:
            entries = self._entries[current] = {key: value}
        else:
            entries[key] = value
        self._changes[current] = entries

    def fold(
        self,
        key: K,
        owners: Iterable[Any],
        values: Iterable[Any],
        add: Callable[[Any, Any], V],
        begin: Callable[[Any], V],
    ) -> None:
        """See `FoldingHandle`. To look whether a value is of the right type may mean to look through it: that is done
        once for each owner, behind the last value."""
        if not self._conforms(key):
            key = self._admit_key(key)
        everybodys, changes, cursor, classes = self._entries, self._changes, self._cursor, self._classes
        unsure: dict[Any, dict[Any, Any]] = {}
        for owner, value in zip(owners, values, strict=True):
            entries = everybodys.get(owner)
            folded = REMOVED if entries is None else entries.get(key, REMOVED)
            if folded is REMOVED:
                cursor.key = owner
                folded = begin(owner)
            folded = add(folded, value)
            if entries is None:
                entries = everybodys[owner] = {}
            entries[key] = folded
            changes[owner] = entries
            if type(folded) not in classes:
                unsure[owner] = entries
        for entries in unsure.values():
            entries[key] = self._admit(entries[key])

    def take(self, key: K, owners: Iterable[Any]) -> list[V]:
        """See `FoldingHandle`."""
        everybodys, changes, taken = self._entries, self._changes, list[V]()
        for owner in owners:
            entries = everybodys[owner]
            taken.append(entries.pop(key))
            if entries:
                changes[owner] = entries
            else:
                del everybodys[owner]
                changes[owner] = REMOVED
        return taken

    def remove(self, key: K) -> None:
        if key is not self._fitting:
            self._check(key)
        current = self._cursor.key
        entries = self._entries.get(current)
        if entries is None or key not in entries:
            return
        if len(entries) > 1:
            del entries[key]
            self._changes[current] = entries
        else:
            del self._entries[current]
            self._changes[current] = REMOVED

    def keys(self) -> list[K]:
        return list(self._entries.get(self._cursor.key, ()))

    def values(self) -> list[V]:
        return list(self._entries.get(self._cursor.key, {}).values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries.get(self._cursor.key, {}).items())

    def is_empty(self) -> bool:
        return self._cursor.key not in self._entries

    def fill(self, entries: dict[Any, bytes], read: Callable[[bytes], Any]) -> None:
        super().fill(entries, lambda data: dict(read(data)))

    def _check(self, key: K) -> None:
        """Refuse to look for what can be no key here."""
        if not self._conforms(key):
            self._admit_key(key)
        else:
            self._fitting = key

    def _copied(self, changes: dict[Any, Any]) -> dict[Any, Any]:
        return {key: entries if entries is REMOVED else entries.copy() for key, entries in changes.items()}


def _write_map(encode: Callable[[Any], bytes], entries: dict[Any, Any]) -> bytes:
    """In the order of the entries."""
    return encode(list(entries.items()))


class MutableMapHandle(ObjectMapHandle[K, V]):
    """A map a key, with values that may be changed by whoever reads them."""

    __slots__ = ()

    def get(self, key: K, default: Any = None) -> Any:
        self._mark()
        return super().get(key, default)

    def values(self) -> list[V]:
        self._mark()
        return super().values()

    def items(self) -> list[tuple[K, V]]:
        self._mark()
        return super().items()

    def _mark(self) -> None:
        key = self._cursor.key
        entries = self._entries.get(key)
        if entries is not None:
            self._changes[key] = entries


def make_handle(descriptor: StateDescriptor[Any], cursor: Cursor, limit: int, where: str) -> ObjectHandle:
    """The handle of a declared state. Raises InvalidError for a kind that this backend does not have."""
    if isinstance(descriptor, ValueState):
        if descriptor.default_factory is not None:
            return FactoryValueHandle(descriptor, descriptor.default_factory, cursor, limit, where)
        value = ObjectValueHandle if descriptor.immutable else MutableValueHandle
        return value(descriptor, cursor, limit, where)
    if isinstance(descriptor, ReducingState):
        return ObjectReducingHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, AggregatingState):
        return ObjectAggregatingHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, ListState):
        return ObjectListHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, MapState):
        entries = ObjectMapHandle if descriptor.immutable else MutableMapHandle
        return entries(descriptor, cursor, limit, where)
    raise InvalidError(f"state {descriptor.name} is of kind {descriptor.kind}, which this state backend does not have")
