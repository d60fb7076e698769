"""Recovery sees a sink's transactions by ids, and refuses timeouts and permissions that cannot be right."""

import pytest

from tests.unit.connectors.kafka.scripted import ID, PREPARED, STARTED, ScriptedAdmin, described, ended, leaders
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.client import TransactionState
from tidegate.connectors.kafka.recovery import KafkaRecovery
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import TransactionInfo

S = TransactionState


def test_T05_a_timeout_above_the_brokers_maximum_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidError) as caught:
        KafkaRecovery(ScriptedAdmin([None]), timeout=3600.0).check_timeout(60.0)
    assert "3600 s" in str(caught.value)
    assert "900 s" in str(caught.value)


@pytest.mark.parametrize(("timeout", "needed"), [(100.0, 100.0), (100.0, 700.0), (None, 900.0)])
def test_T06_a_timeout_that_does_not_exceed_the_need_is_refused_with_both_numbers(
    timeout: float | None, needed: float
) -> None:
    with pytest.raises(InvalidError) as caught:
        KafkaRecovery(ScriptedAdmin([None]), timeout=timeout).check_timeout(needed)
    assert f"{timeout or 900:g} s" in str(caught.value)
    assert f"{needed:g} s" in str(caught.value)


def test_a_timeout_above_the_need_passes_and_without_transactions_nothing_is_asked() -> None:
    KafkaRecovery(ScriptedAdmin([None]), timeout=100.0).check_timeout(99.9)
    KafkaRecovery(ScriptedAdmin([None])).check_timeout(899.9)
    admin = ScriptedAdmin([None])
    KafkaRecovery(admin, "none").check_timeout(1e9)
    assert admin.asked == []


def test_T11_open_transactions_are_found_by_the_parts_of_their_ids() -> None:
    ids = ["app:log:1:out:0:0", "app-1:log:1:out:0:0", "app:log:2:out-1:0:0", "app:x", "ap:log:1:out:0:0"]
    recovery = KafkaRecovery(ScriptedAdmin([None], open_ids=ids))
    assert list(map(str, recovery.open_transactions("app", OperatorName("out")))) == ["app:log:1:out:0:0"]


def test_a_user_that_may_not_see_transactions_is_told_and_not_shown_none(caplog: pytest.LogCaptureFixture) -> None:
    denied = InvalidError("the user needs DESCRIBE")
    with pytest.raises(InvalidError, match="DESCRIBE"):
        KafkaRecovery(ScriptedAdmin([denied])).open_transactions("app", OperatorName("out"))
    for delivery in ("at-least-once", "none"):
        assert KafkaRecovery(ScriptedAdmin([denied]), delivery).open_transactions("app", OperatorName("out")) == []
    assert caplog.text.count("the user needs DESCRIBE") == 2


def test_abort_is_fencing() -> None:
    admin = ScriptedAdmin([None])
    KafkaRecovery(admin).abort(ID)
    assert admin.asked == ["describe", f"fence {PREPARED.id}"]


def test_an_abort_is_done_when_the_partitions_know_it() -> None:
    admin = ScriptedAdmin([described()], producers=[leaders(), leaders(), ended()])
    KafkaRecovery(admin).abort(ID)
    assert admin.asked == ["describe", f"fence {PREPARED.id}", "producers", "producers", "producers"]


def test_an_abort_that_a_dead_coordinator_forgot_is_written_where_it_is_missing() -> None:
    admin = ScriptedAdmin([described()], producers=[leaders()])
    outcomes.abort(admin, PREPARED.id, lambda seconds: None)
    assert [asked for asked in admin.asked if asked.startswith("markers")] == ["markers abort totals/0 totals/2"]
    admin = ScriptedAdmin([described()], producers=[leaders()])
    admin.markers_refused = InvalidError("CLUSTER_ACTION is missing")
    with pytest.raises(InvalidError):
        outcomes.abort(admin, PREPARED.id, lambda seconds: None)


def test_a_transaction_is_described_for_people_and_with_what_commits_it() -> None:
    recovery = KafkaRecovery(ScriptedAdmin([described(), described(S.COMPLETE_ABORT), None]))
    partitions = ("totals/0", "totals/2")
    assert recovery.describe(ID) == TransactionInfo(ID, "Ongoing", STARTED, 60.0, partitions, PREPARED.committable())
    assert recovery.describe(ID) == TransactionInfo(ID, "CompleteAbort", STARTED, 60.0)
    assert recovery.describe(ID) is None
