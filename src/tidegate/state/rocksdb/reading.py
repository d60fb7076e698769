"""Stored databases as canonical rows, without the program: what another backend restores, a savepoint holds and an
inspection shows.

A database is fetched into a folder of its own and opened for reading; nothing of it is ever changed. Rows of key groups
that its handles do not stand for belong to somebody else and are never given.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import CorruptError, place
from tidegate.state.backend import StoredFiles
from tidegate.state.key_groups import grouping_of
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.object_capture import MAX_VALUE_BYTES
from tidegate.state.pieces import StoredRow
from tidegate.state.rocksdb.cache import too_large
from tidegate.state.rocksdb.database import Database, after
from tidegate.state.rocksdb.folders import fetch
from tidegate.state.rocksdb.memory import RocksMemory
from tidegate.state.rocksdb.rows import (
    INFO_ROW,
    DatabaseInfo,
    StateRows,
    StoredKey,
    by_key,
    decode_info,
    group_prefix,
    join_parts,
)


def read_rows(snapshot: OperatorSnapshot, files: StoredFiles, groups: range, folder: Path) -> Iterator[StoredRow]:
    """What a snapshot of the form 'rocksdb' holds of `groups`, by group, state and key.

    folder: empty, or not there; it is gone when the iterator has ended or was closed. Raises CorruptError,
    StorageUnavailable, UnavailableError, and InvalidError when rocksdict is not installed.
    """
    try:
        fetch(snapshot.handles, files, folder)
        stored = StoredDatabase(folder, snapshot, RocksMemory(RocksMemory.LIMIT_MIN))
        try:
            yield from stored.rows(groups)
        finally:
            stored.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class StoredDatabase:
    """The database of `snapshot`, whose files are in `folder`. Raises CorruptError for what is none."""

    def __init__(self, folder: Path, snapshot: OperatorSnapshot, memory: RocksMemory) -> None:
        self._snapshot = snapshot
        self._where = place(snapshot.name)
        self._database = Database(folder, memory, is_read_only=True)
        try:
            self.info = read_info(self._database, self._where)
            self._grouping = grouping_of(self.info.key_type, self.info.max_parallelism)
            check_groups(self.info, groups_of_snapshot(snapshot), self._where)
        except BaseException:
            self._database.close()
            raise

    def rows(self, groups: range) -> Iterator[StoredRow]:
        """The rows of those among `groups` that the snapshot stands for, of the states that it names."""
        own = groups_of_snapshot(self._snapshot)
        states = {state.number: state for state in self.info.states}
        serializers = {state.name: state.serializer for state in self._snapshot.states}
        for group in range(max(groups.start, own.start), min(groups.stop, own.stop)):
            prefix = group_prefix(group)
            for found in by_key(self._database.scan(prefix, _end_of(prefix))):
                state = states.get(found.state)
                if state is None:
                    raise CorruptError(f"a stored row is of no known state: number {found.state}", where=self._where)
                if state.name in serializers:
                    yield self._row(found, state, serializers[state.name])

    def _row(self, found: StoredKey, state: StateRows, serializer: str) -> StoredRow:
        if self._grouping.group_of(found.key) != found.group:
            message = f"a stored key of state {state.name} is not of group {found.group}"
            raise CorruptError(message, where=self._where)
        value = join_parts(state.layout, found.parts, serializer)
        if len(value) > MAX_VALUE_BYTES:
            # A class of the program's is not imported for the sake of an error.
            layout = parse_layout(self.info.key_type)
            key = found.key if ":" in str(layout) else next(iter(decode_keys([found.key], layout)))
            raise too_large(len(value), MAX_VALUE_BYTES, state.name, key, self._where)
        return StoredRow(state.name, found.group, found.key, value)

    def close(self) -> None:
        self._database.close()


def _end_of(prefix: bytes) -> bytes:
    """Where the rows with `prefix` end, or what the database says of itself begins."""
    return INFO_ROW if prefix == INFO_ROW[: len(prefix)] else after(prefix)


def read_info(database: Database, where: str) -> DatabaseInfo:
    """What a database says of itself. Raises CorruptError."""
    return decode_info(database.get(INFO_ROW), where)


def groups_of_snapshot(snapshot: OperatorSnapshot) -> range:
    """The groups that the files of a database, all alike, stand for. Raises CorruptError when they are not alike."""
    found = {(handle.first_group, handle.last_group) for handle in snapshot.handles}
    if len(found) != 1:
        raise CorruptError("the files of one database stand for different key groups", where=place(snapshot.name))
    first, last = found.pop()
    return range(first, last + 1)


def check_groups(info: DatabaseInfo, groups: range, where: str) -> None:
    """Raise CorruptError when a database is to stand for groups that it does not hold."""
    if groups.start < info.first_group or groups.stop - 1 > info.last_group:
        raise CorruptError(
            f"a database of groups {info.first_group} to {info.last_group} is to stand for groups {groups.start} to "
            f"{groups.stop - 1}",
            where=where,
        )
