"""Copies, on this machine, of state that was stored remotely: a restart here reads them in place of the storage.

    <root>/<attempt>/<operator>.<subtask>/<checksum>-<size>     what one subtask's captures name

`root` is `<local folder>/<job>/<log instance>/copies`. A copy is only a cache: named by its content, compared with that
whenever it is read, never synced. Nothing here may ever fail a checkpoint or a restore, give back what was not
compared, or write into the folder of another attempt. All of it blocks: side threads only.
"""

import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock  # noqa: TID251 - no thread is started: side threads take turns

from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import checksum
from tidegate.ids import Attempt, CheckpointId, OperatorName, SubtaskIndex
from tidegate.runtime.control import Deploy
from tidegate.runtime.local_folder import remove_earlier_logs
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.operator_pieces import ELEMENTS
from tidegate.storage.urls import is_remote

_FORMS = (PIECE, ELEMENTS)
"""What is copied. A database's files are on this machine anyway, and looked after by its backend."""

_logger = logging.getLogger(__name__)


class SubtaskCopies:
    """Those of one operator of one subtask of one attempt, and what other subtasks and attempts have left."""

    def __init__(self, copies: "LocalCopies", attempt: Attempt, operator: OperatorName, subtask: SubtaskIndex) -> None:
        self._copies = copies
        self._folder = copies.root / str(attempt) / f"{operator}.{subtask}"
        self._drafts = itertools.count()
        self._turn = Lock()
        self._kept: dict[str, int] = {}
        """By name of a copy, how many more checkpoints may complete without naming it before it goes."""
        self._is_merging = False
        self._named: dict[CheckpointId, frozenset[str]] = {}
        """What each capture names, from the newest on that is known to have completed."""

    def read(self, handle: StateHandle, files: StoredFiles) -> bytes:
        """What `handle` stands for: from here if it is whole, else from `files`. Raises as that does."""
        if not _is_copied(handle):
            return files.read_state(handle)
        own = self._folder / _name(handle)
        data = _read(own, handle)
        if data is not None:
            return data
        for path in self._copies.of_all(own.name):
            data = _read(path, handle)
            if data is not None:
                self._keep(own.name, data, patience=0, source=path)
                return data
        data = files.read_state(handle)
        self._keep(own.name, data, patience=0)
        return data

    def written(self, handle: StateHandle, data: bytes) -> None:
        """`data` was stored, and will be named: what a merge has made, perhaps not before the next capture but one."""
        if _is_copied(handle):
            self._keep(_name(handle), data, patience=1)

    def named(self, checkpoint: CheckpointId, handles: Iterable[StateHandle]) -> None:
        """The capture of `checkpoint` consists of these."""
        with self._turn:
            self._named[checkpoint] = frozenset(_name(handle) for handle in handles if _is_copied(handle))

    @contextmanager
    def merging(self) -> Iterator[None]:
        """While what is written is named by nobody until all of it is there, however many checkpoints that takes."""
        self._is_merging = True
        try:
            yield
        finally:
            self._is_merging = False

    def tidy(self, completed: CheckpointId) -> None:
        """Remove what neither the checkpoint that has completed nor a later capture names."""
        with self._turn:
            if completed not in self._named:
                return
            self._named = {checkpoint: names for checkpoint, names in self._named.items() if checkpoint >= completed}
            needed = frozenset[str]().union(*self._named.values())
            for name, patience in list(self._kept.items()):
                if name in needed:
                    self._kept[name] = 0
                elif patience == 0:
                    self._remove(name)
                elif not self._is_merging:
                    self._kept[name] = patience - 1

    def _remove(self, name: str) -> None:
        del self._kept[name]
        with suppress(OSError):
            (self._folder / name).unlink()

    def _keep(self, name: str, data: bytes, *, patience: int, source: Path | None = None) -> None:
        """source: a whole copy, of which this can be another name."""
        draft = self._folder / f".tmp-{next(self._drafts)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if source is None or not _linked(source, draft):
                draft.write_bytes(data)
            with self._turn:
                draft.replace(self._folder / name)
                self._kept[name] = patience
        except OSError as error:
            self._copies.warn(error)
        finally:
            # Still there after a failure, and after a move onto another name of the same file.
            with suppress(OSError):
                draft.unlink()


class LocalCopies:
    """Those of one worker's subtasks in one attempt. storage: where the job's checkpoints are."""

    def __init__(self, root: Path, attempt: Attempt, storage: str) -> None:
        self.root = root
        self._attempt = attempt
        self._storage = storage
        self._subtasks: list[SubtaskCopies] = []
        self._has_tidied = False
        self._has_warned = False

    def of(self, operator: OperatorName, subtask: SubtaskIndex) -> SubtaskCopies:
        """Called once for each; nothing is touched."""
        self._subtasks.append(SubtaskCopies(self, self._attempt, operator, subtask))
        return self._subtasks[-1]

    def of_all(self, name: str) -> Iterator[Path]:
        """Where whatever subtask of whatever attempt may have a copy."""
        for attempt in self._attempts():
            for subtask in _entries(attempt):
                yield subtask / name

    def tidy(self, completed: CheckpointId) -> None:
        """A checkpoint has completed: remove what is not named any more, and what earlier attempts left. Nobody reads
        that any more: a subtask that restored from it has it under a name of its own."""
        for subtask in self._subtasks:
            subtask.tidy(completed)
        if not self._has_tidied:
            self._has_tidied = True
            self._remove_attempts()
            remove_earlier_logs(self.root.parent, self._storage)

    def _remove_attempts(self) -> None:
        for attempt in self._attempts():
            if int(attempt.name) < self._attempt:
                shutil.rmtree(attempt, ignore_errors=True)

    def _attempts(self) -> list[Path]:
        return [path for path in _entries(self.root) if path.name.isdecimal()]

    def warn(self, error: OSError) -> None:
        """Once: it will hardly be the last."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "state cannot be copied to %s: %s; a restart reads what is missing there from %s. Choose another "
                "state.local_dir, or set state.local_recovery to false.",
                self.root,
                error.strerror,
                self._storage,
            )


def local_copies(deploy: Deploy) -> LocalCopies | None:
    """Where they are of use and wanted: a folder that holds the checkpoints needs no copies beside it."""
    options = deploy.options
    if not (options.local_recovery and options.local_dir and is_remote(deploy.storage)):
        return None
    root = Path(options.local_dir) / deploy.job / deploy.instance / "copies"
    return LocalCopies(root, deploy.attempt, deploy.storage)


def _entries(folder: Path) -> list[Path]:
    """By name; none of a folder that is gone, as all of them may be at any moment."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_copied(handle: StateHandle) -> bool:
    return handle.path is not None and handle.form in _FORMS


def _name(handle: StateHandle) -> str:
    return f"{handle.checksum}-{handle.size}"


def _read(path: Path, handle: StateHandle) -> bytes | None:
    """None unless it is there and what it was."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if len(data) == handle.size and checksum(data) == handle.checksum else None


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:
        # Gone meanwhile, or on a file system without links.
        return False
    return True
