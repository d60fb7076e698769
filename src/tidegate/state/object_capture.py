"""A capture of the object backend: from the objects of some keys to stored pieces, beside the processing of records.

It refers to objects only where the declared type says that they cannot change, and has bytes or copies of all others.
It runs on another thread than the backend and must never touch anything that the backend still writes to.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidegate.checkpoint.protocol import StateHandle, StateInfo
from tidegate.errors import InternalError, InvalidError
from tidegate.ids import KeyGroup
from tidegate.state.backend import SnapshotFiles
from tidegate.state.increments import REMOVED, Changes, Increment
from tidegate.state.key_groups import grouping_of
from tidegate.state.keys import encode_key
from tidegate.state.runs import Run, RunWriter, handles_of

MAX_VALUE_BYTES = 512 * 1024 * 1024
"""At most how many bytes one key may have in one state."""

Encode = Callable[[Any, Any], bytes]
"""From a key and what a capture holds of it to the bytes of its value."""


class Rows:
    """Keys of one state and group, as columns: a tuple for each of millions would keep the garbage collector busy."""

    __slots__ = ("encoded", "keys", "values")

    def __init__(self) -> None:
        self.encoded: list[bytes] = []
        """Canonical."""
        self.keys: list[Any] = []
        self.values: list[Any] = []
        """What the capture holds of each."""

    def encode(self, encode: Encode) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value of each, as stored; None for a key that has nothing any more."""
        for encoded, key, value in zip(self.encoded, self.keys, self.values, strict=True):
            yield encoded, None if value is REMOVED else encode(key, value)


class Owner(NamedTuple):
    """Whose state it is."""

    groups: range
    max_parallelism: int
    where: str
    """Operator and subtask, for errors."""


class CapturedState(NamedTuple):
    """How what a capture holds of one state becomes bytes."""

    info: StateInfo
    encode: Encode


class ObjectCapture:
    """The state of one subtask at one barrier: what has changed, on top of what is stored."""

    def __init__(self, increment: Increment, key_type: str, captured: tuple[CapturedState, ...], owner: Owner) -> None:
        self._increment = increment
        self._key_type = key_type
        self._captured = captured
        self._owner = owner
        self._group_of = grouping_of(key_type, owner.max_parallelism).group_of

    @property
    def key_type(self) -> str:
        return self._key_type

    @property
    def states(self) -> tuple[StateInfo, ...]:
        return tuple(state.info for state in self._captured)

    def store(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """The chain below and a run with what has changed; () when no key has state.

        Raises InvalidError for a value of another type than declared or one that is too large, InternalError for a key
        of somebody else's group.
        """
        increment = self._increment
        changes = increment.merge_generations()
        increment.stored(changes, self._write(changes, files))
        assert increment.chain is not None
        return handles_of(increment.chain)

    def _write(self, changes: Changes, files: SnapshotFiles) -> Run | None:
        names = [state.info.name for state in self._captured]
        placed = self._placed(changes)
        writer = RunWriter(
            files,
            f"{self._increment.checkpoint}",
            self._owner.groups,
            self._owner.max_parallelism,
            self._key_type,
            names,
            is_full=self._increment.is_full,
        )
        for group in sorted(placed):
            for state in self._captured:
                rows = placed[group].pop(state.info.name, None)
                if rows is not None:
                    writer.add(group, state.info.name, rows.encode(state.encode))
        return writer.finish()

    def _placed(self, changes: Changes) -> dict[KeyGroup, dict[str, Rows]]:
        """By group and state, the keys of which something is to be said."""
        placed: dict[KeyGroup, dict[str, Rows]] = {}
        is_full = self._increment.is_full
        for name, entries in changes.items():
            of_state: dict[KeyGroup, Rows] = {}
            for key, value in entries.items():
                if is_full and value is REMOVED:
                    continue
                group, encoded = self._place(key)
                if group not in of_state:
                    of_state[group] = placed.setdefault(group, {})[name] = Rows()
                rows = of_state[group]
                rows.encoded.append(encoded)
                rows.keys.append(key)
                rows.values.append(value)
        return placed

    def _place(self, key: Any) -> tuple[KeyGroup, bytes]:
        encoded = encode_key(key)
        group = self._group_of(encoded)
        if group not in self._owner.groups:
            raise InternalError(
                f"state was kept for key {key!r} of group {group}, which belongs to another subtask",
                where=self._owner.where,
            )
        return group, encoded


def check_size(data: bytes, limit: int, name: str, key: Any, where: str) -> bytes:
    """`data`, unless it is more than one key may have in a state."""
    if len(data) > limit:
        raise InvalidError(
            f"state {name} holds {len(data)} bytes for key {key!r}; one key may have {limit} bytes in one state",
            remedy="Keep less for each key, or spread it over more keys.",
            where=where,
        )
    return data
