"""A commit is done when readers see it: also when a broker dies between deciding it and telling the partitions."""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.raw_requests import Left, leave_transaction
from tidegate.checkpoint.protocol import AlreadyCommitted, Committed, Outcome, Retry
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.client import EndAnswer, PartitionProducer, TransactionState
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin

RECORDS = 20
TRIES = 5
"""Of a killed broker. One in three loses its markers."""


@pytest.fixture
def admin(kafka: Broker) -> Iterator[KafkaTransactionAdmin]:
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    yield admin
    admin.close()


def prepared(left: Left) -> Prepared:
    found = left.description
    assert found.started_at is not None
    return Prepared(left.id, found.producer_id, found.epoch, found.started_at, found.timeout, found.partitions, RECORDS)


def open_rows(admin: KafkaTransactionAdmin, left: Left) -> list[PartitionProducer]:
    return [row for row in admin.producers(left.description.partitions) if row.first_open_offset is not None]


def commit_until_settled(admin: KafkaTransactionAdmin, left: Left) -> Outcome:
    while isinstance(outcome := outcomes.commit(admin, prepared(left).committable()), Retry):
        pass
    return outcome


def test_a_done_commit_is_seen_by_readers_at_once(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    for _ in range(10):
        left = leave_transaction(kafka, admin, RECORDS)
        assert commit_until_settled(admin, left) == Committed()
        assert open_rows(admin, left) == []
        assert len(kafka.values(left.topic)) == RECORDS


def test_missing_markers_can_be_written(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin, RECORDS)
    rows = open_rows(admin, left)
    assert [row.partition for row in rows] == list(left.description.partitions)
    assert kafka.values(left.topic) == []
    admin.write_markers(rows, commit=True)
    assert open_rows(admin, left) == []
    assert len(kafka.values(left.topic)) == RECORDS
    admin.write_markers(rows, commit=True)
    assert len(kafka.values(left.topic)) == RECORDS


def test_markers_can_be_written_for_a_producer_that_has_markers_there_from_before(
    kafka: Broker, admin: KafkaTransactionAdmin
) -> None:
    topic = kafka.create_topic()
    first = kafka.produce_in_transaction(topic, [b"first"], commit=True)
    second = kafka.produce_in_transaction(topic, [b"second"], commit=None, transactional_id=first.transactional_id)
    description = admin.describe(second.transactional_id)
    assert description is not None
    rows = [row for row in admin.producers(description.partitions) if row.first_open_offset is not None]
    assert [row.coordinator_epoch >= 0 for row in rows] == [True]
    admin.write_markers(rows, commit=True)
    assert kafka.values(topic) == [b"first", b"second"]


def test_a_missing_abort_can_be_written(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    left = leave_transaction(kafka, admin, RECORDS)
    admin.write_markers(open_rows(admin, left), commit=False)
    assert open_rows(admin, left) == []
    assert kafka.values(left.topic) == []


def test_after_an_abort_nothing_holds_readers_back(kafka: Broker, admin: KafkaTransactionAdmin) -> None:
    for _ in range(10):
        left = leave_transaction(kafka, admin, RECORDS)
        outcomes.abort(admin, left.id)
        assert open_rows(admin, left) == []
        assert kafka.end_offsets(left.topic, "read_committed") == kafka.end_offsets(left.topic)


@pytest.mark.slow
def test_a_commit_whose_markers_a_killed_broker_forgot_is_completed(
    own_kafka: OwnKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = own_kafka()
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    for _ in range(TRIES):
        left = leave_transaction(kafka, admin, RECORDS)
        assert admin.commit(*left.owner) is EndAnswer.DONE
        kafka.kafka.kill(1)
        kafka.kafka.restart(1)
        assert commit_until_settled(admin, left) == AlreadyCommitted()
        description = admin.describe(left.id)
        assert description is not None
        assert description.state is TransactionState.COMPLETE_COMMIT
        assert len(kafka.values(left.topic)) == RECORDS
        assert kafka.end_offsets(left.topic, "read_committed") == kafka.end_offsets(left.topic)
    admin.close()
    print(f"markers were lost {sum('wrote no markers' in one.message for one in caplog.records)} times of {TRIES}")
