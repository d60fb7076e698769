"""A real Kafka behind proxies: clients that begin at one never get past it, and the test itself is not seen there."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.conftest import ProxiedKafka
from tests.kafka.proxy import ProxiedBroker

RECORDS = 2000


def produce(network: ProxiedBroker, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": network.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(30) == 0


def consume(network: ProxiedBroker, topic: str, partitions: int) -> list[int]:
    own = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": network.bootstrap, **own})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[int] = []
    while len(found) < RECORDS:
        messages = consumer.consume(RECORDS - len(found), 30)
        assert messages, f"nothing more came after {len(found)} records"
        found += [int(message.value() or b"") for message in messages]
    consumer.close()
    return sorted(found)


def test_clients_stay_with_the_proxy_and_the_test_goes_past_it(network: ProxiedBroker) -> None:
    topic = network.broker.create_topic(partitions=2)
    before = network.proxy.seen
    network.broker.produce(topic, ["past it"], partition=0)
    assert network.broker.values(topic) == [b"past it"]
    network.broker.delete_records(topic, 0, 1)
    assert network.proxy.seen == before
    produce(network, topic, 2)
    assert consume(network, topic, 2) == list(range(RECORDS))
    seen = network.proxy.seen - before
    assert {"ApiVersions", "Metadata", "Produce", "Fetch"} <= {*seen}
    assert not [api for api in seen if api.startswith("Api") and api != "ApiVersions"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_each_of_three_brokers_is_reached_through_its_own_proxy(proxied_kafka: ProxiedKafka) -> None:
    network = proxied_kafka(nodes=3)
    topic = network.broker.create_topic(partitions=6, copies=3)
    produce(network, topic, 6)
    assert consume(network, topic, 6) == list(range(RECORDS))
    for proxy in network.proxies.values():
        assert {"Produce", "Fetch"} <= {*proxy.seen}
