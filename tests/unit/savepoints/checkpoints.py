"""Makes checkpoints of invented operators with the object backend, in the folder of a job, as a JobManager would."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidegate.checkpoint.log import Body, Completed, Created, Entry, ProcessRecord, Takeover
from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SinkRecord, SubtaskRecord
from tidegate.checkpoint.protocol import (
    Committable,
    OperatorSnapshot,
    PendingTransaction,
    RecoverySpec,
    SplitState,
    StateHandle,
    StateInfo,
)
from tidegate.checkpoint.store import CheckpointStore, Won
from tidegate.ids import (
    Attempt,
    CheckpointId,
    JobName,
    LogInstance,
    LogPosition,
    OperatorName,
    SubtaskIndex,
    TaskId,
    VertexName,
)
from tidegate.runtime.control import RuntimeOptions
from tidegate.runtime.snapshots import OperatorFiles
from tidegate.state.backend import KeyedStateBackend, StoredFiles
from tidegate.state.descriptors import StateDescriptor, collect_descriptors
from tidegate.state.key_groups import grouping_of, groups_of, subtask_of
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.operator_pieces import ELEMENTS, write_operator_piece
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.storage.resolve import open_storage

MAX_PARALLELISM = 16
SPLITS = (SplitState("orders/0", 120), SplitState("orders/1", 95, attributes={"topic-id": "t1"}))
SEEN = StateInfo("seen", "list-split", "int", "msgpack/1")
SINK = SinkRecord("totals", RecoverySpec("somewhere:open", {"at": "here"}))


class Job:
    """One attempt of a job whose operator `totals` has the states that `function` declares. key_type: that of its keys,
    where it is declared."""

    def __init__(
        self,
        folder: Path,
        function: type,
        *,
        name: str = "orders-job",
        parallelism: int = 2,
        backend: str = "object",
        key_type: str = "",
    ) -> None:
        self.store = CheckpointStore(open_storage(str(folder), writable=True), JobName(name))
        self.folder = folder / name
        self.parallelism = parallelism
        self._positions = itertools.count()
        self._checkpoints = itertools.count(1)
        self.backends: list[KeyedStateBackend] = [
            make_backend(backend, i, parallelism, folder.parent / f"{name}-local", key_type) for i in range(parallelism)
        ]
        self.grouping = grouping_of(key_type, MAX_PARALLELISM)
        self.descriptors: Mapping[str, StateDescriptor[Any]] = collect_descriptors(function)
        self.handles = [
            {name: backend.register(descriptor) for name, descriptor in self.descriptors.items()}
            for backend in self.backends
        ]
        self.append(Created())
        self.append(Takeover("host", ProcessRecord(1, 1)))

    def append(self, body: Body) -> None:
        position = LogPosition(next(self._positions))
        entry = Entry(position, "nonce", LogInstance("log1"), Attempt(1), 1_700_000_000.0 + position, body)
        assert self.store.append(entry) == Won()

    def at(self, key: Any) -> dict[str, Any]:
        """The handles of the subtask that has `key`, which now mean its state."""
        owner = subtask_of(self.grouping.group_of(encode_key(key)), self.parallelism, MAX_PARALLELISM)
        self.backends[owner].set_current_key(key)
        return self.handles[owner]

    def complete(
        self,
        *,
        splits: Sequence[SplitState] = SPLITS,
        pending: bool = False,
        lists: Sequence[Sequence[int]] = (),
    ) -> Manifest:
        """The next checkpoint, in the log. `lists`: what each subtask's operator list state `seen` holds."""
        checkpoint = CheckpointId(next(self._checkpoints))
        snapshots = [self._snapshot(number, checkpoint, lists) for number in range(self.parallelism)]
        manifest = self._manifest(checkpoint, snapshots, splits, pending)
        self.append(Completed(manifest))
        for backend in self.backends:
            backend.completed(checkpoint)
        return manifest

    def _files(self, number: int) -> OperatorFiles:
        task = TaskId(VertexName("totals"), SubtaskIndex(number))
        return OperatorFiles(self.store, task, OperatorName("totals"), Attempt(1), RuntimeOptions(inline_limit=64))

    def _snapshot(self, number: int, checkpoint: CheckpointId, lists: Sequence[Sequence[int]]) -> OperatorSnapshot:
        capture = self.backends[number].capture(checkpoint)
        files = self._files(number)
        handles = capture.store(files)
        snapshot = OperatorSnapshot(
            OperatorName("totals"), key_type=capture.key_type, states=capture.states, handles=handles
        )
        if not lists:
            return snapshot
        piece = write_operator_piece([("seen", msgspec.msgpack.encode(list(lists[number])))])
        handle = files.write(f"{checkpoint}-elements", piece, range(1), form=ELEMENTS)
        return msgspec.structs.replace(snapshot, operator_states=(SEEN,), operator_handles=(handle,))

    def _manifest(
        self,
        checkpoint: CheckpointId,
        snapshots: Sequence[OperatorSnapshot],
        splits: Sequence[SplitState],
        pending: bool,
    ) -> Manifest:
        prepared = PendingTransaction(checkpoint, Committable(f"totals:log1:1:out:0:{checkpoint}"))
        source = OperatorSnapshot(OperatorName("orders"), splits=tuple(splits[:1]))
        out = OperatorSnapshot(OperatorName("out"), pending=(prepared,) if pending else ())
        operators = (
            record("orders", [source], unassigned=tuple(splits[1:])),
            record("totals", snapshots),
            record("out", [out], sink=SINK),
        )
        return Manifest(
            FORMAT,
            self.store.job,
            LogInstance("log1"),
            Attempt(1),
            checkpoint,
            self.parallelism,
            MAX_PARALLELISM,
            1_700_000_000.0 + checkpoint,
            0.25,
            operators,
        )


def make_backend(backend: str, subtask: int, parallelism: int, local: Path, key_type: str = "") -> KeyedStateBackend:
    own = (OperatorName("totals"), SubtaskIndex(subtask), parallelism, MAX_PARALLELISM)
    if backend == "object":
        return ObjectStateBackend(*own, key_type=key_type)
    folder, memory = local / f"{subtask}-of-{parallelism}", RocksMemory(RocksMemory.LIMIT_MIN)
    return RocksStateBackend(*own, folder, memory, key_type=key_type)


def record(
    name: str,
    snapshots: Iterable[OperatorSnapshot],
    unassigned: tuple[SplitState, ...] = (),
    sink: SinkRecord | None = None,
) -> OperatorRecord:
    subtasks = tuple(SubtaskRecord(SubtaskIndex(i), one) for i, one in enumerate(snapshots))
    return OperatorRecord(OperatorName(name), len(subtasks), False, subtasks, unassigned, sink)


def restored(
    manifest: Manifest,
    files: Any,
    function: type,
    parallelism: int,
    backend: str = "object",
    local: Path = Path(),
    key_type: str = "",
) -> list[tuple[Any, dict[str, Any]]]:
    """Backends that go on from `manifest` at another parallelism, each with its handles by name."""
    operator = manifest.operator(OperatorName("totals"))
    assert operator is not None
    found = []
    for number in range(parallelism):
        groups = groups_of(SubtaskIndex(number), parallelism, MAX_PARALLELISM)
        fresh = make_backend(backend, number, parallelism, local, key_type)
        clipped = [clip(snapshot, groups) for snapshot in operator.snapshots]
        fresh.restore([snapshot for snapshot in clipped if snapshot.handles], files)
        handles = {name: fresh.register(one) for name, one in collect_descriptors(function).items()}
        found.append((fresh, handles))
    return found


def clip(snapshot: OperatorSnapshot, groups: range) -> OperatorSnapshot:
    handles: list[StateHandle] = []
    for handle in snapshot.handles:
        first, last = max(handle.first_group, groups[0]), min(handle.last_group, groups[-1])
        if first <= last:
            handles.append(msgspec.structs.replace(handle, first_group=first, last_group=last))
    return msgspec.structs.replace(snapshot, handles=tuple(handles))


class Watched:
    """Counts what is read."""

    def __init__(self, files: StoredFiles) -> None:
        self.files = files
        self.read: list[str | None] = []

    def read_state(self, handle: StateHandle) -> bytes:
        self.read.append(handle.path)
        return self.files.read_state(handle)
