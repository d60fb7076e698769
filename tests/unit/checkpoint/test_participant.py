"""A task's part in a checkpoint: stored and prepared, then acknowledged; told, then permitted to commit."""

import pytest

from tidegate.checkpoint import participant as part
from tidegate.checkpoint.participant import Participant
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    CommitPermit,
    CommitsReported,
    Committable,
    CompletedInLog,
    Decline,
    OperatorSnapshot,
    PendingTransaction,
)
from tidegate.ids import Attempt, CheckpointId, OperatorName, SubtaskIndex, TaskId, VertexName

TASK = TaskId(VertexName("totals"), SubtaskIndex(1))
ATTEMPT = Attempt(2)
WRITE = OperatorName("write")
FOUR, FIVE, SIX = CheckpointId(4), CheckpointId(5), CheckpointId(6)
STORED = (OperatorSnapshot(OperatorName("totals"), key_type="str"), OperatorSnapshot(WRITE))
PENDING = (PendingTransaction(FOUR, Committable("a")), PendingTransaction(FIVE, Committable("b")))


def with_sink() -> Participant:
    return Participant(TASK, ATTEMPT, WRITE)


def acknowledged(checkpoint: CheckpointId, pending: tuple[PendingTransaction, ...]) -> part.Send:
    operators = (STORED[0], OperatorSnapshot(WRITE, pending=pending))
    return part.Send(Acknowledge(ATTEMPT, checkpoint, TASK, operators))


def test_a_barrier_is_captured_and_passed_on_in_one_step() -> None:
    assert with_sink().handle(part.BarrierAligned(FIVE)) == [part.CaptureAndForward(FIVE)]


def test_it_is_acknowledged_only_when_state_is_stored_and_the_sink_is_ready_in_either_order() -> None:
    stored, ready = part.StateStored(FIVE, STORED), part.SinkReady(FIVE, PENDING)
    for first, second in ((stored, ready), (ready, stored)):
        found = with_sink()
        found.handle(part.BarrierAligned(FIVE))
        assert found.handle(first) == []
        assert found.handle(second) == [acknowledged(FIVE, PENDING)]


def test_a_task_without_a_sink_has_only_its_state_to_wait_for() -> None:
    found = Participant(TASK, ATTEMPT, None)
    found.handle(part.BarrierAligned(FIVE))
    assert found.handle(part.StateStored(FIVE, STORED)) == [part.Send(Acknowledge(ATTEMPT, FIVE, TASK, STORED))]
    assert found.handle(CheckpointCompleted(Attempt(ATTEMPT - 1), FIVE)) == []
    assert found.handle(CheckpointCompleted(ATTEMPT, FIVE)) == [part.Send(CommitsReported(ATTEMPT, FIVE, TASK))]


def test_state_that_could_not_be_stored_is_declined_once_and_never_acknowledged() -> None:
    found = with_sink()
    found.handle(part.BarrierAligned(FIVE))
    declined = part.Send(Decline(ATTEMPT, FIVE, TASK, "disk full"))
    assert found.handle(part.StateNotStored(FIVE, "disk full")) == [declined]
    assert found.handle(part.StateNotStored(FIVE, "disk full")) == []
    assert found.handle(part.SinkReady(FIVE, PENDING)) == []


def test_C04_state_of_an_abandoned_checkpoint_is_told_late_so_that_its_files_are_deleted_but_without_transactions() -> (
    None
):
    found = with_sink()
    found.handle(part.BarrierAligned(FIVE))
    found.handle(part.SinkReady(FIVE, PENDING))
    assert found.handle(CheckpointAbandoned(FIVE)) == [part.AbandonInSink(FIVE)]
    assert found.handle(part.StateStored(FIVE, STORED)) == [part.Send(Acknowledge(ATTEMPT, FIVE, TASK, STORED))]


def test_a_newer_barrier_leaves_the_older_checkpoint_behind() -> None:
    found = with_sink()
    found.handle(part.BarrierAligned(FOUR))
    found.handle(part.BarrierAligned(FIVE))
    assert found.handle(part.SinkReady(FOUR, PENDING)) == []
    assert found.handle(part.StateNotStored(FOUR, "disk full")) == []
    found.handle(part.StateStored(FIVE, STORED))
    assert found.handle(part.SinkReady(FIVE, PENDING)) == [acknowledged(FIVE, PENDING)]


def test_word_that_an_older_checkpoint_is_abandoned_does_not_stop_the_present_one() -> None:
    found = with_sink()
    found.handle(part.BarrierAligned(FIVE))
    assert found.handle(CheckpointAbandoned(FOUR)) == [part.AbandonInSink(FOUR)]
    found.handle(part.StateStored(FIVE, STORED))
    assert found.handle(part.SinkReady(FIVE, ())) == [acknowledged(FIVE, ())]


def test_completion_gives_the_sink_the_permit_for_all_up_to_it() -> None:
    [permit] = with_sink().handle(CheckpointCompleted(ATTEMPT, FIVE))
    assert isinstance(permit, part.PermitCommits)
    assert [permit.permit.covers(pending) for pending in PENDING] == [True, True]
    assert not permit.permit.covers(PendingTransaction(SIX, Committable("c")))


def test_completion_in_another_attempt_permits_nothing() -> None:
    assert with_sink().handle(CheckpointCompleted(Attempt(1), FIVE)) == []


def test_commits_are_reported_with_task_and_attempt() -> None:
    assert with_sink().handle(part.SinkCommitted(FIVE)) == [part.Send(CommitsReported(ATTEMPT, FIVE, TASK))]


def test_a_permit_is_made_from_a_proof_and_from_nothing_else() -> None:
    assert CommitPermit(CompletedInLog(ATTEMPT, FIVE)).checkpoint == 5
    with pytest.raises(TypeError, match="proof"):
        CommitPermit(CheckpointAbandoned(FIVE))  # type: ignore[arg-type]
