"""State of a task, out and in: captured at the barrier, stored in the background; read before the task runs.

Small state is inlined into the acknowledgement, larger state becomes a file of the attempt. With the `memory` preset
everything is inlined, up to a limit.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, SplitState, StateHandle
from tidegate.checkpoint.store import CheckpointStore, checksum, shared_path
from tidegate.failpoints import reach
from tidegate.ids import Attempt, CheckpointId, OperatorName, TaskId
from tidegate.runtime.control import RestoredOperator, RuntimeOptions
from tidegate.runtime.local_copies import SubtaskCopies
from tidegate.state.backend import PIECE, Capture, KeyedStateBackend, Maintenance
from tidegate.state.operator_state import OperatorStateBackend, OperatorStateCapture


class StateTooLarge(Exception):
    """The `memory` preset's limit is passed: the checkpoint fails, no record is lost."""


class CapturedOperator(msgspec.Struct, frozen=True):
    """One operator at the barrier."""

    name: OperatorName
    ended: bool
    capture: Capture | None
    splits: tuple[SplitState, ...]
    operator_capture: OperatorStateCapture | None = None
    """Of state without keys."""
    watermark: int | None = None
    """How far its task had come in event time."""


class OperatorFiles:
    """The files of one operator of one subtask of one attempt. See `SnapshotFiles`. copies: on this machine, of what is
    stored remotely."""

    def __init__(
        self,
        store: CheckpointStore,
        task: TaskId,
        operator: OperatorName,
        attempt: Attempt,
        options: RuntimeOptions,
        copies: SubtaskCopies | None = None,
    ) -> None:
        self._store = store
        self._task = task
        self._operator = operator
        self._attempt = attempt
        self._inline_limit = None if options.state_in_job_manager else options.inline_limit
        """None: everything is inlined."""
        self._copies = copies

    def write(self, part: str, data: bytes, groups: range, *, form: str = PIECE, name: str = "") -> StateHandle:
        size, digest, first, last = len(data), checksum(data), groups.start, groups.stop - 1
        if self._inline_limit is None or size <= self._inline_limit:
            return StateHandle(first, last, size, digest, inline=data, form=form, name=name)
        path = shared_path(self._attempt, self._task, self._operator, part)
        self._store.write_state(path, data)
        handle = StateHandle(first, last, size, digest, path=path, form=form, name=name)
        if self._copies is not None:
            self._copies.written(handle, data)
        return handle

    def read_state(self, handle: StateHandle) -> bytes:
        return self._store.read_state(handle) if self._copies is None else self._copies.read(handle, self._store)

    def maintain(self, work: Maintenance) -> None:
        """Let `work` do what it is for with these files. Raises as that does."""
        with self._copies.merging() if self._copies is not None else nullcontext():
            work.run(self)

    def named(self, checkpoint: CheckpointId, handles: Sequence[StateHandle]) -> None:
        """The stored capture of `checkpoint` consists of these."""
        if self._copies is not None:
            self._copies.named(checkpoint, handles)


class SnapshotWriter:
    """Stores what one task captured. `store` runs on a side thread."""

    def __init__(self, task: TaskId, files: Mapping[OperatorName, OperatorFiles], options: RuntimeOptions) -> None:
        self._task = task
        self.files = files
        """Of each operator."""
        self._limit = options.memory_limit if options.state_in_job_manager else None

    def store(self, captured: Sequence[CapturedOperator]) -> tuple[OperatorSnapshot, ...]:
        """Raises StorageUnavailable, StateTooLarge (both leave every record pending), InvalidError for wrong values."""
        reach("upload:before")
        snapshots = tuple(self._snapshot(operator) for operator in captured)
        self._check_size(sum(handle.size for snapshot in snapshots for handle in snapshot.all_handles))
        reach("upload:after")
        return snapshots

    def _snapshot(self, operator: CapturedOperator) -> OperatorSnapshot:
        keyed, unkeyed, files = operator.capture, operator.operator_capture, self.files[operator.name]
        return OperatorSnapshot(
            name=operator.name,
            ended=operator.ended,
            key_type=keyed.key_type if keyed is not None else "",
            states=keyed.states if keyed is not None else (),
            handles=keyed.store(files) if keyed is not None else (),
            splits=operator.splits,
            operator_states=unkeyed.states if unkeyed is not None else (),
            operator_handles=unkeyed.store(files) if unkeyed is not None else (),
            watermark=operator.watermark,
        )

    def _check_size(self, size: int) -> None:
        if self._limit is not None and size > self._limit:
            raise StateTooLarge(
                f"the state of {self._task} has {size} bytes; with state.backend memory a task may have {self._limit}. "
                "Use state.backend fs."
            )


def restore_backends(
    backends: Mapping[OperatorName, KeyedStateBackend],
    files: Mapping[OperatorName, OperatorFiles],
    restored: Sequence[RestoredOperator],
) -> None:
    """Give fresh backends what they restore; on a side thread. Raises as `KeyedStateBackend.restore` does."""
    for operator in restored:
        snapshots = tuple(snapshot for snapshot in operator.snapshots if snapshot.handles)
        if operator.name in backends and snapshots:
            backends[operator.name].restore(snapshots, files[operator.name])


def restore_operator_states(
    backends: Mapping[OperatorName, OperatorStateBackend],
    files: Mapping[OperatorName, OperatorFiles],
    restored: Sequence[RestoredOperator],
) -> None:
    """As `restore_backends`, for state without keys."""
    for operator in restored:
        if operator.name in backends:
            backends[operator.name].restore(operator.snapshots, files[operator.name])
