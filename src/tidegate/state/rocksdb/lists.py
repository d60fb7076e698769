"""The handle of list state: rows that each hold a few elements, so that adding to a list never reads it, however long
it is, and writes no more than what was added.

Rows are numbered in the order of writing. A list that was read and has many short rows is written anew as few.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tidegate.serializers import Serializer, join_elements
from tidegate.state.descriptors import ListState
from tidegate.state.rocksdb.cache import CachedState, Home
from tidegate.state.rocksdb.database import after
from tidegate.state.rocksdb.rows import StateRows, encode_number

T = TypeVar("T")

_CHUNK_BYTES = 32 * 1024
"""A row is ended when it has so many."""
_ROWS_MAX = 32
"""A list of more rows is written anew when it is read."""
_KEPT_MAX = 4096
"""A longer list is not kept in memory once it is written."""


class _List:
    """A cached list: `added` to what the database has, unless it `is_replaced`. `known`: that and `added` together, if
    it was read."""

    __slots__ = ("added", "is_replaced", "known")

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.known: list[Any] | None = None
        self.is_replaced = False

    def replace(self, values: list[Any]) -> None:
        self.added, self.known, self.is_replaced = values, None, True


class RocksListHandle(CachedState, Generic[T]):
    """A list a key; see `ListHandle`."""

    __slots__ = ("_admit", "_classes", "_element", "_stored")

    def __init__(self, descriptor: ListState[T], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._stored: Serializer[list[T]] = descriptor.stored
        self._element: Serializer[T] = descriptor.element
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], Any] = descriptor.element.admit

    def get(self) -> list[T]:
        cached: _List = self._cached()
        if not cached.is_replaced and cached.known is None:
            self._read(cached)
        if self._is_mutable and not cached.is_replaced and cached.known:
            cached.replace(cached.known)
            self._changed[self._cursor.key] = None
        return list(cached.added if cached.known is None else cached.known)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        if type(value) not in self._classes:
            value = self._admit(value)
        self._append([value])

    def extend(self, values: Iterable[T]) -> None:
        added = self._admitted(values)
        if added:
            self._append(added)

    def update(self, values: Iterable[T]) -> None:
        replaced = self._admitted(values)
        self._cached().replace(replaced)
        self._changed[self._cursor.key] = None
        if replaced:
            self._take_note(replaced)

    def clear(self) -> None:
        self.update(())

    def peek(self) -> list[T] | None:
        key = self._cursor.key
        cached: _List = self._looked_at(key)
        if cached.is_replaced:
            return cached.added or None
        if cached.known is not None:
            return cached.known or None
        return [*self._elements(key)[0], *cached.added] or None

    def _append(self, added: list[T]) -> None:
        cached: _List = self._cached()
        cached.added.extend(added)
        if cached.known is not None:
            cached.known.extend(added)
        self._changed[self._cursor.key] = None
        self._take_note(added)

    def _take_note(self, added: list[T]) -> None:
        if self._is_sample():
            self._weigh(len(self._element.encode(added[0])))
        self._grow(len(added))

    def _admitted(self, values: Iterable[T]) -> list[T]:
        classes, admit = self._classes, self._admit
        return [value if type(value) in classes else admit(value) for value in values]

    def _read(self, cached: _List) -> None:
        key = self._cursor.key
        stored, rows = self._elements(key)
        cached.known = stored + cached.added
        self._grow(len(stored))
        if rows > _ROWS_MAX:
            cached.replace(cached.known)
            self._changed[key] = None

    def _elements(self, key: Any) -> tuple[list[T], int]:
        """What the database has of `key`, and in how many rows."""
        chunks = [value for _, value in self._parts(key)]
        return [element for chunk in chunks for element in self._stored.decode(chunk)], len(chunks)

    def _load(self, key: Any) -> _List:
        return _List()

    def _store(self, batch: Any, key: Any, prefix: bytes, cached: _List) -> None:
        if cached.is_replaced:
            self._database.remove(batch, prefix, after(prefix))
            cached.known = cached.added
        if cached.known is not None and len(cached.known) > _KEPT_MAX:
            cached.known = None
        for chunk in self._chunks(cached.added, key):
            batch.put(prefix + encode_number(self._home.next_number()), join_elements(chunk, self._stored.id))
        cached.added = []
        cached.is_replaced = False

    def _chunks(self, values: list[T], key: Any) -> Iterator[list[bytes]]:
        chunk: list[bytes] = []
        size = before = 0
        for value in values:
            data = self._sized(self._element.encode(value), key, before + size)
            chunk.append(data)
            size += len(data)
            if size >= _CHUNK_BYTES:
                yield chunk
                chunk, size, before = [], 0, before + size
        if chunk:
            yield chunk

    def _is_empty(self, cached: _List) -> bool:
        return not cached.added
