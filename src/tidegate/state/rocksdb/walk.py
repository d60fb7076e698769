"""The keys of one state in the database, each once, however many rows it has: all of them, or a few at a time for ever.

What is only in the cache is not seen here: whoever walks has it written first.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.rocksdb.database import Database, after
from tidegate.state.rocksdb.rows import key_of, state_prefix, stored_key

_DECODED = 256
"""Keys that are decoded together."""


class KeyWalk:
    """Walks over the keys of the state `number`."""

    def __init__(self, database: Database, number: int, groups: range) -> None:
        self._database = database
        self._number = number
        self._groups = groups
        self._position: tuple[int, bytes] | None = None
        """The group, and the name behind the last key's rows."""

    def all(self, key_type: str) -> Iterator[Any]:
        """Every key. The state must not change meanwhile."""
        names = (name for _, name in self._names(self._groups.start, b""))
        while chunk := list(islice(names, _DECODED)):
            yield from _decoded(chunk, key_type)

    @property
    def is_at_start(self) -> bool:
        """Whether `next` begins a new round."""
        return self._position is None

    def next(self, limit: int, key_type: str) -> list[Any]:
        """At most `limit` keys, on from where the last call ended."""
        found = list(islice(self._names(*(self._position or (self._groups.start, b""))), limit))
        if len(found) < limit:
            self._position = None
        else:
            group, name = found[-1]
            self._position = (group, after(name))
        return _decoded([name for _, name in found], key_type)

    def _names(self, group: int, start: bytes) -> Iterator[tuple[int, bytes]]:
        """Groups and how the rows of a key in them begin, from `start` in `group`."""
        for current in range(group, self._groups.stop):
            prefix = state_prefix(current, self._number)
            for name in self._database.beginnings(max(start, prefix), after(prefix), key_of):
                yield current, name


def _decoded(names: list[bytes], key_type: str) -> list[Any]:
    return list(decode_keys([stored_key(name) for name in names], parse_layout(key_type))) if names else []
