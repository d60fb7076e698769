"""A sink's driver opens, prepares, checks and commits on the side, in order, and says what became of it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.runtime.harness import HandClock, HandExecutor
from tidegate.checkpoint.participant import SinkCommitted, SinkReady
from tidegate.checkpoint.protocol import (
    CheckpointCompleted,
    CommitPermit,
    Committable,
    Lost,
    Outcome,
    Retry,
)
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.connectors.collections import CollectionSink, CollectionTransaction
from tidegate.elements import Batch
from tidegate.errors import (
    ErrorKind,
    Failure,
    InternalError,
    InvalidError,
    LostDataError,
    SinkFencedError,
    UnavailableError,
    UnknownOutcomeError,
)
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import SinkContext
from tidegate.runtime.sink_driver import SinkDriver

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)


class Troubled:
    """The writer of a `CollectionSink` in front of which trouble may stand, by the name of the call."""

    def __init__(self, sink: CollectionSink) -> None:
        context = SinkContext(JobName("job"), OperatorName("out"), SubtaskIndex(0), 1, Attempt(1))
        self._inner = sink.open_writer(context)
        self.trouble: dict[str, Callable[[], Any]] = {}
        self.calls: list[str] = []

    def begin(self, id: TransactionalId) -> CollectionTransaction:
        transaction: CollectionTransaction = self._call("begin", lambda: self._inner.begin(id))
        return transaction

    def has_room(self, txn: CollectionTransaction) -> bool:
        has_room: bool = self.trouble["has_room"]() if "has_room" in self.trouble else self._inner.has_room(txn)
        return has_room

    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        self._call("write", lambda: self._inner.write(txn, batch))

    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        committable: Committable | None = self._call("prepare", lambda: self._inner.prepare(txn))
        return committable

    def check(self, committables: Sequence[Committable]) -> None:
        self._call("check", lambda: self._inner.check(committables))

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        outcome: Outcome = self._call("commit", lambda: self._inner.commit(committable, permit))
        return outcome

    def abandon(self, txn: CollectionTransaction) -> None:
        self._call("abandon", lambda: self._inner.abandon(txn))

    def close(self) -> None:
        self._call("close", self._inner.close)

    def _call(self, name: str, act: Callable[[], Any]) -> Any:
        self.calls.append(name)
        return self.trouble[name]() if name in self.trouble else act()


class Flushing(Troubled):
    """One that can say when nothing can overtake any more what was written."""

    def flush(self, txn: CollectionTransaction) -> None:
        self._call("flush", lambda: None)


class Driven:
    """A driver, its sink and what it said."""

    def __init__(self, writer: type[Troubled] = Troubled) -> None:
        self.sink = CollectionSink()
        self.writer = writer(self.sink)
        self.clock = HandClock()
        self.executor = HandExecutor()
        self.told: list[SinkReady | SinkCommitted] = []
        self.failures: list[Failure] = []
        transactions = SinkTransactions(
            "job", LogInstance("log"), Attempt(1), OperatorName("out"), SubtaskIndex(0), pool_limit=4
        )
        self.driver = SinkDriver(
            self.writer, transactions, "sink", self.executor, self.clock, self.told.append, self.failures.append
        )
        self.driver.start()

    @classmethod
    def opened(cls, writer: type[Troubled] = Troubled) -> "Driven":
        it = cls(writer)
        it.executor.run_all()
        return it

    def prepared(self, checkpoint: CheckpointId, *values: int) -> "Driven":
        self.driver.write(Batch(list(values)))
        self.driver.barrier(checkpoint)
        self.executor.run_all()
        return self

    def permit(self, checkpoint: CheckpointId) -> None:
        self.driver.permit(CommitPermit(CheckpointCompleted(Attempt(1), checkpoint)))

    def fail_with(self, call: str, error: Exception) -> None:
        def trouble() -> None:
            raise error

        self.writer.trouble[call] = trouble

    @property
    def pending(self) -> list[tuple[int, str]]:
        """Checkpoint and slot of what the last `SinkReady` listed."""
        ready = [event for event in self.told if isinstance(event, SinkReady)][-1]
        return [(pending.checkpoint, pending.committable.id[-1]) for pending in ready.pending]


# ---- opening and writing ---------------------------------------------------------------------------------------------


def test_batches_are_held_back_until_the_first_transaction_is_open() -> None:
    it = Driven()
    assert not it.driver.is_writable
    it.executor.run("sink")
    assert it.driver.is_writable


def test_a_batch_that_comes_while_batches_are_held_back_is_refused() -> None:
    with pytest.raises(InternalError, match="holds batches back"):
        Driven().driver.write(Batch([1]))


def test_the_next_transaction_is_opened_ahead_of_need() -> None:
    it = Driven.opened()
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    it.executor.run("sink")
    assert it.driver.is_writable


def test_what_cannot_be_opened_fails_the_task() -> None:
    it = Driven()
    it.fail_with("begin", UnavailableError("no coordinator"))
    it.executor.run_all()
    (failure,) = it.failures
    assert (failure.kind, failure.message) == (ErrorKind.UNAVAILABLE, "no coordinator")


# ---- barriers --------------------------------------------------------------------------------------------------------


def test_batches_are_held_back_while_the_last_transaction_is_prepared() -> None:
    it = Driven.opened()
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    assert not it.driver.is_writable
    assert it.told == []
    it.executor.run("sink")
    assert it.driver.is_writable
    assert it.pending == [(1, "0")]


def test_batches_are_held_back_no_longer_than_the_last_transaction_is_flushed_where_the_sink_can_say_that() -> None:
    it = Driven.opened(Flushing)
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    assert not it.driver.is_writable
    it.executor.run("sink")
    assert it.writer.calls[-1] == "flush"
    assert (it.driver.is_writable, it.told) == (True, [])
    it.driver.write(Batch([2]))
    it.executor.run_all()
    assert it.pending == [(1, "0")]
    assert sorted(it.sink.open.values()) == [[1], [2]]


def test_what_cannot_be_flushed_fails_the_task_and_lets_nothing_pass() -> None:
    it = Driven.opened(Flushing)
    it.fail_with("flush", UnavailableError("not every record was accepted"))
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    it.executor.run("sink")
    assert [failure.message for failure in it.failures] == ["not every record was accepted"]
    assert not it.driver.is_writable


def test_what_comes_behind_the_barrier_is_in_another_transaction() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.driver.write(Batch([2]))
    assert sorted(it.sink.open.values()) == [[1], [2]]


def test_a_barrier_with_nothing_before_it_needs_no_transaction_and_holds_nothing_back() -> None:
    it = Driven.opened()
    it.driver.barrier(ONE)
    assert it.told == [SinkReady(ONE, ())]
    assert it.driver.is_writable
    assert "prepare" not in it.writer.calls


def test_what_is_still_pending_is_checked_at_every_later_barrier_and_listed_again() -> None:
    it = Driven.opened().prepared(ONE, 1).prepared(TWO, 2)
    assert it.pending == [(1, "0"), (2, "1")]
    assert it.writer.calls.count("check") == 1
    it.driver.barrier(THREE)
    assert len(it.told) == 2
    it.executor.run_all()
    assert it.told[-1].checkpoint == THREE
    assert it.pending == [(1, "0"), (2, "1")]


def test_what_was_prepared_for_an_abandoned_checkpoint_belongs_to_the_next() -> None:
    it = Driven.opened()
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    it.driver.abandon(ONE)
    it.executor.run_all()
    assert it.told == []
    it.prepared(TWO, 2)
    assert it.pending == [(1, "0"), (2, "1")]
    it.permit(TWO)
    it.executor.run_all()
    assert it.sink.committed == [1, 2]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LostDataError("a record was not accepted"), ErrorKind.UNAVAILABLE),
        (UnknownOutcomeError("nobody knows of it"), ErrorKind.UNAVAILABLE),
        (InvalidError("no such topic"), ErrorKind.INVALID),
        (SinkFencedError("taken over"), ErrorKind.SINK_FENCED),
        (UnavailableError("no broker"), ErrorKind.UNAVAILABLE),
        (KeyError("a bug"), ErrorKind.INTERNAL),
    ],
)
@pytest.mark.parametrize("call", ["prepare", "check"])
def test_what_cannot_be_prepared_or_is_not_intact_any_more_fails_the_task_and_is_never_ready(
    call: str, error: Exception, kind: ErrorKind
) -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.fail_with(call, error)
    it.prepared(TWO, 2)
    assert [failure.kind for failure in it.failures] == [kind]
    assert [event.checkpoint for event in it.told] == [ONE]


def test_what_is_lost_while_it_is_written_will_be_read_again() -> None:
    it = Driven.opened()
    it.fail_with("write", LostDataError("aborted by somebody"))
    with pytest.raises(UnavailableError, match="aborted by somebody"):
        it.driver.write(Batch([1]))


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commits_go_in_the_order_of_their_checkpoints_and_are_told_when_all_are_done() -> None:
    it = Driven.opened().prepared(ONE, 1).prepared(TWO, 2)
    it.told.clear()
    it.permit(TWO)
    assert it.sink.committed == []
    it.executor.run("sink")
    assert (it.sink.committed, it.told) == ([1], [])
    it.executor.run("sink")
    assert (it.sink.committed, it.told) == ([1, 2], [SinkCommitted(TWO)])


def test_what_was_prepared_behind_the_completed_checkpoint_is_not_committed() -> None:
    it = Driven.opened().prepared(ONE, 1).prepared(TWO, 2)
    it.permit(ONE)
    it.executor.run_all()
    assert it.sink.committed == [1]
    assert it.told[-1] == SinkCommitted(ONE)


def test_with_nothing_to_commit_that_is_told_at_once() -> None:
    it = Driven.opened()
    it.driver.barrier(ONE)
    it.permit(ONE)
    assert it.told[-1] == SinkCommitted(ONE)


@pytest.mark.parametrize("how", ["answer", "error"])
def test_a_commit_without_an_answer_is_asked_for_again_when_its_time_has_come(how: str) -> None:
    it = Driven.opened().prepared(ONE, 1)
    if how == "answer":
        it.writer.trouble["commit"] = lambda: Retry("not now")
    else:
        it.fail_with("commit", OSError("connection reset"))
    it.permit(ONE)
    it.executor.run_all()
    assert it.driver.wake_at is not None
    it.driver.wake()
    assert it.executor.lanes == []
    it.clock.time = it.driver.wake_at
    del it.writer.trouble["commit"]
    it.driver.wake()
    assert it.driver.wake_at is None
    it.executor.run_all()
    assert it.sink.committed == [1]
    assert it.told[-1] == SinkCommitted(ONE)
    assert it.failures == []


def test_a_lost_transaction_of_a_completed_checkpoint_fails_the_task_as_lost() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.writer.trouble["commit"] = lambda: Lost("aborted")
    it.permit(ONE)
    it.executor.run_all()
    assert [failure.kind for failure in it.failures] == [ErrorKind.LOST]


def test_a_sink_that_answers_what_no_sink_may_answer_ends_its_task_and_not_the_loop() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.writer.trouble["commit"] = lambda: "done"
    it.permit(ONE)
    it.executor.run_all()
    assert [failure.kind for failure in it.failures] == [ErrorKind.INTERNAL]


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_closing_leaves_every_transaction_as_it_is() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.driver.write(Batch([2]))
    prepared = it.told[0]
    assert isinstance(prepared, SinkReady)
    it.driver.close()
    assert it.writer.calls[-1] == "close"
    assert sorted(it.sink.open.values()) == [[1], [2]]
    permit = CommitPermit(CheckpointCompleted(Attempt(1), ONE))
    it.sink.open_recovery().commit(prepared.pending[0].committable, permit)
    assert it.sink.committed == [1]


def test_closing_lets_go_of_the_open_transactions_but_not_of_a_prepared_one() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.writer.calls.clear()
    it.driver.close()
    assert it.writer.calls == ["abandon", "abandon", "close"]


# ---- room ------------------------------------------------------------------------------------------------------------


def test_a_sink_without_room_is_not_writable_and_is_asked_again_soon() -> None:
    it = Driven.opened()
    room = [False]
    it.writer.trouble["has_room"] = lambda: room[0]
    assert not it.driver.is_writable
    assert it.driver.wake_at is not None
    assert 0 < it.driver.wake_at - it.clock.time < 0.01
    room[0] = True
    assert it.driver.is_writable
    assert it.driver.wake_at is None


def test_a_transaction_is_not_asked_for_room_while_the_one_before_it_is_flushed() -> None:
    it = Driven.opened()
    asked: list[None] = []
    it.writer.trouble["has_room"] = lambda: asked.append(None) or True
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    assert not it.driver.is_writable
    assert asked == []
    assert it.driver.wake_at is None


def test_a_commit_to_be_asked_again_is_due_although_there_is_no_room() -> None:
    it = Driven.opened().prepared(ONE, 1)
    it.writer.trouble["commit"] = lambda: Retry("not now")
    it.permit(ONE)
    it.executor.run_all()
    it.writer.trouble["has_room"] = lambda: False
    it.clock.time += 0.049
    assert not it.driver.is_writable
    retry_at = it.driver.wake_at
    assert retry_at is not None
    del it.writer.trouble["commit"]
    it.clock.time += 0.002
    it.driver.wake()
    it.executor.run_all()
    assert it.told[-1] == SinkCommitted(ONE)
