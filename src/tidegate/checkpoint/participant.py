"""A task's part in the protocol: captures at the barrier, acknowledges when everything is safe, passes on the right to
commit.

One `Participant` belongs to one task of one attempt. It decides the order *stored and prepared, then acknowledged*; the
task performs its commands. A task without a sink takes part the same way, with one thing less to wait for; that a
checkpoint completed it reports at once, so that nobody captures the next one without knowing of it.
"""

import msgspec

from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    CommitPermit,
    CommitsReported,
    Decline,
    OperatorSnapshot,
    PendingTransaction,
)
from tidegate.checkpoint.transactions import SinkCommitted, SinkReady
from tidegate.ids import Attempt, CheckpointId, OperatorName, TaskId

# ---- events --------------------------------------------------------------------------------------------------------


class BarrierAligned(msgspec.Struct, frozen=True):
    """Barrier `checkpoint` has come through every input (a source: was triggered), and all before it is processed."""

    checkpoint: CheckpointId


class StateStored(msgspec.Struct, frozen=True):
    """What was captured is durable; `operators` carry the handles."""

    checkpoint: CheckpointId
    operators: tuple[OperatorSnapshot, ...]


class StateNotStored(msgspec.Struct, frozen=True):
    """It could not be stored. No record is lost by that: the checkpoint may fail alone."""

    checkpoint: CheckpointId
    reason: str


Event = (
    BarrierAligned
    | StateStored
    | StateNotStored
    | SinkReady
    | SinkCommitted
    | CheckpointCompleted
    | CheckpointAbandoned
)

# ---- commands ------------------------------------------------------------------------------------------------------


class CaptureAndForward(msgspec.Struct, frozen=True):
    """In this step: capture all state, swap the sink's transaction, put the barrier into every output; then store in
    the background."""

    checkpoint: CheckpointId


class PermitCommits(msgspec.Struct, frozen=True):
    """To the sink: commit."""

    permit: CommitPermit


class AbandonInSink(msgspec.Struct, frozen=True):
    """To the gate and the sink: do not wait for this checkpoint any more."""

    checkpoint: CheckpointId


class Send(msgspec.Struct, frozen=True):
    """To the JobManager."""

    message: Acknowledge | Decline | CommitsReported


Command = CaptureAndForward | PermitCommits | AbandonInSink | Send


class Participant:
    """`sink`: the name of the task's sink operator, None when it has none."""

    def __init__(self, task: TaskId, attempt: Attempt, sink: OperatorName | None) -> None:
        self._task = task
        self._attempt = attempt
        self._sink = sink
        self._running: CheckpointId | None = None
        """The checkpoint that was captured and is not yet acknowledged, declined or abandoned."""
        self._operators: tuple[OperatorSnapshot, ...] | None = None
        self._pending: tuple[PendingTransaction, ...] | None = None

    def handle(self, event: Event) -> list[Command]:
        match event:
            case BarrierAligned(checkpoint):
                return self._begin(checkpoint)
            case StateStored(checkpoint, operators):
                return self._stored(checkpoint, operators)
            case StateNotStored(checkpoint, reason):
                return self._not_stored(checkpoint, reason)
            case SinkReady(checkpoint, pending):
                return self._sink_ready(checkpoint, pending)
            case SinkCommitted(checkpoint):
                return [Send(CommitsReported(self._attempt, checkpoint, self._task))]
            case CheckpointCompleted(attempt, checkpoint):
                if attempt != self._attempt:
                    return []
                if self._sink is None:
                    return [Send(CommitsReported(attempt, checkpoint, self._task))]
                return [PermitCommits(CommitPermit(event))]
            case CheckpointAbandoned(checkpoint):
                if self._running is not None and self._running <= checkpoint:
                    self._running = None
                return [AbandonInSink(checkpoint)]

    def _begin(self, checkpoint: CheckpointId) -> list[Command]:
        self._running = checkpoint
        self._operators = None
        self._pending = () if self._sink is None else None
        return [CaptureAndForward(checkpoint)]

    def _stored(self, checkpoint: CheckpointId, operators: tuple[OperatorSnapshot, ...]) -> list[Command]:
        if checkpoint != self._running:
            # Too late: the JobManager counts it for nothing, but learns which files to delete.
            return [Send(Acknowledge(self._attempt, checkpoint, self._task, operators))]
        self._operators = operators
        return self._acknowledge()

    def _not_stored(self, checkpoint: CheckpointId, reason: str) -> list[Command]:
        if checkpoint != self._running:
            return []
        self._running = None
        return [Send(Decline(self._attempt, checkpoint, self._task, reason))]

    def _sink_ready(self, checkpoint: CheckpointId, pending: tuple[PendingTransaction, ...]) -> list[Command]:
        if checkpoint != self._running:
            return []
        self._pending = pending
        return self._acknowledge()

    def _acknowledge(self) -> list[Command]:
        if self._running is None or self._operators is None or self._pending is None:
            return []
        checkpoint, self._running = self._running, None
        operators = tuple(
            msgspec.structs.replace(operator, pending=self._pending) if operator.name == self._sink else operator
            for operator in self._operators
        )
        return [Send(Acknowledge(self._attempt, checkpoint, self._task, operators))]
