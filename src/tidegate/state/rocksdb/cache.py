"""The write-back cache of one state: decoded objects of keys that were used lately, and which of them the database does
not have yet. A key that stays in use touches the database once a checkpoint, not once a record.

There are two generations. What is used lives in the young one; when that has grown large enough, everything changed is
written, the old generation is dropped and the young one becomes old. This happens between records only, so that an
object that user code got and still works on is never dropped before it is written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidegate.errors import InternalError, InvalidError
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.key_groups import KeyGrouping
from tidegate.state.keys import encode_key
from tidegate.state.object_capture import MAX_VALUE_BYTES
from tidegate.state.object_handles import Cursor
from tidegate.state.rocksdb.database import Database, after
from tidegate.state.rocksdb.rows import StateRows, key_prefix

_OVERHEAD = 400
"""Bytes that Python takes for a key, its places in dicts and a small object, about."""
_INFLATION = 3
"""How many times larger an object is than its bytes, about."""
_SAMPLED = 64
"""Every which new object is encoded to learn how large they are."""
_SMOOTHING = 16


class Absent:
    """The type of `ABSENT` and `UNKNOWN`."""

    __slots__ = ()


ABSENT = Absent()
"""In place of a value: there is none."""
UNKNOWN = Absent()
"""In place of a value: nobody has looked yet."""


class FillingCursor(Cursor):
    """`is_full`: some cache has grown beyond its budget."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        self.is_full = False


class Home(NamedTuple):
    """What all states of a backend have in common. next_number: for elements and entries, growing. value_limit: bytes
    that may be written for one key in one state at once."""

    database: Database
    cursor: FillingCursor
    groups: range
    grouping: KeyGrouping
    next_number: Callable[[], int]
    where: str
    value_limit: int = MAX_VALUE_BYTES


class CachedState(ABC):
    """One state: rows in the database below, a cache above. Derived classes say what a cached object is.

    Objects: by key, whatever `_load` makes; `_changed` are the keys whose object the database does not have.
    """

    __slots__ = (
        "_changed",
        "_cursor",
        "_database",
        "_held",
        "_home",
        "_is_mutable",
        "_new",
        "_old",
        "_weight",
        "_young",
        "budget",
        "descriptor",
        "rows",
    )

    def __init__(self, descriptor: StateDescriptor[Any], rows: StateRows, home: Home) -> None:
        self.descriptor = descriptor
        self.rows = rows
        self.budget = 0
        """Bytes of one generation, about."""
        self._home = home
        self._cursor = home.cursor
        self._database = home.database
        self._is_mutable = not descriptor.immutable
        self._young: dict[Any, Any] = {}
        self._old: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}
        self._held = 0.0
        self._new = 0
        self._weight: float = _OVERHEAD + _INFLATION * 100

    # ---- what derived classes say ----------------------------------------------------------------------------------

    @abstractmethod
    def _load(self, key: Any) -> Any:
        """What the database holds of `key`, as a cached object."""

    @abstractmethod
    def _store(self, batch: Any, key: Any, prefix: bytes, cached: Any) -> None:
        """Put into `batch` what is new in `cached`, the object of `key`: the database then has it."""

    @abstractmethod
    def _is_empty(self, cached: Any) -> bool:
        """Whether the key would leave nothing behind."""

    @abstractmethod
    def peek(self) -> Any:
        """What the current key holds, None if nothing: not to be changed, not kept, nothing marked as changed."""

    # ---- the cache -------------------------------------------------------------------------------------------------

    def _cached(self) -> Any:
        """The object of the current key."""
        key = self._cursor.key
        found = self._young.get(key, UNKNOWN)
        return self._promote(key) if found is UNKNOWN else found

    def _promote(self, key: Any) -> Any:
        found = self._old.pop(key, UNKNOWN)
        if found is UNKNOWN:
            found = self._load(key)
        self._young[key] = found
        self._grow()
        return found

    def _looked_at(self, key: Any) -> Any:
        """The cached object of `key`, or a loaded one that is not kept."""
        found = self._young.get(key, UNKNOWN)
        if found is UNKNOWN:
            found = self._old.get(key, UNKNOWN)
        return self._load(key) if found is UNKNOWN else found

    def _grow(self, parts: int = 1) -> None:
        """`parts` objects more are held."""
        self._held += self._weight * parts
        if self._held > self.budget:
            self._cursor.is_full = True

    def _weigh(self, size: int) -> None:
        """An object of `size` bytes was met."""
        self._weight += (_OVERHEAD + _INFLATION * size - self._weight) / _SMOOTHING

    def _is_sample(self) -> bool:
        self._new += 1
        return self._new % _SAMPLED == 1

    def write_changes(self, batch: Any) -> None:
        """Put everything that the database does not have into `batch`.

        Raises InvalidError for a value of another type than declared or too large, InternalError for a key of a group
        of somebody else.
        """
        for key in self._changed:
            cached = self._young.get(key, UNKNOWN)
            if cached is UNKNOWN:
                cached = self._old[key]
            prefix = self._prefix(key)
            if prefix is not None:
                self._store(batch, key, prefix, cached)
            elif not self._is_empty(cached):
                raise self._foreign(key)
        self._changed.clear()

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    @property
    def is_over_budget(self) -> bool:
        return self._held > self.budget

    def age(self) -> None:
        """Drop the old generation and begin a new one. Everything changed must have been written."""
        self._old = self._young
        self._young = {}
        self._held = 0.0

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _prefix(self, key: Any) -> bytes | None:
        """How the rows of `key` begin; None if it is of somebody else's group."""
        encoded = encode_key(key)
        group = self._home.grouping.group_of(encoded)
        return key_prefix(group, self.rows.number, encoded) if group in self._home.groups else None

    def _foreign(self, key: Any) -> InternalError:
        group = self._home.grouping.group_of(encode_key(key))
        return InternalError(
            f"state was kept for key {key!r} of group {group}, which belongs to another subtask", where=self._home.where
        )

    def _parts(self, key: Any) -> Iterator[tuple[bytes, bytes]]:
        """Ends of row names, and values, of all that the database holds of `key`."""
        prefix = self._prefix(key)
        if prefix is not None:
            start = len(prefix)
            for name, value in self._database.scan(prefix, after(prefix)):
                yield name[start:], value

    def _sized(self, data: bytes, key: Any, before: int = 0) -> bytes:
        """`data`, which is about to be written for `key`, together with `before` bytes. Raises InvalidError when that
        is too much."""
        size = len(data)
        self._weight += (_OVERHEAD + _INFLATION * size - self._weight) / _SMOOTHING
        if before + size > self._home.value_limit:
            raise too_large(before + size, self._home.value_limit, self.descriptor.name, key, self._home.where)
        return data


def too_large(size: int, limit: int, name: str, key: Any, where: str) -> InvalidError:
    """The error that `key` has too much in the state `name`."""
    return InvalidError(
        f"state {name} holds {size} bytes for key {key!r}; one key may have {limit} bytes in one state",
        remedy="Keep less for each key, or spread it over more keys.",
        where=where,
    )
