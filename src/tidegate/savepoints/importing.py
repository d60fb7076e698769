"""From a savepoint to the first checkpoint of a job: its state is copied into the job's folder, verified.

From then on the job depends on nothing outside its folder, and what is deleted there is decided in one place alone.
Doing it again, by the same attempt, does what is still to be done. The savepoint is never changed.
"""

import msgspec

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import Attempt, CheckpointId, LogInstance
from tidegate.savepoints.format import SavepointReader, map_snapshots
from tidegate.storage.port import Storage


def import_savepoint(
    source: Storage,
    store: CheckpointStore,
    attempt: Attempt,
    checkpoint: CheckpointId,
    instance: LogInstance,
    *,
    inline: bool = False,
) -> Manifest:
    """The manifest of checkpoint `checkpoint` of `attempt` with the state of the savepoint in `source`, whose files are
    now in the job's folder; with `inline` in the manifest itself.

    Raises as `SavepointReader` does, and InvalidError when other content has the name of one of the files.
    """
    reader = SavepointReader(source)
    manifest = reader.manifest()
    copy = _Copy(reader, store, f"chk-{attempt}-{checkpoint}", inline)
    return msgspec.structs.replace(
        manifest,
        job=store.job,
        instance=instance,
        attempt=attempt,
        checkpoint=checkpoint,
        operators=tuple(
            record if manifest.job == store.job else msgspec.structs.replace(record, sink=None)
            for record in map_snapshots(manifest, copy.snapshot)
        ),
    )


class _Copy:
    """One savepoint on its way. The sinks of another job are its own: nobody here may sweep its transactions."""

    def __init__(self, reader: SavepointReader, store: CheckpointStore, folder: str, inline: bool) -> None:
        self._reader = reader
        self._store = store
        self._folder = folder
        self._inline = inline

    def snapshot(self, record: OperatorRecord, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        return msgspec.structs.replace(
            snapshot,
            handles=tuple(map(self._handle, snapshot.handles)),
            operator_handles=tuple(map(self._handle, snapshot.operator_handles)),
        )

    def _handle(self, handle: StateHandle) -> StateHandle:
        data = self._reader.read_state(handle)
        if handle.path is None or self._inline:
            return msgspec.structs.replace(handle, path=None, inline=data)
        path = f"{self._folder}/{handle.path.rpartition('/')[2]}"
        self._store.write_state(path, data)
        return msgspec.structs.replace(handle, path=path)
