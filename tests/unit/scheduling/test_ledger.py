"""The JobManager's view of the log: one undecided append, what is restored, what may be deleted."""

import pytest

from tests.unit.scheduling.manifests import CREATED, completed, log, takeover
from tidegate.checkpoint.log import Body, CleanStop, Created, Discarded, Entry, Finished, StoredEntry, Unreadable
from tidegate.clock import Now
from tidegate.errors import ErrorKind
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, LogPosition
from tidegate.scheduling.ledger import APPEND_RETRY, Ledger
from tidegate.scheduling.protocol import Append, Tell, WakeAt

ZERO = Now(0.0, 5.0)


def ledger(*bodies: Body) -> Ledger:
    return Ledger(log(*bodies), JobName("orders"), "mine", LogInstance("new"))


def discarded(*positions: int) -> Discarded:
    return Discarded(tuple(map(LogPosition, positions)), "asked for")


def test_an_empty_log_gets_the_new_instance_and_a_found_one_keeps_its_own() -> None:
    assert Ledger((), JobName("orders"), "mine", LogInstance("new")).instance == "new"
    assert ledger(CREATED).instance == "i0"


def test_an_entry_goes_to_the_next_position_and_names_who_wrote_the_one_below() -> None:
    found = ledger(CREATED, takeover())
    append = found.append(completed(1), Attempt(2), ZERO)
    assert append == Append(Entry(LogPosition(2), "mine", LogInstance("i0"), Attempt(2), 5.0, completed(1), "earlier"))
    found.won()
    assert found.append(completed(2), Attempt(2), ZERO).entry.previous == "mine"


def test_the_log_begins_with_attempt_zero() -> None:
    assert (
        Ledger((), JobName("orders"), "mine", LogInstance("new")).append(Created(), Attempt(7), ZERO).entry.attempt == 0
    )


def test_nothing_else_is_appended_while_an_append_is_undecided() -> None:
    found = ledger(CREATED)
    found.append(takeover(), Attempt(1), ZERO)
    assert found.is_undecided
    with pytest.raises(AssertionError, match="undecided"):
        found.append(completed(1), Attempt(1), ZERO)


def test_an_unanswered_append_is_repeated_as_it_was_and_once_for_each_time() -> None:
    found = ledger(CREATED)
    first = found.append(takeover(), Attempt(1), ZERO)
    assert found.due(Now(99.0, 99.0)) is None, "it is under way"
    again_at = 1.0 + APPEND_RETRY
    assert found.unanswered("slow", Now(1.0, 1.0)) == [
        Tell("warning", "the checkpoint log does not answer: slow"),
        WakeAt(again_at),
    ]
    assert found.due(Now(again_at - 0.1, 0.0)) is None
    assert found.due(Now(again_at, 0.0)) == Append(first.entry, is_repeat=True)
    assert found.due(Now(again_at, 0.0)) is None
    assert found.unanswered("slow", Now(2.0, 2.0)) == [WakeAt(2.0 + APPEND_RETRY)], "it was told before"
    found.won()
    assert found.due(Now(99.0, 99.0)) is None


def test_the_newest_completed_checkpoint_is_restored_and_what_is_undecided_is_not() -> None:
    found = ledger(CREATED, takeover(), completed(1), completed(2))
    found.append(completed(3), Attempt(1), ZERO)
    assert found.restorable is not None
    assert found.restorable.checkpoint == 2
    found.won()
    assert found.restorable.checkpoint == 3


# ---- whether commits are known to be done --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "is_settled"),
    [
        ([], True),
        ([completed(1)], False),
        ([completed(1), CleanStop(CheckpointId(1))], True),
        ([completed(1), CleanStop(CheckpointId(1)), takeover()], True),
        ([completed(1), Finished(CheckpointId(1))], True),
        ([completed(1), CleanStop(CheckpointId(1)), takeover(), completed(2)], False),
        ([completed(1), completed(2), discarded(3)], True),
        ([completed(1), completed(2), discarded(3), takeover()], True),
        ([completed(1), completed(2), discarded(3), takeover(), completed(3)], False),
        ([completed(1), CleanStop(CheckpointId(1)), discarded(3)], True),
        ([completed(1), Finished(CheckpointId(1)), discarded(3)], True),
    ],
)
def test_a_checkpoint_is_settled_when_the_log_says_so_or_a_later_one_completed_and_was_discarded(
    bodies: list[Body], is_settled: bool
) -> None:
    assert ledger(CREATED, takeover(), *bodies).view.is_settled is is_settled


def test_something_unreadable_that_was_discarded_proves_no_commit() -> None:
    stored: list[StoredEntry] = [*log(CREATED, takeover(), completed(1)), Unreadable(LogPosition(3), "cut off")]
    stored += [Entry(LogPosition(4), "earlier", LogInstance("i0"), Attempt(1), 0.0, discarded(3))]
    assert not Ledger(stored, JobName("orders"), "mine", LogInstance("new")).view.is_settled


# ---- fresh starts --------------------------------------------------------------------------------------------------


def test_a_fresh_start_lasts_until_its_first_checkpoint_also_for_the_process_after() -> None:
    bodies: list[Body] = [CREATED, takeover(), completed(1), takeover(is_fresh=True)]
    assert ledger(*bodies).begins_fresh
    assert ledger(*bodies, takeover()).begins_fresh
    assert ledger(*bodies).restorable is None
    assert ledger(*bodies, takeover()).restorable is None
    assert not ledger(*bodies, completed(2)).begins_fresh


def test_a_job_that_never_completed_a_checkpoint_did_not_begin_fresh() -> None:
    assert not ledger(CREATED, takeover()).begins_fresh


def test_being_fenced_names_the_job_the_position_and_who_has_it() -> None:
    [entry] = log(CREATED)
    found = ledger(CREATED)
    found.append(takeover(), Attempt(1), ZERO)
    found.won()
    failure = found.refused(LogPosition(4), entry)
    assert (failure.kind, failure.exit_code) == (ErrorKind.FENCED, 4)
    assert failure.message == "job orders was taken over: position 4 of its checkpoint log belongs to attempt 0"
    assert "somebody else" in found.refused(LogPosition(4), None).message


def test_a_start_that_found_its_position_written_says_that_it_could_not_take_over_and_may_be_repeated() -> None:
    [entry] = log(CREATED)
    failure = ledger(CREATED).refused(LogPosition(1), entry)
    assert (failure.kind, failure.exit_code) == (ErrorKind.FENCED, 4)
    assert "could not be taken over" in failure.message
    assert "Start again" in failure.remedy
