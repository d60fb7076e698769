"""Two thousand partitions of two Kafka topics, read by four subtasks.

A broker of one node needs minutes to make more; that ten thousand are shared out is tested on the embedded log.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import KafkaAppender, kafka_bench
from tests.load.many_partitions import ManyPartitions, assert_shared_out_and_read_on

TOPICS = ("wide-a", "wide-b")
EACH = 1000
LEADERS_PATIENCE = 300.0
"""Seconds."""


@pytest.fixture
def broker(own_kafka: OwnKafka) -> Broker:
    broker = own_kafka()
    for topic in TOPICS:
        for made in broker.admin.create_topics([NewTopic(topic, EACH, 1)]).values():
            made.result(60)
    wait_until(lambda: leaders(broker) == len(TOPICS) * EACH, "leaders of all partitions", LEADERS_PATIENCE)
    return broker


def leaders(broker: Broker) -> int:
    found = broker.admin.list_topics(timeout=60).topics
    return sum(one.leader >= 0 for topic in TOPICS if topic in found for one in found[topic].partitions.values())


@pytest.fixture
def bench(broker: Broker, tmp_path: Path) -> Iterator[Bench]:
    with kafka_bench(broker, tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_partitions_of_kafka_are_shared_out_and_read_on_behind_a_kill(
    broker: Broker, bench: Bench
) -> None:
    appender = KafkaAppender(broker.bootstrap)

    def append(topic: str, values: dict[int, str]) -> None:
        appender.append(topic, [[values[number].encode()] if number in values else [] for number in range(EACH)])

    assert_shared_out_and_read_on(ManyPartitions(bench, TOPICS, append), EACH)
