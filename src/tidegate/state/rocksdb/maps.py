"""The handles of map state: one row for each entry, so that a look at one entry never reads another, however many there
are; and, for keys that can be equal without having the same bytes, one row for the whole map.

The order of first put is kept by a number in each entry's row. What was looked for and not found is remembered, too.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegate.serializers import Serializer
from tidegate.state.descriptors import FoldedMapState, MapState
from tidegate.state.rocksdb.cache import ABSENT, UNKNOWN, CachedState, Home
from tidegate.state.rocksdb.database import after
from tidegate.state.rocksdb.handles import WholeState
from tidegate.state.rocksdb.rows import NUMBER_SIZE, StateRows, decode_number, encode_number

K = TypeVar("K")
V = TypeVar("V")

_KEPT_MAX = 4096
"""Of a map with more entries in memory none are kept once they are written."""

Found = tuple[int, Any]
"""An entry's number in the order of first put, and its value."""


class _Map:
    """A cached map. known: by key, what is there, or ABSENT. is_complete: what is not known is not there. is_replaced:
    and nothing of what the database has counts any more."""

    __slots__ = ("changed", "is_complete", "is_replaced", "known")

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.changed: dict[Any, None] = {}
        self.is_complete = False
        self.is_replaced = False

    def present(self) -> dict[Any, Found]:
        """All entries in their order, of a complete one."""
        return dict(sorted(self.known.items(), key=_number_of))


def _number_of(entry: tuple[Any, Found]) -> int:
    return entry[1][0]


class RocksMapHandle(CachedState, Generic[K, V]):
    """A map a key; see `MapHandle`."""

    __slots__ = ("_admit", "_admit_key", "_classes", "_conforms", "_element", "_is_folded", "_key", "_key_classes")

    def __init__(self, descriptor: MapState[K, V], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._is_folded = isinstance(descriptor, FoldedMapState)
        self._element: Serializer[V] = descriptor.element
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], Any] = descriptor.element.admit
        self._key: Serializer[K] = descriptor.key
        self._key_classes = descriptor.key.classes
        self._conforms = descriptor.key.conforms
        self._admit_key = descriptor.key.admit

    # ---- one entry -------------------------------------------------------------------------------------------------

    def get(self, key: K, default: Any = None) -> Any:
        if not self._conforms(key):
            self._admit_key(key)
        cached: _Map = self._cached()
        found = self._find(cached, key)
        if found is ABSENT:
            return default
        if self._is_mutable:
            self._mark(cached, key)
        return found[1]

    def __contains__(self, key: K) -> bool:
        if not self._conforms(key):
            self._admit_key(key)
        return self._find(self._cached(), key) is not ABSENT

    def put(self, key: K, value: V) -> None:
        if type(key) not in self._key_classes or not self._conforms(key):
            key = self._admit_key(key)
        if type(value) not in self._classes:
            value = self._admit(value)
        cached: _Map = self._cached()
        found = self._find(cached, key)
        if found is ABSENT and self._is_sample():
            self._weigh(len(self._element.encode(value)))
        number = self._home.next_number() if found is ABSENT else found[0]
        cached.known[key] = (number, value)
        self._mark(cached, key)

    def remove(self, key: K) -> None:
        if not self._conforms(key):
            self._admit_key(key)
        cached: _Map = self._cached()
        if cached.is_complete:
            if cached.known.pop(key, ABSENT) is ABSENT:
                return
        else:
            cached.known[key] = ABSENT
        self._mark(cached, key)

    def _mark(self, cached: _Map, key: K) -> None:
        cached.changed[key] = None
        self._changed[self._cursor.key] = None

    def _find(self, cached: _Map, key: K) -> Any:
        """The entry, or ABSENT."""
        found = cached.known.get(key, UNKNOWN)
        if found is not UNKNOWN:
            return found
        self._grow()
        if cached.is_complete:
            return ABSENT
        found = cached.known[key] = self._stored_entry(key)
        return found

    def _stored_entry(self, key: K) -> Any:
        prefix = self._prefix(self._cursor.key)
        data = None if prefix is None else self._database.get(prefix + self._key.encode(key))
        if data is None:
            return ABSENT
        self._weigh(len(data))
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Found:
        return decode_number(data), self._element.decode(data[NUMBER_SIZE:])

    # ---- all entries -----------------------------------------------------------------------------------------------

    def keys(self) -> list[K]:
        cached: _Map = self._cached()
        # Whoever starts asks for those of every owner, and has no use for the values: windows can be large.
        is_start = self._is_folded and not cached.known and not cached.is_complete
        return self._stored_keys() if is_start else list(self._all())

    def _stored_keys(self) -> list[K]:
        """Those that the database has, in their order."""
        numbers = {name: decode_number(data) for name, data in self._parts(self._cursor.key)}
        return [self._key.decode(name) for name in sorted(numbers, key=numbers.__getitem__)]

    def values(self) -> list[V]:
        return [value for _, value in self._read_all().values()]

    def items(self) -> list[tuple[K, V]]:
        return [(key, value) for key, (_, value) in self._read_all().items()]

    def is_empty(self) -> bool:
        cached: _Map = self._cached()
        if any(found is not ABSENT for found in cached.known.values()):
            return False
        if cached.is_complete:
            return True
        rows = self._parts(self._cursor.key)
        return not any(self._key.decode(name) not in cached.known for name, _ in rows)

    def clear(self) -> None:
        cached: _Map = self._cached()
        cached.known, cached.changed = {}, {}
        cached.is_complete = cached.is_replaced = True
        self._changed[self._cursor.key] = None

    def peek(self) -> dict[K, V] | None:
        key = self._cursor.key
        cached: _Map = self._looked_at(key)
        known = cached.known if cached.is_complete else self._together(key, cached)
        present = dict(sorted(((k, found) for k, found in known.items() if found is not ABSENT), key=_number_of))
        return {entry: value for entry, (_, value) in present.items()} or None

    def _read_all(self) -> dict[K, Found]:
        """All entries, to be given to somebody who may change their values."""
        present = self._all()
        if self._is_mutable and present:
            self._cached().changed.update(dict.fromkeys(present))
            self._changed[self._cursor.key] = None
        return present

    def _all(self) -> dict[K, Found]:
        cached: _Map = self._cached()
        if not cached.is_complete:
            before = len(cached.known)
            known = self._together(self._cursor.key, cached)
            cached.known = {key: found for key, found in known.items() if found is not ABSENT}
            cached.is_complete = True
            self._grow(max(0, len(cached.known) - before))
        return cached.present()

    def _together(self, key: Any, cached: _Map) -> dict[K, Any]:
        """What the database has and what is known beyond that, ABSENT included."""
        together: dict[K, Any] = {}
        for name, data in self._parts(key):
            entry = self._key.decode(name)
            if entry not in cached.known:
                self._weigh(len(data))
                together[entry] = self._decoded(data)
        return together | cached.known

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _load(self, key: Any) -> _Map:
        return _Map()

    def _store(self, batch: Any, key: Any, prefix: bytes, cached: _Map) -> None:
        if cached.is_replaced:
            self._database.remove(batch, prefix, after(prefix))
        size = 0
        for entry in cached.changed:
            name = prefix + self._key.encode(entry)
            found = cached.known.get(entry, ABSENT)
            if found is not ABSENT:
                number, value = found
                data = self._sized(self._element.encode(value), key, size)
                batch.put(name, encode_number(number) + data)
                size += len(data)
            elif not cached.is_replaced:
                batch.delete(name)
        cached.changed = {}
        cached.is_replaced = False
        if len(cached.known) > _KEPT_MAX:
            cached.known = {}
            cached.is_complete = False

    def _is_empty(self, cached: _Map) -> bool:
        return all(found is ABSENT for found in cached.known.values())


class WholeMapHandle(WholeState, Generic[K, V]):
    """A map a key in one row; see `MapHandle`. What is cached is a dict that has entries, or ABSENT."""

    __slots__ = ("_admit_key", "_conforms", "_key_classes")

    def __init__(self, descriptor: MapState[K, V], rows: StateRows, home: Home) -> None:
        super().__init__(descriptor, rows, home)
        self._key_classes = descriptor.key.classes
        self._conforms = descriptor.key.conforms
        self._admit_key = descriptor.key.admit

    def get(self, key: K, default: Any = None) -> Any:
        return self._read(key).get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._read(key)

    def put(self, key: K, value: V) -> None:
        if type(key) not in self._key_classes or not self._conforms(key):
            key = self._admit_key(key)
        if type(value) not in self._classes:
            value = self._admit(value)
        entries = self._cached()
        if entries is ABSENT:
            self._replace({key: value})
        else:
            entries[key] = value
            self._changed[self._cursor.key] = None

    def remove(self, key: K) -> None:
        entries = self._read(key)
        if key not in entries:
            return
        del entries[key]
        if entries:
            self._changed[self._cursor.key] = None
        else:
            self.clear()

    def keys(self) -> list[K]:
        return list(self._all())

    def values(self) -> list[V]:
        return list(self._all().values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._all().items())

    def is_empty(self) -> bool:
        return self._cached() is ABSENT

    def _read(self, key: K) -> dict[K, V]:
        """The current map, for a look at `key`."""
        if not self._conforms(key):
            self._admit_key(key)
        return self._all()

    def _all(self) -> dict[K, V]:
        entries = self._cached()
        if entries is ABSENT:
            return {}
        if self._is_mutable:
            self._changed[self._cursor.key] = None
        present: dict[K, V] = entries
        return present

    def _encode(self, value: Any) -> bytes:
        return self._stored.encode(list(value.items()))

    def _decode(self, data: bytes) -> Any:
        return dict(self._stored.decode(data))
