"""What became of a transaction is read from its coordinator and its partitions, and never from an error."""

import msgspec
import pytest

from tests.unit.connectors.kafka.scripted import (
    PARTITIONS,
    PREPARED,
    STARTED,
    HandClock,
    ScriptedAdmin,
    described,
    ended,
    leaders,
)
from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed, Lost, Outcome, Retry, Unknown
from tidegate.connectors.kafka.client import EndAnswer, TransactionState
from tidegate.connectors.kafka.outcomes import (
    COMMIT_ATTEMPTS,
    Followed,
    Prepared,
    StillOpen,
    Unsettled,
    commit,
    judge,
    problems,
    utc,
)
from tidegate.errors import CorruptError, InvalidError, UnavailableError

S = TransactionState
COMPLETE = described(S.COMPLETE_COMMIT)
LATER = STARTED + 1000
UNAVAILABLE = UnavailableError("no answer")


def committed(admin: ScriptedAdmin, wall: float = STARTED + 1) -> Outcome:
    return commit(admin, PREPARED.committable(), HandClock(wall), lambda seconds: None)


# ---- the committable -----------------------------------------------------------------------------------------------


def test_a_prepared_transaction_survives_json() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(PREPARED.committable()), type=Committable)
    assert stored == PREPARED.committable()
    assert Prepared.of(stored) == PREPARED
    assert stored.payload["partitions"] == ["totals/0", "totals/2"]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {**PREPARED.committable().payload, "epoch": "3"},
        {**PREPARED.committable().payload, "partitions": ["totals"]},
        {**PREPARED.committable().payload, "partitions": ["totals/x"]},
    ],
)
def test_a_committable_of_another_form_is_corrupt_and_names_the_transaction(payload: dict[str, object]) -> None:
    with pytest.raises(CorruptError, match=PREPARED.id):
        Prepared.of(Committable(PREPARED.id, payload))


# ---- judging -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_complete_commit_of_our_epoch_or_the_next_is_committed(epoch: int) -> None:
    assert judge(PREPARED, described(S.COMPLETE_COMMIT, epoch=epoch), LATER) == AlreadyCommitted()
    assert isinstance(judge(PREPARED, described(S.PREPARE_COMMIT, epoch=epoch), LATER), Unsettled)


def test_what_is_open_with_our_epoch_and_start_is_open() -> None:
    assert judge(PREPARED, described(), LATER) == StillOpen()


def test_an_id_that_the_coordinator_does_not_know_has_an_unknown_outcome() -> None:
    judgement = judge(PREPARED, None, LATER)
    assert isinstance(judgement, Unknown)
    assert "transactional.id.expiration.ms" in judgement.why


@pytest.mark.parametrize("state", [S.PREPARE_EPOCH_FENCE, S.DEAD, S.UNKNOWN])
def test_between_two_states_nothing_is_decided(state: TransactionState) -> None:
    assert isinstance(judge(PREPARED, described(state), LATER), Unsettled)


@pytest.mark.parametrize("state", [S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_behind_a_later_transaction_of_its_own_producer_its_end_is_not_known(state: TransactionState) -> None:
    """One that a request of its producer began that came after its end: it may well have been committed."""
    later = described(state, started_at=STARTED + 1)
    judgement = judge(PREPARED, later, LATER)
    assert isinstance(judgement, Followed)
    assert "how the first one ended is not told any more" in judgement.why
    outcome = committed(ScriptedAdmin([later]))
    assert outcome == Unknown(judgement.why)


def test_who_was_told_of_the_commit_knows_the_end_also_behind_a_later_transaction() -> None:
    later = described(S.ONGOING, started_at=STARTED + 1)
    admin = ScriptedAdmin([described(), later], [EndAnswer.DONE], [leaders(), ended()])
    assert committed(admin) == Committed()


@pytest.mark.parametrize("answer", [UNAVAILABLE, EndAnswer.CONCURRENT, EndAnswer.REFUSED])
def test_who_was_not_told_of_the_commit_does_not(answer: object) -> None:
    later = described(S.ONGOING, started_at=STARTED + 1)
    admin = ScriptedAdmin([described(), later], [answer], [leaders()])  # type: ignore[list-item]
    assert isinstance(committed(admin), Unknown)


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        (S.ONGOING, {"epoch": 4}),
        (S.ONGOING, {"epoch": 2}),
        (S.ONGOING, {"producer_id": 8}),
        (S.EMPTY, {"started_at": None}),
        (S.EMPTY, {"epoch": 5, "started_at": None}),
        (S.PREPARE_COMMIT, {"epoch": 5}),
        (S.COMPLETE_COMMIT, {"epoch": 5}),
        (S.COMPLETE_COMMIT, {"epoch": 2}),
        (S.COMPLETE_COMMIT, {"producer_id": 8}),
        (S.COMPLETE_COMMIT, {"epoch": 4, "started_at": STARTED + 1}),
        (S.PREPARE_ABORT, {}),
        (S.PREPARE_ABORT, {"epoch": 4}),
        (S.COMPLETE_ABORT, {}),
        (S.COMPLETE_ABORT, {"epoch": 4}),
        (S.COMPLETE_ABORT, {"epoch": 9, "producer_id": 8}),
    ],
)
def test_everything_else_is_lost_with_start_and_timeout_as_proof(
    state: TransactionState, changes: dict[str, object]
) -> None:
    judgement = judge(PREPARED, described(state, **changes), LATER)
    assert isinstance(judgement, Lost)
    assert utc(STARTED) in judgement.why
    assert "60 s" in judgement.why
    assert state.value in judgement.why


def test_T04_an_expired_transaction_is_lost_and_the_words_say_when_it_expired() -> None:
    judgement = judge(PREPARED, described(S.COMPLETE_ABORT, epoch=4), LATER)
    assert isinstance(judgement, Lost)
    assert "when its timeout had passed, which was at 2027-01-15 08:01:00.250 UTC" in judgement.why
    assert "began at 2027-01-15 08:00:00.250 UTC" in judgement.why
    assert "another producer" not in judgement.why


def test_an_abort_before_the_timeout_is_not_called_an_expiry() -> None:
    judgement = judge(PREPARED, described(S.COMPLETE_ABORT, epoch=4), STARTED + 10)
    assert isinstance(judgement, Lost)
    assert "before its timeout passed" in judgement.why


def test_the_words_say_who_has_the_id_now() -> None:
    other = judge(PREPARED, described(S.ONGOING, producer_id=8), LATER)
    again = judge(PREPARED, described(S.EMPTY, epoch=5, started_at=None), LATER)
    assert isinstance(other, Lost)
    assert "producer id 8 has the transactional id now, it was 7" in other.why
    assert isinstance(again, Lost)
    assert "its epoch is 5, it was 3" in again.why


def test_a_transaction_that_is_open_in_every_partition_with_every_record_has_no_problem() -> None:
    assert problems(PREPARED, leaders()) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first_open_offset": None}, "not open any more in totals/2"),
        ({"epoch": 4}, "not open any more in totals/2"),
        ({"producer_id": 8}, "not open any more in totals/2"),
        ({"records": 19}, "30 records were prepared and its partitions have 29"),
        ({"records": 21}, "30 records were prepared and its partitions have 31"),
    ],
)
def test_a_partition_that_does_not_agree_is_a_problem(changes: dict[str, object], words: str) -> None:
    assert words in problems(PREPARED, leaders(**changes))


def test_a_partition_that_knows_no_producer_is_a_problem_and_many_are_counted() -> None:
    assert "totals/2" in problems(PREPARED, leaders()[:1])
    many = msgspec.structs.replace(
        PREPARED, partitions=tuple(part._replace(partition=n) for n in range(9) for part in PARTITIONS[:1])
    )
    assert "and 4 more partitions" in problems(many, [])


# ---- committing ----------------------------------------------------------------------------------------------------


def test_an_open_transaction_is_committed_by_one_request() -> None:
    admin = ScriptedAdmin([described(), COMPLETE], [EndAnswer.DONE], [leaders(), ended()])
    assert committed(admin) == Committed()
    assert admin.asked == ["describe", "producers", f"commit {PREPARED.id} 7 3", "describe", "producers"]


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (described(S.COMPLETE_COMMIT), AlreadyCommitted),
        (described(S.COMPLETE_ABORT, epoch=4), Lost),
        (None, Unknown),
    ],
)
def test_what_is_decided_is_never_asked_to_commit(found: object, outcome: type) -> None:
    admin = ScriptedAdmin([found], producers=[ended()])  # type: ignore[list-item]
    assert isinstance(committed(admin), outcome)
    assert admin.asked == (["describe", "producers"] if outcome is AlreadyCommitted else ["describe"])


def test_T15_no_answer_to_the_commit_is_settled_by_describing_again() -> None:
    deciding = described(S.PREPARE_COMMIT)
    admin = ScriptedAdmin([described(), deciding, COMPLETE], [UNAVAILABLE], [leaders(), ended()])
    assert committed(admin) == Committed()


def test_T15_a_commit_that_never_got_through_is_asked_for_again() -> None:
    answers = [UNAVAILABLE, EndAnswer.CONCURRENT, EndAnswer.DONE]
    admin = ScriptedAdmin(3 * [described()] + [COMPLETE], answers, 3 * [leaders()] + [ended()])
    assert committed(admin) == Committed()
    assert sum(asked.startswith("commit") for asked in admin.asked) == 3


def test_T15_a_coordinator_that_does_not_answer_leaves_it_for_later() -> None:
    assert committed(ScriptedAdmin([UNAVAILABLE])) == Retry("no answer")
    assert committed(ScriptedAdmin([described()], [UNAVAILABLE])) == Retry("no answer")


@pytest.mark.parametrize("end", [EndAnswer.REFUSED, EndAnswer.CONCURRENT])
def test_T16_a_refusal_of_what_is_open_is_no_outcome_and_tried_within_bounds(end: EndAnswer) -> None:
    admin = ScriptedAdmin([described()], [end])
    outcome = committed(admin)
    assert isinstance(outcome, Retry)
    assert PREPARED.id in outcome.why
    assert sum(asked.startswith("commit") for asked in admin.asked) == COMMIT_ATTEMPTS


def test_T16_a_refused_commit_is_lost_only_when_the_coordinator_says_what_became_of_it() -> None:
    assert isinstance(
        committed(ScriptedAdmin([described(), described(S.COMPLETE_ABORT, epoch=4)], [EndAnswer.REFUSED])), Lost
    )
    assert committed(ScriptedAdmin([described(), COMPLETE], [EndAnswer.REFUSED], [leaders(), ended()])) == Committed()


def test_T16_what_an_operator_must_mend_is_no_outcome() -> None:
    with pytest.raises(InvalidError):
        committed(ScriptedAdmin([described()], [InvalidError("no permission")]))


def test_markers_behind_the_coordinators_back_make_it_lost_and_nothing_is_committed() -> None:
    admin = ScriptedAdmin([described()], [EndAnswer.DONE], [leaders(first_open_offset=None)])
    outcome = committed(admin)
    assert isinstance(outcome, Lost)
    assert "totals/2" in outcome.why
    assert not any(asked.startswith("commit") for asked in admin.asked)


def test_records_that_a_partition_does_not_have_make_it_lost() -> None:
    outcome = committed(ScriptedAdmin([described()], [EndAnswer.DONE], [leaders(records=1)]))
    assert isinstance(outcome, Lost)


def test_a_commit_by_somebody_else_in_between_is_not_taken_for_markers_by_hand() -> None:
    deciding = described(S.PREPARE_COMMIT)
    rows = [leaders(first_open_offset=None), ended()]
    assert committed(ScriptedAdmin([described(), deciding, COMPLETE], producers=rows)) == AlreadyCommitted()


def test_an_undecided_coordinator_is_asked_again() -> None:
    descriptions = [described(S.PREPARE_EPOCH_FENCE), described(), COMPLETE]
    assert committed(ScriptedAdmin(descriptions, [EndAnswer.DONE], [leaders(), ended()])) == Committed()
    assert committed(ScriptedAdmin([described(S.DEAD)])) == Retry(f"the coordinator says Dead of {PREPARED.id}")


# ---- a commit that readers do not see yet --------------------------------------------------------------------------


def test_T30_it_is_committed_when_the_markers_are_written_and_not_before() -> None:
    descriptions = [described(), described(S.PREPARE_COMMIT), described(S.PREPARE_COMMIT), COMPLETE]
    admin = ScriptedAdmin(descriptions, [EndAnswer.DONE], [leaders(), leaders(), ended()])
    assert committed(admin) == Committed()
    assert admin.asked[-2:] == ["describe", "producers"]
    assert not any(asked.startswith("markers") for asked in admin.asked), "they only took their time"
    assert isinstance(committed(ScriptedAdmin([described(S.PREPARE_COMMIT)])), Retry)


def test_markers_that_a_dead_coordinator_forgot_are_written_where_they_are_missing() -> None:
    half = [msgspec.structs.replace(leaders()[0], first_open_offset=None), leaders()[1]]
    admin = ScriptedAdmin([COMPLETE], producers=[half])
    assert committed(admin) == AlreadyCommitted()
    assert [asked for asked in admin.asked if asked.startswith("markers")] == ["markers commit totals/2"]


def test_markers_that_may_not_be_written_leave_it_to_an_operator() -> None:
    admin = ScriptedAdmin([COMPLETE], producers=[leaders()])
    admin.markers_refused = InvalidError("CLUSTER_ACTION on the cluster is missing")
    outcome = committed(admin)
    assert isinstance(outcome, Unknown)
    assert "totals/0, totals/2" in outcome.why
    assert "CLUSTER_ACTION" in outcome.why


def test_markers_that_cannot_be_written_now_leave_it_for_later() -> None:
    admin = ScriptedAdmin([COMPLETE], producers=[leaders()])
    admin.markers_refused = UNAVAILABLE
    assert committed(admin) == Retry("no answer")
