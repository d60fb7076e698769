"""The client of whole record batches as a producer on real brokers: logins and TLS, leaders that die in the middle of
transactions, two threads at once. What holds for every client is in `test_sink` and `test_sink_faults`."""

import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.kafka.brokers import VERSION, Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.sinks import SinkGround, committed, until
from tests.kafka.test_security import FULL_LOGIN, Tls, allow, guarded, tls
from tidegate.checkpoint.protocol import Committed, Outcome, Retry
from tidegate.connectors.kafka.batches.factory import BatchProducerFactory
from tidegate.connectors.kafka.client import Producer
from tidegate.connectors.kafka.connection import Connection
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, TidegateError, UnavailableError

__all__ = ["guarded", "tls"]


def factory(broker: Broker, **settings: Any) -> BatchProducerFactory:
    return BatchProducerFactory(Connection(broker.bootstrap, settings))


# ---- what is written -----------------------------------------------------------------------------------------------


def test_records_for_topics_that_nobody_has_asked_for_yet_wait_for_them_and_keep_their_order(kafka: Broker) -> None:
    topics = [kafka.create_topic(partitions=2) for _ in range(3)]
    producer = factory(kafka).open_plain()
    for number in range(300):
        producer.send(topics[number % 3], [b"%d" % number], [b"key"])
    producer.flush()
    producer.drop()
    for index, topic in enumerate(topics):
        assert kafka.values(topic) == [b"%d" % number for number in range(index, 300, 3)]


def test_what_waits_for_its_topic_is_not_overtaken_when_the_topic_is_known(kafka: Broker) -> None:
    topic = kafka.create_topic()
    producer = factory(kafka).open_transaction("batches-parked", 30)
    for value in (b"first", b"second"):
        producer.send(topic, [value])
    until(lambda: producer._hub.pump(0.01) or topic in producer._hub.counts, bool)
    producer.send(topic, [b"third"])
    producer.flush()
    assert kafka.values(topic, "read_uncommitted") == [b"first", b"second", b"third"]


@pytest.mark.slow
def test_partitions_that_a_topic_gets_are_used_after_a_while(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.kafka.batches.producer.METADATA_AGE", 0.1)
    topic = kafka.create_topic()
    producer = factory(kafka).open_plain()
    producer.send(topic, [b"a"])
    kafka.add_partitions(topic, 3)

    def used() -> set[int]:
        producer.send(topic, [b"b"] * 30)
        producer.flush()
        return {record.partition for record in kafka.read(topic)}

    until(used, lambda found: found == {0, 1, 2})
    producer.drop()


@pytest.mark.slow
def test_two_threads_may_send_and_flush_at_once(kafka: Broker) -> None:
    """As the barriers of a sink without transactions do."""
    topic = kafka.create_topic(partitions=3)
    producer = factory(kafka).open_plain()
    is_over = threading.Event()
    failures: list[BaseException] = []

    def flush() -> None:
        try:
            while not is_over.is_set():
                producer.flush()
        except BaseException as error:
            failures.append(error)

    side = threading.Thread(target=flush)
    side.start()
    for number in range(400):
        while not producer.has_room:
            time.sleep(0.001)
        producer.send(topic, [b"%d %d" % (number, part) for part in range(50)], [b"%d" % part for part in range(50)])
    is_over.set()
    side.join()
    producer.flush()
    producer.drop()
    assert failures == []
    found: dict[bytes, list[int]] = {}
    for record in kafka.read(topic):
        number, part = (record.value or b"").split()
        found.setdefault(part, []).append(int(number))
    assert found == {b"%d" % part: list(range(400)) for part in range(50)}


@pytest.mark.slow
def test_a_producer_that_nobody_calls_any_more_sends_what_it_was_given(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    producer = factory(kafka, **{"linger.ms": 50}).open_plain()
    for number in range(20):
        producer.send(topic, [b"%d" % number], [b"key"])
    until(lambda: kafka.values(topic), lambda found: found == [b"%d" % number for number in range(20)])
    producer.drop()


def test_it_is_over_when_it_was_dropped(kafka: Broker) -> None:
    producer = factory(kafka).open_plain()
    producer.drop()
    for use in (lambda: producer.send("t", [b"a"]), producer.flush, lambda: producer.has_room):
        with pytest.raises(InternalError, match="after it had been dropped"):
            use()


@pytest.mark.parametrize("wrong", [["text"], [7], [b"a", object()]])
def test_what_is_no_record_is_refused_and_stays_refused(kafka: Broker, wrong: list[Any]) -> None:
    topic = kafka.create_topic()
    producer = factory(kafka).open_plain()
    producer.partition_count(topic)
    with pytest.raises(InvalidError, match="does not take what it was given"):
        producer.send(topic, wrong)
    assert producer.has_room
    with pytest.raises(InvalidError):
        producer.flush()
    producer.drop()


def test_what_is_no_record_holds_up_nothing_where_nobody_waits_for_it(kafka: Broker) -> None:
    topic = kafka.create_topic()
    failures: list[tuple[TidegateError, int]] = []
    producer = factory(kafka).open_plain(lambda error, records: failures.append((error, records)))
    producer.partition_count(topic)
    values: list[Any] = [7]
    producer.send(topic, values)
    producer.send(topic, [b"a"])
    producer.flush()
    assert [type(error) for error, _ in failures] == [InvalidError]
    assert kafka.values(topic) == [b"a"]
    producer.drop()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"compression.type": "zip"}, "compression.type='zip' is none of none, gzip, snappy, lz4, zstd"),
        ({"compression.level": "high"}, "compression.level='high' is no whole number"),
        ({"batch.size": 0}, "batch.size='0' is no whole number from 1 on"),
        ({"queuing.strategy": "lifo"}, "'queuing.strategy' means nothing to client='batches'"),
        ({"liner.ms": 5}, "'liner.ms' means nothing to client='batches'; is 'linger.ms' meant\\?"),
    ],
)
def test_a_setting_that_it_cannot_follow_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        BatchProducerFactory(Connection("127.0.0.1:1", settings))


# ---- logins and TLS ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_writes_by_tls_more_than_fits_into_any_buffer(tls: Tls) -> None:
    topic = tls.broker.create_topic(partitions=2)
    producer = factory(tls.broker, **tls.settings).open_plain()
    values = [b"%d %s" % (number, b"x" * 2000) for number in range(5000)]
    producer.send(topic, values, [b"%d" % (number % 7) for number in range(5000)])
    producer.flush()
    producer.drop()
    assert sorted(value or b"" for value in tls.broker.values(topic)) == sorted(values)


@pytest.mark.slow
def test_a_right_that_is_missing_is_named(guarded: Broker) -> None:
    topic = guarded.create_topic()
    producers = factory(guarded, **FULL_LOGIN)
    with pytest.raises(InvalidError) as raised:
        producers.open_transaction("batches-right", 30)
    assert raised.value.failure.remedy == "The user needs WRITE on the transactional id 'batches-right'."
    allow(guarded, ResourceType.TRANSACTIONAL_ID, "batches-right", AclOperation.WRITE)
    producer = producers.open_transaction("batches-right", 30)
    assert "WRITE on the topic" in refused(producer, topic).failure.remedy
    allow(guarded, ResourceType.TOPIC, topic, AclOperation.WRITE)
    producer = producers.open_transaction("batches-right", 30)
    producer.send(topic, [b"a"])
    producer.flush()
    assert guarded.values(topic, "read_uncommitted") == [b"a"]


def refused(producer: Producer, topic: str) -> TidegateError:
    try:
        producer.send(topic, [b"a"])
        producer.flush()
    except InvalidError as error:
        return error
    raise AssertionError("it was written")


@pytest.mark.slow
def test_a_wrong_password_is_said_at_once(guarded: Broker) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidError, match="SASL PLAIN: SASL_AUTHENTICATION_FAILED"):
        factory(guarded, **FULL_LOGIN | {"sasl.password": "not-it"}).open_plain()
    assert time.monotonic() - began < 5


# ---- brokers that die ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three nodes, which tests here kill and start again."""
    cluster = DevKafka(tmp_path_factory.mktemp("three"), nodes=3, version=VERSION)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_leaders_and_coordinators_that_die_in_the_middle_of_transactions_cost_time_and_no_record(
    three: Broker,
) -> None:
    ground = SinkGround(three, partitions=1)
    ground.topic = three.create_topic(partitions=6, copies=3)
    source = random.Random(1)
    writer = ground.writer(
        client="batches", key=lambda text: text.split()[1], settings={"socket.timeout.ms": 3000}, timeout=60.0
    )
    expected: list[bytes] = []
    for number, node in enumerate((1, 2, 3, 1)):
        txn = writer.begin(ground.id(number))
        dies_at = source.randrange(10, 20)
        for turn in range(30):
            texts = [f"{number}-{turn} {key}" for key in range(40)]
            until(partial(writer.has_room, txn), bool)
            writer.write(txn, Batch(texts))
            expected += [text.encode() for text in texts]
            if turn == dies_at:
                three.kafka.kill(node)
            time.sleep(0.02)
        committable = writer.prepare(txn)
        assert committable is not None
        three.kafka.restart(node)
        assert isinstance(until(partial(committed, writer, committable), is_decided), Committed)
    found = until(lambda: three.values(ground.topic), lambda values: len(values) >= len(expected))
    assert sorted(value or b"" for value in found) == sorted(expected)
    turns: dict[bytes, list[tuple[int, int]]] = {}
    for record in three.read(ground.topic):
        turn, key = (record.value or b"").split()
        number, _, part = turn.partition(b"-")
        turns.setdefault(key, []).append((int(number), int(part)))
    assert all(ones == sorted(ones) for ones in turns.values()), "out of order"


def is_decided(outcome: Outcome) -> bool:
    return not isinstance(outcome, Retry)


@pytest.mark.slow
def test_a_broker_that_is_away_from_the_beginning_is_waited_for_and_then_said(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    topic = broker.create_topic()
    producer = factory(broker, **{"delivery.timeout.ms": 2000}).open_plain()
    producer.partition_count(topic)
    broker.kafka.kill()
    producer.send(topic, [b"late"])
    with pytest.raises(UnavailableError, match=r"writing to topic .*: not accepted within 2 s: Kafka broker"):
        producer.flush()
    producer.drop()
