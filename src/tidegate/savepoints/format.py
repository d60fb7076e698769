"""The folder of a savepoint: `savepoint.json`, written last, and files of state that it names by relative paths.

    savepoint.json          format, checksum, and the manifest: what every operator had, without pending transactions
    state/<operator>.<n>    full pieces of keyed state (`state.pieces`), and state without keys as it was

Any storage can hold it, and the folder may be moved or copied as a whole: nothing in it says where it is. A folder
without `savepoint.json` is not a savepoint yet. Nothing here may ever replace a file, or take one for another's.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from tidegate.checkpoint import manifest as manifests
from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.checkpoint.store import Problem, checksum, flaw_of, problems_in
from tidegate.errors import CorruptError, InternalError, InvalidError, TidegateError
from tidegate.ids import OperatorName, is_name
from tidegate.state.backend import PIECE
from tidegate.storage.port import AlreadyExists, NotFound, Storage

T = TypeVar("T")

FORMAT = 1
"""Version of the folder's form. A reader refuses a higher one."""

FILE = "savepoint.json"
"""Written last: with it the savepoint is complete."""

_STATE_PATH = re.compile(r"state/([A-Za-z0-9_-]{1,64})\.\d+")
_AGAIN = "Take the savepoint again; this folder can be removed."


class _Version(msgspec.Struct):
    format: int


class _Envelope(msgspec.Struct):
    checksum: str
    savepoint: msgspec.Raw


# ---- writing -------------------------------------------------------------------------------------------------------


class SavepointWriter:
    """Writes one savepoint. Raises InvalidError when the storage holds anything already."""

    def __init__(self, storage: Storage) -> None:
        there = storage.list("")
        if there:
            what = "a savepoint" if FILE in there else f"{there[0]} and perhaps more"
            raise InvalidError(
                f"{storage.location} holds {what} already", remedy="Name a folder that does not exist or is empty."
            )
        self._storage = storage
        self._written: list[str] = []
        self._counts: dict[str, int] = {}

    def write_state(
        self, operator: OperatorName, data: bytes, groups: range, *, form: str = PIECE, name: str = ""
    ) -> StateHandle:
        """Store `data`, which stands for `groups`, as a new file of `operator`."""
        if not is_name(operator):
            raise InternalError(f"{operator!r} cannot name an operator")
        number = self._counts[operator] = self._counts.get(operator, -1) + 1
        path = f"state/{operator}.{number}"
        self._create(path, data)
        first, last = groups.start, groups.stop - 1
        return StateHandle(first, last, len(data), checksum(data), path=path, form=form, name=name)

    def finish(self, manifest: Manifest) -> None:
        """Write `savepoint.json`. `manifest` names files of this savepoint only and no pending transaction."""
        _check_names(manifest, self._storage.location, InternalError)
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        if msgspec.json.decode(text, type=Manifest) != manifest:
            raise InternalError(f"the manifest of savepoint {self._storage.location} holds what JSON does not keep")
        data = b'{"format": %d, "checksum": "%s", "savepoint": %s}' % (FORMAT, checksum(text).encode(), text)
        self._create(FILE, data)

    def undo(self) -> None:
        """Remove what was written, as far as the storage answers: the folder was empty before."""
        for path in reversed(self._written):
            with suppress(TidegateError):
                self._storage.delete(path)
        self._written.clear()

    def _create(self, path: str, data: bytes) -> None:
        self._written.append(path)
        try:
            self._storage.put_if_absent(path, data)
        except AlreadyExists:
            self._written.pop()
            raise InvalidError(
                f"{self._storage.location}/{path} was written by somebody else meanwhile",
                remedy="Let one process at a time write a savepoint, each into a folder of its own.",
            ) from None


def writing(storage: Storage, write: Callable[[SavepointWriter], T]) -> T:
    """What `write` returns. Whatever it raises, the storage is left as empty as it was."""
    writer = SavepointWriter(storage)
    try:
        return write(writer)
    except BaseException:
        writer.undo()
        raise


# ---- reading -------------------------------------------------------------------------------------------------------


class SavepointReader:
    """Reads one savepoint; a `StoredFiles` of what its manifest names. All calls block and raise StorageUnavailable."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @property
    def location(self) -> str:
        """The folder, for messages."""
        return self.storage.location

    def manifest(self) -> Manifest:
        """Raises InvalidError where there is no savepoint, an unfinished one, or one of a newer version, and
        CorruptError for what is not as it was written."""
        try:
            data = self.storage.read(FILE)
        except NotFound:
            raise self._absent() from None
        manifest = self._decode(data)
        if flaw := manifests.flaw_in(manifest):
            raise self._damaged(flaw)
        _check_names(manifest, self.location, CorruptError)
        return manifest

    def _absent(self) -> InvalidError:
        if self.storage.list(""):
            message = f"{self.location} is not a complete savepoint: {FILE}, which is written last, is missing"
            return InvalidError(message, remedy=_AGAIN)
        return InvalidError(f"there is no savepoint in {self.location}", remedy="Name the folder of a savepoint.")

    def _decode(self, data: bytes) -> Manifest:
        try:
            version = msgspec.json.decode(data, type=_Version).format
            self._check_format("savepoint", version, FORMAT)
            envelope = msgspec.json.decode(data, type=_Envelope)
            text = bytes(envelope.savepoint)
            if checksum(text) != envelope.checksum:
                raise self._damaged(f"the checksum is {checksum(text)} and should be {envelope.checksum}")
            self._check_format("manifest", msgspec.json.decode(text, type=_Version).format, manifests.FORMAT)
            return msgspec.json.decode(text, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(f"{len(data)} bytes that are no savepoint: {error}") from error

    def _check_format(self, what: str, found: int, known: int) -> None:
        if found > known:
            raise InvalidError(
                f"{self.location} was written by a newer version of Tidegate: {what} format {found}, "
                f"this version reads up to {known}",
                remedy="Use the version that wrote it, or a later one.",
            )
        if found != known:
            raise self._damaged(f"{what} format {found} does not exist")

    def _damaged(self, why: str) -> CorruptError:
        return CorruptError(f"{self.location}/{FILE}: {why}", remedy="Bring the file back from a copy.")

    def read_state(self, handle: StateHandle) -> bytes:
        """The content that `handle` stands for. Raises CorruptError unless it is there with its size and checksum."""
        data, why = self._fetch(handle)
        if data is None or why is not None:
            raise CorruptError(
                f"{self.location}/{handle.path or 'inline state'}: {why}",
                remedy="Bring the file back from a copy, or use another savepoint.",
            )
        return data

    def verify(self) -> list[Problem]:
        """What of the state is missing, cut off or changed; every file is read. Raises as `manifest` does."""
        return problems_in(self.manifest(), self.damage_of)

    def damage_of(self, handle: StateHandle) -> str | None:
        """What is wrong with the content that `handle` stands for; None when it is as it was written."""
        return self._fetch(handle)[1]

    def unreferenced(self) -> list[str]:
        """Paths in the folder that the savepoint does not name."""
        known = {FILE, *self.manifest().files}
        return [path for path in self.storage.list("") if path not in known]

    def _fetch(self, handle: StateHandle) -> tuple[bytes | None, str | None]:
        data = handle.inline
        if handle.path is not None:
            try:
                data = self.storage.read(handle.path)
            except NotFound:
                data = None
        return data, flaw_of(data, handle)


def is_savepoint(storage: Storage) -> bool:
    """Whether there is a savepoint, or what is left of an unfinished one."""
    return storage.exists(FILE) or any(map(_STATE_PATH.fullmatch, storage.list("state/")))


def drop_savepoint(storage: Storage) -> None:
    """Remove a savepoint: first what makes it one, then its files of state. May be repeated."""
    storage.delete(FILE)
    for path in storage.list("state/"):
        if _STATE_PATH.fullmatch(path) is not None:
            storage.delete(path)


def map_snapshots(
    manifest: Manifest, change: Callable[[OperatorRecord, OperatorSnapshot], OperatorSnapshot]
) -> Iterator[OperatorRecord]:
    """The operators of `manifest`, each subtask's snapshot put through `change`."""
    for record in manifest.operators:
        subtasks = tuple(
            msgspec.structs.replace(subtask, snapshot=change(record, subtask.snapshot)) for subtask in record.subtasks
        )
        yield msgspec.structs.replace(record, subtasks=subtasks)


def _check_names(manifest: Manifest, location: str, error: Any) -> None:
    """A savepoint names nothing outside of itself, and nothing that somebody would still have to commit."""
    for handle in manifest.handles:
        if handle.path is not None and _STATE_PATH.fullmatch(handle.path) is None:
            raise error(f"{location}: {handle.path!r} is not the path of a file of a savepoint")
        if handle.path is None and handle.inline is None:
            raise error(f"{location}: a handle names neither a file nor its content")
    if any(record.pending for record in manifest.operators):
        raise error(f"{location}: a savepoint names transactions that are still to be committed")
