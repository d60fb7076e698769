"""A sink's transactions, decided without I/O: which is open, which are prepared, who is committed when, when a slot is
reused.

One `SinkTransactions` belongs to one sink subtask of one attempt. The commands are performed on the sink's side thread,
in order; their results come back as events.

The failure stories behind the rules:

* *A new transaction for each checkpoint, each with its own id.* With one producer for several transactions a commit
  "of the prepared one" after a crash could hit a later, half-written one.
* *Slots are reused only when a completed checkpoint no longer lists their transaction.* Otherwise a recovery would look
  up the listed transaction and find another in its place, and nobody could say whether it was committed or lost.
* *A slot is used a limited number of times.* Each use takes an epoch of its id, and where ids have epochs (Kafka) these
  end: a worn-out slot is replaced by one with a new number.
* *The pool never waits for a slot.* The barrier that frees one may be queued behind the records that the sink holds
  back: the job would hang. So it grows, and beyond its limit the attempt fails.
* *Batches of the new transaction wait until the old one is flushed*: otherwise they overtake the last of the old one.
* *A transaction prepared for an abandoned checkpoint stays pending* and belongs to the next one that completes: the
  source will not read its records again.
* *What could not be prepared, or is not intact any more, fails the attempt*: a later checkpoint would lack it.
"""

from enum import Enum

import msgspec

from tidegate.checkpoint.loss import lost_transaction
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CheckpointAbandoned,
    CommitPermit,
    Committable,
    Committed,
    Lost,
    Outcome,
    PendingTransaction,
    Retry,
    Unknown,
)
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, LogInstance, OperatorName, SubtaskIndex, TransactionalId

COMMIT_PATIENCE = 60.0
"""Seconds for which a commit that gets no answer is asked for again before the attempt fails (recovery then goes on
asking)."""
SLOT_USES = 30_000
"""How often a transactional id is opened; Kafka's epochs end at 32,767, and an abort takes some, too."""

# ---- events --------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """The task is made; open the first transaction."""


class Opened(msgspec.Struct, frozen=True):
    id: TransactionalId


class BarrierPassed(msgspec.Struct, frozen=True):
    """Everything before barrier `checkpoint` has been written."""

    checkpoint: CheckpointId


class Prepared(msgspec.Struct, frozen=True):
    id: TransactionalId
    committable: Committable | None
    """None: nothing was in it."""


class Flushed(msgspec.Struct, frozen=True):
    """Nothing of a later transaction can overtake what was written to this one. `Prepared` says it, too."""

    id: TransactionalId


class Checked(msgspec.Struct, frozen=True):
    """All that `CheckPending(checkpoint)` named are pending and intact."""

    checkpoint: CheckpointId


class Permitted(msgspec.Struct, frozen=True):
    permit: CommitPermit


class CommitAnswered(msgspec.Struct, frozen=True):
    committable: Committable
    outcome: Outcome


class Wake(msgspec.Struct, frozen=True):
    """The time of a `WakeAt` has come."""


Answer = Opened | Flushed | Prepared | Checked | CommitAnswered
Event = Start | BarrierPassed | Permitted | CheckpointAbandoned | Wake | Answer

# ---- commands ------------------------------------------------------------------------------------------------------


class OpenTransaction(msgspec.Struct, frozen=True):
    id: TransactionalId


class PrepareTransaction(msgspec.Struct, frozen=True):
    id: TransactionalId


class CheckPending(msgspec.Struct, frozen=True):
    checkpoint: CheckpointId
    committables: tuple[Committable, ...]


class CommitTransaction(msgspec.Struct, frozen=True):
    committable: Committable
    permit: CommitPermit


class SinkReady(msgspec.Struct, frozen=True):
    """What was written before the barrier is prepared, and what was prepared earlier is intact.

    `pending` is the sink's part of the snapshot: every transaction that is prepared and not confirmed committed.
    """

    checkpoint: CheckpointId
    pending: tuple[PendingTransaction, ...]


class SinkCommitted(msgspec.Struct, frozen=True):
    """Everything prepared at barriers up to `checkpoint` is committed."""

    checkpoint: CheckpointId


class FailTask(msgspec.Struct, frozen=True):
    failure: Failure


class WakeAt(msgspec.Struct, frozen=True):
    at: float


Command = (
    OpenTransaction
    | PrepareTransaction
    | CheckPending
    | CommitTransaction
    | SinkReady
    | SinkCommitted
    | FailTask
    | WakeAt
)

# ---- the machine ---------------------------------------------------------------------------------------------------


class _SlotState(Enum):
    FREE = "free"
    HELD = "held"
    """Being opened, open, or prepared."""
    COMMITTED = "committed"
    """Confirmed committed, but a completed checkpoint still lists it."""


class _Slot:
    def __init__(self) -> None:
        self.state = _SlotState.FREE
        self.uses = 0
        self.unlisted_since: CheckpointId | None = None
        """The first checkpoint in whose snapshot the transaction was left out."""


class SinkTransactions:
    """The pool and the pending set of one sink subtask."""

    def __init__(
        self,
        prefix: str,
        instance: LogInstance,
        attempt: Attempt,
        sink: OperatorName,
        subtask: SubtaskIndex,
        pool_limit: int,
    ) -> None:
        self._identity = (prefix, instance, attempt, sink, subtask)
        self._pool_limit = pool_limit
        self._slots: dict[int, _Slot] = {}
        """By number; numbers only grow."""
        self._next_slot = 0
        self.current: TransactionalId | None = None
        """The open transaction, into which batches go."""
        self.has_written = False
        """Set by the task with the first batch written to `current`."""
        self._ahead: TransactionalId | None = None
        self._opening: TransactionalId | None = None
        self._flushing: TransactionalId | None = None
        """The newest of `_preparing`, as long as the next one could overtake it."""
        self._preparing: dict[TransactionalId, CheckpointId] = {}
        self._snapshot: CheckpointId | None = None
        """The checkpoint whose part of this sink is not ready yet."""
        self._unchecked = False
        self._pending: list[PendingTransaction] = []
        self._permit: CommitPermit | None = None
        self._asked: Committable | None = None
        self._retry_at: float | None = None
        self._asking_since: float | None = None

    @property
    def is_writable(self) -> bool:
        """Whether a batch may be written to `current` now; otherwise it is held back, and with it everything behind
        it."""
        return self.current is not None and self._flushing is None

    @property
    def pending(self) -> tuple[PendingTransaction, ...]:
        return tuple(self._pending)

    def handle(self, event: Event, now: Now) -> list[Command]:
        match event:
            case Start():
                return self._open_next()
            case Opened(id):
                return self._opened(id)
            case BarrierPassed(checkpoint):
                return self._barrier(checkpoint)
            case Flushed(id):
                return self._flushed(id)
            case Prepared(id, committable):
                return self._prepared(id, committable)
            case Checked(checkpoint):
                return self._checked(checkpoint)
            case CheckpointAbandoned(checkpoint):
                return self._abandoned(checkpoint)
            case Permitted(permit):
                return self._permitted(permit, now)
            case CommitAnswered(committable, outcome):
                return self._answered(committable, outcome, now)
            case Wake():
                return self._wake(now)

    # -- opening --

    def _open_next(self) -> list[Command]:
        """Open one transaction, unless one is ready or on its way."""
        if self._opening is not None or self._ahead is not None:
            return []
        free = self._free_slot()
        if free is None:
            return [] if self.current is not None else [FailTask(self._exhausted())]
        slot = self._slots[free]
        slot.state = _SlotState.HELD
        slot.uses += 1
        self._opening = TransactionalId(*self._identity, free)
        return [OpenTransaction(self._opening)]

    def _free_slot(self) -> int | None:
        """The number of a slot to be opened; None when the pool is at its limit."""
        free = [number for number, slot in self._slots.items() if slot.state is _SlotState.FREE]
        for number in free:
            if self._slots[number].uses < SLOT_USES:
                return number
            # Free: no completed checkpoint lists it, so nobody will ask for its id again.
            del self._slots[number]
        if len(self._slots) >= self._pool_limit:
            return None
        number, self._next_slot = self._next_slot, self._next_slot + 1
        self._slots[number] = _Slot()
        return number

    def _opened(self, id: TransactionalId) -> list[Command]:
        assert id == self._opening, f"{id} was opened, asked for was {self._opening}"
        self._opening = None
        if self.current is None:
            self.current = id
            return self._open_next()
        self._ahead = id
        return []

    # -- barriers --

    def _barrier(self, checkpoint: CheckpointId) -> list[Command]:
        commands: list[Command] = []
        for slot in self._slots.values():
            if slot.state is _SlotState.COMMITTED and slot.unlisted_since is None:
                slot.unlisted_since = checkpoint
        self._snapshot = checkpoint
        self._unchecked = bool(self._pending)
        earlier = tuple(pending.committable for pending in self._pending)
        if self.has_written:
            assert self.current is not None and self._flushing is None, "written without an open transaction"
            self._flushing = self.current
            self._preparing[self.current] = checkpoint
            commands.append(PrepareTransaction(self.current))
            self.current, self._ahead, self.has_written = self._ahead, None, False
            if earlier:
                commands.append(CheckPending(checkpoint, earlier))
            commands += self._open_next()
        elif earlier:
            commands.append(CheckPending(checkpoint, earlier))
        return commands + self._ready()

    def _flushed(self, id: TransactionalId) -> list[Command]:
        if id == self._flushing:
            self._flushing = None
        return []

    def _prepared(self, id: TransactionalId, committable: Committable | None) -> list[Command]:
        assert id in self._preparing, f"{id} was prepared without being asked"
        checkpoint = self._preparing.pop(id)
        self._flushed(id)
        if committable is None:
            # In no snapshot, and nothing in it: whoever opens the id again takes nothing away.
            self._slots[id.slot].state = _SlotState.FREE
        else:
            self._pending.append(PendingTransaction(checkpoint, committable))
            self._pending.sort(key=lambda pending: pending.checkpoint)
        return self._ready() + self._open_next()

    def _checked(self, checkpoint: CheckpointId) -> list[Command]:
        if checkpoint == self._snapshot:
            self._unchecked = False
        return self._ready()

    def _abandoned(self, checkpoint: CheckpointId) -> list[Command]:
        if self._snapshot is not None and self._snapshot <= checkpoint:
            self._snapshot = None
        return []

    def _ready(self) -> list[Command]:
        if self._snapshot is None or self._preparing or self._unchecked:
            return []
        checkpoint, self._snapshot = self._snapshot, None
        return [SinkReady(checkpoint, tuple(self._pending))]

    # -- commits --

    def _permitted(self, permit: CommitPermit, now: Now) -> list[Command]:
        if self._permit is None or permit.checkpoint > self._permit.checkpoint:
            self._permit = permit
        for slot in self._slots.values():
            if slot.unlisted_since is not None and slot.unlisted_since <= permit.checkpoint:
                slot.state, slot.unlisted_since = _SlotState.FREE, None
        return self._commit_next(now) + self._open_next()

    def _commit_next(self, now: Now) -> list[Command]:
        """Commits go one after another, in the order of their checkpoints."""
        if self._permit is None or self._asked is not None:
            return []
        if not self._pending or not self._permit.covers(self._pending[0]):
            return [SinkCommitted(self._permit.checkpoint)]
        self._asked = self._pending[0].committable
        self._asking_since = self._asking_since or now.monotonic
        return [CommitTransaction(self._asked, self._permit)]

    def _answered(self, committable: Committable, outcome: Outcome, now: Now) -> list[Command]:
        assert committable == self._asked, f"{committable.id} was answered, asked for was {self._asked}"
        match outcome:
            case Committed() | AlreadyCommitted():
                done = self._pending.pop(0)
                self._asked = self._asking_since = None
                self._free_when_unlisted(done.committable)
                return self._commit_next(now)
            case Retry(why):
                return self._ask_again(why, now)
            case Lost(why):
                return [FailTask(lost_transaction(ErrorKind.LOST, committable, why))]
            case Unknown(why):
                return [FailTask(lost_transaction(ErrorKind.UNKNOWN_OUTCOME, committable, why))]

    def _free_when_unlisted(self, committable: Committable) -> None:
        id = TransactionalId.parse(committable.id)
        assert id is not None, f"{committable.id} was not given by this pool"
        self._slots[id.slot].state = _SlotState.COMMITTED
        self._slots[id.slot].unlisted_since = None

    def _ask_again(self, why: str, now: Now) -> list[Command]:
        assert self._asked is not None and self._asking_since is not None
        waited = now.monotonic - self._asking_since
        if waited >= COMMIT_PATIENCE:
            text = f"transaction {self._asked.id} could not be committed for {waited:.0f} s: {why}"
            return [FailTask(Failure(ErrorKind.UNAVAILABLE, text, "It stays prepared; recovery commits it."))]
        self._retry_at = now.monotonic + min(max(waited, 0.05), 2.0)
        return [WakeAt(self._retry_at)]

    def _wake(self, now: Now) -> list[Command]:
        if self._retry_at is None or now.monotonic < self._retry_at:
            return []
        assert self._asked is not None and self._permit is not None
        self._retry_at = None
        return [CommitTransaction(self._asked, self._permit)]

    def _exhausted(self) -> Failure:
        return Failure(
            ErrorKind.UNAVAILABLE,
            f"the sink holds {len(self._slots)} transactions that no completed checkpoint has settled",
            "Checkpoints must complete: look for what makes them fail, or raise checkpoints.tolerable_failures.",
        )
