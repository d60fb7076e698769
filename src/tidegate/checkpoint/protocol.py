"""The data and messages of the checkpoint protocol, and the two rules that are held by type.

The whole protocol is in this folder: `coordinator` (JobManager) and `participant` (one per task) decide, `transactions`
holds a sink's pending set, `manifest` is what a completed checkpoint is, `log` says who may append, `recovery` what is
done before anything starts. All are pure: `handle(event, now) -> commands`. `store` alone does I/O.

The ordering rules, each enforced in the module that is named:

1. state stored and transactions prepared, then acknowledged             (participant)
2. all acknowledged, then the manifest appended to the log                (coordinator)
3. the append won, then the tasks told, then transactions committed       (coordinator, CommitPermit)
4. every task knows of n and has reported its commits, then n + 1 triggered (coordinator)
5. a later entry of one's own won, then files deleted                     (coordinator)
6. takeover won, then committed what the newest checkpoint names, then aborted the rest, then deployed   (recovery)

`CommitPermit` can only be made from the proof that a checkpoint completed: committing early does not type-check. (An
operator at the command line may decide otherwise; see `OperatorDecision`.)
"""

from collections.abc import Sequence
from typing import Any, final

import msgspec

from tidegate.ids import Attempt, CheckpointId, OperatorName, TaskId

# ---- what is in a checkpoint ---------------------------------------------------------------------------------------


class SplitState(msgspec.Struct, frozen=True):
    """One split of a source (a partition, a file) and where reading it goes on.

    Positions are numbers pinned by the enumerator before the split is handed to a reader: never "latest".
    """

    id: str
    position: int
    """The first record not yet emitted, in the source's own count (Kafka: an offset)."""
    stop: int | None = None
    """The first position not to be read, for bounded reads; None reads on for ever."""
    attributes: dict[str, str] = {}
    """What the connector wants to find again (Kafka: the topic id)."""
    finished: bool = False
    watermark: int | None = None
    """How far its records have come in event time, in milliseconds since 1970; None when that is not known."""


class Committable(msgspec.Struct, frozen=True):
    """A prepared transaction, as data: what anybody needs to commit it after its producer is dead."""

    id: str
    """The transactional id, unique among all prepared transactions of the job."""
    payload: dict[str, Any] = {}
    """JSON values, the sink's own: Kafka puts producer id, epoch, start time, timeout and partitions here."""


class PendingTransaction(msgspec.Struct, frozen=True):
    """A prepared transaction that was not confirmed committed at the barrier."""

    checkpoint: CheckpointId
    """The checkpoint at whose barrier it was prepared: commits go in this order."""
    committable: Committable


class StateHandle(msgspec.Struct, frozen=True):
    """Where captured state of one operator and subtask is: a file, or the bytes themselves when they are few.

    The handles of one snapshot are in order: what a later one says of a key replaces what an earlier one says.
    """

    first_group: int
    last_group: int
    """The key groups that it stands for, both included. After rescaling the content may hold others, too: they belong
    to somebody else."""
    size: int
    checksum: str
    """xxh3-128 of the content, hexadecimal."""
    path: str | None = None
    """Relative to the job's folder; None when inlined."""
    inline: bytes | None = None
    form: str = "piece"
    """What the content is: 'piece' (`state.pieces`), 'rocksdb' (one file of a database), 'elements' (state without
    keys)."""
    name: str = ""
    """Of a database's file: how it is called there."""


class StateInfo(msgspec.Struct, frozen=True):
    """One named state of an operator, as far as it must be found again and checked."""

    name: str
    kind: str
    """'value', 'list', 'map', 'reducing', 'aggregating'; without keys 'list-split', 'list-union', 'broadcast'."""
    value_type: str
    """The declared type, spelled so that a change shows."""
    serializer: str
    """Id and version of how values are written: 'msgpack/1'."""


class OperatorSnapshot(msgspec.Struct, frozen=True):
    """What one operator of one subtask puts into a checkpoint. Only what applies is filled."""

    name: OperatorName
    ended: bool = False
    """Its input had ended and what it does at the end was done."""
    key_type: str = ""
    states: tuple[StateInfo, ...] = ()
    handles: tuple[StateHandle, ...] = ()
    splits: tuple[SplitState, ...] = ()
    pending: tuple[PendingTransaction, ...] = ()
    operator_states: tuple[StateInfo, ...] = ()
    """States without keys."""
    operator_handles: tuple[StateHandle, ...] = ()
    """What these hold in this subtask."""
    watermark: int | None = None
    """How far its task had come in event time, in milliseconds since 1970; None when it knew nothing of it."""

    @property
    def all_handles(self) -> tuple[StateHandle, ...]:
        return self.handles + self.operator_handles


def least_watermark(snapshots: Sequence[OperatorSnapshot]) -> int | None:
    """How far all of these had come in event time; None when one of them, or nobody, knew."""
    known = [snapshot.watermark for snapshot in snapshots if snapshot.watermark is not None]
    return min(known) if known and len(known) == len(snapshots) else None


class RecoverySpec(msgspec.Struct, frozen=True):
    """How to reach an operator's external system without the program: kept in the manifest, for sinks that the program
    no longer has and for tools. Never contains a secret."""

    factory: str
    """'module:function', called with `arguments`, returns a sink's TransactionRecovery or a source's
    SourceInspection."""
    arguments: dict[str, str] = {}
    place: str = ""
    """Where that leads, for people: 'Kafka at broker:9092'."""


# ---- JobManager to task --------------------------------------------------------------------------------------------


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To every source task: put a barrier into all outputs between two batches."""

    checkpoint: CheckpointId


class CheckpointCompleted(msgspec.Struct, frozen=True, tag=True):
    """To every task: `checkpoint` of this attempt is in the log. Commit every pending transaction of it and of earlier
    ones."""

    attempt: Attempt
    checkpoint: CheckpointId


class CheckpointAbandoned(msgspec.Struct, frozen=True, tag=True):
    """To every task: `checkpoint` will not complete. What was prepared for it stays pending and belongs to the next."""

    checkpoint: CheckpointId


# ---- task to JobManager --------------------------------------------------------------------------------------------


class Acknowledge(msgspec.Struct, frozen=True, tag=True):
    """The task's state at the barrier is stored and its sink's transaction is prepared."""

    attempt: Attempt
    checkpoint: CheckpointId
    task: TaskId
    operators: tuple[OperatorSnapshot, ...]


class Decline(msgspec.Struct, frozen=True, tag=True):
    """The task could not store its state; every record is still pending, so the checkpoint may fail alone."""

    attempt: Attempt
    checkpoint: CheckpointId
    task: TaskId
    reason: str


class CommitsReported(msgspec.Struct, frozen=True, tag=True):
    """The task knows that `checkpoint` completed, and every transaction that it had prepared at barriers up to it is
    committed: at once, where it has no sink."""

    attempt: Attempt
    checkpoint: CheckpointId
    task: TaskId


# ---- commits --------------------------------------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True, tag=True):
    """This call committed it."""


class AlreadyCommitted(msgspec.Struct, frozen=True, tag=True):
    """It was committed before this call, proved by what the coordinator of the transaction says."""


class Lost(msgspec.Struct, frozen=True, tag=True):
    """It was aborted; its records are gone. `why` is the proof."""

    why: str


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """Nobody can say any more whether it was committed."""

    why: str


class Retry(msgspec.Struct, frozen=True, tag=True):
    """No answer, or 'not now'; ask again."""

    why: str


Outcome = Committed | AlreadyCommitted | Lost | Unknown | Retry


class CompletedInLog(msgspec.Struct, frozen=True):
    """Proof, from recovery: this completed checkpoint was read from the log below one's own takeover entry."""

    attempt: Attempt
    checkpoint: CheckpointId


@final
class OperatorDecision(msgspec.Struct, frozen=True):
    """No proof but a person's word, for a transaction that no completed checkpoint names: what
    `tidegate transactions commit --force` gives.

    Only that command makes one, which a test of the tree holds. The engine commits by completed checkpoints alone: it
    must never make one.
    """

    reason: str

    @property
    def checkpoint(self) -> CheckpointId:
        """None: it covers nothing that waits for a checkpoint."""
        return CheckpointId(0)


@final
class CommitPermit:
    """The right to commit transactions prepared at barriers up to `checkpoint`.

    Made from the receipt of 'completed' or from a restore; besides from an operator's decision, for one transaction in
    the operator's hands. A sink's `commit` asks for one.
    """

    __slots__ = ("checkpoint",)

    def __init__(self, proof: CheckpointCompleted | CompletedInLog | OperatorDecision) -> None:
        if not isinstance(proof, CheckpointCompleted | CompletedInLog | OperatorDecision):
            raise TypeError(f"a CommitPermit needs the proof that a checkpoint completed, not {proof!r}")
        self.checkpoint: CheckpointId = proof.checkpoint

    def covers(self, pending: PendingTransaction) -> bool:
        return pending.checkpoint <= self.checkpoint
