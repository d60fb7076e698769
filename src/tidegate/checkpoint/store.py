"""Everything that is stored of one job, under one folder of a storage: the checkpoint log and the files of state.

    <job>/log/00000000000000000042.json         one entry of the log, created only if absent
    <job>/chk-<attempt>-<checkpoint>/…          files of one checkpoint
    <job>/shared/<attempt>/…                    files that several checkpoints may need
    <job>/savepoints/…                          not touched here

This is the only module of the protocol that does I/O. It must never decide anything: what entries mean and what may be
deleted is said by `checkpoint.log`. It never takes damage for absence, and never an answer that did not come for a no:
`StorageUnavailable` always reaches the caller, who repeats.
"""

import re
from collections.abc import Callable, Iterable

import msgspec
import xxhash

from tidegate.checkpoint import manifest as manifests
from tidegate.checkpoint.log import Completed, Entry, StoredEntry, Unreadable
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import StateHandle
from tidegate.errors import CorruptError, InternalError, InvalidError, place
from tidegate.ids import Attempt, CheckpointId, JobName, LogPosition, OperatorName, SubtaskIndex, TaskId, is_name
from tidegate.storage.port import AlreadyExists, NotFound, Storage, StorageUnavailable

ENTRY_FORMAT = 1
"""Version of the form of an entry's file. A reader refuses a higher one."""
INDENTED_MAX = 64 * 1024
"""Bytes of an entry without white space. Larger ones, as those with thousands of splits, would be three times as large
if they were indented."""

_LISTINGS = 5
"""How often the log is listed again when entries vanish while they are read."""

_ENTRY_NAME = re.compile(r"([0-9]{20})\.json")
_LOG_PATH = re.compile(r"([^/]+)/log/[0-9]{20}\.json")
_STATE_PATH = re.compile(r"(?:chk-([0-9]{1,18})-[0-9]+|shared/([0-9]{1,18}))/.+")


# ---- results -------------------------------------------------------------------------------------------------------


class Won(msgspec.Struct, frozen=True):
    """The entry is in the log, written by this call or by an earlier one of which no answer came."""


class Taken(msgspec.Struct, frozen=True):
    """Somebody else runs the job: this process may neither append, commit, abort nor delete anything more.

    It does not say that the entry is not in the log: a successor may have found it there and go on from it.
    """

    by: StoredEntry | None
    """What shows it: the entry at the position, or the newest one. None when what was there is gone."""


AppendResult = Won | Taken


class Problem(msgspec.Struct, frozen=True):
    """Something that a checkpoint needs and that cannot be read as what it was."""

    operator: OperatorName
    subtask: SubtaskIndex
    where: str
    """A path relative to the job's folder, or 'inline'."""
    why: str


# ---- an entry as a file --------------------------------------------------------------------------------------------


class _Version(msgspec.Struct):
    format: int


class _Envelope(msgspec.Struct):
    checksum: str
    entry: msgspec.Raw


def checksum(data: bytes) -> str:
    """xxh3-128, hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def encode_entry(entry: Entry) -> bytes:
    """The file of `entry`: one JSON document with a checksum over the text of the entry, indented for people unless it
    is large.

    Raises `InternalError` for an entry that would not be read back as it is: it must not win a position.
    """
    text = msgspec.json.encode(entry)
    if len(text) <= INDENTED_MAX:
        text = msgspec.json.format(text, indent=2)
    if msgspec.json.decode(text, type=Entry) != entry:
        what = f"log entry {entry.position} ({type(entry.body).__name__})"
        raise InternalError(f"{what} holds what JSON does not keep, such as NaN or a tuple in a transaction's payload")
    return b'{"format": %d, "checksum": "%s", "entry": %s}' % (ENTRY_FORMAT, checksum(text).encode(), text)


def decode_entry(position: LogPosition, data: bytes) -> StoredEntry:
    """What the file of `position` says: `Unreadable` unless it is exactly an entry of this position. Never raises."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != ENTRY_FORMAT:
            return Unreadable(position, _unknown_format("entry", version, ENTRY_FORMAT))
        envelope = msgspec.json.decode(data, type=_Envelope)
        text = bytes(envelope.entry)
        if checksum(text) != envelope.checksum:
            return Unreadable(position, f"the checksum is {checksum(text)} and should be {envelope.checksum}")
        entry = msgspec.json.decode(text, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(position, f"not a log entry ({len(data)} bytes): {error}")
    return _refusal(position, entry) or entry


def _refusal(position: LogPosition, entry: Entry) -> Unreadable | None:
    if entry.position != position:
        return Unreadable(position, f"holds the entry of position {entry.position}")
    if not isinstance(entry.body, Completed):
        return None
    if entry.body.manifest.format != manifests.FORMAT:
        return Unreadable(position, _unknown_format("manifest", entry.body.manifest.format, manifests.FORMAT))
    flaw = manifests.flaw_in(entry.body.manifest)
    return Unreadable(position, f"its manifest cannot be right: {flaw}") if flaw else None


def _unknown_format(what: str, found: int, known: int) -> str:
    if found > known:
        return f"written by a newer version of Tidegate: {what} format {found}, this version reads up to {known}"
    return f"{what} format {found} does not exist"


# ---- the store of one job ------------------------------------------------------------------------------------------


class CheckpointStore:
    """One job's log and files of state. All calls block; they raise `StorageUnavailable` when no answer came."""

    def __init__(self, storage: Storage, job: JobName) -> None:
        if not is_name(job):
            raise InvalidError(f"{job!r} cannot name a job", remedy="Use 1 to 64 letters, digits, '_' and '-'.")
        self.storage = storage
        self.job = job

    @property
    def location(self) -> str:
        """The job's folder, for messages."""
        return f"{self.storage.location}/{self.job}"

    # -- the log --

    def read_log(self) -> list[StoredEntry]:
        """Every entry that is stored, by position. What is there and cannot be read as an entry is `Unreadable`."""
        for _ in range(_LISTINGS):
            found = [self._read_entry(position) for position in self._positions()]
            entries = [entry for entry in found if entry is not None]
            # Entries vanish when their job prunes them; what it appended meanwhile is not in this listing.
            if len(entries) == len(found):
                return entries
        raise StorageUnavailable(f"{self.location}/log: entries vanished each of the {_LISTINGS} times it was read")

    def append(self, entry: Entry) -> AppendResult:
        """Write `entry` at its position, once and for all.

        On `StorageUnavailable` it may be written or not, or be written later: call again with the same entry, until it
        is decided.
        """
        data = encode_entry(entry)
        try:
            self.storage.put_if_absent(self._entry_path(entry.position), data)
        except AlreadyExists:
            holder = self._read(self._entry_path(entry.position))
            if holder != data:
                return Taken(None if holder is None else decode_entry(entry.position, holder))
        return self._fate(entry)

    def prune(self, positions: Iterable[LogPosition]) -> None:
        """Delete these entries of the log, in the order given: from the bottom up, so that a gap is always below."""
        for position in positions:
            self.storage.delete(self._entry_path(position))

    def _fate(self, entry: Entry) -> AppendResult:
        """Whether the entry, now stored, belongs to the log, and this process may go on from it.

        A process that was away for long may write at a position that others have used and pruned since. What is newest
        is never pruned: so a higher position shows that somebody else has taken over, also where the entry below is
        this process's own (*created* and the newest takeover stay for ever).
        """
        position = entry.position
        positions = self._positions()
        if positions and positions[-1] > position:
            return Taken(self._read_entry(positions[-1]))
        if position > 0 and position - 1 not in positions:
            return Taken(None)
        return Won()

    def _positions(self) -> list[LogPosition]:
        names = (path.rpartition("/")[2] for path in self.storage.list(f"{self.job}/log/"))
        return sorted(LogPosition(int(found[1])) for name in names if (found := _ENTRY_NAME.fullmatch(name)))

    def _read_entry(self, position: LogPosition) -> StoredEntry | None:
        data = self._read(self._entry_path(position))
        return None if data is None else decode_entry(position, data)

    def _entry_path(self, position: LogPosition) -> str:
        return f"{self.job}/log/{position:020d}.json"

    def _read(self, path: str) -> bytes | None:
        try:
            return self.storage.read(path)
        except NotFound:
            return None

    # -- files of state; paths are relative to the job's folder, as in handles --

    def write_state(self, path: str, data: bytes) -> None:
        """Store a file of state. Repeating it with the same bytes is allowed; replacing other bytes never is.

        Raises `InvalidError` when other content is there: an attempt and checkpoint of that number were in this folder
        before, so the log that is in use is not the one the folder's files belong to.
        """
        try:
            self.storage.put_if_absent(self._state(path), data)
        except AlreadyExists:
            if self._read(self._state(path)) != data:
                raise InvalidError(
                    f"{self.location}/{path} exists with other content: it belongs to an earlier log of this job",
                    remedy=f"Move {self.location} away, or choose another checkpoints.dir.",
                ) from None

    def read_state(self, handle: StateHandle) -> bytes:
        """The content that `handle` stands for. Raises `CorruptError` unless it is there with its size and checksum."""
        data, why = self._fetch(handle)
        if why is not None or data is None:
            raise CorruptError(
                f"{self.location}/{handle.path or 'inline state'}: {why}",
                remedy="Bring the file back from a copy, or go back with --from-checkpoint to one that "
                "`tidegate checkpoints verify` finds whole: what newer checkpoints committed is then written again.",
            )
        return data

    def verify_manifest(self, manifest: Manifest) -> list[Problem]:
        """What of this checkpoint's state is missing, cut off or changed; each file is read whole."""
        return problems_in(manifest, self.damage_of)

    def damage_of(self, handle: StateHandle) -> str | None:
        """What is wrong with the content that `handle` stands for; None when it is as it was written."""
        return self._fetch(handle)[1]

    def state_files(self) -> list[str]:
        """Every file of state that is stored, referenced or not."""
        folder = f"{self.job}/"
        paths = (path.removeprefix(folder) for path in self.storage.list(folder))
        return [path for path in paths if attempt_of(path) is not None]

    def delete_files(self, paths: Iterable[str]) -> None:
        """Delete files of state, in the order given; those that are gone already do not matter."""
        for path in paths:
            self.storage.delete(self._state(path))

    def _fetch(self, handle: StateHandle) -> tuple[bytes | None, str | None]:
        """The content and what is wrong with it."""
        data = handle.inline if handle.path is None else self._read(self._state(handle.path))
        return data, flaw_of(data, handle)

    def _state(self, path: str) -> str:
        if attempt_of(path) is None:
            raise InternalError(f"{path!r} is not the path of a file of state of job {self.job}")
        return f"{self.job}/{path}"


def flaw_of(data: bytes | None, handle: StateHandle) -> str | None:
    """In what way `data`, None where nothing was found, is not the content that `handle` stands for."""
    if data is None:
        return f"missing; {handle.size} bytes with checksum {handle.checksum} should be there"
    if len(data) != handle.size:
        return f"has {len(data)} bytes and should have {handle.size}"
    if checksum(data) != handle.checksum:
        return f"has the checksum {checksum(data)} and should have {handle.checksum}"
    return None


def problems_in(manifest: Manifest, damage_of: Callable[[StateHandle], str | None]) -> list[Problem]:
    """Every handle of `manifest` with which `damage_of` finds something wrong."""
    return [
        Problem(operator.name, record.subtask, handle.path or "inline", why)
        for operator in manifest.operators
        for record in operator.subtasks
        for handle in record.snapshot.all_handles
        if (why := damage_of(handle)) is not None
    ]


def state_path(attempt: Attempt, checkpoint: CheckpointId, task: TaskId, operator: OperatorName, part: str) -> str:
    """Where one part of what an operator of `task` stores for one checkpoint is kept, relative to the job's folder.

    Names have no dots, so different arguments give different paths. `part` is a name, or several joined by dots.
    """
    return f"chk-{attempt}-{checkpoint}/{_file_name(attempt, task, operator, part)}"


def _file_name(attempt: Attempt, task: TaskId, operator: OperatorName, part: str) -> str:
    if not all(is_name(piece) for piece in part.split(".")):
        where = place(operator, task.subtask, attempt)
        raise InternalError(f"{part!r} cannot name a part of a checkpoint", where=where)
    return f"{operator}.{task.subtask}.{part}"


def shared_path(attempt: Attempt, task: TaskId, operator: OperatorName, part: str) -> str:
    """Where an operator of `task` keeps a file that several checkpoints may name, relative to the job's folder. `part`
    as in `state_path`; it holds the checkpoint for which the file was written, or otherwise differs each time."""
    return f"shared/{attempt}/{_file_name(attempt, task, operator, part)}"


def attempt_of(path: str) -> Attempt | None:
    """The attempt that wrote the file of state at `path` (relative to the job's folder); None if it is no such path."""
    found = _STATE_PATH.fullmatch(path)
    return Attempt(int(found[1] or found[2])) if found else None


def list_jobs(storage: Storage) -> list[JobName]:
    """Every job that has a log in `storage`, by name."""
    found = (_LOG_PATH.fullmatch(path) for path in storage.list(""))
    return sorted({JobName(match[1]) for match in found if match})
