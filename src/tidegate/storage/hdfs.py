"""The storage port on HDFS, through WebHDFS, shared by processes any of which may be killed at any moment.

A file comes under its name whole or not at all: it is written under a temporary name, closed, and then renamed to its
name by the NameNode, in one step that fails if the name is taken. So exactly one of several writers wins, and nobody
ever sees half of a file. This module must never create a file under its final name (a writer that is killed leaves a
part of one there), never send a rename twice, and never take a refusal that may pass for one that will not.

fsspec's WebHDFS is not used: it always overwrites what it creates, and does not look at whether a rename was done.
"""

import getpass
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidegate.errors import InvalidError, TidegateError
from tidegate.storage.paths import checked, checked_prefix
from tidegate.storage.port import AlreadyExists, NotFound, StorageUnavailable
from tidegate.storage.urls import split_remote
from tidegate.storage.webhdfs import FileStatus, Refused, WebHdfs

TEMPORARY = ".tmp-"
"""How the names of unfinished writes begin. `list` never shows them, and no path of a blob can look like this."""

ABANDONED_AFTER = 60 * 60 * 1000
"""Milliseconds after which the file of an unfinished write is removed. One whose writer is alive after all is only
written again."""

DEFAULT_PORT = 9870

_NOT_FOUND = "FileNotFoundException"
_EXISTS = "FileAlreadyExistsException"
_REMEDIES = {
    "AccessControlException": "Give this user the right to read and write there, name another in HADOOP_USER_NAME, or "
    "choose another checkpoints.dir.",
    "SecurityException": "Name a user in HADOOP_USER_NAME; only clusters with simple authentication are supported.",
    "ParentNotDirectoryException": "Something on this path is a file: remove it, or choose another checkpoints.dir.",
    _EXISTS: "A file stands where a folder belongs: remove it, or choose another checkpoints.dir.",
    "PathIsNotEmptyDirectoryException": "A folder stands where a file belongs: remove it, or choose another "
    "checkpoints.dir.",
    "InvalidPathException": "Choose a checkpoints.dir without ':' in its path.",
    "IllegalArgumentException": "Name the HTTP address of a NameNode of Hadoop 3 or newer.",
    "UnsupportedOperationException": "Name the HTTP address of a NameNode of Hadoop 3 or newer.",
}
"""What does not pass by itself. Every other refusal may: no DataNode, a full quota, a NameNode that is starting."""
_HINTS = {
    "SafeModeException": "It ends by itself when enough DataNodes are there; see `hdfs dfsadmin -safemode get`.",
}

_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORTS = 65536

_numbers = itertools.count()


def open_hdfs(url: str, *, writable: bool = False) -> "HdfsStorage":
    """The storage that 'webhdfs://host:port/path' names, in the name of HADOOP_USER_NAME or else of the user who runs
    this process; the port is that of the NameNode's HTTP address. Where there are several NameNodes, one of which is
    active, all are named: 'webhdfs://host:port,host:port/path'.

    With `writable`, the folder is created and proved to take writes before this returns; otherwise nobody is asked yet.
    Raises `InvalidError` for a URL that names no such place, for 'hdfs://', which is Hadoop's own protocol, and what
    `HdfsStorage.check_writable` raises.
    """
    scheme, hosts, path = split_remote(url)
    if scheme != "webhdfs":
        raise InvalidError(
            f"{url}: HDFS is reached through WebHDFS only",
            remedy=f"Give webhdfs://host:port/path with the NameNode's HTTP address, whose port is {DEFAULT_PORT} by "
            "default.",
        )
    addresses = [_address(host, url) for host in hosts.split(",")]
    storage = HdfsStorage(WebHdfs(addresses, _user()), f"/{path}".rstrip("/"))
    if writable:
        storage.check_writable()
    return storage


def _address(text: str, url: str) -> str:
    found = _ADDRESS.fullmatch(text)
    port = int(found[2] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < _PORTS:
        raise InvalidError(f"{url} does not name a NameNode", remedy="Give webhdfs://host:port/path.")
    return f"{found[1]}:{port}"


def _user() -> str:
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError) as error:
        raise InvalidError("this user has no name", remedy="Set HADOOP_USER_NAME to the user for HDFS.") from error


class HdfsStorage:
    """Blobs as files below the folder `root` (absolute, without '/' at its end), which is created with its parents when
    something is first written.

    Any number of threads and processes may use it at once.
    """

    def __init__(self, hdfs: WebHdfs, root: str) -> None:
        self.hdfs = hdfs
        self._root = root
        self._writer: int | None = None

    @property
    def location(self) -> str:
        return self._url(self._root)

    def _url(self, path: str) -> str:
        return f"webhdfs://{','.join(self.hdfs.addresses)}{path}"

    def check_writable(self) -> None:
        """Create the root, remove what killed writers left, and prove that blobs can be put, read and deleted.

        Raises `InvalidError` when the folder cannot be used or what answers is not a NameNode that renames as it
        should, and `StorageUnavailable` for what may pass. Call it once at the start of whatever will write.
        """
        with self._named_errors("use", self._root):
            self.hdfs.make_folders(self._root or "/")
            now = self._prove_exclusive_renames()
            self._remove_abandoned(now)

    def put_if_absent(self, path: str, data: bytes) -> None:
        final = self._file(path)
        with self._named_errors("create", final), _turned(_EXISTS, AlreadyExists(path)):
            self._put(final, data, replace=False)

    def write(self, path: str, data: bytes) -> None:
        final = self._file(path)
        with self._named_errors("write", final):
            self._put(final, data, replace=True)

    def read(self, path: str) -> bytes:
        final = self._file(path)
        with self._named_errors("read", final), _turned(_NOT_FOUND, NotFound(path)):
            return self.hdfs.open(final)

    def exists(self, path: str) -> bool:
        final = self._file(path)
        with self._named_errors("look for", final):
            status = self._status(final)
            return status is not None and not status.is_folder

    def list(self, prefix: str) -> list[str]:
        folder = checked_prefix(prefix)
        with self._named_errors("list", f"{self._root}/{folder}"):
            return sorted(path for path, _ in self._files(folder) if not _is_temporary(path))

    def delete(self, path: str) -> None:
        final = self._file(path)
        with self._named_errors("delete", final):
            if self.hdfs.delete(final):
                self._remove_empty_folders(_folder_of(final))

    def _file(self, path: str) -> str:
        return f"{self._root}/{checked(path)}"

    # ---- writing ---------------------------------------------------------------------------------------------------

    def _put(self, final: str, data: bytes, *, replace: bool) -> None:
        draft = self._new_draft(_folder_of(final))
        try:
            self.hdfs.create(draft, data)
            self._rename(draft, final, replace=replace)
        except (Refused, InvalidError):
            # The refusal is what matters; `check_writable` removes what is left.
            with suppress(Refused, StorageUnavailable):
                self.hdfs.delete(draft)
            raise

    def _rename(self, draft: str, final: str, *, replace: bool) -> None:
        """Raises `Refused` with FileAlreadyExistsException when `final` is taken."""
        try:
            self.hdfs.rename(draft, final, replace=replace)
        except Refused as refusal:
            if refusal.name == _NOT_FOUND:
                # Taken for abandoned, or its whole folder was removed. It is sent once, so this is not its own success.
                raise StorageUnavailable(f"the unfinished file {draft} was removed by somebody else") from refusal
            status = None if refusal.name == _EXISTS else self._status(final)
            if status is not None and status.is_folder:
                raise InvalidError(
                    f"cannot create {final}: there is a folder",
                    remedy="A folder stands where a file belongs: remove it, or choose another checkpoints.dir.",
                ) from refusal
            raise

    def _new_draft(self, folder: str) -> str:
        """A name that no other write has, had or will have, in any process.

        Used twice, it could be renamed by a writer that woke up after its file had been taken for abandoned, while
        another is filling it. So it has a number in it that the NameNode gives out once.
        """
        if self._writer is None:
            self._writer = self._new_writer().file_id
        return f"{folder}/{TEMPORARY}{self._writer}-{os.getpid()}-{next(_numbers)}"

    def _new_writer(self) -> FileStatus:
        """A file made now and removed already. Its id is this storage's own, and its time is the NameNode's."""
        host = os.uname().nodename
        while True:
            marker = f"{self._root}/{TEMPORARY}{host}-{os.getpid()}-{next(_numbers)}"
            with _ignored(_EXISTS):
                self.hdfs.create(marker, b"")
                status = self.hdfs.status(marker)
                self.hdfs.delete(marker)
                return status

    def _prove_exclusive_renames(self) -> int:
        """Milliseconds on the NameNode's clock."""
        writer = self._new_writer()
        self._writer = writer.file_id
        first, second = (self._new_draft(self._root) for _ in range(2))
        for draft in (first, second):
            self.hdfs.create(draft, draft.encode())
        with _ignored(_EXISTS):
            self.hdfs.rename(first, second, replace=False)
        if self.hdfs.open(second) != second.encode():
            raise InvalidError(
                f"{self.location}: a rename replaced a file that exists, so two job managers could run one job",
                remedy="Name the HTTP address of a NameNode of Hadoop 3 or newer.",
            )
        for draft in (first, second):
            self.hdfs.delete(draft)
        return writer.modification_time

    # ---- clearing away ---------------------------------------------------------------------------------------------

    def _remove_empty_folders(self, folder: str) -> None:
        """Also those above it. What is not empty is refused."""
        with suppress(Refused, StorageUnavailable):
            while folder != self._root and self.hdfs.delete(folder):
                folder = _folder_of(folder)

    def _remove_abandoned(self, now: int) -> None:
        """Remove the temporary files of writers that were killed."""
        for path, status in self._files(""):
            if _is_temporary(path) and now - status.modification_time > ABANDONED_AFTER:
                self.hdfs.delete(f"{self._root}/{path}")

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _status(self, path: str) -> FileStatus | None:
        try:
            return self.hdfs.status(path)
        except Refused as refusal:
            if refusal.name == _NOT_FOUND:
                return None
            raise

    def _files(self, folder: str) -> Iterator[tuple[str, FileStatus]]:
        """Every file below `folder` ('' or ending in '/'), by its path below the root. Folders may go meanwhile."""
        pending = [folder]
        while pending:
            here = pending.pop()
            for status in self._children(here):
                path = f"{here}{status.path_suffix}"
                if status.is_folder:
                    pending.append(f"{path}/")
                else:
                    yield path, status

    def _children(self, folder: str) -> Iterator[FileStatus]:
        with _ignored(_NOT_FOUND):
            # What has no name is a file where a folder was expected.
            yield from (status for status in self.hdfs.children(f"{self._root}/{folder}") if status.path_suffix)

    @contextmanager
    def _named_errors(self, action: str, path: str) -> Iterator[None]:
        """Refusals as errors of the port, all with the place."""
        what = f"cannot {action} {self._url(path)}"
        try:
            yield
        except Refused as refusal:
            raise self._named(what, refusal) from refusal
        except StorageUnavailable as error:
            raise StorageUnavailable(f"{what}: {error.failure.message}", remedy=error.failure.remedy) from error

    def _named(self, what: str, refusal: Refused) -> TidegateError:
        message = f"{what} as user {self.hdfs.user}: {refusal}"
        remedy = _REMEDIES.get(refusal.name)
        if remedy is not None:
            return InvalidError(message, remedy=remedy)
        return StorageUnavailable(message, remedy=_HINTS.get(refusal.name, ""))


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)


@contextmanager
def _turned(name: str, error: Exception) -> Iterator[None]:
    """A refusal of this name becomes `error`."""
    try:
        yield
    except Refused as refusal:
        if refusal.name != name:
            raise
        raise error from None


@contextmanager
def _ignored(name: str) -> Iterator[None]:
    """A refusal of this name ends the block, and is no failure."""
    try:
        yield
    except Refused as refusal:
        if refusal.name != name:
            raise
