"""Where stored state is: from what a user or a job says to the storage of one savepoint, or to a checkpoint of a job.

What is opened to be looked at is never changed, so that may be done while the job runs.
"""

from pathlib import Path
from typing import NamedTuple

from tidegate.checkpoint.log import Completed, Entry, LogView, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore, list_jobs
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import JobName
from tidegate.savepoints.format import SavepointReader, is_savepoint
from tidegate.state.backend import StoredFiles
from tidegate.storage.port import AlreadyExists, NotFound, Storage
from tidegate.storage.resolve import open_storage
from tidegate.storage.urls import is_remote, parent_of


class StorageFolder:
    """One folder of a storage as a storage of its own."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = f"{folder}/"

    @property
    def location(self) -> str:
        return f"{self._storage.location}/{self._folder[:-1]}"

    def put_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._storage.put_if_absent(self._folder + path, data)
        except AlreadyExists:
            raise AlreadyExists(path) from None

    def write(self, path: str, data: bytes) -> None:
        self._storage.write(self._folder + path, data)

    def read(self, path: str) -> bytes:
        try:
            return self._storage.read(self._folder + path)
        except NotFound:
            raise NotFound(path) from None

    def exists(self, path: str) -> bool:
        return self._storage.exists(self._folder + path)

    def list(self, prefix: str) -> list[str]:
        return [path.removeprefix(self._folder) for path in self._storage.list(self._folder + prefix)]

    def delete(self, path: str) -> None:
        self._storage.delete(self._folder + path)


def open_target(path: str | None, store: CheckpointStore, manifest: Manifest) -> Storage:
    """Where the savepoint of `manifest` is to be written: the folder or URL `path`, proved writable, or a new folder
    under the job's `savepoints/`. Raises InvalidError, StorageUnavailable."""
    if path is not None:
        return open_storage(path, writable=True)
    name = f"chk-{manifest.attempt}-{manifest.checkpoint}-{manifest.instance}"
    return StorageFolder(store.storage, f"{store.job}/savepoints/{name}")


def open_savepoint(path: str) -> SavepointReader:
    """The savepoint in the folder or URL `path`; nothing is looked at yet."""
    return SavepointReader(open_storage(path))


# ---- what is stored, to be looked at -------------------------------------------------------------------------------


class StoredState(NamedTuple):
    """One checkpoint or savepoint, and where its files are."""

    manifest: Manifest
    files: StoredFiles
    location: str
    """What it is and where, for messages: 'checkpoint 7 in /flows/totals'."""


def open_stored(where: str, checkpoint: int | None = None) -> StoredState:
    """The savepoint in the folder or URL `where`, or a completed checkpoint of the job there: the newest, or the one
    with that number. `where` is the job's own folder, or one that holds that job alone. Blocks.

    Raises InvalidError that says what there is, CorruptError when it cannot be read, StorageUnavailable.
    """
    storage = open_storage(where)
    if is_savepoint(storage):
        return _opened_savepoint(SavepointReader(storage), checkpoint)
    return open_checkpoint(find_job(where), checkpoint)


def open_checkpoint(store: CheckpointStore, checkpoint: int | None = None) -> StoredState:
    """A completed checkpoint of the job in `store`: the newest, or the one with that number. Raises InvalidError, and
    CorruptError when what may be the newest cannot be read."""
    view = view_log(store.read_log())
    damage = view.damage
    if checkpoint is None and damage is not None:
        raise CorruptError(
            f"{store.location}: log position {damage.position}, which may be the newest checkpoint, cannot be read: "
            f"{damage.why}",
            remedy="Say which checkpoint with --checkpoint N (in Python checkpoint=N).",
        )
    return stored_checkpoint(store, choose_manifest(store, view, checkpoint))


def stored_checkpoint(store: CheckpointStore, manifest: Manifest) -> StoredState:
    """A checkpoint of `store`."""
    what = f"checkpoint {manifest.checkpoint} in {store.location}"
    return StoredState(manifest, CheckpointFiles(store, manifest), what)


class CheckpointFiles:
    """The files of one checkpoint of a job that may run, and remove it, while it is read."""

    def __init__(self, store: CheckpointStore, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest

    def read_state(self, handle: StateHandle) -> bytes:
        """As `CheckpointStore.read_state`; raises InvalidError when the checkpoint is not stored any more."""
        try:
            return self._store.read_state(handle)
        except CorruptError as error:
            if is_stored(self._store, self._manifest):
                raise
            raise InvalidError(
                f"checkpoint {self._manifest.checkpoint} in {self._store.location} was removed while it was read: "
                "the job has newer ones",
                remedy="Read again, or let the job keep more of them (checkpoints.retained).",
            ) from error


def is_stored(store: CheckpointStore, manifest: Manifest) -> bool:
    """Whether the log has this checkpoint now."""
    bodies = (entry.body for entry in store.read_log() if isinstance(entry, Entry))
    return any(isinstance(body, Completed) and body.manifest == manifest for body in bodies)


def _opened_savepoint(reader: SavepointReader, checkpoint: int | None) -> StoredState:
    manifest = reader.manifest()
    if checkpoint not in (None, manifest.checkpoint):
        raise InvalidError(
            f"{reader.location} is a savepoint and holds one checkpoint, {manifest.checkpoint}, and not {checkpoint}",
            remedy="Leave the number out.",
        )
    return StoredState(manifest, reader, f"savepoint {reader.location}")


def find_job(where: str) -> CheckpointStore:
    """The job whose folder is `where`, or that alone has its folder there. Raises InvalidError."""
    storage = open_storage(where)
    if storage.list("log/"):
        parent, name = parent_of(where) if is_remote(where) else _folder_and_name(storage)
        return CheckpointStore(open_storage(parent), JobName(name))
    jobs = list_jobs(storage)
    if len(jobs) != 1:
        remedy = (
            f"Name one of: {', '.join(f'{where}/{job}' for job in jobs)}." if jobs else "Name a folder with either."
        )
        what = f"{len(jobs)} jobs" if jobs else "neither a savepoint nor the checkpoints of a job"
        raise InvalidError(f"{where} holds {what}", remedy=remedy)
    return CheckpointStore(storage, jobs[0])


def _folder_and_name(storage: Storage) -> tuple[str, str]:
    path = Path(storage.location)
    return str(path.parent), path.name


def choose_manifest(store: CheckpointStore, view: LogView, number: int | None) -> Manifest:
    """Completed checkpoint `number`, also one that counts no more; None: the newest. Raises InvalidError."""
    bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
    completed = [body.manifest for body in bodies if isinstance(body, Completed)]
    if number is None and view.newest is not None:
        return view.newest
    wanted = [manifest for manifest in completed if manifest.checkpoint == number]
    if wanted:
        return wanted[-1]
    there = ", ".join(str(manifest.checkpoint) for manifest in completed) or "none"
    what = "completed checkpoint" if number is None else f"completed checkpoint {number}"
    raise InvalidError(f"{store.location} has no {what}", remedy=f"Completed and still stored: {there}.")
