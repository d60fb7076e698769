"""The client of whole record batches on real brokers: what others wrote in every way, logins and TLS.

What holds for all clients is in `test_source`, what goes wrong in `test_batch_consumer_faults`.
"""

import random
import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from tests.kafka.brokers import PATIENCE, Broker, unique
from tests.kafka.collecting import ALL, Collected, batches, beginnings, ends
from tests.kafka.test_security import FULL_LOGIN, LOGIN, Tls, allow, guarded, tls
from tidegate.connectors.kafka.batches.consumer import BatchConsumer
from tidegate.connectors.kafka.client import Isolation, TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.consumer import ConfluentConsumer
from tidegate.errors import InvalidError

__all__ = ["guarded", "tls"]


def write(broker: Broker, topic: str, count: int, **settings: Any) -> None:
    """Records of every shape, by librdkafka."""
    source = random.Random(count)
    producer = Producer({"bootstrap.servers": broker.direct, "linger.ms": 5, **settings})
    for number in range(count):
        value = None if number % 50 == 7 else b"%d " % number + bytes(source.randrange(97, 101) for _ in range(40))
        key = None if number % 7 == 3 else b"key%d" % (number % 100)
        headers = [("h", b"v"), ("h", None), ("", b"")] if number % 11 == 5 else None
        producer.produce(topic, value, key, timestamp=1_700_000_000_000 + number * 7, headers=headers)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


# ---- what others wrote ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_is_read_as_librdkafka_reads_it(kafka: Broker, codec: str) -> None:
    topic = kafka.create_topic(partitions=2)
    write(kafka, topic, 2000, **{"compression.type": codec})
    kafka.produce_in_transaction(topic, ["x"] * 10, commit=False)
    kafka.produce_in_transaction(topic, ["y"] * 10)
    until = ends(kafka, topic)
    connection = Connection(kafka.bootstrap)
    with closing(ConfluentConsumer(connection, "other", ALL)) as other, batches(kafka) as own:
        expected = Collected(other, beginnings(kafka, topic)).until(until)
        found = Collected(own, beginnings(kafka, topic)).until(until)
    for partition in until:
        for column in ("values", "keys", "timestamps", "headers", "offsets"):
            assert found.column(column, partition) == expected.column(column, partition), column


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_the_broker_compressed_itself_is_read(kafka: Broker, codec: str) -> None:
    """By Java's libraries, whose framing is not librdkafka's."""
    topic = kafka.create_topic(config={"compression.type": codec})
    kafka.produce(topic, [f"{number} {'a' * 200}" for number in range(1000)])
    with batches(kafka) as own:
        found = Collected(own, beginnings(kafka, topic)).until(ends(kafka, topic))
    assert found.column("values", TopicPartition(topic, 0)) == [b"%d %s" % (n, b"a" * 200) for n in range(1000)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_and_open_transactions_are_seen_as_librdkafka_sees_them(kafka: Broker, isolation: Isolation) -> None:
    topic = kafka.create_topic()
    for number in range(5):
        kafka.produce_in_transaction(topic, [f"{number} {index}" for index in range(5)], commit=number % 3 == 0)
        kafka.produce(topic, [f"{number} plain"])
    kafka.produce_in_transaction(topic, ["open"], commit=None)
    kafka.produce(topic, ["behind"])
    expected = kafka.read(topic, isolation)
    with batches(kafka, isolation=isolation) as own:
        found = Collected(own, beginnings(kafka, topic)).until({TopicPartition(topic, 0): expected[-1].offset + 1})
        for _ in range(50):
            found.poll()
    assert found.column("offsets", TopicPartition(topic, 0)) == [record.offset for record in expected]
    assert found.column("values", TopicPartition(topic, 0)) == [record.value for record in expected]


def test_a_record_larger_than_any_limit_of_a_fetch_comes_and_holds_nobody_up(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2, config={"max.message.bytes": "8000000"})
    large = ["a" * 3_000_000, "b" * 3_000_000]
    producer = Producer({"bootstrap.servers": kafka.direct, "message.max.bytes": 8_000_000})
    for value in large:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE) == 0
    kafka.produce(topic, ["small"] * 100, partition=1)
    with batches(kafka, **{"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000}) as own:
        found = Collected(own, beginnings(kafka, topic)).until(ends(kafka, topic))
    assert [len(value) for value in found.column("values", TopicPartition(topic, 0))] == [3_000_000] * 2
    assert len(found.column("values", TopicPartition(topic, 1))) == 100


@pytest.mark.slow
def test_many_partitions_take_turns(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=60)
    kafka.produce(topic, [f"{number}" for number in range(3000)], keys=[f"{number}" for number in range(3000)])
    with batches(kafka, **{"fetch.max.bytes": 2000}) as own:
        found = Collected(own, beginnings(kafka, topic)).until(ends(kafka, topic))
    assert sorted(int(value) for values in found.values().values() for value in values) == list(range(3000))


@pytest.mark.slow
def test_while_nothing_comes_it_costs_almost_nothing(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=4)
    with batches(kafka) as own:
        found = Collected(own, beginnings(kafka, topic))
        for _ in range(200):
            found.poll()
        before, begun = time.process_time(), time.monotonic()
        while time.monotonic() < begun + 1:
            assert own.fetch(100) == []
            time.sleep(0.01)
        assert time.process_time() - before < 0.1


# ---- settings ------------------------------------------------------------------------------------------------------


def test_offsets_of_the_group_are_committed_also_while_nobody_reads(kafka: Broker) -> None:
    topic, group = kafka.create_topic(), unique("group")
    kafka.produce(topic, ["x"] * 9)
    with closing(BatchConsumer(Connection(kafka.bootstrap), group)) as own:
        own.add({TopicPartition(topic, 0): 0})
        offset, deadline = 0, time.monotonic() + PATIENCE
        while kafka.group_offsets(group, topic) != {0: 5}:
            assert time.monotonic() < deadline
            offset = min(offset + 1, 5)
            own.commit_group_offsets({TopicPartition(topic, 0): offset})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"statistics.interval.ms": 5}, "'statistics.interval.ms' means nothing to client='batches'"),
        ({"fetch.max.bytes": "much"}, "fetch.max.bytes='much' is no whole number from 1 on"),
        ({"fetch.max.bytes": 0}, "from 1 on"),
        ({"ssl.engine.id": "x"}, "'ssl.engine.id' cannot be used"),
    ],
)
def test_a_setting_that_it_cannot_follow_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        BatchConsumer(Connection("127.0.0.1:1", settings), "group")


# ---- logins and TLS ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_reads_by_tls_with_a_certificate_more_than_fits_into_any_buffer(tls: Tls) -> None:
    topic = tls.broker.create_topic(partitions=2)
    values = [f"{number} {'x' * 1000}" for number in range(5000)]
    tls.broker.produce(topic, values)
    with batches(tls.broker, **tls.settings) as own:
        found = Collected(own, beginnings(tls.broker, topic)).until(ends(tls.broker, topic))
    assert sum(len(one) for one in found.values().values()) == 5000


def fails(own: Any, partition: TopicPartition, patience: float = 15.0) -> InvalidError:
    own.add({partition: 0})
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            own.fetch(10)
        except InvalidError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("it goes on")


@pytest.mark.slow
def test_a_server_certificate_that_nobody_trusts_is_an_error_that_says_so(tls: Tls) -> None:
    settings = {name: value for name, value in tls.settings.items() if name != "ssl.ca.location"}
    with batches(tls.broker, **settings) as own:
        error = fails(own, TopicPartition("t", 0))
    assert "certificate" in error.failure.message
    assert "ssl.*" in error.failure.remedy


@pytest.mark.slow
def test_a_wrong_password_is_an_error_that_names_the_mechanism_and_no_password(guarded: Broker) -> None:
    with batches(guarded, **LOGIN, **{"sasl.password": "not-it"}) as own:
        error = fails(own, TopicPartition("t", 0))
    assert "SASL PLAIN: SASL_AUTHENTICATION_FAILED" in error.failure.message
    assert "not-it" not in str(error)


@pytest.mark.slow
def test_a_right_that_is_missing_is_named_and_with_it_reading_works(guarded: Broker) -> None:
    topic = guarded.create_topic()
    guarded.produce(topic, ["a"])
    with batches(guarded, **FULL_LOGIN) as own:
        error = fails(own, TopicPartition(topic, 0))
    assert error.failure.remedy == f"The user needs READ on the topic {topic!r}."
    allow(guarded, ResourceType.TOPIC, topic, AclOperation.READ)
    with batches(guarded, **FULL_LOGIN) as own:
        found = Collected(own, beginnings(guarded, topic)).until(ends(guarded, topic))
    assert found.column("values", TopicPartition(topic, 0)) == [b"a"]
