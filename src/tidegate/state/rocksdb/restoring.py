"""From what earlier subtasks stored to the database of this one: their files as they are, where that is possible, and
otherwise their rows.

One database of exactly one's own groups is gone on with, and its tables count as stored. In all other cases (another
parallelism, another backend's form) a new database gets the rows of one's own groups, and no others. Nothing is decoded
here; whether values fit what is declared is asked when a state is registered.
"""

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, StateInfo
from tidegate.errors import CorruptError, InvalidError, place
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.chain import open_piece, read_rows
from tidegate.state.key_groups import KeyGrouping, grouping_of, merge_key_types
from tidegate.state.pieces import StoredRow
from tidegate.state.rocksdb.cut import ROCKSDB, TABLE, Tables
from tidegate.state.rocksdb.database import Database, after
from tidegate.state.rocksdb.folders import BackendFolder, LocalTables, fetch
from tidegate.state.rocksdb.memory import RocksMemory
from tidegate.state.rocksdb.reading import StoredDatabase
from tidegate.state.rocksdb.rows import DatabaseInfo, StateRows, cut_parts, key_prefix, layout_of, state_prefix

_BATCH_BYTES = 1 << 20


class Restored:
    """A database with what was restored. states: what the checkpoint says of each. tables: those that are stored."""

    def __init__(self, database: Database, info: DatabaseInfo, states: dict[str, StateInfo], tables: Tables) -> None:
        self.database = database
        self.info = info
        self.states = states
        self.tables = tables


class Restorer:
    """Restores the database of one subtask, which has `groups`."""

    def __init__(
        self, folder: BackendFolder, memory: RocksMemory, groups: range, max_parallelism: int, where: str
    ) -> None:
        self._folder = folder
        self._memory = memory
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._where = where

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> Restored:
        """Raises CorruptError, InvalidError (another max_parallelism), StorageUnavailable, UnavailableError."""
        _check_disjoint(snapshots, self._where)
        if len(snapshots) == 1 and _form(snapshots[0]) == ROCKSDB:
            adopted = self._adopted(snapshots[0], files)
            if adopted is not None:
                return adopted
        return self._written(snapshots, files)

    # ---- files as they are -----------------------------------------------------------------------------------------

    def _adopted(self, snapshot: OperatorSnapshot, files: StoredFiles) -> Restored | None:
        """The stored database, unless it holds other groups, too."""
        folder = self._folder.database
        fetch(snapshot.handles, files, folder, LocalTables(self._folder))
        stored = StoredDatabase(folder, snapshot, self._memory)
        info = stored.info
        stored.close()
        self._check_max_parallelism(info.max_parallelism)
        if info.groups != self._groups:
            shutil.rmtree(folder)
            return None
        database = Database(folder, self._memory)
        info = self._without_unclaimed(database, info, snapshot)
        tables = {handle.name: handle for handle in snapshot.handles if handle.name.endswith(TABLE)}
        return Restored(database, info, {state.name: state for state in snapshot.states}, tables)

    def _without_unclaimed(self, database: Database, info: DatabaseInfo, snapshot: OperatorSnapshot) -> DatabaseInfo:
        """What the program that took the snapshot did not declare any more goes for good."""
        named = {state.name for state in snapshot.states}
        batch = database.batch()
        for state in info.states:
            for group in self._groups if state.name not in named else ():
                prefix = state_prefix(group, state.number)
                database.remove(batch, prefix, after(prefix))
        database.write(batch)
        return msgspec.structs.replace(info, states=tuple(state for state in info.states if state.name in named))

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _written(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> Restored:
        states = {state.name: state for snapshot in reversed(snapshots) for state in snapshot.states}
        rows = {state.name: StateRows(state.name, n, layout_of(state)) for n, state in enumerate(states.values())}
        database = Database(self._folder.database, self._memory)
        numbers = itertools.count(1)
        key_type = ""
        try:
            for snapshot in snapshots:
                key_type = self._merged(key_type, snapshot.key_type)
                grouping = grouping_of(snapshot.key_type, self._max_parallelism)
                write_rows(database, self._cut(self._rows_of(snapshot, files), grouping, rows, states, numbers))
        except BaseException:
            database.close()
            raise
        groups, of = self._groups, self._max_parallelism
        info = DatabaseInfo(groups[0], groups[-1], of, key_type, next(numbers), tuple(rows.values()))
        return Restored(database, info, states, {})

    def _cut(
        self,
        found: Iterator[StoredRow],
        grouping: KeyGrouping,
        rows: dict[str, StateRows],
        states: dict[str, StateInfo],
        numbers: Iterator[int],
    ) -> Iterator[tuple[bytes, bytes]]:
        for state, group, key, whole in found:
            if grouping.group_of(key) != group or group not in self._groups:
                raise CorruptError(f"a stored key of state {state} is not of group {group}", where=self._where)
            prefix = key_prefix(group, rows[state].number, key)
            for part, value in cut_parts(rows[state].layout, whole, states[state].serializer, numbers):
                yield prefix + part, value

    def _rows_of(self, snapshot: OperatorSnapshot, files: StoredFiles) -> Iterator[StoredRow]:
        if _form(snapshot) == PIECE:
            self._check_max_parallelism(open_piece(snapshot.handles[0], files).header.max_parallelism)
            yield from read_rows(snapshot, files, self._groups)
            return
        folder = self._folder.scratch()
        try:
            fetch(snapshot.handles, files, folder, LocalTables(self._folder))
            stored = StoredDatabase(folder, snapshot, self._memory)
            try:
                self._check_max_parallelism(stored.info.max_parallelism)
                yield from stored.rows(self._groups)
            finally:
                stored.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _check_max_parallelism(self, stored: int) -> None:
        if stored != self._max_parallelism:
            raise InvalidError(
                f"state was stored with max_parallelism {stored}, and the job now has {self._max_parallelism}",
                remedy=f"Set max_parallelism back to {stored}: it decides where each key's state is.",
                where=self._where,
            )

    def _merged(self, one: str, other: str) -> str:
        merged = merge_key_types(one, other)
        if merged is None:
            raise CorruptError(f"one checkpoint stores keys of type {one} and of type {other}", where=self._where)
        return merged


def write_rows(database: Database, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Write many rows, a batch at a time."""
    batch, size = database.batch(), 0
    for name, value in rows:
        batch.put(name, value)
        size += len(name) + len(value)
        if size >= _BATCH_BYTES:
            database.write(batch)
            batch, size = database.batch(), 0
    database.write(batch)


def _form(snapshot: OperatorSnapshot) -> str:
    """The form of all its handles. Raises CorruptError when they differ, or nobody knows it."""
    forms = sorted({handle.form for handle in snapshot.handles})
    if forms not in ([PIECE], [ROCKSDB]):
        message = f"keyed state is stored in the form {' and '.join(forms)}, which cannot be read"
        raise CorruptError(message, where=place(snapshot.name))
    return forms[0]


def _check_disjoint(snapshots: Sequence[OperatorSnapshot], where: str) -> None:
    """Raise CorruptError when two snapshots stand for the same groups: which of them would hold?"""
    taken: set[int] = set()
    for snapshot in snapshots:
        own = {group for handle in snapshot.handles for group in range(handle.first_group, handle.last_group + 1)}
        if own & taken:
            message = f"two subtasks have stored state of key group {min(own & taken)}: their keys are stored twice"
            raise CorruptError(message, where=where)
        taken |= own
