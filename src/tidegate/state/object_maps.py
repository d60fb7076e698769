"""The handles of the object backend for maps, reached by one key of one owner at a time.

What a capture gets of a map of immutable values is a copy of it: putting goes on meanwhile.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from tidegate.state.descriptors import MapState
from tidegate.state.increments import REMOVED
from tidegate.state.object_handles import Cursor, ObjectHandle

K = TypeVar("K")
V = TypeVar("V")


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
