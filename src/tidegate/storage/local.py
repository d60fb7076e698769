"""The storage port on a directory, local or mounted, shared by processes any of which may be killed at any moment.

A file comes under its name whole or not at all: it is written under a temporary name, synced, and then linked to its
name, which fails if the name is taken. So exactly one of several writers wins, and nobody ever sees half of a file.
This module must never test for a file and then create it, never write into a file that has its name already, and never
call a write done before the file and the folders that lead to it are synced.

fsspec is not used here: its local file system's `mode="create"` is a test followed by a write, so two writers can both
win, and one that is killed leaves half of a file under the final name.
"""

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegate.errors import InvalidError, TidegateError
from tidegate.storage.paths import checked, checked_prefix
from tidegate.storage.port import AlreadyExists, NotFound, StorageUnavailable

TEMPORARY = ".tmp-"
"""How the names of unfinished writes begin. `list` never shows them, and no path of a blob can look like this."""

_REMEDIES = {
    errno.EACCES: "Give this user the right to read, write and search there, or choose another checkpoints.dir.",
    errno.EPERM: "Give this user the right to do so, or choose another checkpoints.dir.",
    errno.EROFS: "Mount the file system for writing, or choose another checkpoints.dir.",
    errno.ENOTDIR: "Something on this path is a file: remove it, or choose another checkpoints.dir.",
    errno.EISDIR: "A directory stands where a file belongs: remove it, or choose another checkpoints.dir.",
    errno.ENAMETOOLONG: "Choose a checkpoints.dir with a shorter path.",
    errno.EINVAL: "This file system lacks what is needed: choose a checkpoints.dir on a local file system or NFS.",
    errno.EOPNOTSUPP: "This file system lacks what is needed: choose a checkpoints.dir on a local file system or NFS.",
    errno.ELOOP: "The symbolic links on this path lead in a circle: choose another checkpoints.dir.",
}
"""What does not pass by itself. Every other error may (disk full, input/output error, stale handle)."""

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, errno.EINVAL})

_PATIENCE = 100
"""How often in a row a folder may be removed, because a deletion emptied it, before the write into it is under way."""

_numbers = itertools.count()
"""Makes names of temporary files differ within the process. Between processes the exclusive creation does."""


class LocalStorage:
    """Blobs as files below `root`, which is created with its parents when something is first written.

    Any number of threads and processes, also on several hosts that mount the directory, may use it at once.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def location(self) -> str:
        return str(self.root)

    def check_writable(self) -> None:
        """Create `root`, remove what killed writers left, and prove that blobs can be put, read and deleted.

        Raises `InvalidError` when the directory cannot be used or its file system has no hard links, and
        `StorageUnavailable` for what may pass. Call it once at the start of whatever will write.
        """
        with self._named_errors("use", self.root):
            self._make_root()
            _sync(self.root)
            self._remove_abandoned()
            self._prove_exclusive_links()

    def _make_root(self) -> None:
        try:
            _make_folders(self.root)
        except FileNotFoundError as error:
            raise InvalidError(
                f"cannot make the folder {self.root}: {error.strerror}",
                remedy="Nothing can be made there; choose another checkpoints.dir.",
            ) from error

    def put_if_absent(self, path: str, data: bytes) -> None:
        final = self._file(path)
        with self._named_errors("create", final):
            self._create(final, data)

    def write(self, path: str, data: bytes) -> None:
        final = self._file(path)
        with self._named_errors("write", final):
            with self._draft(final.parent, data) as draft:
                draft.replace(final)
            self._sync_folders(final.parent)

    def read(self, path: str) -> bytes:
        final = self._file(path)
        with self._named_errors("read", final):
            try:
                return final.read_bytes()
            except FileNotFoundError:
                raise NotFound(path) from None

    def exists(self, path: str) -> bool:
        final = self._file(path)
        with self._named_errors("look for", final):
            try:
                final.stat()
            except FileNotFoundError:
                return False
            return True

    def list(self, prefix: str) -> list[str]:
        folder = self.root / checked_prefix(prefix)
        with self._named_errors("list", folder):
            return sorted(
                Path(parent, name).relative_to(self.root).as_posix()
                for parent, _, names in os.walk(folder, onerror=_raise_unless_gone)
                for name in names
                if not name.startswith(TEMPORARY)
            )

    def delete(self, path: str) -> None:
        final = self._file(path)
        with self._named_errors("delete", final), suppress(FileNotFoundError):
            final.unlink()
            _sync(final.parent)
            self._remove_empty_folders(final.parent)

    def _file(self, path: str) -> Path:
        return self.root / checked(path)

    def _create(self, final: Path, data: bytes) -> None:
        with self._draft(final.parent, data) as draft:
            try:
                _link(draft, final)
            except FileExistsError:
                # Its writer may have been killed before it synced the folder, and the caller is about to rely on it.
                self._sync_folders(final.parent)
                raise AlreadyExists(final.relative_to(self.root).as_posix()) from None
            self._sync_folders(final.parent)

    def _prove_exclusive_links(self) -> None:
        # Both are locked and have temporary names: nobody else sees or removes them.
        with self._draft(self.root, b"first") as first, self._draft(self.root, b"second") as second:
            try:
                _link(first, second)
            except FileExistsError:
                second.unlink()
                _link(first, second)
            else:
                raise InvalidError(
                    f"{self.root}: a link replaced a file that exists, so two job managers could run one job",
                    remedy="Choose a checkpoints.dir on a local file system or NFS.",
                )

    @contextmanager
    def _draft(self, folder: Path, data: bytes) -> Iterator[Path]:
        """A synced file with `data` under a temporary name, which is gone afterwards."""
        descriptor, draft = self._open_draft(folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                yield draft
        finally:
            # After a link its failure must not hide that the write was done; `check_writable` removes what is left.
            with suppress(OSError):
                draft.unlink()

    def _open_draft(self, folder: Path) -> tuple[int, Path]:
        vanished = 0
        while True:
            draft = folder / f"{TEMPORARY}{os.getpid()}-{next(_numbers)}"
            try:
                descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            except FileNotFoundError:
                vanished += 1
                if vanished > _PATIENCE:
                    raise
                with suppress(FileNotFoundError):
                    _make_folders(folder)
                continue
            if _claim_new(descriptor, draft):
                return descriptor, draft
            os.close(descriptor)

    def _sync_folders(self, folder: Path) -> None:
        """Make durable that a new file is found: the entries of its folder, and of those above up to the root.

        By now the file has its name, so whatever fails leaves the outcome open.
        """
        try:
            for each in (folder, *folder.parents):
                _sync(each)
                if each == self.root:
                    break
        except OSError as error:
            raise StorageUnavailable(f"cannot sync {folder}: {error.strerror}") from error

    def _remove_empty_folders(self, folder: Path) -> None:
        with suppress(OSError):
            for each in (folder, *folder.parents):
                if each == self.root:
                    break
                each.rmdir()

    def _remove_abandoned(self) -> None:
        """Remove the temporary files of writers that were killed: the kernel dropped their locks."""
        for folder, _, names in os.walk(self.root, onerror=_raise_unless_gone):
            for name in names:
                if name.startswith(TEMPORARY):
                    with suppress(OSError):
                        _remove_if_abandoned(Path(folder, name))

    @contextmanager
    def _named_errors(self, action: str, path: Path) -> Iterator[None]:
        """Errors of the operating system as errors of the port."""
        try:
            yield
        except OSError as error:
            raise _named(f"cannot {action} {path}: {error.strerror}", error) from error


def _named(message: str, error: OSError) -> TidegateError:
    remedy = _REMEDIES.get(error.errno or 0)
    return StorageUnavailable(message) if remedy is None else InvalidError(message, remedy=remedy)


def _raise_unless_gone(error: OSError) -> None:
    """Folders come and go while they are listed; anything else would make a listing that lacks files look complete."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _link(draft: Path, final: Path) -> None:
    try:
        final.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise InvalidError(
            f"cannot create {final}: its file system has no hard links ({error.strerror}), so a file cannot be "
            "created such that one writer wins and nobody sees half of it",
            remedy="Choose a checkpoints.dir on a file system with hard links (ext4, xfs, btrfs, zfs, apfs, nfs).",
        ) from error


def _make_folders(folder: Path) -> None:
    """Create what is missing of `folder` and sync each new entry."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    for each in reversed(missing):
        # Not `exist_ok`, which takes a folder that is removed at that moment for a file in the way.
        with suppress(FileExistsError):
            each.mkdir()
        _sync(each.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _claim_new(descriptor: int, draft: Path) -> bool:
    """Lock a file just created, so that nobody takes it for abandoned. False when somebody did before."""
    try:
        return _claim(descriptor, draft)
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:
        # No locks on this file system: then nobody can claim an abandoned file either, and none is ever removed.
        return True


def _claim(descriptor: int, draft: Path) -> bool:
    """Whether this process now has the lock of the file, and the file still has its name.

    Only who claimed a temporary file may rename or remove it: so a name is never taken away under a writer at work.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return os.path.samestat(os.fstat(descriptor), draft.stat())


def _remove_if_abandoned(draft: Path) -> None:
    descriptor = os.open(draft, os.O_RDWR)
    try:
        if _claim(descriptor, draft):
            draft.unlink()
    finally:
        os.close(descriptor)
