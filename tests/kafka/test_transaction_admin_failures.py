"""The administration of transactions where brokers fail, move or are none, and what it leaves when it is closed."""

import os
import socket
import threading
import time

import pytest

from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.raw_requests import await_state, commit, described, leave_transaction
from tidegate.connectors.kafka.client import EndAnswer, TransactionState
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.errors import UnavailableError


def test_a_broker_that_is_gone_is_named_after_a_bounded_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{unused.getsockname()[1]}"
        admin = KafkaTransactionAdmin(Connection(bootstrap), patience=0.3)
        with pytest.raises(UnavailableError, match=f"no broker of {bootstrap} answers: .*refused"):
            admin.describe("id")


def test_something_that_accepts_and_never_answers_is_given_up() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        connection = Connection(f"127.0.0.1:{mute.getsockname()[1]}", {"socket.timeout.ms": 200})
        admin = KafkaTransactionAdmin(connection, patience=0.5)
        started = time.monotonic()
        with pytest.raises(UnavailableError, match=r"no answer in 0\.2 s"):
            admin.describe("id")
        assert time.monotonic() - started < 5


def test_something_that_is_no_broker_is_said_to_be_none() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def greet() -> None:
            with other.accept()[0] as client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        admin = KafkaTransactionAdmin(Connection(f"127.0.0.1:{other.getsockname()[1]}"), patience=0)
        with pytest.raises(UnavailableError, match="is no Kafka broker"):
            admin.describe("id")
        thread.join()


@pytest.mark.slow
def test_an_admin_outlives_its_brokers(own_kafka: OwnKafka) -> None:
    kafka = own_kafka(settings={"transaction.max.timeout.ms": 120_000})
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap, {"socket.timeout.ms": 1000}), patience=1)
    patient = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    # The first request of all to a new cluster makes it create the topic of its coordinators.
    assert patient.describe("nobody") is None
    assert admin.maximum_timeout() == 120
    topic = kafka.create_topic()
    transaction = kafka.produce_in_transaction(topic, ["a"], commit=None)
    owner = described(admin, transaction.transactional_id)

    kafka.kafka.pause()
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="no answer in 1 s"):
        admin.commit(owner.id, owner.producer_id, owner.epoch)
    assert time.monotonic() - started < 15
    kafka.kafka.resume()
    # What was asked for meanwhile arrives late. A broker that is killed before it told all partitions may forget to.
    await_state(admin, owner.id, TransactionState.COMPLETE_COMMIT)

    kafka.kafka.kill()
    with pytest.raises(UnavailableError, match="refused"):
        admin.open_ids()
    kafka.kafka.restart()
    assert patient.commit(owner.id, owner.producer_id, owner.epoch) is EndAnswer.DONE
    assert described(patient, owner.id).state is TransactionState.COMPLETE_COMMIT
    assert kafka.values(topic) == [b"a"]


@pytest.mark.slow
def test_requests_find_coordinators_and_leaders_among_three_brokers(own_kafka: OwnKafka) -> None:
    kafka = own_kafka(nodes=3)
    first, *_ = kafka.bootstrap.split(",")
    admin = KafkaTransactionAdmin(Connection(first))
    topic = kafka.create_topic(partitions=6, copies=3)
    left = [leave_transaction(kafka, admin) for _ in range(6)]
    kept = kafka.produce_in_transaction(topic, [str(number) for number in range(60)], commit=None)
    assert set(admin.open_ids()) == {*(one.id for one in left), kept.transactional_id}
    assert [commit(admin, one) for one in left] == [EndAnswer.DONE] * 6
    owner = described(admin, kept.transactional_id)
    rows = admin.producers(owner.partitions)
    assert sum(row.records for row in rows) == 60
    assert admin.open_ids() == [kept.transactional_id]

    kafka.kafka.restart(2, {"transaction.max.timeout.ms": 120_000})
    assert admin.maximum_timeout() == 120

    kafka.kafka.kill(1)
    assert described(admin, kept.transactional_id).state is TransactionState.ONGOING
    assert admin.open_ids() == [kept.transactional_id]
    assert sum(row.records for row in admin.producers(owner.partitions)) == 60
    admin.commit(owner.id, owner.producer_id, owner.epoch)
    await_state(admin, owner.id, TransactionState.COMPLETE_COMMIT)
    assert len(kafka.values(topic)) == 60


def test_nothing_is_left_open_after_closing(kafka: Broker) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    # librdkafka's own threads and sockets come and go: those of the fixture must not be counted.
    before, threads = open_files(), threading.active_count()
    for _ in range(50):
        admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
        assert admin.describe("nobody") is None
        assert threading.active_count() == threads
        admin.close()
    assert open_files() <= before + 5


def test_it_goes_on_after_closing(kafka: Broker) -> None:
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    assert admin.describe("nobody") is None
    admin.close()
    assert admin.describe("nobody") is None
    admin.close()
