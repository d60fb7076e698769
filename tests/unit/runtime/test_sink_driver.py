"""A sink's driver opens, prepares, checks and commits on the side, in order, and says what became of it."""

import pytest

from tests.unit.runtime.driven import ONE, THREE, TWO, Driven
from tidegate.checkpoint.participant import SinkCommitted, SinkReady
from tidegate.checkpoint.protocol import (
    CheckpointCompleted,
    CommitPermit,
    Lost,
    Retry,
)
from tidegate.elements import Batch
from tidegate.errors import (
    ErrorKind,
    InternalError,
    InvalidError,
    LostDataError,
    SinkFencedError,
    UnavailableError,
    UnknownOutcomeError,
)
from tidegate.ids import Attempt

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
    assert it.driver.is_writable
    it.driver.write(Batch([2]))
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
