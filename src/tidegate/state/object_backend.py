"""Keyed state as Python objects in the worker's memory: the live half of the `memory` and `fs` presets.

A capture is a cut: it refers to objects only where the declared type says that they cannot change, and holds all others
as bytes. Making bytes of the rest, sorting into key groups and all else that takes long is left to `Capture.encode`,
which runs on another thread and therefore touches nothing that the backend still writes to.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InternalError, InvalidError, place
from tidegate.ids import KeyGroup, OperatorName, SubtaskIndex
from tidegate.state.backend import EncodedState
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.key_groups import KeyChecker, group_of_bytes, groups_of, merge_key_types
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.keys import encode_key
from tidegate.state.object_handles import Cursor, FrozenState, ObjectHandle, make_handle
from tidegate.state.pieces import Column, Piece, write_piece


class ObjectCapture:
    """The state of one subtask at one barrier."""

    def __init__(self, key_type: str, frozen: tuple[FrozenState, ...], groups: range, max_parallelism: int, where: str):
        self._key_type = key_type
        self._frozen = frozen
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._where = where

    @property
    def key_type(self) -> str:
        return self._key_type

    @property
    def states(self) -> tuple[StateInfo, ...]:
        return tuple(state.info for state in self._frozen)

    def encode(self) -> Sequence[EncodedState]:
        """One piece for all key groups of the subtask; [] when no key has state.

        Raises InvalidError for a value of another type than declared, InternalError for a key of somebody else's group.
        """
        columns: dict[KeyGroup, list[Column]] = {}
        places: dict[Any, tuple[KeyGroup, bytes]] = {}
        for index, state in enumerate(self._frozen):
            own: dict[KeyGroup, Column] = {}
            for key, value in state.entries.items():
                if key not in places:
                    places[key] = self._place(key)
                group, encoded = places[key]
                if group not in own:
                    own[group] = Column(index, [], [])
                    columns.setdefault(group, []).append(own[group])
                own[group].keys.append(encoded)
                own[group].values.append(state.encode(value))
        if not columns:
            return []
        names = tuple(state.info.name for state in self._frozen)
        data = write_piece(self._groups, self._max_parallelism, self._key_type, names, columns)
        return [EncodedState(self._groups[0], self._groups[-1], data)]

    def _place(self, key: Any) -> tuple[KeyGroup, bytes]:
        encoded = encode_key(key)
        group = group_of_bytes(encoded, self._max_parallelism)
        if group not in self._groups:
            raise InternalError(
                f"state was kept for key {key!r} of group {group}, which belongs to another subtask", where=self._where
            )
        return group, encoded


class ObjectStateBackend:
    """Keyed state of one operator of one subtask, as objects. See `KeyedStateBackend`."""

    __slots__ = ("_checker", "_class", "_cursor", "_groups", "_handles", "_max_parallelism", "_restored", "_where")

    def __init__(self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> None:
        self._groups = groups_of(subtask, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._where = place(operator, subtask)
        self._checker = KeyChecker(operator)
        self._class: type | None = None
        """Keys of exactly this class need no further check."""
        self._cursor = Cursor()
        self._handles: dict[str, ObjectHandle] = {}
        self._restored: dict[str, tuple[StateInfo, dict[Any, bytes]]] = {}

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle of a declared state, with what was restored for it.

        Raises InvalidError when two states have one name, or when restored data is of another kind, serializer or type.
        """
        if descriptor.name in self._handles or not descriptor.name:
            problem = f"state {descriptor.name} is registered twice" if descriptor.name else f"{descriptor} has no name"
            raise InvalidError(problem, remedy="Give each state of an operator a name of its own.", where=self._where)
        handle = make_handle(descriptor, self._cursor)
        if descriptor.name in self._restored:
            info, entries = self._restored[descriptor.name]
            self._fill(handle, info, entries)
            del self._restored[descriptor.name]
        self._handles[descriptor.name] = handle
        return handle

    def _fill(self, handle: ObjectHandle, stored: StateInfo, entries: dict[Any, bytes]) -> None:
        descriptor = handle.descriptor
        declared = descriptor.info
        if (stored.kind, stored.serializer) != (declared.kind, declared.serializer):
            raise self._unfit(stored, declared, "the kind or the serializer of a state cannot change")
        if not descriptor.can_restore(stored.value_type):
            raise self._unfit(stored, declared, "the one cannot become the other")
        try:
            handle.fill(entries)
        except CorruptError as error:
            if stored.value_type == declared.value_type:
                raise
            raise self._unfit(stored, declared, error.failure.message) from error

    def _unfit(self, stored: StateInfo, declared: StateInfo, why: str) -> InvalidError:
        old, new = (f"{info.kind} of {info.value_type} ({info.serializer})" for info in (stored, declared))
        return InvalidError(
            f"state {stored.name} was stored as {old} and is declared as {new}: {why}",
            remedy="Fields may be added with defaults, removed or widened; for more, give the new state another name.",
            where=self._where,
        )

    def set_current_key(self, key: Any) -> None:
        """Handles now mean the state of `key`. Raises InvalidError for a key of another type than those before."""
        if type(key) is not self._class and self._checker.admit(key):
            self._class = type(key)
        self._cursor.key = key

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for; captures leave them out."""
        return tuple(self._restored)

    def capture(self) -> ObjectCapture:
        """Raises InvalidError for a value of a mutable type that does not have its declared type."""
        frozen = tuple(handle.freeze() for handle in self._handles.values())
        return ObjectCapture(self._checker.key_type, frozen, self._groups, self._max_parallelism, self._where)

    def restore(self, key_type: str, states: Sequence[StateInfo], pieces: Iterable[bytes]) -> None:
        """Keep what is in one's own key groups; values are decoded by `register`.

        Raises CorruptError for what cannot be read or contradicts itself, InvalidError when max_parallelism or the
        class of the keys has changed.
        """
        if self._handles:
            raise InternalError("state was restored after it had been registered", where=self._where)
        restored: dict[str, tuple[StateInfo, dict[Any, bytes]]] = {state.name: (state, {}) for state in states}
        for data in pieces:
            piece = Piece(data)
            self._check_max_parallelism(piece.header.max_parallelism)
            key_type = self._merge(key_type, piece.header.key_type)
            self._load(piece, restored)
        self._checker.expect(key_type)
        self._restored = restored

    def _load(self, piece: Piece, restored: dict[str, tuple[StateInfo, dict[Any, bytes]]]) -> None:
        layout = parse_layout(piece.header.key_type)
        for group in piece.groups(self._groups):
            for name, column in piece.columns(group):
                if name not in restored:
                    raise CorruptError(
                        f"stored state {name} is not among the states of its checkpoint", where=self._where
                    )
                if column.keys and group_of_bytes(column.keys[0], self._max_parallelism) != group:
                    raise CorruptError(f"a stored key of state {name} is not of group {group}", where=self._where)
                entries = restored[name][1]
                expected = len(entries) + len(column.keys)
                entries.update(zip(decode_keys(column.keys, layout), column.values, strict=True))
                if len(entries) != expected:
                    raise CorruptError(f"a key of state {name} is stored twice", where=self._where)

    def _check_max_parallelism(self, stored: int) -> None:
        if stored != self._max_parallelism:
            raise InvalidError(
                f"state was stored with max_parallelism {stored}, and the job now has {self._max_parallelism}",
                remedy=f"Set max_parallelism back to {stored}: it decides where each key's state is.",
                where=self._where,
            )

    def _merge(self, one: str, other: str) -> str:
        merged = merge_key_types(one, other)
        if merged is None:
            raise CorruptError(f"one checkpoint stores keys of type {one} and of type {other}", where=self._where)
        return merged
