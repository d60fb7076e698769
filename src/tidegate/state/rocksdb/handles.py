"""The handles of states with one value a key: value, reducing and aggregating state over the write-back cache.

A call per record passes here: a key that is in use costs a few look-ups, as in the object backend, and no call of the
database. A value of a mutable type that was read counts as changed, since nobody would see it otherwise.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegate.serializers import Serializer
from tidegate.state.descriptors import AggregatingState, ReducingState, StateDescriptor, ValueState
from tidegate.state.rocksdb.cache import ABSENT, CachedState, Home
from tidegate.state.rocksdb.rows import StateRows

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


class WholeState(CachedState):
    """A state of one row a key. What is cached is the value itself, or ABSENT."""

    __slots__ = ("_admit", "_classes", "_stored")

    def __init__(self, descriptor: StateDescriptor[Any], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._stored: Serializer[Any] = descriptor.stored
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], Any] = descriptor.element.admit

    def clear(self) -> None:
        self._replace(ABSENT)

    def peek(self) -> Any:
        found = self._looked_at(self._cursor.key)
        return None if found is ABSENT else found

    def _replace(self, value: Any) -> None:
        """Whatever was there, the current key's value is now `value`, or ABSENT."""
        key = self._cursor.key
        if key not in self._young:
            self._begin(key, value)
        self._young[key] = value
        self._changed[key] = None

    def _begin(self, key: Any, value: Any) -> None:
        """`key` is about to enter the young generation."""
        self._old.pop(key, None)
        if value is not ABSENT and self._is_sample():
            self._weigh(len(self._encode(value)))
        self._grow()

    def _load(self, key: Any) -> Any:
        prefix = self._prefix(key)
        data = None if prefix is None else self._database.get(prefix)
        if data is None:
            return ABSENT
        self._weigh(len(data))
        return self._decode(data)

    def _store(self, batch: Any, key: Any, prefix: bytes, cached: Any) -> None:
        if cached is ABSENT:
            batch.delete(prefix)
        else:
            batch.put(prefix, self._sized(self._encode(cached), key))

    def _is_empty(self, cached: Any) -> bool:
        return cached is ABSENT

    def _encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def _decode(self, data: bytes) -> Any:
        return self._stored.decode(data)


class RocksValueHandle(WholeState, Generic[T]):
    """A value a key; see `ValueHandle`."""

    __slots__ = ("_default", "_factory")

    def __init__(self, descriptor: ValueState[T], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._default: T = descriptor.default
        self._factory: Callable[[], T] | None = descriptor.default_factory

    def value(self) -> T:
        key = self._cursor.key
        try:
            found = self._young[key]
        except KeyError:
            found = self._promote(key)
        if found is ABSENT:
            return self._default if self._factory is None else self._made(self._factory())
        if self._is_mutable:
            self._changed[key] = None
        value: T = found
        return value

    def update(self, value: T) -> None:
        if type(value) not in self._classes:
            value = self._admit(value)
        key = self._cursor.key
        if key not in self._young:
            self._begin(key, value)
        self._young[key] = value
        self._changed[key] = None

    def _made(self, value: T) -> T:
        self.update(value)
        kept: T = self._young[self._cursor.key]
        return kept


class RocksReducingHandle(WholeState, Generic[T]):
    """A reduced value a key; see `ReducingHandle`."""

    __slots__ = ("_reduce",)

    def __init__(self, descriptor: ReducingState[T], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._reduce = descriptor.reduce_function

    def get(self) -> T | None:
        found = self._cached()
        if found is ABSENT:
            return None
        if self._is_mutable:
            self._changed[self._cursor.key] = None
        value: T = found
        return value

    def add(self, value: T) -> None:
        if type(value) not in self._classes:
            value = self._admit(value)
        so_far = self._cached()
        if so_far is not ABSENT:
            value = self._reduce(so_far, value)
            if type(value) not in self._classes:
                value = self._admit(value)
        self._replace(value)

    def replace(self, kept: T) -> None:
        """Put this in place of what is kept."""
        self._replace(kept)


class RocksAggregatingHandle(WholeState, Generic[In, Out]):
    """An accumulator a key; see `AggregatingHandle`."""

    __slots__ = ("_add", "_create", "_result")

    def __init__(self, descriptor: AggregatingState[In, Out], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._create = descriptor.create
        self._add = descriptor.add_function
        self._result = descriptor.result_function

    def get(self) -> Out | None:
        found = self._cached()
        if found is ABSENT:
            return None
        if self._is_mutable:
            self._changed[self._cursor.key] = None
        return self._result(found)

    def add(self, value: In) -> None:
        so_far = self._cached()
        accumulator = self._add(self._create() if so_far is ABSENT else so_far, value)
        if type(accumulator) not in self._classes:
            accumulator = self._admit(accumulator)
        self._replace(accumulator)

    def replace(self, kept: Any) -> None:
        """Put this accumulator in place of the one that is kept."""
        self._replace(kept)
