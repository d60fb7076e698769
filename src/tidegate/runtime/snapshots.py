"""State of a task, out and in: captured at the barrier, stored in the background; read before the task runs.

Small state is inlined into the acknowledgement, larger state becomes a file of the attempt and checkpoint. With the
`memory` preset everything is inlined, up to a limit.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, SplitState, StateHandle
from tidegate.checkpoint.store import CheckpointStore, checksum, state_path
from tidegate.errors import CorruptError
from tidegate.failpoints import reach
from tidegate.ids import Attempt, CheckpointId, OperatorName, TaskId
from tidegate.runtime.control import RestoredOperator, RuntimeOptions
from tidegate.state.backend import Capture, EncodedState, KeyedStateBackend
from tidegate.state.key_groups import merge_key_types


class StateTooLarge(Exception):
    """The `memory` preset's limit is passed: the checkpoint fails, no record is lost."""


class CapturedOperator(msgspec.Struct, frozen=True):
    """One operator at the barrier."""

    name: OperatorName
    ended: bool
    capture: Capture | None
    splits: tuple[SplitState, ...]


class SnapshotWriter:
    """Stores what one task captured. `store` runs on a side thread."""

    def __init__(self, store: CheckpointStore, task: TaskId, attempt: Attempt, options: RuntimeOptions) -> None:
        self._store = store
        self._task = task
        self._attempt = attempt
        self._options = options

    def store(self, checkpoint: CheckpointId, captured: Sequence[CapturedOperator]) -> tuple[OperatorSnapshot, ...]:
        """Raises StorageUnavailable, StateTooLarge (both leave every record pending), InvalidError for wrong values."""
        reach("upload:before")
        snapshots = tuple(self._snapshot(checkpoint, operator) for operator in captured)
        if self._options.state_in_job_manager:
            self._check_size(sum(handle.size for snapshot in snapshots for handle in snapshot.handles))
        reach("upload:after")
        return snapshots

    def _snapshot(self, checkpoint: CheckpointId, operator: CapturedOperator) -> OperatorSnapshot:
        if operator.capture is None:
            return OperatorSnapshot(operator.name, operator.ended, splits=operator.splits)
        pieces = operator.capture.encode()
        return OperatorSnapshot(
            name=operator.name,
            ended=operator.ended,
            key_type=operator.capture.key_type,
            states=operator.capture.states,
            handles=tuple(self._put(checkpoint, operator.name, i, piece) for i, piece in enumerate(pieces)),
            splits=operator.splits,
        )

    def _put(self, checkpoint: CheckpointId, operator: OperatorName, part: int, piece: EncodedState) -> StateHandle:
        size, digest = len(piece.data), checksum(piece.data)
        if self._options.state_in_job_manager or size <= self._options.inline_limit:
            return StateHandle(piece.first_group, piece.last_group, size, digest, inline=piece.data)
        path = state_path(self._attempt, checkpoint, self._task, operator, f"keyed-{part}")
        self._store.write_state(path, piece.data)
        return StateHandle(piece.first_group, piece.last_group, size, digest, path=path)

    def _check_size(self, size: int) -> None:
        limit = self._options.memory_limit
        if size > limit:
            raise StateTooLarge(
                f"the state of {self._task} has {size} bytes; with state.backend memory a task may have {limit}. "
                "Use state.backend fs."
            )


def read_pieces(store: CheckpointStore, restored: Sequence[RestoredOperator]) -> dict[OperatorName, list[bytes]]:
    """All stored pieces that these operators restore; on a side thread. Raises CorruptError, StorageUnavailable."""
    return {
        operator.name: [store.read_state(handle) for snapshot in operator.snapshots for handle in snapshot.handles]
        for operator in restored
    }


def restore_backend(
    backend: KeyedStateBackend, restored: RestoredOperator, pieces: Mapping[OperatorName, list[bytes]]
) -> None:
    """Give a fresh backend what it restores. Raises CorruptError."""
    if not pieces[restored.name]:
        return
    key_type = ""
    states = {}
    for snapshot in restored.snapshots:
        merged = merge_key_types(key_type, snapshot.key_type)
        if merged is None:
            raise CorruptError(f"operator {restored.name} has keys of type {key_type} and {snapshot.key_type}")
        key_type = merged
        states.update({info.name: info for info in snapshot.states})
    backend.restore(key_type, tuple(states.values()), pieces[restored.name])
