"""Stored pieces in their order: what several of them together say, group by group, without the program's types.

A snapshot's handles are a chain: full pieces, then pieces with changes, each replacing what those before it say of its
keys. A handle stands for its groups only; what else its content holds belongs to somebody else and is never looked at.
Reading goes through the groups in ascending order and keeps a file in memory only as long as groups of it are to come.
"""

from collections.abc import Iterable, Iterator, Sequence

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.errors import CorruptError, InternalError
from tidegate.ids import KeyGroup
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.key_groups import grouping_of
from tidegate.state.pieces import Column, Piece, PieceHeader, StoredRow

Entries = dict[bytes, bytes | None]
"""By key: its value, or None where it was removed."""


def read_rows(snapshot: OperatorSnapshot, files: StoredFiles, groups: range) -> Iterator[StoredRow]:
    """What a snapshot made of pieces holds of `groups`, by group and state. Raises CorruptError, StorageUnavailable."""
    reader = ChainReader(snapshot.handles, files, states=[state.name for state in snapshot.states])
    for group in groups:
        for state, entries in reader.read(KeyGroup(group)).items():
            for key, value in entries.items():
                if value is not None:
                    yield StoredRow(state, KeyGroup(group), key, value)


def open_piece(handle: StateHandle, files: StoredFiles) -> Piece:
    """The content of a handle. Raises CorruptError, StorageUnavailable."""
    if handle.form != PIECE:
        raise InternalError(f"{handle.path or 'inline state'} is of form {handle.form}, which is read elsewhere")
    return Piece(files.read_state(handle))


def columns_of(piece: Piece, group: KeyGroup, states: Sequence[str] | None) -> Iterator[tuple[str, Column]]:
    """The columns of one group. Raises CorruptError for keys of another group and for states not among `states`."""
    grouping = grouping_of(piece.header.key_type, piece.header.max_parallelism)
    for name, column in piece.columns(group):
        if states is not None and name not in states:
            raise CorruptError(f"stored state {name} is not among the states of its checkpoint")
        for keys in (column.keys, column.removed):
            if keys and grouping.group_of(keys[0]) != group:
                raise CorruptError(f"a stored key of state {name} is not of group {group}")
        yield name, column


def groups_in(handle: StateHandle) -> range:
    """The groups that a handle stands for."""
    return range(handle.first_group, handle.last_group + 1)


class ChainReader:
    """What the handles of a chain together say. Groups are read in ascending order, each once.

    keep_removals: whether removed keys come too, as None; needed where something older stays below. states: the only
    names that may come; None for any.
    """

    def __init__(
        self,
        handles: Iterable[StateHandle],
        files: StoredFiles,
        *,
        keep_removals: bool = False,
        states: Sequence[str] | None = None,
    ) -> None:
        self._handles = list(handles)
        self._files = files
        self._keep_removals = keep_removals
        self._states = states
        self._open: dict[int, Piece] = {}
        """By place in the chain."""

    def read(self, group: KeyGroup) -> dict[str, Entries]:
        """By state, what is said of the keys of one group."""
        self._open = {index: piece for index, piece in self._open.items() if group <= self._handles[index].last_group}
        merged: dict[str, Entries] = {}
        for index, handle in enumerate(self._handles):
            if handle.first_group <= group <= handle.last_group:
                self._apply(self._piece(index), group, merged)
        return merged

    def _piece(self, index: int) -> Piece:
        if index not in self._open:
            self._open[index] = open_piece(self._handles[index], self._files)
        return self._open[index]

    def _apply(self, piece: Piece, group: KeyGroup, merged: dict[str, Entries]) -> None:
        for name, column in columns_of(piece, group, self._states):
            entries = merged.setdefault(name, {})
            expected = len(entries) + len(column.keys)
            entries.update(zip(column.keys, column.values, strict=True))
            if piece.header.is_full and len(entries) != expected:
                raise CorruptError(f"a key of state {name} is stored twice")
            if self._keep_removals:
                entries.update(dict.fromkeys(column.removed))
            else:
                for key in column.removed:
                    entries.pop(key, None)


def check_header(header: PieceHeader, handle: StateHandle) -> None:
    """Raise CorruptError when a handle stands for groups that its content does not cover."""
    if handle.first_group < header.first_group or handle.last_group > header.last_group:
        raise CorruptError(
            f"{handle.path or 'inline state'} stands for groups {handle.first_group} to {handle.last_group} and holds "
            f"groups {header.first_group} to {header.last_group}"
        )
