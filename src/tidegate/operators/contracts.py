"""The contracts between the engine and what it runs: operators, sources, two-phase-commit sinks.

Read this first. Each contract says when a method is called, on which thread, what it may assume and what it must never
do.

Threads. A *task* is stepped on one thread; what is called 'on the task's thread' must not block, because barriers of
every task in the process wait for it. A sink's *side thread* runs the blocking calls of that sink one after another, in
the order in which the engine decided them. The JobManager's calls block on a side thread of the JobManager.

Death. A process may die between any two statements, and it may be stopped, presumed dead, and wake up again. Nothing
here may rely on `close`, `__del__`, `finally` or `atexit` for correctness; they are for manners.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome, RecoverySpec, SplitState
from tidegate.clock import Clock
from tidegate.elements import MIN_WATERMARK, Batch
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex, TransactionalId
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.operator_state import OperatorStateBackend

Txn = TypeVar("Txn")

# ---- operators -----------------------------------------------------------------------------------------------------


class OperatorContext(msgspec.Struct, frozen=True):
    """Who an operator is in this attempt, its state, and its clock."""

    job: JobName
    operator: OperatorName
    subtask: SubtaskIndex
    parallelism: int
    attempt: Attempt
    batch_size: int
    """About how many records an output batch should have at most."""
    state: KeyedStateBackend | None
    """Present for keyed operators; already restored when `open` is called."""
    operator_state: OperatorStateBackend
    """State without keys; already restored, too."""
    clock: Clock
    watermark: int = MIN_WATERMARK
    """What the restored operator had reached in event time, in all its subtasks."""
    reached: Callable[[Any], int] | None = None
    """What that old subtask had reached that had a key; None when it is `watermark` for all keys."""
    check_keys: Callable[[list[Any]], None] | None = None
    """Of a `key_by` with partitions: raises InvalidError when one of these is a key of other subtasks."""


class Operator(Protocol):
    """One operator of one subtask. All calls come on the task's thread.

    The engine calls `open` once, then `process` for each batch, then `end_of_input` at most once, then `close`. Between
    two calls of `process`, and only when the iterable that the last one returned is exhausted, the engine may capture
    the operator's state for a checkpoint: an operator keeps nothing in itself that its state does not hold.
    """

    def open(self, context: OperatorContext) -> None: ...

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The output for `batch`, in order, as non-empty batches of about `context.batch_size` records at most.

        A list for the usual case; a generator when one input can make very much output: the engine may pause between
        two of its batches, and comes back. Side outputs are batches with a `tag`. Exceptions of user code pass through.
        """
        ...

    def end_of_input(self) -> Iterable[Batch]:
        """Called when no record will come any more; not called again after a restore of a checkpoint in which the
        operator had ended in all its subtasks. What is emitted here must be gone from the state."""
        ...

    def close(self) -> None:
        """The attempt ends. Must not emit, must not fail for what `open` did not get to."""
        ...


@runtime_checkable
class TimerOperator(Operator, Protocol):
    """An operator that also acts when a time has come. What it waits for is state of its keys."""

    @property
    def next_timer(self) -> int | None:
        """When its earliest timer on processing time is due, in milliseconds since 1970; None while there is none.
        Asked in every step: must cost next to nothing."""
        ...

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterable[Batch]:
        """Fire timers that are due at `now`, in order, until `must_stop` says so, asked between two of them. The output
        as from `process`, and called where `process` might be: never beside it, and never after `end_of_input`.
        """
        ...


@runtime_checkable
class EventTimeOperator(Operator, Protocol):
    """An operator that also acts when event time goes on: it has timers on event time, or windows."""

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterable[Batch] | None:
        """Event time has come to `watermark`, behind all that was given to `process` before. Output as from `process`.

        Asked again until it returns None: nothing is left to be done for this watermark. It may return after a part,
        and should when `must_stop` says so, asked between two timers; no barrier comes before the None. At the end of
        input the watermark is `MAX_WATERMARK`, and `end_of_input` follows. Watermarks never go back, but may be smaller
        than that of the context, which was restored: such a one says nothing.
        """
        ...


# ---- sources -------------------------------------------------------------------------------------------------------


class Fetched(msgspec.Struct):
    """What one `poll` brought: records of one split, raw, as columns."""

    split: str
    values: list[Any]
    """In reading order; bytes where the source has a format, ready values otherwise."""
    next_position: int
    """The position behind the last of them. Positions may have gaps; it may move with no record at all."""
    keys: list[Any] | None = None
    timestamps: list[int] | None = None
    """Milliseconds since 1970, when asked for."""
    finished: bool = False
    """`next_position` has reached the split's stop: nothing of it will follow."""


class Deserializer(Protocol):
    """From what a source reads to the values of a stream."""

    def decode(self, raw: list[Any]) -> list[Any]:
        """All of them; raises on the first that cannot be decoded (the engine then asks one by one)."""
        ...

    def decode_one(self, raw: Any) -> Any: ...


class SourceContext(msgspec.Struct, frozen=True):
    """Who a reader is."""

    job: JobName
    operator: OperatorName
    subtask: SubtaskIndex
    parallelism: int
    attempt: Attempt


class SourceReader(Protocol):
    """Reads the splits that the engine gives it. All calls on the task's thread.

    A reader has no memory that matters: the engine keeps the position of each split (`Fetched.next_position` of the
    last batch that it emitted) and puts that into checkpoints. A reader never commits, rewinds or chooses a position by
    itself.
    """

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        """Read these too, each from exactly `position`. If data at that position is gone, `poll` raises
        LostDataError."""
        ...

    def poll(self, max_records: int) -> Fetched | None:
        """Up to `max_records` records of one split, without waiting; None when there is nothing now.

        Splits take turns. A split whose position has reached its stop is reported finished once, also when it is empty.
        Raises UnavailableError for what a restart may mend.
        """
        ...

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        """The checkpoint that held these positions has completed: all splits of this subtask at that barrier, finished
        ones included (in Flink: notifyCheckpointComplete).

        For tools of the external system that show how far readers are (Kafka: committed group offsets), best effort;
        nothing is ever restored from there. Must not wait; what it raises is logged and ignored. Not called for a
        checkpoint that was abandoned, and not always for one that completed.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class PausingReader(SourceReader, Protocol):
    """A reader that can leave single splits out, for the alignment of watermarks. One that cannot is not polled while
    all of its splits are too far ahead, and reads on in all of them otherwise."""

    def pause_or_resume_splits(self, to_pause: Collection[str], to_resume: Collection[str]) -> None:
        """Between two polls: bring nothing of the first ones until they are among the others; then all that follows
        what `poll` has brought of each. What was fetched ahead of them must not keep others from being read. All were
        given to `add_splits`, none has finished."""
        ...


class SourceInspection(Protocol):
    """A source's external system seen by tools that do not have the program. Blocks."""

    def end_positions(self, splits: Sequence[str]) -> dict[str, int]:
        """Where each of these splits ends now: what is below it can be read. Splits that are gone are left out. Raises
        UnavailableError, InvalidError."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """What the program holds: a description of where records come from. Made once per process, used by several threads
    of it: immutable. Splits are discovered in the JobManager and read in tasks."""

    @property
    def bounded(self) -> bool:
        """Whether every split has a stop, so that the job can finish."""
        ...

    @property
    def deserializer(self) -> Deserializer | None:
        """How raw values become the stream's; None when the reader's values are ready."""
        ...

    @property
    def discovery_interval(self) -> float | None:
        """Seconds between two looks for new splits; None looks once."""
        ...

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        """How tools reach the external system without the program: the factory returns a SourceInspection. None where
        that makes no sense."""
        ...

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        """New splits, without those whose ids are `known`, with every start and stop resolved to a number.

        Called in the JobManager, may block, may raise UnavailableError or InvalidError. `known` is None at the first
        look of all, and then alone the user's start applies: a split found later, also by a job that knew none yet,
        starts at its beginning, or what was written to it before it was found would be lost. Same answer in the same
        situation.
        """
        ...

    def open_reader(self, context: SourceContext) -> SourceReader: ...


def starts_at_end(source: Source) -> bool:
    """Whether the source begins where its splits end when it is first looked at, so that a later first look would find
    another beginning. It says so by a property `starts_at_end`; without one it does not. Such a source is read only
    when a completed checkpoint has the positions at which it begins."""
    return bool(getattr(source, "starts_at_end", False))


# ---- two-phase-commit sinks ----------------------------------------------------------------------------------------


class SinkContext(msgspec.Struct, frozen=True):
    """Who a sink's subtask is."""

    job: JobName
    operator: OperatorName
    subtask: SubtaskIndex
    parallelism: int
    attempt: Attempt


class TransactionalSink(Protocol, Generic[Txn]):
    """One subtask's end of an external system that can hold prepared transactions (after the paper on two-phase commit
    by Gray, 'Notes on Data Base Operating Systems', 1978; in Flink: TwoPhaseCommitSinkFunction).

    The life of a transaction: `begin` (side thread, ahead of need) → `write` … (task's thread) → at the barrier
    `prepare` (side thread) → in every later barrier until it is committed `check` (side thread) → `commit` (side
    thread), possibly in another process, possibly again. Or `abandon`, at any time before.

    What must hold, whatever dies:
    * Nothing that was written is visible to readers before `commit`, and all of it is after.
    * When `prepare` has returned a committable, its records are durable, and it can be committed by any process that
      has the committable, also when this process is dead. Closing, collecting or dropping the handle never aborts it.
    * `begin` with an id aborts whatever is open under that id. The engine never gives an id whose transaction is
      pending.
    * A transaction that nobody will commit is aborted by `TransactionRecovery`, or by a time limit of the system.
    """

    def begin(self, id: TransactionalId) -> Txn:
        """Open a transaction under `id`, fencing earlier users of the id. Raises UnavailableError, SinkFencedError."""
        ...

    def has_room(self, txn: Txn) -> bool:
        """Whether `write` takes a batch now without waiting; also true when it would raise. Task's thread, before each
        batch: must cost next to nothing. After a no the engine holds everything back, barriers behind the batch
        included, and asks again a few milliseconds later."""
        ...

    def write(self, txn: Txn, batch: Batch) -> None:
        """Add the batch to the open transaction, in order. Task's thread: may buffer, must not wait for the system for
        long. Failures may be reported here or by `prepare`; once one has happened, `prepare` must raise."""
        ...

    def prepare(self, txn: Txn) -> Committable | None:
        """Flush; return when every record is durable and each was accepted. None if nothing was written.

        After it nothing is written to `txn` any more. Raises SinkFencedError, LostDataError or UnavailableError when
        even one record is not certain to be there: the attempt then fails, because going on would lose it.
        """
        ...

    def check(self, committables: Sequence[Committable]) -> None:
        """Raise LostDataError unless each of these, prepared earlier and not yet committed, is still pending and
        intact."""
        ...

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        """Make it visible. May be called again for the same one, by anybody. What happened is read from the system,
        never guessed from an error. Exceptions count as `Retry`."""
        ...

    def abandon(self, txn: Txn) -> None:
        """Forget the handle and leave the transaction as it is. Never aborts: it may be prepared and named by a
        checkpoint."""
        ...

    def close(self) -> None:
        """Release connections. Must not abort or commit anything."""
        ...


class TransactionInfo(msgspec.Struct, frozen=True):
    """What the external system says of the newest transaction under an id, for people."""

    id: TransactionalId
    state: str
    """In the system's own words: 'Ongoing', 'CompleteCommit' …"""
    started_at: float | None = None
    """Seconds since 1970; None when nothing was written."""
    timeout: float | None = None
    """Seconds after its start at which the system aborts it by itself; None: never."""
    partitions: tuple[str, ...] = ()
    """Where it wrote; sorted. A completed one may have none any more."""
    committable: Committable | None = None
    """Present while it could be committed."""


class TransactionRecovery(Protocol):
    """A sink's transactions seen from the JobManager, before anything runs, and by tools. All calls block, on one side
    thread."""

    def check_timeout(self, needed: float) -> None:
        """Raise InvalidError when the sink's transactions could time out before they are committed, for which they need
        `needed` seconds, or when their timeout is more than the system allows. Asked once, before anything is
        deployed."""
        ...

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        """As `TransactionalSink.commit`, for a transaction of whoever prepared it."""
        ...

    def abort(self, id: TransactionalId) -> None:
        """Abort whatever is open under `id` and fence its producer, so that it can never write or commit again."""
        ...

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        """Every id of the form prefix:*:*:sink:*:* under which a transaction is open or prepared, in any log instance
        and attempt, parsed, sorted. Ids are compared by their parts."""
        ...

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        """The newest transaction under `id`, whatever became of it; None when the system knows nothing of the id."""
        ...

    def close(self) -> None: ...


class Sink(Protocol):
    """What the program holds: a description of where records go. Immutable. `transaction_prefix` defaults to the job's
    name."""

    @property
    def transaction_prefix(self) -> str | None: ...

    @property
    def recovery_spec(self) -> RecoverySpec: ...

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]: ...

    def open_recovery(self) -> TransactionRecovery: ...


OperatorFactory = Callable[[], Operator]
"""Makes a fresh operator for one subtask of one attempt."""


def owned_ids(texts: Iterable[str], prefix: str, sink: OperatorName) -> list[TransactionalId]:
    """Those of `texts` that are ids of this sink of this job, parsed, sorted: what `open_transactions` answers."""
    parsed = map(TransactionalId.parse, texts)
    return sorted(id for id in parsed if id is not None and owned_by(id, prefix, sink))


def owned_by(id: TransactionalId, prefix: str, sink: OperatorName) -> bool:
    """Whether `id` belongs to this sink of this job, in whatever instance and attempt."""
    return id.prefix == prefix and id.sink == sink
