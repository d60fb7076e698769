"""What a database holds at one barrier, kept apart while processing goes on: a folder of hard links.

At the barrier only the cache is written. Making files of what RocksDB still has in memory takes long, so that is left
to `Capture.store`; until it has happened nothing more may be written to the database, and whoever wants to makes the
cut first. Both may come at once: one of them waits. Nobody else may ever decide when a cut is made.
"""

import shutil
from pathlib import Path
from threading import Lock  # noqa: TID251 - no thread is started: the task's and the side thread take turns

from tidegate.checkpoint.protocol import StateHandle, StateInfo
from tidegate.errors import UnavailableError
from tidegate.ids import CheckpointId
from tidegate.state.backend import SnapshotFiles
from tidegate.state.rocksdb.database import Database, local_failure
from tidegate.state.rocksdb.rows import INFO_ROW

ROCKSDB = "rocksdb"
"""The form of handles that each lead to one file of a database."""

TABLE = ".sst"
"""How the names of tables end."""
_BESIDE = ("CURRENT", "MANIFEST-")
"""What a database needs beside its tables."""

Tables = dict[str, StateHandle]
"""Stored tables, which never change, by their name in the database."""


class Cut:
    """The files of a database at one moment."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.folder = folder
        self.is_made = False
        self.is_empty = False
        """There is no row of state. Known when it is made."""
        self._database = database
        self._turn = Lock()
        self._is_over = False

    def make(self) -> None:
        """Whoever comes second waits for the first. Raises UnavailableError."""
        with self._turn:
            if self._is_over and not self.is_made:
                raise UnavailableError(f"{self.folder} was not made before its database was closed")
            if not self.is_made:
                self._database.flush()
                self._database.snapshot(self.folder)
                self.is_empty = self._database.first(b"", INFO_ROW) is None
                self.is_made = True

    def end(self) -> None:
        """The database is about to be closed, which nobody may use meanwhile: what is not made will not be."""
        with self._turn:
            self._is_over = True

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class RocksCapture:
    """The state of one subtask at one barrier. base: tables that a completed checkpoint names."""

    def __init__(
        self,
        checkpoint: CheckpointId,
        key_type: str,
        states: tuple[StateInfo, ...],
        groups: range,
        cut: Cut,
        base: Tables,
    ) -> None:
        self.checkpoint = checkpoint
        self.cut = cut
        self.tables: Tables = {}
        """What it names. Complete when it has been stored."""
        self.is_stored = False
        self.is_abandoned = False
        self._key_type = key_type
        self._states = states
        self._groups = groups
        self._base = base

    @property
    def key_type(self) -> str:
        return self._key_type

    @property
    def states(self) -> tuple[StateInfo, ...]:
        return self._states

    def store(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """A handle for each file: tables that the base has are named again, all else is written; () when there is no
        state. Raises StorageUnavailable, UnavailableError."""
        self.cut.make()
        handles = () if self.cut.is_empty else tuple(self._stored(files))
        self.is_stored = True
        if self.is_abandoned or self.cut.is_empty:
            self.cut.remove()
        return handles

    def _stored(self, files: SnapshotFiles) -> list[StateHandle]:
        paths = sorted(self.cut.folder.iterdir())
        tables = {path.name: self._table(path, files) for path in paths if path.suffix == TABLE}
        self.tables = tables
        rest = [self._written(path, files) for path in paths if path.name.startswith(_BESIDE)]
        return [*tables.values(), *rest]

    def _table(self, path: Path, files: SnapshotFiles) -> StateHandle:
        known = self._base.get(path.name)
        return known if known is not None and known.size == path.stat().st_size else self._written(path, files)

    def _written(self, path: Path, files: SnapshotFiles) -> StateHandle:
        part = f"{self.checkpoint}.{path.name}"
        return files.write(part, _content(path), self._groups, form=ROCKSDB, name=path.name)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise local_failure(path, error) from error
