"""Transactions of the embedded log: epochs, fencing, what became of one, timeouts."""

from pathlib import Path

import pytest

from tests.unit.connectors.clocks import HandClock
from tests.unit.connectors.local_logs import commit, prepared, values, write
from tidegate.checkpoint.protocol import AlreadyCommitted, Committed, Lost, Unknown
from tidegate.errors import InternalError, SinkFencedError, UnavailableError
from tidegate.local import LocalLog, TransactionDescription, TransactionState

# ---- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_is_described_through_its_life(log: LocalLog, clock: HandClock) -> None:
    assert log.describe("id") is None
    transaction = log.begin_transaction("id", timeout=60)
    assert log.describe("id") == TransactionDescription(
        "id", 0, TransactionState.EMPTY, "", None, 60_000, prepared=False, partitions=()
    )
    clock.seconds += 1
    write(log, transaction, b"a", partition=1)
    start = int(clock.seconds * 1000)
    clock.seconds += 1
    write(log, transaction, b"b")
    described = log.prepare_transaction(transaction)
    assert described == TransactionDescription(
        "id", 0, TransactionState.ONGOING, "", start, 60_000, prepared=True, partitions=("t/0", "t/1")
    )
    assert log.list_transactions() == log.list_transactions(ongoing_only=True) == [described]
    commit(log, described)
    (after,) = log.list_transactions()
    assert (after.state, after.partitions) == (TransactionState.COMPLETE_COMMIT, ())
    assert log.list_transactions(ongoing_only=True) == []


def test_each_begin_has_an_epoch_of_its_own(log: LocalLog) -> None:
    assert [log.begin_transaction("id").epoch for _ in range(3)] == [0, 1, 2]
    assert log.begin_transaction("other").epoch == 0
    assert [(one.id, one.epoch) for one in log.list_transactions()] == [("id", 2), ("other", 0)]


def test_begin_fences_the_older_producer_in_every_call(log: LocalLog) -> None:
    empty = log.begin_transaction("id")
    written = log.begin_transaction("id")
    write(log, written, b"a")
    log.begin_transaction("id")
    for old in (empty, written):
        with pytest.raises(SinkFencedError, match="newer transaction"):
            write(log, old, b"b")
        with pytest.raises(SinkFencedError):
            log.prepare_transaction(old)
    assert values(log, committed=False) == [b"a"]


def test_a_prepared_transaction_takes_no_more(log: LocalLog) -> None:
    transaction = log.begin_transaction("id")
    write(log, transaction, b"a")
    assert log.prepare_transaction(transaction) is not None
    with pytest.raises(InternalError, match="after it had been prepared"):
        write(log, transaction, b"b")


def test_what_became_of_a_transaction_can_be_told_after_its_id_was_used_again(log: LocalLog) -> None:
    committed = prepared(log, "id", b"a")
    assert commit(log, committed) == Committed()
    aborted = prepared(log, "id", b"b")
    newest = prepared(log, "id", b"c")
    assert commit(log, committed) == AlreadyCommitted()
    assert commit(log, aborted) == Lost(
        "transaction id with epoch 1 was aborted: a newer transaction was begun under its id"
    )
    assert commit(log, newest) == Committed()
    assert values(log) == [b"a", b"c"]


def test_a_transaction_of_another_log_is_unknown(log: LocalLog, tmp_path: Path, clock: HandClock) -> None:
    with LocalLog(tmp_path / "other", clock=clock) as other:
        other.create_topic("t", 1)
        prepared(other, "id", b"theirs")
        clock.seconds += 1
        ours = prepared(log, "id", b"ours")
        assert isinstance(commit(other, ours), Unknown)
        assert values(other) == []
    assert isinstance(log.commit_transaction("id", 7, 0), Unknown)
    assert isinstance(log.commit_transaction("never", 0, 0), Unknown)


# ---- timeouts --------------------------------------------------------------------------------------------------------


def test_whoever_looks_first_aborts_what_is_past_its_timeout(log: LocalLog, clock: HandClock) -> None:
    pending = prepared(log, "id", b"a", timeout=60)
    log.append("t", 0, [b"b"])
    clock.seconds += 59
    assert values(log) == []
    clock.seconds += 2
    assert values(log) == [b"b"]
    assert commit(log, pending) == Lost(
        "transaction id with epoch 0 was aborted: it was open for longer than its timeout"
    )


@pytest.mark.parametrize("look", ["list", "describe", "begin", "last_stable_offset"])
def test_every_look_notices_a_timeout(look: str, log: LocalLog, clock: HandClock) -> None:
    pending = prepared(log, "id", b"a", timeout=60)
    clock.seconds += 61
    match look:
        case "list":
            assert log.list_transactions(ongoing_only=True) == []
        case "describe":
            described = log.describe("id")
            assert described is not None
            assert described.state is TransactionState.COMPLETE_ABORT
        case "begin":
            log.begin_transaction("other")
        case _:
            assert log.last_stable_offset("t", 0) == 1
    assert isinstance(commit(log, pending), Lost)


def test_a_commit_that_comes_before_anybody_noticed_still_wins(log: LocalLog, clock: HandClock) -> None:
    pending = prepared(log, "id", b"a", timeout=60)
    clock.seconds += 61
    assert commit(log, pending) == Committed()
    assert values(log) == [b"a"]


def test_the_timeout_counts_from_the_first_record(log: LocalLog, clock: HandClock) -> None:
    transaction = log.begin_transaction("id", timeout=60)
    clock.seconds += 1000
    write(log, transaction, b"a")
    clock.seconds += 59
    assert log.prepare_transaction(transaction) is not None


def test_a_timeout_is_reported_as_a_timeout(log: LocalLog, clock: HandClock) -> None:
    transaction = log.begin_transaction("id", timeout=60)
    write(log, transaction, b"a")
    clock.seconds += 61
    with pytest.raises(UnavailableError, match="longer than its timeout"):
        log.prepare_transaction(transaction)
