"""Drives one sink subtask: performs what `checkpoint.transactions` decides, on the sink's side thread, and reports
back.

Commands run in the order in which they were decided: one lane. A failure of opening, preparing or checking fails the
task; a failure of committing is asked for again, because the transaction is safe.

Behind a barrier the task need not stand still until the last transaction is flushed: a few batches of the next one wait
here, in order, and a barrier behind them waits with them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from tidegate.checkpoint import transactions as t
from tidegate.checkpoint.protocol import CheckpointAbandoned, CommitPermit, Outcome, Retry
from tidegate.clock import Clock
from tidegate.elements import Batch
from tidegate.errors import (
    ErrorKind,
    Failure,
    InternalError,
    LostDataError,
    UnknownOutcomeError,
    error_of,
    failure_of,
)
from tidegate.failpoints import reach
from tidegate.ids import CheckpointId, TransactionalId
from tidegate.operators.columns import takes_columns
from tidegate.operators.contracts import TransactionalSink
from tidegate.operators.flushing import FlushingSink
from tidegate.runtime.ports import Executor

ROOM_RETRY = 0.003
"""Seconds until a sink that had no room is asked again."""
MOST_WAITING = 32
"""Batches that may wait for the last transaction to be flushed: what a task makes in a few hundredths of a second."""
AT_ONCE = 2
"""Of them that are written for each batch that comes then, so that the task does not stand still for all of them."""

Refuse = Callable[[Exception], NoReturn]
"""Raises what is to be said of an error of the sink's on a batch."""


def _raised(error: Exception) -> NoReturn:
    raise error


class SinkDriver:
    """`tell` takes what the participant must know, `fail` ends the task. Both are called on the task's thread."""

    def __init__(
        self,
        sink: TransactionalSink[Any],
        transactions: t.SinkTransactions,
        lane: str,
        executor: Executor,
        clock: Clock,
        tell: Callable[[t.SinkReady | t.SinkCommitted], None],
        fail: Callable[[Failure], None],
    ) -> None:
        self._sink = sink
        self._transactions = transactions
        self._lane = lane
        self._executor = executor
        self._clock = clock
        self._tell = tell
        self._fail = fail
        self._handles: dict[TransactionalId, Any] = {}
        self._retry_at: float | None = None
        self._ask_for_room_at: float | None = None
        self._waiting: deque[tuple[Batch, Refuse] | CheckpointId] = deque()
        """What comes behind a transaction that is not flushed yet; a barrier can only be the last."""

    @property
    def takes_columns(self) -> bool:
        """As a `ColumnSink` says."""
        return takes_columns(self._sink)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open. Unlike room, which comes and goes between two questions, this lasts."""
        return self._transactions.current is not None

    @property
    def is_writable(self) -> bool:
        """Whether a batch may be written now. Asks the sink: `wake_at` depends on what it said last."""
        current = self._transactions.current
        if current is None:
            self._ask_for_room_at = None
            return False
        if not self._transactions.is_writable:
            self._ask_for_room_at = None
        elif not self._waiting:
            return self._has_room(current)
        return len(self._waiting) < MOST_WAITING and not self._has_barrier

    def _has_room(self, current: TransactionalId) -> bool:
        has_room = self._sink.has_room(self._handles[current])
        self._ask_for_room_at = None if has_room else self._clock.now().monotonic + ROOM_RETRY
        return has_room

    @property
    def _has_barrier(self) -> bool:
        return bool(self._waiting) and not isinstance(self._waiting[-1], tuple)

    @property
    def wake_at(self) -> float | None:
        """When the driver has something to do or may be writable again, unless it is told something before; monotonic
        seconds."""
        return min((at for at in (self._retry_at, self._ask_for_room_at) if at is not None), default=None)

    def start(self) -> None:
        self._handle(t.Start())

    def write(self, batch: Batch, refuse: Refuse = _raised) -> None:
        """Write into the open transaction, or as soon as nothing can overtake the one before it. What the sink raises
        goes to `refuse`, whose own exception ends the task."""
        if self._transactions.current is None or self._has_barrier:
            raise InternalError("a batch came to a sink that holds batches back")
        if self._waiting or not self._transactions.is_writable:
            self._waiting.append((batch, refuse))
            self._let_pass()
        else:
            self._write(self._transactions.current, batch, refuse)

    def _write(self, current: TransactionalId, batch: Batch, refuse: Refuse) -> None:
        self._transactions.has_written = True
        try:
            self._sink.write(self._handles[current], batch)
        except (LostDataError, UnknownOutcomeError) as error:
            refuse(error_of(_to_be_read_again(error.failure)))
        except Exception as error:
            refuse(error)

    def barrier(self, checkpoint: CheckpointId) -> None:
        if self._waiting:
            self._waiting.append(checkpoint)
        else:
            self._handle(t.BarrierPassed(checkpoint))

    def _let_pass(self) -> None:
        """Some of what waits for a transaction that is flushed by now, as far as the sink has room."""
        for _ in range(AT_ONCE):
            if not self._waiting or not self._transactions.is_writable:
                return
            current, first = self._transactions.current, self._waiting[0]
            assert current is not None
            if not isinstance(first, tuple):
                self._waiting.popleft()
                self._handle(t.BarrierPassed(first))
            elif self._has_room(current):
                self._waiting.popleft()
                self._write(current, *first)
            else:
                return
        if self._waiting and self._transactions.is_writable:
            # The next step goes on, also when it has nothing else to do.
            self._ask_for_room_at = self._clock.now().monotonic

    def permit(self, permit: CommitPermit) -> None:
        self._handle(t.Permitted(permit))

    def abandon(self, checkpoint: CheckpointId) -> None:
        self._handle(CheckpointAbandoned(checkpoint))

    def wake(self) -> None:
        """At each step of the task. Raises what the sink says of a batch that has waited."""
        self._let_pass()
        if self._retry_at is not None and self._clock.now().monotonic >= self._retry_at:
            self._retry_at = None
            self._handle(t.Wake())

    def close(self) -> None:
        """Let go of everything and leave it as it is."""
        self._waiting.clear()
        for handle in self._handles.values():
            self._sink.abandon(handle)
        self._handles = {}
        self._sink.close()

    def _handle(self, event: t.Event) -> None:
        for command in self._transactions.handle(event, self._clock.now()):
            self._perform(command)

    def _perform(self, command: t.Command) -> None:
        match command:
            case t.OpenTransaction(id):
                self._run(lambda: self._sink.begin(id), lambda handle: self._opened(id, handle))
            case t.PrepareTransaction(id):
                handle = self._handles.pop(id)
                if isinstance(self._sink, FlushingSink):
                    flush = self._sink.flush
                    self._run(lambda: flush(handle), lambda _: self._handle(t.Flushed(id)))
                self._run(lambda: self._sink.prepare(handle), lambda made: self._handle(t.Prepared(id, made)))
            case t.CheckPending(checkpoint, committables):
                self._run(lambda: self._sink.check(committables), lambda _: self._handle(t.Checked(checkpoint)))
            case t.CommitTransaction():
                self._commit(command)
            case t.SinkReady() | t.SinkCommitted():
                self._tell(command)
            case t.FailTask(failure):
                self._fail(failure)
            case t.WakeAt(at):
                self._retry_at = at

    def _opened(self, id: TransactionalId, handle: Any) -> None:
        self._handles[id] = handle
        self._handle(t.Opened(id))

    def _run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            if error is not None:
                self._fail(_to_be_read_again(failure_of(error)))
            else:
                self._guard(lambda: then(result))

        self._executor.submit(self._lane, work, done)

    def _commit(self, command: t.CommitTransaction) -> None:
        def work() -> Outcome:
            reach("commit:before")
            outcome = self._sink.commit(command.committable, command.permit)
            reach("commit:after")
            return outcome

        def done(outcome: Any, error: BaseException | None) -> None:
            answer = outcome if error is None else Retry(failure_of(error).message)
            self._guard(lambda: self._handle(t.CommitAnswered(command.committable, answer)))

        self._executor.submit(self._lane, work, done)

    def _guard(self, act: Callable[[], None]) -> None:
        """What comes back from the side thread is handled between two steps: a sink that answers what no sink may
        answer must end its task, and not the loop."""
        try:
            act()
        except Exception as error:
            self._fail(failure_of(error))


def _to_be_read_again(failure: Failure) -> Failure:
    """What is lost before its checkpoint completed is not lost for good: its records are read again after a restart.
    Whether a completed checkpoint lacks something is found by its commit. And it may be the recovery of a new attempt
    that aborted it, while this one had not noticed yet that it was taken over."""
    if failure.kind not in (ErrorKind.LOST, ErrorKind.UNKNOWN_OUTCOME):
        return failure
    return msgspec.structs.replace(failure, kind=ErrorKind.UNAVAILABLE)
