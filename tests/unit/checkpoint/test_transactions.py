"""A sink's transactions: which is open, which are pending, when they are committed, when an id is used again."""

import pytest

from tests.unit.checkpoint.sinks import Driven, committable, pending, permit, slot
from tidegate.checkpoint import transactions as t
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CheckpointAbandoned,
    Committed,
    Lost,
    Outcome,
    PendingTransaction,
    Retry,
    Unknown,
)
from tidegate.checkpoint.transactions import COMMIT_PATIENCE
from tidegate.errors import ErrorKind
from tidegate.ids import CheckpointId


def ready(checkpoint: int, *listed: PendingTransaction) -> t.SinkReady:
    return t.SinkReady(CheckpointId(checkpoint), listed)


# ---- opening and barriers ------------------------------------------------------------------------------------------


def test_the_first_is_opened_at_the_start_and_the_next_ahead_of_need() -> None:
    found = Driven().started()
    assert (found.sink.current, found.sink.is_writable) == (slot(0), True)


def test_at_a_barrier_it_swaps_prepares_the_old_one_and_opens_the_one_after() -> None:
    found = Driven().started()
    found.write()
    assert found.barrier(1) == [t.PrepareTransaction(slot(0)), t.OpenTransaction(slot(2))]
    assert found.sink.current == slot(1)
    assert found.prepared(0) == [ready(1, pending(1, 0))]


def test_writes_to_the_new_transaction_wait_until_the_old_one_is_prepared() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    assert not found.sink.is_writable
    found.prepared(0)
    assert found.sink.is_writable


def test_writes_to_the_new_transaction_need_not_wait_for_more_than_that_the_old_one_is_flushed() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    assert found.do(t.Flushed(slot(0))) == []
    assert found.sink.is_writable
    found.write()
    assert found.prepared(0) == [ready(1, pending(1, 0))]


def test_a_transaction_that_is_prepared_for_an_abandoned_checkpoint_is_waited_for_at_the_next_one() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.do(t.Flushed(slot(0)))
    found.do(CheckpointAbandoned(CheckpointId(1)))
    found.do(t.Opened(slot(2)))
    found.write()
    assert found.barrier(2) == [t.PrepareTransaction(slot(1)), t.OpenTransaction(slot(3))]
    assert not found.sink.is_writable
    assert found.prepared(0) == []
    assert not found.sink.is_writable
    assert found.prepared(1) == [ready(2, pending(1, 0), pending(2, 1))]
    assert found.sink.is_writable


def test_answers_that_come_out_of_order_change_nothing() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.do(t.Flushed(slot(0)))
    found.do(CheckpointAbandoned(CheckpointId(1)))
    found.do(t.Opened(slot(2)))
    found.write()
    found.barrier(2)
    assert found.prepared(1) == []
    assert found.do(t.Flushed(slot(1))) == []
    assert found.prepared(0) == [ready(2, pending(1, 0), pending(2, 1))]


def test_writes_wait_for_a_transaction_that_is_still_being_opened() -> None:
    found = Driven()
    found.do(t.Start())
    assert not found.sink.is_writable
    found.do(t.Opened(slot(0)))
    found.write()
    found.barrier(1)
    found.prepared(0)
    assert not found.sink.is_writable
    assert found.do(t.Opened(slot(1))) == [t.OpenTransaction(slot(2))]
    assert found.sink.is_writable


def test_an_interval_without_records_prepares_and_opens_nothing() -> None:
    found = Driven().started()
    for checkpoint in range(1, 6):
        assert found.barrier(checkpoint) == [ready(checkpoint)]
        assert found.do(t.Permitted(permit(checkpoint))) == [t.SinkCommitted(CheckpointId(checkpoint))]
    assert found.sink.current == slot(0)


def test_a_transaction_that_turns_out_empty_is_in_no_checkpoint_and_its_slot_is_free() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    assert found.do(t.Prepared(slot(0), None)) == [ready(1)]
    found.do(t.Opened(slot(2)))
    found.write()
    assert found.barrier(2) == [t.PrepareTransaction(slot(1)), t.OpenTransaction(slot(0))]


def test_what_nobody_asked_for_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="asked"):
        Driven().started().prepared(0)
    with pytest.raises(AssertionError, match="asked"):
        Driven().started().do(t.Opened(slot(5)))
    with pytest.raises(AssertionError, match="asked"):
        Driven().started().answer(0, Committed())


# ---- abandoned checkpoints -----------------------------------------------------------------------------------------


def abandoned_once() -> Driven:
    """Checkpoint 1 was abandoned after its transaction was prepared; slot 1 is open."""
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.prepared(0)
    assert found.do(CheckpointAbandoned(CheckpointId(1))) == []
    found.do(t.Opened(slot(2)))
    return found


def test_a_transaction_of_an_abandoned_checkpoint_rides_with_the_next_and_commits_before_it() -> None:
    found = abandoned_once()
    found.write()
    commands = found.barrier(2)
    assert commands[:2] == [t.PrepareTransaction(slot(1)), t.CheckPending(CheckpointId(2), (committable(0),))]
    assert found.prepared(1) == []
    assert found.do(t.Checked(CheckpointId(2))) == [ready(2, pending(1, 0), pending(2, 1))]
    [first] = found.do(t.Permitted(permit(2)))
    assert isinstance(first, t.CommitTransaction)
    [second] = found.answer(0, Committed())
    assert isinstance(second, t.CommitTransaction)
    assert (first.committable, second.committable) == (committable(0), committable(1))
    assert found.answer(1, Committed()) == [t.SinkCommitted(CheckpointId(2))]


def test_what_is_pending_is_looked_at_again_at_every_barrier_also_when_nothing_was_written() -> None:
    found = abandoned_once()
    assert found.barrier(2) == [t.CheckPending(CheckpointId(2), (committable(0),))]
    assert found.do(t.Checked(CheckpointId(1))) == [], "an answer to an earlier question"
    assert found.do(t.Checked(CheckpointId(2))) == [ready(2, pending(1, 0))]


def test_a_barrier_that_overtakes_a_slow_prepare_waits_for_it() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.do(CheckpointAbandoned(CheckpointId(1)))
    assert found.barrier(2) == []
    assert found.prepared(0) == [ready(2, pending(1, 0))]


def test_a_checkpoint_that_was_abandoned_while_preparing_is_not_reported_ready() -> None:
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.do(CheckpointAbandoned(CheckpointId(1)))
    assert found.prepared(0) == []
    assert [pending.committable for pending in found.sink.pending] == [committable(0)]


def test_a_permit_does_not_cover_what_was_prepared_later() -> None:
    found = abandoned_once()
    found.write()
    found.barrier(2)
    found.prepared(1)
    [commit] = found.do(t.Permitted(permit(1)))
    assert isinstance(commit, t.CommitTransaction)
    assert found.answer(0, Committed()) == [t.SinkCommitted(CheckpointId(1))]
    assert found.sink.pending == (pending(2, 1),)


# ---- commits -------------------------------------------------------------------------------------------------------


def committing() -> Driven:
    """Slot 0 is pending, and its commit was asked for once at 0 seconds."""
    found = Driven().started()
    found.write()
    found.barrier(1)
    found.prepared(0)
    found.do(t.Opened(slot(2)))
    [commit] = found.do(t.Permitted(permit(1)))
    assert isinstance(commit, t.CommitTransaction)
    return found


def test_a_commit_that_was_done_before_is_a_success() -> None:
    assert committing().answer(0, AlreadyCommitted()) == [t.SinkCommitted(CheckpointId(1))]


def test_a_doubled_or_older_notice_of_completion_asks_for_nothing_twice() -> None:
    found = committing()
    assert found.do(t.Permitted(permit(1))) == []
    found.answer(0, Committed())
    assert found.do(t.Permitted(permit(1))) == [t.SinkCommitted(CheckpointId(1))]


def test_a_commit_without_an_answer_is_asked_for_again_with_patience() -> None:
    found = committing()
    assert found.answer(0, Retry("busy")) == [t.WakeAt(0.05)]
    assert found.do(t.Wake()) == []
    found.now = 0.05
    [again] = found.do(t.Wake())
    assert isinstance(again, t.CommitTransaction)
    assert again.committable == committable(0)
    assert found.do(t.Wake()) == []
    found.now = 30.0
    assert found.answer(0, Retry("busy")) == [t.WakeAt(32.0)], "two seconds between two tries at most"


def test_a_commit_without_an_answer_for_too_long_fails_the_task_and_stays_pending() -> None:
    found = committing()
    found.now = COMMIT_PATIENCE
    [failed] = found.answer(0, Retry("busy"))
    assert isinstance(failed, t.FailTask)
    assert failed.failure.kind is ErrorKind.UNAVAILABLE
    assert found.sink.pending == (pending(1, 0),)


def test_patience_begins_anew_with_each_transaction() -> None:
    found = abandoned_once()
    found.write()
    found.barrier(2)
    found.prepared(1)
    found.do(t.Checked(CheckpointId(2)))
    found.do(t.Permitted(permit(2)))
    found.now = COMMIT_PATIENCE - 1
    found.answer(0, Retry("busy"))
    found.now = COMMIT_PATIENCE + 1
    found.do(t.Wake())
    found.answer(0, Committed())
    assert isinstance(found.answer(1, Retry("busy"))[0], t.WakeAt)


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Lost("aborted"), ErrorKind.LOST), (Unknown("expired"), ErrorKind.UNKNOWN_OUTCOME)]
)
def test_a_transaction_that_is_lost_or_unknown_fails_the_task_and_names_it(outcome: Outcome, kind: ErrorKind) -> None:
    [failed] = committing().answer(0, outcome)
    assert isinstance(failed, t.FailTask)
    assert (failed.failure.kind, failed.failure.exit_code) == (kind, 3)
    assert str(slot(0)) in failed.failure.message
    assert "--accept-lost-transactions" in failed.failure.remedy


# ---- slots ---------------------------------------------------------------------------------------------------------


def test_a_slot_is_used_again_only_after_a_completed_checkpoint_no_longer_lists_it() -> None:
    found = committing()
    found.answer(0, Committed())
    found.write()
    assert found.barrier(2)[1] == t.OpenTransaction(slot(3)), "checkpoint 1 still lists slot 0"
    found.prepared(1)
    found.do(t.Opened(slot(3)))
    found.do(t.Permitted(permit(2)))
    found.answer(1, Committed())
    found.write()
    assert found.barrier(3)[1] == t.OpenTransaction(slot(0)), "checkpoint 2 completed without it"


def test_a_checkpoint_that_left_it_out_and_was_abandoned_frees_no_slot() -> None:
    found = committing()
    found.answer(0, Committed())
    found.write()
    found.barrier(2)
    found.prepared(1)
    found.do(CheckpointAbandoned(CheckpointId(2)))
    found.do(t.Opened(slot(3)))
    found.write()
    assert t.OpenTransaction(slot(4)) in found.barrier(3)


def test_beyond_its_limit_the_pool_fails_instead_of_waiting() -> None:
    found = Driven(limit=2).started()
    found.write()
    assert found.barrier(1) == [t.PrepareTransaction(slot(0))], "slot 1 is open: there is still one to write to"
    found.prepared(0)
    found.do(CheckpointAbandoned(CheckpointId(1)))
    found.write()
    failed = found.barrier(2)[-1]
    assert isinstance(failed, t.FailTask)
    assert "2 transactions" in failed.failure.message


# ---- worn-out slots --------------------------------------------------------------------------------------------------


def one_round(found: Driven, checkpoint: int, number: int, following: int) -> list[int]:
    """Slot `number` is written, prepared and committed at `checkpoint`; the slots that are opened meanwhile."""
    found.write()
    commands = [*found.barrier(checkpoint), *found.prepared(number)]
    commands += [*found.do(t.Permitted(permit(checkpoint))), *found.answer(number, Committed())]
    opened = [command.id.slot for command in commands if isinstance(command, t.OpenTransaction)]
    for id in opened:
        found.do(t.Opened(slot(id)))
    assert found.sink.current == slot(following)
    return opened


def test_a_worn_out_slot_is_replaced_by_one_with_a_new_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "SLOT_USES", 3)
    found = Driven(limit=4).started()
    opened: list[int] = [0, 1]
    for checkpoint in range(1, 40):
        assert found.sink.current is not None
        opened += one_round(found, checkpoint, found.sink.current.slot, opened[checkpoint])
    assert all(opened.count(number) <= 3 for number in opened)
    assert sorted(set(opened)) == list(range(max(opened) + 1))
    assert opened.count(0) == 3
    assert max(opened) >= 12


def test_a_slot_that_is_not_worn_out_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Driven(limit=4).started()
    opened: list[int] = [0, 1]
    for checkpoint in range(1, 40):
        assert found.sink.current is not None
        opened += one_round(found, checkpoint, found.sink.current.slot, opened[checkpoint])
    assert max(opened) <= 3


def test_slots_wear_out_before_an_ids_epochs_end() -> None:
    assert t.SLOT_USES <= 30_000


# ---- sinks that commit by themselves ---------------------------------------------------------------------------------


def test_a_sink_that_has_nothing_to_commit_after_it_has_written_takes_part_in_checkpoints_all_the_same() -> None:
    """At least once: what was written is flushed at the barrier and visible before."""
    found = Driven(limit=4).started()
    for checkpoint in range(1, 20):
        assert found.sink.current is not None
        number = found.sink.current.slot
        found.write()
        opened = [c.id for c in found.barrier(checkpoint) if isinstance(c, t.OpenTransaction)]
        assert not found.sink.is_writable
        prepared = found.do(t.Prepared(slot(number), None))
        assert ready(checkpoint) in prepared
        opened += [c.id for c in prepared if isinstance(c, t.OpenTransaction)]
        for id in opened:
            assert id.slot <= 2
            found.do(t.Opened(id))
        assert found.do(t.Permitted(permit(checkpoint))) == [t.SinkCommitted(CheckpointId(checkpoint))]
    assert found.sink.pending == ()


def test_such_a_sink_frees_its_slots_also_when_checkpoints_are_abandoned() -> None:
    found = Driven(limit=3).started()
    for checkpoint in range(1, 20):
        assert found.sink.current is not None
        number = found.sink.current.slot
        found.write()
        commands = [*found.barrier(checkpoint), *found.do(CheckpointAbandoned(CheckpointId(checkpoint)))]
        commands += found.do(t.Prepared(slot(number), None))
        assert not any(isinstance(command, t.FailTask | t.SinkReady) for command in commands)
        for command in commands:
            if isinstance(command, t.OpenTransaction):
                found.do(t.Opened(command.id))
