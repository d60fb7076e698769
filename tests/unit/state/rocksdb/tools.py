"""What the tests of the RocksDB backend share: backends in folders of their own, files that are counted."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.backend import Capture
from tidegate.state.key_groups import groups_of
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

GROUPS = 16
OPERATOR = OperatorName("totals")
_IN_MEMORY = Path("/dev/shm")


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """An empty folder, in memory where the machine has such: RocksDB waits for the disk with each database it opens."""
    return tempfile.TemporaryDirectory(prefix="tidegate-rocksdb-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)


class CountedFiles(KeptFiles):
    """Also counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read_state(self, handle: StateHandle) -> bytes:
        self.reads[str(handle.path)] += 1
        return super().read_state(handle)


class Attempts:
    """Attempts of one job on one machine, in `folder`: each backend of attempt n is in a folder of its own there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = CountedFiles()
        self.memory = RocksMemory(RocksMemory.LIMIT_MIN)
        self.number = 1
        self.checkpoint = 0
        self._open: list[RocksStateBackend] = []

    def backend(self, subtask: int = 0, parallelism: int = 1, **options: Any) -> RocksStateBackend:
        """Of the current attempt."""
        place = self.folder / str(self.number) / f"{OPERATOR}.{subtask}"
        index = SubtaskIndex(subtask)
        made = RocksStateBackend(OPERATOR, index, parallelism, GROUPS, place, self.memory, **options)
        self._open.append(made)
        return made

    def restored(
        self, snapshots: Sequence[OperatorSnapshot], subtask: int = 0, parallelism: int = 1, **options: Any
    ) -> RocksStateBackend:
        """Of the current attempt, given what these hold of its groups."""
        backend = self.backend(subtask, parallelism, **options)
        groups = groups_of(SubtaskIndex(subtask), parallelism, GROUPS)
        clipped = [clip(snapshot, groups) for snapshot in snapshots]
        backend.restore([snapshot for snapshot in clipped if snapshot.handles], self.files)
        return backend

    def take(self, backend: RocksStateBackend, *, is_completed: bool = True) -> OperatorSnapshot:
        """A checkpoint, stored at once; `backend` hears that it completed or was abandoned."""
        self.checkpoint += 1
        id = CheckpointId(self.checkpoint)
        snapshot = snapshot_of(backend.capture(id), self.files)
        (backend.completed if is_completed else backend.abandoned)(id)
        return snapshot

    def crash(self) -> None:
        """The next attempt begins; nobody told the backends of this one."""
        self.number += 1

    def close(self) -> None:
        for backend in self._open:
            backend.close()


def snapshot_of(capture: Capture, files: KeptFiles) -> OperatorSnapshot:
    return OperatorSnapshot(OPERATOR, key_type=capture.key_type, states=capture.states, handles=capture.store(files))


def clip(snapshot: OperatorSnapshot, groups: range) -> OperatorSnapshot:
    clipped = [
        msgspec.structs.replace(
            handle, first_group=max(handle.first_group, groups[0]), last_group=min(handle.last_group, groups[-1])
        )
        for handle in snapshot.handles
    ]
    kept = tuple(handle for handle in clipped if handle.first_group <= handle.last_group)
    return msgspec.structs.replace(snapshot, handles=kept)


def tables(snapshot: OperatorSnapshot) -> dict[str, str | None]:
    """Where each table of a snapshot is stored, by its name."""
    return {handle.name: handle.path for handle in snapshot.handles if handle.name.endswith(".sst")}
