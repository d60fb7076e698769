"""The folders of databases on one machine, and the files there that spare a restore from reading what is stored.

    <root>/<attempt>/<operator>.<subtask>/database/         the open database
    <root>/<attempt>/<operator>.<subtask>/cuts/<checkpoint>/  hard links: what a checkpoint was made of
    <root>/<attempt>/<operator>.<subtask>/read-<n>/           another subtask's database, while it is read

`root` is of one job and instance. Each attempt has folders of its own, and a worker that is killed leaves only them.
They are a cache: nothing may be taken from them without comparing its checksum with what is stored.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import checksum
from tidegate.errors import CorruptError
from tidegate.ids import Attempt
from tidegate.state.backend import SnapshotFiles, StoredFiles
from tidegate.state.rocksdb.cut import TABLE, RocksCapture
from tidegate.state.rocksdb.database import local_failure, make_folder
from tidegate.storage.paths import is_path

_LOCK = "LOCK"
"""Held by whoever has a database open."""


class BackendFolder:
    """The folder of one operator of one subtask of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reads = 0

    @property
    def database(self) -> Path:
        return self.path / "database"

    def cut(self, name: str) -> Path:
        return self.path / "cuts" / name

    def scratch(self) -> Path:
        """A folder that does not exist yet."""
        self._reads += 1
        return self.path / f"read-{self._reads}"

    @property
    def attempts(self) -> Path:
        """The folder of all attempts' folders."""
        return self.path.parent.parent

    @property
    def attempt(self) -> str:
        return self.path.parent.name

    def clear(self) -> None:
        """Begin with nothing: what is here is of an earlier try of the same attempt."""
        shutil.rmtree(self.path, ignore_errors=True)


class LocalTables:
    """Tables of one operator that earlier attempts left on this machine, by name and size."""

    def __init__(self, folder: BackendFolder) -> None:
        self._found: dict[tuple[str, int], list[Path]] = {}
        for path in _tables(folder):
            # Whoever removes files of old attempts may be doing it now.
            with suppress(OSError):
                self._found.setdefault((path.name, path.stat().st_size), []).append(path)

    def link(self, handle: StateHandle, target: Path) -> bool:
        """Whether `target` now is what `handle` stands for."""
        return any(_linked(path, handle, target) for path in self._found.get((handle.name, handle.size), ()))


def _tables(folder: BackendFolder) -> Iterator[Path]:
    """All tables of the same operator in the folders of other attempts; in its own others restore at this moment."""
    operator = folder.path.name.rpartition(".")[0]
    for place, subfolders, names in os.walk(folder.attempts):
        subfolders.sort()
        attempt, subtask, *_ = (*Path(place).relative_to(folder.attempts).parts, "", "")
        if attempt != folder.attempt and subtask.rpartition(".")[0] == operator:
            yield from (Path(place, name) for name in sorted(names) if name.endswith(TABLE))


def _linked(source: Path, handle: StateHandle, target: Path) -> bool:
    try:
        if checksum(source.read_bytes()) != handle.checksum:
            return False
        os.link(source, target)
    except OSError:
        # Gone meanwhile, or on another file system: what is stored is there, too.
        return False
    return True


def fetch(handles: tuple[StateHandle, ...], files: StoredFiles, target: Path, local: LocalTables | None = None) -> None:
    """Make the folder `target` hold the files of a stored database; tables from this machine where it has them.

    Raises CorruptError, StorageUnavailable, UnavailableError.
    """
    make_folder(target)
    for handle in handles:
        if not is_path(handle.name) or "/" in handle.name:
            raise CorruptError(f"{handle.path} is called {handle.name!r}, which cannot be a file of a database")
        path = target / handle.name
        if local is None or not handle.name.endswith(TABLE) or not local.link(handle, path):
            _write(path, files.read_state(handle))


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise local_failure(path, error) from error


class Removal:
    """Removes the local files of captures when nobody needs them any more. The last completed one's stay: the next
    attempt on this machine begins from them. See `Maintenance`."""

    def __init__(self) -> None:
        self._kept: RocksCapture | None = None
        self._needless: list[RocksCapture] = []

    @property
    def is_due(self) -> bool:
        """Something can be removed."""
        return bool(self._needless)

    def add(self, capture: RocksCapture, *, is_completed: bool) -> None:
        """Nobody will ask for `capture` any more, unless it is the one that completed last."""
        if is_completed:
            if self._kept is not None:
                self._needless.append(self._kept)
            self._kept = capture
            return
        # Whoever still stores it removes its files at the end.
        capture.is_abandoned = True
        self._needless.append(capture)

    def run(self, files: SnapshotFiles) -> None:
        while self._needless:
            capture = self._needless.pop()
            if capture.is_stored:
                capture.cut.remove()

    def finish(self, error: BaseException | None) -> None:
        """What was not removed goes with the folder of the attempt."""


def remove_old_attempts(root: Path, attempt: Attempt) -> None:
    """Remove what attempts before `attempt` left under `root`, but for databases that a process still has open.

    To be called when no task of `attempt` restores any more.
    """
    for folder in _old_attempts(root, attempt):
        if not any(_is_held(lock) for lock in sorted(folder.glob(f"*/*/{_LOCK}"))):
            shutil.rmtree(folder, ignore_errors=True)


def _old_attempts(root: Path, attempt: Attempt) -> Iterator[Path]:
    for folder in sorted(root.glob("*")):
        if folder.name.isdecimal() and int(folder.name) < attempt:
            yield folder


def _is_held(lock: Path) -> bool:
    """Whether another process holds `lock`."""
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
