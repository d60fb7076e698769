"""What a JobManager has done with savepoints: the blocking half of its commands on them, on a side thread.

Nothing is decided here. A savepoint is only ever read, or written where nothing is, or removed when it still is the one
that was claimed.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.checkpoint.log import SavepointOrigin
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import InvalidError, UnavailableError
from tidegate.failpoints import reach
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.format import SavepointReader, drop_savepoint
from tidegate.savepoints.importing import import_savepoint
from tidegate.savepoints.places import open_savepoint, open_target
from tidegate.scheduling import protocol as p
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage


@dataclass(frozen=True)
class SavepointPlaces:
    """Where savepoints are. Both block: side threads only.

    `scratch`: a folder of this machine for what must lie on a disk to be read; made when it is needed. By default that
    of the system for such things, which on a full disk there is none of: then a job starts all the same.
    """

    open_target: Callable[[str | None, CheckpointStore, Manifest], Storage] = open_target
    open_savepoint: Callable[[str], SavepointReader] = open_savepoint
    scratch: Path | None = None

    def scratch_now(self) -> Path:
        """Raises UnavailableError."""
        if self.scratch is not None:
            return self.scratch
        try:
            return Path(tempfile.gettempdir())
        except OSError as error:
            raise UnavailableError(
                f"there is no room for temporary files: {error.strerror}",
                remedy="Make room, or name a folder that has some in TMPDIR.",
            ) from None


class SavepointWork:
    """For the job that `store` is of. Every call blocks, and raises as the functions of `savepoints` do."""

    def __init__(self, store: CheckpointStore, places: SavepointPlaces) -> None:
        self._store = store
        self._places = places

    def read(self, path: str) -> Manifest:
        return self._places.open_savepoint(path).manifest()

    def export(self, manifest: Manifest, path: str | None) -> str:
        """Where it is."""
        if path is None and isinstance(self._store.storage, MemoryStorage):
            raise InvalidError(
                "the job's checkpoints are in the memory of its process: a savepoint there would go with it",
                remedy="Give the folder or URL where the savepoint is to be.",
            )
        reach("savepoint-export:before")
        target = self._places.open_target(path, self._store, manifest)
        # No other export has its name, whatever other jobs use the folder.
        scratch = self._places.scratch_now() / f"savepoint-{manifest.instance}-{manifest.attempt}-{manifest.checkpoint}"
        try:
            export_savepoint(manifest, self._store, target, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        reach("savepoint-export:after")
        return target.location

    def take_in(self, command: p.ImportSavepoint) -> Manifest:
        """The checkpoint that it has become."""
        reach("savepoint-import:before")
        reader = self._places.open_savepoint(command.origin.path)
        if not command.origin.is_of(reader.manifest()):
            raise InvalidError(
                f"{command.origin.path} holds another savepoint than a moment ago",
                remedy="Leave a savepoint where it is until the job has begun from it.",
            )
        attempt, checkpoint, instance = command.attempt, command.checkpoint, command.instance
        manifest = import_savepoint(reader.storage, self._store, attempt, checkpoint, instance, inline=command.inline)
        reach("savepoint-import:after")
        return manifest

    def drop(self, origin: SavepointOrigin) -> None:
        """Nothing, when it is not there any more."""
        reader = self._places.open_savepoint(origin.path)
        try:
            is_it = origin.is_of(reader.manifest())
        except InvalidError:
            # It is gone, or what is there is none.
            return
        if is_it:
            drop_savepoint(reader.storage)
