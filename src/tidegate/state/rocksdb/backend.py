"""Keyed state in RocksDB on the worker's local disk, below a cache of objects: the live half of the `rocksdb` preset.

The database is a cache of what checkpoints hold and is never trusted after a restart. What is changed between two
barriers is written to it when the cache is full; while the cut of the last barrier is not made, nothing may be written.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tidegate.checkpoint.protocol import OperatorSnapshot, StateInfo
from tidegate.errors import CorruptError, InternalError, InvalidError, place
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.backend import CallingCursor, Maintenance, StoredFiles
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.key_groups import KeyChecker, grouping_of, groups_of
from tidegate.state.object_capture import MAX_VALUE_BYTES
from tidegate.state.rocksdb.cache import CachedState, FillingCursor, Home
from tidegate.state.rocksdb.choice import make_handle
from tidegate.state.rocksdb.cut import Cut, RocksCapture, Tables
from tidegate.state.rocksdb.database import Database
from tidegate.state.rocksdb.folders import BackendFolder, Removal
from tidegate.state.rocksdb.memory import RocksMemory
from tidegate.state.rocksdb.migration import claim
from tidegate.state.rocksdb.restoring import Restorer
from tidegate.state.rocksdb.rows import INFO_ROW, DatabaseInfo, StateRows, encode_info, layout_of
from tidegate.state.rocksdb.walk import KeyWalk

CACHE_BYTES = 32 * 1024 * 1024
"""Of the objects of one backend, about: of both generations of all its states."""


class RocksStateBackend:
    """Keyed state of one operator of one subtask. See `KeyedStateBackend`.

    folder: of this attempt, operator and subtask alone. memory: shared by all backends of the process. key_type: of the
    keys, where it was declared, as it is stored; co-partitioned keys must be. cache_bytes: of the objects in front of
    the database, about. value_limit: bytes that may be written for one key in one state at once: a value, or what is
    new of a list or map.
    """

    def __init__(
        self,
        operator: OperatorName,
        subtask: SubtaskIndex,
        parallelism: int,
        max_parallelism: int,
        folder: Path,
        memory: RocksMemory,
        *,
        key_type: str = "",
        cache_bytes: int = CACHE_BYTES,
        value_limit: int = MAX_VALUE_BYTES,
    ) -> None:
        self._groups = groups_of(subtask, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._where = place(operator, subtask)
        self._folder = BackendFolder(folder)
        self._memory = memory
        self._cache_bytes = cache_bytes
        self._value_limit = value_limit
        self._checker = KeyChecker.of_type(operator, key_type)
        self._grouping = grouping_of(key_type, max_parallelism)
        self._class: type | None = None
        """Keys of exactly this class need no further check."""
        self._cursor = FillingCursor()
        self._database: Database | None = None
        self._home: Home | None = None
        self._handles: dict[str, CachedState] = {}
        self._walks: dict[str, KeyWalk] = {}
        self._restored: dict[str, tuple[StateInfo, StateRows]] = {}
        """By name, what no `register` has asked for."""
        self._numbers_used = 0
        self._written_info = b""
        self._cut: Cut | None = None
        """The last barrier's, as long as it may not be made."""
        self._confirmed: Tables = {}
        self._captures: dict[CheckpointId, RocksCapture] = {}
        """Of which nobody knows what became of them."""
        self._removal = Removal()

    # ---- beginning -------------------------------------------------------------------------------------------------

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        """See `KeyedStateBackend.restore`; also raises UnavailableError when the local disk fails."""
        if self._database is not None:
            raise InternalError("state was restored after it had been registered", where=self._where)
        if not snapshots:
            return
        self._folder.clear()
        restorer = Restorer(self._folder, self._memory, self._groups, self._max_parallelism, self._where)
        restored = restorer.restore(snapshots, files)
        self._database = restored.database
        self._confirmed = restored.tables
        self._numbers_used = restored.info.next_number
        self._checker.expect(restored.info.key_type)
        rows = {state.name: state for state in restored.info.states}
        for name, info in restored.states.items():
            if name not in rows:
                raise CorruptError(f"the stored database does not have state {name}", where=self._where)
            self._restored[name] = (info, rows[name])

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle of a declared state, with what was restored for it, which is rewritten here if its type changed.

        Raises InvalidError when two states have one name, or when restored data does not fit.
        """
        name = descriptor.name
        if name in self._handles or not name:
            problem = f"state {name} is registered twice" if name else f"{descriptor} has no name"
            raise InvalidError(problem, remedy="Give each state of an operator a name of its own.", where=self._where)
        home = self._opened()
        if name in self._restored:
            info, old = self._restored[name]
            numbers = iter(self._next_number, None)
            rows = claim(home.database, info, old, descriptor, self._groups, numbers, self._where)
            del self._restored[name]
        else:
            rows = StateRows(name, self._free_number(), layout_of(descriptor.info))
        handle = self._handles[name] = make_handle(descriptor, rows, home)
        self._walks[name] = KeyWalk(home.database, rows.number, self._groups)
        for each in self._handles.values():
            each.budget = self._cache_bytes // 2 // len(self._handles)
        return handle

    def _opened(self) -> Home:
        if self._home is None:
            if self._database is None:
                self._folder.clear()
                self._database = Database(self._folder.database, self._memory)
            self._home = Home(
                self._database,
                self._cursor,
                self._groups,
                self._grouping,
                self._next_number,
                self._where,
                self._value_limit,
            )
        return self._home

    def _next_number(self) -> int:
        self._numbers_used += 1
        return self._numbers_used

    def _free_number(self) -> int:
        taken = [handle.rows.number for handle in self._handles.values()]
        return max([*taken, *(rows.number for _, rows in self._restored.values())], default=-1) + 1

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for; captures leave them out."""
        return tuple(self._restored)

    # ---- keys ------------------------------------------------------------------------------------------------------

    def set_current_key(self, key: Any) -> None:
        """Handles now mean the state of `key`. Raises InvalidError for a key of another type than those before."""
        if type(key) is not self._class and self._checker.admit(key):
            self._class = type(key)
        cursor = self._cursor
        cursor.key = key
        if cursor.is_full:
            self._make_room()

    def cursor_over(self, keys: list[Any]) -> CallingCursor:
        """See `KeyedStateBackend.cursor_over`: there may have to be room made between any two of them."""
        self._checker.check(keys)
        return CallingCursor(self.set_current_key)

    def keys(self, name: str) -> Iterator[Any]:
        self._write_back([self._handles[name]])
        return self._walks[name].all(self._checker.key_type)

    def sweep(self, name: str, limit: int) -> list[Any]:
        walk = self._walks[name]
        if walk.is_at_start:
            if self._cut is not None and not self._cut.is_made:
                # Making it here would stop processing for as long as the barrier must not.
                return []
            self._write_back([self._handles[name]])
        return walk.next(limit, self._checker.key_type)

    def _make_room(self) -> None:
        self._cursor.is_full = False
        crowded = [handle for handle in self._handles.values() if handle.is_over_budget]
        self._write_back(crowded)
        for handle in crowded:
            handle.age()

    def _write_back(self, handles: Sequence[CachedState]) -> None:
        if any(handle.has_changes for handle in handles):
            batch = self._opened().database.batch()
            for handle in handles:
                handle.write_changes(batch)
            self._write(batch)

    def _write(self, batch: Any) -> None:
        self._make_cut()
        self._opened().database.write(batch)

    def _make_cut(self) -> None:
        if self._cut is not None:
            self._cut.make()
            self._cut = None

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def capture(self, checkpoint: CheckpointId) -> RocksCapture:
        """Writes the cache to the database; files are made in `store`.

        Raises InvalidError for a value that does not have its declared type or is too large, InternalError for a key of
        somebody else's group, UnavailableError when the local disk fails.
        """
        database = self._opened().database
        self._make_cut()
        batch = database.batch()
        for handle in self._handles.values():
            handle.write_changes(batch)
        info = encode_info(self._info())
        if info != self._written_info:
            batch.put(INFO_ROW, info)
        if not batch.is_empty():
            self._write(batch)
            self._written_info = info
        self._cut = Cut(database, self._folder.cut(str(checkpoint)))
        states = tuple(handle.descriptor.info for handle in self._handles.values())
        key_type = self._checker.key_type
        capture = RocksCapture(checkpoint, key_type, states, self._groups, self._cut, self._base())
        self._captures[checkpoint] = capture
        return capture

    def _base(self) -> Tables:
        """What may be named again: what is there whichever of the earlier checkpoints completed last.

        All of them are decided by now, but word of it may still be on its way: one that completed may have made the
        files of those before it needless. What was not stored yet cannot have completed.
        """
        undecided = [capture.tables for capture in self._captures.values() if capture.is_stored]
        return {
            name: handle
            for name, handle in self._confirmed.items()
            if all(tables.get(name) == handle for tables in undecided)
        }

    def _info(self) -> DatabaseInfo:
        """Names the rows of unclaimed states, too: they stay, until somebody restores a capture that is silent of
        them."""
        handles = [handle.rows for handle in self._handles.values()]
        return DatabaseInfo(
            self._groups[0],
            self._groups[-1],
            self._max_parallelism,
            self._checker.key_type,
            self._numbers_used,
            (*handles, *(rows for _, rows in self._restored.values())),
        )

    def completed(self, checkpoint: CheckpointId) -> None:
        """Its tables may be named again; local files of earlier captures are needed no more."""
        capture = self._captures.get(checkpoint)
        if capture is None:
            return
        self._confirmed = capture.tables
        for older in [id for id in self._captures if id <= checkpoint]:
            self._removal.add(self._captures.pop(older), is_completed=older == checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Its files are never named again: what they hold is uploaded with the next one."""
        capture = self._captures.pop(checkpoint, None)
        if capture is not None:
            self._removal.add(capture, is_completed=False)

    def maintenance(self) -> Maintenance | None:
        """Removes local files that nobody needs."""
        return self._removal if self._removal.is_due else None

    def close(self) -> None:
        """Files stay where they are, for the next attempt on this machine."""
        if self._cut is not None:
            self._cut.end()
        database, self._database, self._home = self._database, None, None
        if database is not None:
            database.close()
