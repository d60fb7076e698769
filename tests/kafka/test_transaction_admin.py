"""Transactions that somebody else opened: what brokers answer, on which the sink's guarantee stands.

Each fact is shown as the connector meets it; where it uses no such request, with a raw one.
"""

import itertools
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka.brokers import VERSION, Broker, unique
from tests.kafka.raw_requests import (
    ABORT,
    COMMIT,
    Left,
    RawRequests,
    await_state,
    commit,
    described,
    initialise_request,
    leave_transaction,
    until,
)
from tidegate.connectors.kafka.client import EndAnswer, TopicPartition, TransactionState
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin, end_version
from tidegate.connectors.kafka.wire import Brokers, address_of

PATIENCE = 30.0
RAISED = 0 if VERSION.startswith("3.") else 1
"""By how much an epoch rises when its transaction is committed."""


@pytest.fixture
def admin(kafka: Broker) -> Iterator[KafkaTransactionAdmin]:
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    yield admin
    admin.close()


@pytest.fixture
def raw(kafka: Broker) -> Iterator[RawRequests]:
    raw = RawRequests(kafka.bootstrap)
    yield raw
    raw.close()


def end(raw: RawRequests, left: Left, commit: bool, version: int = 3) -> str:
    answers = iter(lambda: raw.end(*left.owner, commit, version), None)
    return next(answer for answer in answers if answer != "CONCURRENT_TRANSACTIONS")


def open_producer(kafka: Broker, id: str, **settings: object) -> Producer:
    """With a transaction begun."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": id,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    return producer


def write(producer: Producer, topic: str, partition: int, count: int) -> list[KafkaError]:
    """The errors of its delivery reports."""
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: object) -> None:
        errors.extend([] if error is None else [error])

    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition, on_delivery=report)
    assert producer.flush(PATIENCE) == 0
    return errors


# ---- committing what a dead producer prepared ----------------------------------------------------------------------


def test_the_transaction_of_a_killed_producer_is_described(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    before = time.time()
    left = leave_transaction(kafka, admin, timeout=45)
    description = left.description
    assert description.id == left.id
    assert description.state is TransactionState.ONGOING
    assert description.timeout == 45
    assert description.started_at is not None
    assert before - 1 < description.started_at < time.time() + 1
    assert description.partitions == (TopicPartition(left.topic, 0), TopicPartition(left.topic, 1))
    assert kafka.values(left.topic) == []
    assert len(kafka.values(left.topic, "read_uncommitted")) == 20


def test_the_transaction_of_a_killed_producer_is_committed(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin, records=1000)
    assert admin.commit(*left.owner) is EndAnswer.DONE
    complete = await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert (complete.producer_id, complete.started_at) == (left.description.producer_id, left.description.started_at)
    assert complete.epoch == left.description.epoch + RAISED
    assert complete.partitions == ()
    assert sorted(map(int, filter(None, kafka.values(left.topic)))) == list(range(1000))


def test_committing_again_is_answered_with_done(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin)
    assert admin.commit(*left.owner) is EndAnswer.DONE
    assert admin.commit(*left.owner) in {EndAnswer.CONCURRENT, EndAnswer.DONE}
    await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert admin.commit(*left.owner) is EndAnswer.DONE
    assert len(kafka.values(left.topic)) == 20


def test_a_committed_transaction_cannot_be_aborted(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    commit(admin, left)
    assert end(raw, left, ABORT) == ("PRODUCER_FENCED" if RAISED else "INVALID_TXN_STATE")
    admin.fence(left.id)
    assert len(kafka.values(left.topic)) == 20


def test_an_aborted_transaction_cannot_be_committed(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    assert end(raw, left, ABORT) == "NO_ERROR"
    assert commit(admin, left) is EndAnswer.REFUSED
    assert end(raw, left, COMMIT) == "INVALID_TXN_STATE"
    assert described(admin, left.id).state is TransactionState.COMPLETE_ABORT
    assert kafka.values(left.topic) == []


@pytest.mark.skipif(VERSION.startswith("3."), reason="brokers have version 5 of EndTxn since 4.0")
def test_version_5_of_end_txn_raises_the_epoch_so_that_the_old_one_is_refused(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    assert end(raw, left, COMMIT, version=5) == "NO_ERROR"
    complete = await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert (complete.producer_id, complete.epoch) == (left.description.producer_id, left.description.epoch + 1)
    assert end(raw, left, COMMIT, version=3) == "PRODUCER_FENCED"
    assert end(raw, left, COMMIT, version=5) == "NO_ERROR"
    assert len(kafka.values(left.topic)) == 20


@pytest.mark.skipif(VERSION.startswith("3."), reason="brokers have version 5 of EndTxn since 4.0")
def test_after_a_commit_nothing_that_its_producer_sent_before_opens_the_transaction_again(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    assert commit(admin, left) is EndAnswer.DONE
    complete = await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert raw.add_partitions(*left.owner, TopicPartition(left.topic, 0)) == "PRODUCER_FENCED"
    assert described(admin, left.id) == complete
    assert commit(admin, left) is EndAnswer.DONE
    assert len(kafka.values(left.topic)) == 20


def test_a_cluster_that_cannot_raise_epochs_is_asked_for_what_it_can(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Brokers, "level", lambda self, address, name: 0)
    left = leave_transaction(kafka, admin)
    assert commit(admin, left) is EndAnswer.DONE
    complete = await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert complete.epoch == left.description.epoch
    # Here what comes late opens it again; that is why.
    assert raw.add_partitions(*left.owner, TopicPartition(left.topic, 0)) == "NO_ERROR"
    assert described(admin, left.id).state is TransactionState.ONGOING
    admin.fence(left.id)


@pytest.mark.parametrize(("epoch", "level", "version"), [(0, 2, 5), (32_000, 3, 5), (32_001, 2, 3), (0, 1, 3)])
def test_no_epoch_is_raised_so_far_that_the_producer_id_changes(epoch: int, level: int, version: int) -> None:
    assert end_version(epoch, level) == version


def test_another_instance_under_the_id_aborts_and_fences_it(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    open_producer(kafka, left.id)
    assert admin.commit(*left.owner) is EndAnswer.REFUSED
    assert end(raw, left, COMMIT, version=3) == "PRODUCER_FENCED"
    assert end(raw, left, COMMIT, version=1) == "INVALID_PRODUCER_EPOCH"
    assert described(admin, left.id).epoch > left.description.epoch
    assert kafka.values(left.topic) == []


def test_a_transaction_that_ran_into_its_timeout_is_aborted_and_fenced(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin, timeout=1)
    aborted = await_state(admin, left.id, TransactionState.COMPLETE_ABORT)
    assert aborted.producer_id == left.description.producer_id
    # One in 3.9 and 4.3, two in 4.0.
    assert aborted.epoch - left.description.epoch in (1, 2)
    assert admin.commit(*left.owner) is EndAnswer.REFUSED
    assert end(raw, left, COMMIT, version=3) == "PRODUCER_FENCED"
    assert kafka.values(left.topic) == []


def test_a_wrong_producer_id_and_an_unknown_id_are_refused(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    left = leave_transaction(kafka, admin)
    id, producer_id, epoch = left.owner
    assert raw.end(id, producer_id + 1, epoch, COMMIT, 3) == "INVALID_PRODUCER_ID_MAPPING"
    assert raw.end(unique("nobody"), producer_id, epoch, COMMIT, 3) == "INVALID_PRODUCER_ID_MAPPING"
    assert admin.commit(id, producer_id + 1, epoch) is EndAnswer.REFUSED
    assert admin.commit(unique("nobody"), producer_id, epoch) is EndAnswer.REFUSED
    assert described(admin, id).state is TransactionState.ONGOING


def test_an_unknown_id_is_described_as_none(admin: KafkaTransactionAdmin) -> None:
    assert admin.describe(unique("nobody")) is None


# ---- aborting ------------------------------------------------------------------------------------------------------


def test_fencing_aborts_what_a_dead_producer_left(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin)
    admin.fence(left.id)
    fenced = described(admin, left.id)
    assert fenced.state is TransactionState.EMPTY
    assert fenced.epoch > left.description.epoch
    assert admin.commit(*left.owner) is EndAnswer.REFUSED
    partitions = [TopicPartition(left.topic, 0), TopicPartition(left.topic, 1)]
    until(lambda: not any(row.first_open_offset is not None for row in admin.producers(partitions)))
    assert kafka.values(left.topic) == []


def test_fencing_stops_a_living_producer(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    id, topic = unique("living"), kafka.create_topic(partitions=2)
    producer = open_producer(kafka, id)
    assert write(producer, topic, 0, 10) == []
    admin.fence(id)
    with pytest.raises(KafkaException) as raised:
        write(producer, topic, 1, 10)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert kafka.values(topic) == []


def test_fencing_twice_and_an_unknown_id_is_harmless(admin: KafkaTransactionAdmin) -> None:
    id = unique("nobody")
    admin.fence(id)
    admin.fence(id)
    assert described(admin, id).state is TransactionState.EMPTY


def test_an_initialisation_that_arrives_late_aborts_what_was_prepared_meanwhile(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    """Its caller is gone and nobody repeats it; hence attempts never share transactional ids."""
    left = leave_transaction(kafka, admin)
    late = initialise_request(left.id)
    late.with_header(correlation_id=1, client_id="late")
    with socket.create_connection(raw.coordinator(left.id)) as connection:
        connection.sendall(late.encode(framed=True, header=True))
    until(lambda: described(admin, left.id).state is not TransactionState.ONGOING)
    assert described(admin, left.id).epoch > left.description.epoch
    assert commit(admin, left) is EndAnswer.REFUSED
    assert kafka.values(left.topic) == []


def test_aborting_by_end_txn_fences_nobody(kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests) -> None:
    """A living producer goes on with the same epoch, and half of what it wrote is committed; hence `fence`."""
    id, topic = unique("living"), kafka.create_topic(partitions=2)
    producer = open_producer(kafka, id)
    assert write(producer, topic, 0, 10) == []
    left = Left(id, topic, described(admin, id))
    assert end(raw, left, ABORT) == "NO_ERROR"
    await_state(admin, id, TransactionState.COMPLETE_ABORT)
    assert write(producer, topic, 1, 10) == []
    again = described(admin, id)
    assert again.state is TransactionState.ONGOING
    assert (again.producer_id, again.epoch) == left.owner[1:]
    assert again.partitions == (TopicPartition(topic, 1),)
    assert commit(admin, left) is EndAnswer.DONE
    await_state(admin, id, TransactionState.COMPLETE_COMMIT)
    assert len(kafka.values(topic)) == 10


def test_abort_markers_by_hand_leave_the_coordinator_ongoing_and_the_partition_without_a_transaction(
    kafka: Broker, admin: KafkaTransactionAdmin, raw: RawRequests
) -> None:
    """Committing then succeeds over nothing; hence `producers` is asked before a commit in recovery."""
    left = leave_transaction(kafka, admin)
    partitions = [TopicPartition(left.topic, 0), TopicPartition(left.topic, 1)]
    assert [row.first_open_offset for row in admin.producers(partitions)] == [0, 0]
    for partition in partitions:
        marked = raw.write_abort_marker(address_of(kafka.bootstrap), partition, *left.owner[1:])
        assert marked == "NO_ERROR"
    assert described(admin, left.id).state is TransactionState.ONGOING
    assert [row.first_open_offset for row in admin.producers(partitions)] == [None, None]
    assert commit(admin, left) is EndAnswer.DONE
    await_state(admin, left.id, TransactionState.COMPLETE_COMMIT)
    assert kafka.values(left.topic) == []


# ---- partitions ----------------------------------------------------------------------------------------------------


def test_leaders_say_how_many_records_of_a_transaction_they_have(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    id, topic = unique("living"), kafka.create_topic(partitions=3)
    kafka.produce(topic, ["a", "b"], partition=0)
    producer = open_producer(kafka, id)
    assert [write(producer, topic, 0, 7), write(producer, topic, 2, 5)] == [[], []]
    owner = described(admin, id)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    rows = [row for row in admin.producers(partitions) if row.producer_id == owner.producer_id]
    assert [(row.partition.partition, row.epoch, row.records, row.first_open_offset) for row in rows] == [
        (0, owner.epoch, 7, 2),
        (2, owner.epoch, 5, 0),
    ]
    assert admin.commit(id, owner.producer_id, owner.epoch) is EndAnswer.DONE
    await_state(admin, id, TransactionState.COMPLETE_COMMIT)
    rows = [row for row in admin.producers(partitions) if row.producer_id == owner.producer_id]
    assert [row.first_open_offset for row in rows] == [None, None]


def test_partitions_and_topics_that_do_not_exist_have_no_producers(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin)
    there = TopicPartition(left.topic, 0)
    gone = [TopicPartition(left.topic, 9), TopicPartition(unique("nothing"), 0)]
    assert [row.partition for row in admin.producers([*gone, there])] == [there]
    kafka.delete_topic(left.topic)
    until(lambda: not admin.producers([there]))
    assert admin.producers([]) == []


# ---- all transactions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [":1:2:sink:0:3", "/ä ö 日本 🌊", "\n\t'\";--", "x" * 2000, ".*"])
def test_open_transactions_are_listed_whatever_their_ids_look_like(
    kafka: Broker, admin: KafkaTransactionAdmin, suffix: str
) -> None:
    topic = kafka.create_topic()
    open_one, done = unique("open") + suffix, unique("done") + suffix
    kafka.produce_in_transaction(topic, ["a"], transactional_id=done, commit=True)
    left = kafka.produce_in_transaction(topic, ["a"], transactional_id=open_one, commit=None)
    assert open_one in admin.open_ids()
    assert done not in admin.open_ids()
    assert admin.open_ids() == sorted(admin.open_ids())
    owner = described(admin, open_one)
    assert owner.state is TransactionState.ONGOING
    assert admin.commit(open_one, owner.producer_id, owner.epoch) is EndAnswer.DONE
    await_state(admin, open_one, TransactionState.COMPLETE_COMMIT)
    assert open_one not in admin.open_ids()
    assert len(kafka.values(topic)) == 2
    del left


def test_before_the_epoch_runs_over_the_producer_id_changes_and_the_epoch_begins_at_zero(raw: RawRequests) -> None:
    id = unique("worn")
    _, first, epoch = raw.initialise(id)
    assert epoch == 0
    answers = (raw.initialise(id) for _ in itertools.count())
    changes = enumerate((code, owner, epoch) for code, owner, epoch in answers)
    number, (code, owner, epoch) = next(change for change in changes if change[1][1] != first)
    assert (code, epoch) == ("NO_ERROR", 0)
    assert owner > first
    assert 32_765 <= number + 1 <= 32_767


def test_a_producer_that_is_opened_before_the_last_one_is_flushed_overtakes_it(kafka: Broker) -> None:
    """Hence a sink's next transaction sends nothing before the last one's records are all at the broker."""
    topic = kafka.create_topic()
    first = open_producer(kafka, unique("first"), linger_ms=30_000)
    first.produce(topic, b"first", partition=0)
    second = open_producer(kafka, unique("second"))
    assert write(second, topic, 0, 1) == []
    assert first.flush(PATIENCE) == 0
    assert kafka.values(topic, "read_uncommitted") == [b"0", b"first"]
