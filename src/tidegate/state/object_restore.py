"""What earlier subtasks stored, loaded for the object backend: keys as objects, values still bytes.

Only keys of one's own groups are kept, whatever else the files hold. Where all of it is pieces, the chain can be gone
on with: the runs that it consists of are found again from the order of the handles.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.chain import check_header, columns_of, groups_in, open_piece
from tidegate.state.key_groups import merge_key_types
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.object_capture import Owner
from tidegate.state.pieces import Column, Piece, StoredRow
from tidegate.state.runs import Run

_ROWS_AT_ONCE = 4096


class RestoredState(NamedTuple):
    """One stored state that no `register` has asked for yet."""

    info: StateInfo
    entries: dict[Any, bytes]


class Loaded(NamedTuple):
    """What one subtask goes on from."""

    key_type: str
    states: dict[str, RestoredState]
    runs: tuple[Run, ...] | None
    """The chain, which may be gone on with; None when it is in a form of another backend."""


def load(snapshots: Sequence[OperatorSnapshot], files: StoredFiles, owner: Owner) -> Loaded:
    """Everything of one's own groups. Raises CorruptError, InvalidError (max_parallelism), StorageUnavailable."""
    loader = _Loader(files, owner)
    _check_disjoint(snapshots, owner)
    for snapshot in snapshots:
        loader.add(snapshot)
    return Loaded(loader.key_type, loader.states, None if loader.has_rows else _joined(loader.chains))


class _Chain(NamedTuple):
    """The runs of one snapshot: full pieces, then runs with changes."""

    full: list[Run]
    changes: list[Run]


class _Loader:
    def __init__(self, files: StoredFiles, owner: Owner) -> None:
        self._files = files
        self._owner = owner
        self.key_type = ""
        self.states: dict[str, RestoredState] = {}
        self.chains: list[_Chain] = []
        self.has_rows = False

    def add(self, snapshot: OperatorSnapshot) -> None:
        self._merge_key_type(snapshot.key_type)
        for state in snapshot.states:
            self.states.setdefault(state.name, RestoredState(state, {}))
        if all(handle.form == PIECE for handle in snapshot.handles):
            self._add_chain(snapshot)
        else:
            self.has_rows = True
            self._add_rows(snapshot)

    # ---- pieces ----------------------------------------------------------------------------------------------------

    def _add_chain(self, snapshot: OperatorSnapshot) -> None:
        names = [state.name for state in snapshot.states]
        chain = _Chain([], [])
        for stored in snapshot.handles:
            handle = self._clipped(stored)
            groups = groups_in(handle)
            if not groups:
                continue
            piece = open_piece(handle, self._files)
            check_header(piece.header, handle)
            self._check_max_parallelism(piece.header.max_parallelism)
            self._merge_key_type(piece.header.key_type)
            self._add_piece(piece, groups, names)
            run = Run((handle,), piece.size(groups))
            if piece.header.is_full and not chain.changes:
                chain.full.append(run)
            elif chain.changes and chain.changes[-1].pieces[-1].last_group < handle.first_group:
                chain.changes[-1] = _together((chain.changes[-1], run))
            else:
                chain.changes.append(run)
        self.chains.append(chain)

    def _clipped(self, handle: StateHandle) -> StateHandle:
        first, last = self._owner.groups.start, self._owner.groups.stop - 1
        if first <= handle.first_group and handle.last_group <= last:
            return handle
        first, last = max(first, handle.first_group), min(last, handle.last_group)
        return msgspec.structs.replace(handle, first_group=first, last_group=last)

    def _add_piece(self, piece: Piece, groups: range, names: Sequence[str]) -> None:
        layout = parse_layout(piece.header.key_type)
        for group in piece.groups(groups):
            for name, column in columns_of(piece, group, names):
                entries = self.states[name].entries
                for key in decode_keys(column.removed, layout):
                    entries.pop(key, None)
                self._put(name, decode_keys(column.keys, layout), column, is_full=piece.header.is_full)

    def _put(self, name: str, keys: list[Any], column: Column, *, is_full: bool) -> None:
        entries = self.states[name].entries
        expected = len(entries) + len(keys)
        entries.update(zip(keys, column.values, strict=True))
        if is_full and len(entries) != expected:
            raise CorruptError(f"a key of state {name} is stored twice", where=self._owner.where)

    # ---- what another backend stored -------------------------------------------------------------------------------

    def _add_rows(self, snapshot: OperatorSnapshot) -> None:
        from tidegate.state.rocksdb import read_rows

        layout = parse_layout(snapshot.key_type)
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            rows = read_rows(snapshot, self._files, self._owner.groups, Path(folder))
            for name, of_state in groupby(rows, key=lambda row: row.state):
                for some in _batches(of_state):
                    column = Column(0, [row.key for row in some], [row.value for row in some])
                    self._put(name, decode_keys(column.keys, layout), column, is_full=True)

    # ---- what all must agree on ------------------------------------------------------------------------------------

    def _check_max_parallelism(self, stored: int) -> None:
        if stored != self._owner.max_parallelism:
            raise InvalidError(
                f"state was stored with max_parallelism {stored}, and the job now has {self._owner.max_parallelism}",
                remedy=f"Set max_parallelism back to {stored}: it decides where each key's state is.",
                where=self._owner.where,
            )

    def _merge_key_type(self, key_type: str) -> None:
        merged = merge_key_types(self.key_type, key_type)
        if merged is None:
            raise CorruptError(
                f"one checkpoint stores keys of type {self.key_type} and of type {key_type}", where=self._owner.where
            )
        self.key_type = merged


def _batches(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    remaining = iter(rows)
    while some := list(islice(remaining, _ROWS_AT_ONCE)):
        yield some


def _check_disjoint(snapshots: Sequence[OperatorSnapshot], owner: Owner) -> None:
    seen: set[int] = set()
    for snapshot in snapshots:
        groups = {group for handle in snapshot.handles for group in groups_in(handle)}
        if seen & groups:
            raise CorruptError(
                f"two subtasks of one checkpoint stored keys of group {min(seen & groups)}", where=owner.where
            )
        seen |= groups


def _joined(chains: Sequence[_Chain]) -> tuple[Run, ...] | None:
    """One chain of several that stand for different groups: whose runs come first does not matter between them."""
    full = [run for chain in chains for run in chain.full]
    changes = zip_longest(*(chain.changes for chain in chains))
    runs = [_together(run for run in level if run is not None) for level in changes]
    if not full:
        return None if runs else ()
    return (_together(full), *runs)


def _together(runs: Iterable[Run]) -> Run:
    several = tuple(runs)
    return Run(tuple(handle for run in several for handle in run.pieces), sum(run.size for run in several))
