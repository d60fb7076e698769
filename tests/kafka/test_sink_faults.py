"""What goes wrong around the Kafka sink's transactions loses nothing, doubles nothing, and is called by its name."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient
from kafka.admin import AbortTransactionSpec
from kafka.structs import TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.sinks import SinkGround, client_threads, committed, quick_admin, until
from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed, Lost, Retry, Unknown
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.connection import Client
from tidegate.elements import Batch
from tidegate.errors import InvalidError, LostDataError, TidegateError, UnavailableError
from tidegate.ids import OperatorName

pytestmark = pytest.mark.usefixtures("each_client_of_faults")

# ---- the end of the process ----------------------------------------------------------------------------------------

CHILD = """
import gc, os, signal, sys, time
import msgspec
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.elements import Batch
from tidegate.formats import String
from tidegate.ids import TransactionalId
from tidegate.testing.conformance.sink_kit import open_writer

bootstrap, topic, first, second, how, client = sys.argv[1:]
writer = open_writer(KafkaSink(bootstrap, topic, value=String(), timeout=50, client=client))
txn = writer.begin(TransactionalId.parse(first))
writer.write(txn, Batch(["prepared"]))
committable = writer.prepare(txn)
current = writer.begin(TransactionalId.parse(second))
writer.write(current, Batch(["open"]))
current.producer.flush()
print(msgspec.json.encode(committable).decode(), flush=True)
if how == "signal":
    time.sleep(60)
if how == "error":
    raise RuntimeError("on purpose")
if how == "close":
    writer.abandon(current)
    writer.close()
    del txn, current, writer
    gc.collect()
"""


@pytest.mark.parametrize("how", ["exit", "close", "error", "signal"])
def test_T02_no_end_of_the_process_aborts_what_is_prepared_or_open(
    kafka: Broker, each_client_of_faults: Client, how: str
) -> None:
    ground = SinkGround(kafka)
    arguments = [kafka.bootstrap, ground.topic, str(ground.id(0)), str(ground.id(1)), how, each_client_of_faults]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    assert child.stdout is not None
    committable = msgspec.json.decode(child.stdout.readline(), type=Committable)
    if how == "signal":
        child.send_signal(signal.SIGTERM)
    child.wait(30)
    assert ground.state(1) == "Ongoing"
    assert committed(ground.recovery(), committable) == Committed()
    assert until(ground.texts, bool) == ["prepared"]


# ---- one transaction is not another --------------------------------------------------------------------------------


def test_T03_committing_an_earlier_transaction_never_commits_what_came_after_it(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    first = ground.prepared(writer, 0, "first")
    assert committed(writer, first) == Committed()
    later = ground.written(writer, 1, "half of the next")
    reused = ground.written(writer, 0, "half of one under the same id")
    outcome = committed(ground.recovery(), first)
    assert isinstance(outcome, Lost)
    assert "initialised again" in outcome.why
    assert until(ground.texts, bool) == ["first"]
    writer.abandon(later)
    writer.abandon(reused)


def test_T08_what_is_named_is_committed_and_the_rest_aborted_and_readers_go_on(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    named = ground.prepared(writer, 0, "named")
    ground.written(writer, 1, "not named")
    recovery = ground.recovery()
    found = until(lambda: recovery.open_transactions(ground.prefix, OperatorName("out")), lambda ids: len(ids) == 2)
    assert committed(recovery, named) == Committed()
    for id in found:
        if str(id) != named.id:
            recovery.abort(id)
    ground.write_and_commit(ground.writer(), Batch(["after"]), slot=2)
    assert ground.texts() == ["named", "after"]


def test_T09_an_id_that_was_opened_again_is_neither_committed_nor_taken_for_committed(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    first = ground.prepared(writer, 0, "first")
    assert committed(writer, first) == Committed()
    writer.begin(ground.id(0))
    recovery = ground.recovery()
    assert isinstance(committed(recovery, first), Lost)
    second = ground.prepared(writer, 0, "second")
    recovery.abort(ground.id(0))
    lost = committed(recovery, second)
    assert isinstance(lost, Lost)
    assert "timeout had passed" not in lost.why
    assert ground.texts() == ["first"]


def test_T11_aborting_what_is_left_of_one_job_leaves_the_one_with_a_longer_name_alone(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    other = SinkGround(kafka)
    other.prefix = f"{ground.prefix}-1"
    ground.written(ground.writer(), 0, "left over")
    theirs = other.prepared(other.writer(), 0, "theirs")
    recovery = ground.recovery()
    (left,) = until(lambda: recovery.open_transactions(ground.prefix, OperatorName("out")), bool)
    recovery.abort(left)
    assert recovery.open_transactions(ground.prefix, OperatorName("out")) == []
    assert committed(other.recovery(), theirs) == Committed()
    assert until(other.texts, bool) == ["theirs"]


def test_T07_what_a_job_of_another_parallelism_left_open_is_found_and_stops_holding_readers_back(
    kafka: Broker,
) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    for subtask in range(4):
        txn = writer.begin(ground.id(subtask=subtask))
        writer.write(txn, Batch(["left over"]))
        txn.producer.flush()
        writer.abandon(txn)
    ground.write_and_commit(ground.writer(), Batch(["new"]), slot=5)
    assert ground.texts() == []
    recovery = ground.recovery()
    found = until(lambda: recovery.open_transactions(ground.prefix, OperatorName("out")), lambda ids: len(ids) == 4)
    for id in found:
        recovery.abort(id)
    assert recovery.open_transactions(ground.prefix, OperatorName("out")) == []
    assert until(ground.texts, bool) == ["new"]


# ---- time ----------------------------------------------------------------------------------------------------------


def test_T04_a_transaction_that_expired_before_recovery_is_lost_and_the_words_say_when(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    committable = ground.prepared(ground.writer(timeout=2.0), 0, "late")
    until(ground.state, lambda state: state == "CompleteAbort")
    outcome = committed(ground.recovery(), committable)
    assert isinstance(outcome, Lost)
    expiry = outcomes.utc(committable.payload["started_at"] + 2.0)
    assert f"aborted it when its timeout had passed, which was at {expiry}" in outcome.why
    assert "its timeout was 2 s" in outcome.why
    assert ground.texts() == []


def test_T05_a_timeout_above_the_brokers_maximum_is_refused_at_once_and_leaks_nothing(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    before = client_threads()
    recovery = ground.recovery(timeout=3600.0)
    with pytest.raises(InvalidError) as caught:
        recovery.check_timeout(60.0)
    assert "3600 s" in str(caught.value)
    assert "900 s" in str(caught.value)
    with pytest.raises(InvalidError, match=r"timeout=3600.*transaction\.max\.timeout\.ms"):
        ground.writer(timeout=3600.0).begin(ground.id())
    assert client_threads() == before
    ground.recovery(timeout=None).check_timeout(899.0)
    with pytest.raises(InvalidError, match="900 s"):
        ground.recovery(timeout=None).check_timeout(900.0)


def test_T06_a_transaction_that_expires_under_steady_input_is_called_expired(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer(timeout=2.0)
    txn = writer.begin(ground.id())

    def write_one() -> bool:
        if writer.has_room(txn):
            writer.write(txn, Batch(["a"]))
        return False

    with pytest.raises(LostDataError) as caught:
        until(write_one, bool)
    assert "expired" in str(caught.value)
    assert "its timeout is 2 s" in str(caught.value)
    with pytest.raises(LostDataError, match="expired"):
        writer.prepare(txn)
    assert ground.texts() == []


def test_T06_a_quiet_transaction_that_expired_is_called_expired_when_it_is_prepared(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer(timeout=2.0)
    txn = ground.written(writer, 0, "early")
    until(ground.state, lambda state: state == "CompleteAbort")
    with pytest.raises(LostDataError, match="timeout had passed") as caught:
        writer.prepare(txn)
    assert "another producer" not in str(caught.value)


def test_T22_an_id_that_the_broker_forgot_has_an_unknown_outcome_and_can_be_opened_anew(own_kafka: OwnKafka) -> None:
    settings = {
        "transactional.id.expiration.ms": 2000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
    }
    ground = SinkGround(own_kafka(settings=settings))
    writer = ground.writer()
    committable = ground.prepared(writer, 0, "first")
    assert committed(writer, committable) == Committed()
    idle = writer.begin(ground.id(1))
    until(ground.state, lambda state: state is None)
    outcome = committed(ground.recovery(), committable)
    assert isinstance(outcome, Unknown)
    assert "transactional.id.expiration.ms" in outcome.why
    until(lambda: ground.state(1), lambda state: state is None)
    writer.write(idle, Batch(["into nothing"]))
    with pytest.raises(TidegateError):
        writer.prepare(idle)
    ground.write_and_commit(writer, Batch(["second"]))
    assert ground.texts() == ["first", "second"]


# ---- brokers that go away ------------------------------------------------------------------------------------------


def test_T15_a_coordinator_that_restarts_during_the_commit_delays_it_and_no_more(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    ground = SinkGround(broker)
    writer = ground.writer()
    committable = ground.prepared(writer, 0, *(str(number) for number in range(1000)))
    broker.kafka.kill()
    outcomes_seen: list[Any] = []
    commit = threading.Thread(target=lambda: outcomes_seen.append(committed(writer, committable)))
    commit.start()
    time.sleep(0.5)
    broker.kafka.restart()
    commit.join(60)
    assert outcomes_seen in ([Committed()], [AlreadyCommitted()])
    assert committed(ground.recovery(), committable) == AlreadyCommitted()
    assert until(ground.texts, lambda texts: len(texts) == 1000) == [str(number) for number in range(1000)]


def test_T18_a_commit_that_timed_out_touches_no_later_transaction(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    ground = SinkGround(broker)
    writer = ground.writer()
    committable = ground.prepared(writer, 0, "first")
    following = ground.written(writer, 1, "half of the next")
    admin = quick_admin(broker)
    assert admin.describe(committable.id) is not None
    broker.kafka.pause()
    assert isinstance(outcomes.commit(admin, committable), Retry)
    broker.kafka.resume()
    assert committed(writer, committable) in (Committed(), AlreadyCommitted())
    writer.write(following, Batch(["and the other half"]))
    second = writer.prepare(following)
    assert second is not None
    assert until(ground.texts, bool) == ["first"]
    assert committed(writer, second) == Committed()
    assert until(ground.texts, lambda texts: len(texts) == 3) == ["first", "half of the next", "and the other half"]


@pytest.mark.slow
def test_T21_a_broker_that_is_away_for_longer_than_a_record_may_wait_fails_the_prepare(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    ground = SinkGround(broker)
    writer = ground.writer(settings={"message.timeout.ms": 1500})
    txn = ground.written(writer, 0, "before")
    broker.kafka.pause()
    writer.write(txn, Batch(["during"]))
    until(lambda: writer.has_room(txn) and txn.producer._failure is not None, bool)
    broker.kafka.resume()
    with pytest.raises(UnavailableError, match=f"topic {ground.topic}"):
        writer.prepare(txn)
    recovery = ground.recovery()
    recovery.abort(ground.id(0))
    assert ground.texts() == []


def test_T21_one_record_that_only_the_broker_finds_too_large_fails_the_prepare_and_names_its_size(
    kafka: Broker,
) -> None:
    ground = SinkGround(kafka, max_message_bytes="1000")
    writer = ground.writer()
    txn = writer.begin(ground.id())
    writer.write(txn, Batch(["small", "x" * 5000, "small"]))
    for _ in range(2):
        with pytest.raises(InvalidError) as caught:
            writer.prepare(txn)
        assert "5,000 bytes" in str(caught.value)
        assert ground.topic in str(caught.value)
    assert ground.texts() == []


# ---- other tools ---------------------------------------------------------------------------------------------------


def write_abort_markers(broker: Broker, topic: str, producer_id: int, epoch: int) -> None:
    """As an administrator's tool does, past the coordinator."""
    tool = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    tool.abort_transaction(AbortTransactionSpec(TopicPartition(topic, 0), producer_id, epoch, 0))
    tool.close()


def test_markers_written_by_an_administrators_tool_make_a_prepared_transaction_lost(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    committable = ground.prepared(writer, 0, "a", "b")
    write_abort_markers(kafka, ground.topic, committable.payload["producer_id"], committable.payload["epoch"])
    assert ground.state() == "Ongoing"
    with pytest.raises(LostDataError, match=f"{ground.topic}/0"):
        writer.check([committable])
    for side in (writer, ground.recovery()):
        outcome = committed(side, committable)
        assert isinstance(outcome, Lost)
        assert f"{ground.topic}/0" in outcome.why
    assert ground.texts() == []


def test_markers_written_in_the_middle_of_a_transaction_are_found_when_it_is_prepared(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    txn = ground.written(writer, 0, "a", "b", "c")
    write_abort_markers(kafka, ground.topic, txn.own.producer_id, txn.own.epoch)
    writer.write(txn, Batch(["d", "e"]))
    with pytest.raises(LostDataError, match=f"3 records of it in {ground.topic}/0"):
        writer.prepare(txn)
    assert ground.texts() == []


def test_a_transaction_of_large_batches_in_many_partitions_is_known_from_its_beginning(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=20, max_message_bytes="3000000")
    writer = ground.writer(partition=lambda text, count: int(text[:2]), settings={"message.max.bytes": 2_500_000})
    texts = [f"{number:02}" + "x" * 2_000_000 for number in range(20)]
    ground.write_and_commit(writer, *(Batch([text]) for text in texts))
    assert sorted(text or "" for text in ground.texts()) == texts


def test_a_user_without_permissions_is_told_which_one_is_missing(own_kafka: OwnKafka) -> None:
    broker = own_kafka(security="sasl")
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": "app-secret",
    }
    ground = SinkGround(Broker(broker.kafka, {**login, "sasl.username": "admin", "sasl.password": "admin-secret"}))
    writer = ground.writer(settings=login)
    with pytest.raises(InvalidError) as caught:
        writer.begin(ground.id())
    assert "WRITE" in str(caught.value)
    assert str(ground.id()) in str(caught.value)
    assert "app-secret" not in str(caught.value)
    with pytest.raises(InvalidError, match="DESCRIBE"):
        ground.recovery(settings=login).open_transactions(ground.prefix, OperatorName("out"))
    plain = ground.recovery(settings=login, delivery="none", timeout=None)
    assert plain.open_transactions(ground.prefix, OperatorName("out")) == []
