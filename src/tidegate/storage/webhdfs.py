"""WebHDFS, Hadoop's HTTP interface to HDFS, as a few calls: one request, one answer, all of it or an error.

A call asks the NameNode that is active; one that moves content then goes to the DataNode that the NameNode names. It
must never send a change again that may have been carried out, take an answer that was cut off for a whole one, or show
what a redirection carries beside its address: that may be a token.
"""

import http.client
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tidegate.errors import InvalidError, TidegateError
from tidegate.storage.port import StorageUnavailable

PATIENCE: Final = 30.0
"""Seconds in which a connection must be made, and after which an answer that has come to a halt is given up."""

_DATANODES = 3
"""How many DataNodes are tried for one transfer."""

_QUESTIONS = 3
"""How often what changes nothing is asked at once, when the connection ends before the answer."""

_DONE = {"GET": HTTPStatus.OK, "PUT": HTTPStatus.CREATED}
"""How a DataNode answers when it has sent, or stored, the whole content."""

_ROOT = "/webhdfs/v1"
_STANDBY = "StandbyException"
_WAIT_FOR_ACTIVE = "Name all NameNodes: webhdfs://host:port,host:port/path; or wait until this one is active."
_WHICH_SERVER = (
    "Name the HTTP address of a NameNode of Hadoop 3 or newer (dfs.namenode.http-address, port 9870 by default), not "
    "a gateway."
)

_Result = TypeVar("_Result")


class Refused(Exception):
    """HDFS answered that it did not do what was asked. `name` is Java's: 'FileNotFoundException'."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class _Unreached(StorageUnavailable):
    """There was no connection: nothing was asked."""


class _Broken(StorageUnavailable):
    """The connection ended before the answer did."""


class FileStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the NameNode knows of a file or folder."""

    path_suffix: str
    """Its name in the folder that was listed; empty for what was asked about itself."""
    type: str
    """'FILE', 'DIRECTORY' or 'SYMLINK'."""
    modification_time: int
    """Milliseconds on the NameNode's clock: when it was created, or closed."""
    file_id: int
    """Never given to another file or folder of this file system."""

    @property
    def is_folder(self) -> bool:
        return self.type == "DIRECTORY"


class _Statuses(msgspec.Struct):
    FileStatus: list[FileStatus]


class _Partial(msgspec.Struct):
    FileStatuses: _Statuses


class _Listing(msgspec.Struct, rename="camel"):
    partial_listing: _Partial
    remaining_entries: int


class _OneStatus(msgspec.Struct):
    FileStatus: FileStatus


class _OneListing(msgspec.Struct):
    DirectoryListing: _Listing


class _Yes(msgspec.Struct):
    boolean: bool


class _Exception(msgspec.Struct):
    exception: str
    message: str


class _OneException(msgspec.Struct):
    RemoteException: _Exception


class _Answer(msgspec.Struct, frozen=True):
    address: str
    """Whose it is."""
    status: int
    location: str
    body: bytes


class WebHdfs:
    """The NameNodes at `addresses`, 'host:port', one of which is active, asked in the name of `user`.

    Paths are absolute and not quoted. Every call may raise `Refused`, `StorageUnavailable` when there was no answer or
    none that counts, and `InvalidError` when what answers does not speak WebHDFS. No connection is kept between calls,
    so any number of threads may use it.
    """

    def __init__(self, addresses: Sequence[str], user: str, patience: float = PATIENCE) -> None:
        self.addresses = tuple(addresses)
        self.user = user
        self._patience = patience
        self._active = 0
        """The index of the one that last did or refused something. It is asked first, so that who has written something
        finds it also while another NameNode has not noticed yet that it is active no more."""

    def status(self, path: str) -> FileStatus:
        return _decoded(self._ask("GET", path, op="GETFILESTATUS"), _OneStatus).FileStatus

    def children(self, folder: str) -> list[FileStatus]:
        """Everything in `folder`, by name; for a file that file alone, with an empty name."""
        found: dict[str, FileStatus] = {}
        while True:
            # Hadoop's documents write `startAfter`, which 3.5 does not understand.
            after = {"startafter": next(reversed(found))} if found else {}
            answer = self._ask("GET", folder, op="LISTSTATUS_BATCH", **after)
            listing = _decoded(answer, _OneListing).DirectoryListing
            batch = listing.partial_listing.FileStatuses.FileStatus
            if batch and batch[0].path_suffix in found:
                raise _not_webhdfs(answer.address, f"the listing of {folder} does not go on after its first part")
            found |= {status.path_suffix: status for status in batch}
            if not listing.remaining_entries or not batch:
                return list(found.values())

    def make_folders(self, path: str) -> None:
        """`path` and what is missing above it."""
        self._ask("PUT", path, op="MKDIRS")

    def create(self, path: str, data: bytes) -> None:
        """Make a file, and the folders that lead to it. Refused with FileAlreadyExistsException where there is one.

        When this fails, or its process is killed, a file with a part of `data` may be there.
        """
        self._through_datanode("PUT", path, data, op="CREATE", overwrite="false")

    def open(self, path: str) -> bytes:
        """The whole content."""
        return self._through_datanode("GET", path, None, op="OPEN")

    def rename(self, source: str, destination: str, *, replace: bool) -> None:
        """One step of the NameNode. Where `destination` is a file it is replaced, or, without `replace`, the rename is
        refused with FileAlreadyExistsException."""
        options = "OVERWRITE" if replace else "NONE"
        answer = self._ask("PUT", source, op="RENAME", destination=destination, renameoptions=options)
        # What does not know `renameoptions` answers with a boolean, and may have moved the file into a folder.
        if answer.body:
            raise InvalidError(
                f"{answer.address} does not know the renameoptions of WebHDFS",
                remedy=_WHICH_SERVER,
            )

    def delete(self, path: str) -> bool:
        """Remove a file or an empty folder; whether there was one. Refused with PathIsNotEmptyDirectoryException for a
        folder that is not empty."""
        return _decoded(self._ask("DELETE", path, op="DELETE", recursive="false"), _Yes).boolean

    # ---- requests --------------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, **parameters: str) -> _Answer:
        return self._ask_active(method, self._target(path, parameters), HTTPStatus.OK)

    def _ask_active(self, method: str, target: str, wanted: HTTPStatus) -> _Answer:
        """Goes on to the next NameNode only past one that has certainly done nothing."""
        first, troubles = self._active, list[StorageUnavailable]()
        for number in range(first, first + len(self.addresses)):
            index = number % len(self.addresses)
            address = self.addresses[index]
            try:
                answer = _accepted(self._exchange(method, address, target), wanted)
            except _Unreached as trouble:
                troubles.append(trouble)
            except Refused as refusal:
                if refusal.name != _STANDBY:
                    self._active = index
                    raise
                troubles.append(StorageUnavailable(f"{address} is not active: {refusal}", remedy=_WAIT_FOR_ACTIVE))
            except StorageUnavailable:
                # Whoever repeats the call begins with another.
                self._active = (index + 1) % len(self.addresses)
                raise
            else:
                self._active = index
                return answer
        raise StorageUnavailable("; ".join(str(one.args[0]) for one in troubles), remedy=troubles[-1].failure.remedy)

    def _exchange(self, method: str, address: str, target: str, data: bytes | None = None) -> _Answer:
        """Raises StorageUnavailable unless the whole answer has come. What changes something is sent once."""
        for _ in range(_QUESTIONS - 1 if method == "GET" else 0):
            with suppress(_Broken):
                return self._send(method, address, target, data)
        return self._send(method, address, target, data)

    def _through_datanode(self, method: str, path: str, data: bytes | None, **parameters: str) -> bytes:
        """Past DataNodes that cannot be reached: the NameNode names them until it has missed them for minutes."""
        unreached: dict[str, _Unreached] = {}
        while True:
            without = {"excludedatanodes": ",".join(unreached)} if unreached else {}
            try:
                node, target = self._datanode(method, self._target(path, parameters | without))
            except Refused:
                # It has no other.
                if not unreached:
                    raise
                raise list(unreached.values())[-1] from None
            try:
                return _accepted(self._exchange(method, node, target, data), _DONE[method]).body
            except _Unreached as trouble:
                host = node.rpartition(":")[0]
                if host in unreached or len(unreached) + 1 == _DATANODES:
                    raise
                unreached[host] = trouble

    def _datanode(self, method: str, target: str) -> tuple[str, str]:
        """The address to go on to, and what to ask there."""
        answer = self._ask_active(method, target, HTTPStatus.TEMPORARY_REDIRECT)
        location = urlsplit(answer.location)
        if location.scheme != "http":
            raise InvalidError(
                f"{answer.address} sends to a DataNode over {location.scheme or 'nothing'}, not over http",
                remedy="Name the NameNode of a cluster whose dfs.http.policy has HTTP.",
            )
        return location.netloc, f"{location.path}?{location.query}"

    def _target(self, path: str, parameters: Mapping[str, str]) -> str:
        return f"{_ROOT}{quote(path)}?{urlencode({**parameters, 'user.name': self.user}, quote_via=quote)}"

    def _send(self, method: str, address: str, target: str, data: bytes | None) -> _Answer:
        connection = http.client.HTTPConnection(address, timeout=self._patience)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _Unreached(f"{address} cannot be reached: {error}") from error
            # Whoever refuses a long content may stop reading it: then the answer says why.
            with suppress(BrokenPipeError):
                connection.request(method, target, data, {"Content-Type": "application/octet-stream"})
            return _whole(address, connection.getresponse())
        except (ConnectionError, http.client.IncompleteRead) as error:
            raise _Broken(f"{address} ended the connection before its answer") from error
        except http.client.BadStatusLine as error:
            raise _not_webhdfs(address, "no HTTP") from error
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailable(f"no answer came from {address}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()


def _whole(address: str, response: http.client.HTTPResponse) -> _Answer:
    if response.length is None and not response.chunked:
        raise http.client.HTTPException("the answer does not say where it ends")
    return _Answer(address, response.status, response.headers.get("Location", ""), response.read())


def _accepted(answer: _Answer, wanted: HTTPStatus) -> _Answer:
    """`answer` itself, when its status is the one that says that what was asked is done."""
    if answer.status == wanted:
        return answer
    try:
        refusal = msgspec.json.decode(answer.body, type=_OneException).RemoteException
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _foreign_error(answer) from None
    # Some messages go on with the server's own stack.
    raise Refused(refusal.exception, refusal.message.partition("\n")[0])


def _foreign_error(answer: _Answer) -> TidegateError:
    """What to make of an error that is not WebHDFS's own."""
    address = answer.address
    status = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return InvalidError(
            f"{address} wants a login ({status})",
            remedy="Only clusters with simple authentication are supported, not Kerberos.",
        )
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return StorageUnavailable(f"{address} answered {status}")
    return _not_webhdfs(address, status)


def _not_webhdfs(address: str, what: str) -> InvalidError:
    return InvalidError(f"{address} does not answer as WebHDFS does: {what}", remedy=_WHICH_SERVER)


def _decoded(answer: _Answer, kind: type[_Result]) -> _Result:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_webhdfs(answer.address, str(error)) from error
