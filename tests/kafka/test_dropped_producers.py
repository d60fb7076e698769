"""A producer that is dropped while records of its are on their way, with librdkafka on a real broker."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.brokers import Broker, unique
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.producer import KafkaProducerFactory

ROOT = Path(__file__).parent.parent.parent
PROCESSES, DROPS = 6, 200
DROPPING = """
import sys
from tests.kafka.test_dropped_producers import drop_at_once
for number in range(int(sys.argv[3])):
    drop_at_once(sys.argv[1], sys.argv[2], number)
"""
"""A program: such an assertion ends the process that it fails in."""


def drop_at_once(bootstrap: str, topic: str, number: int = 0) -> None:
    """A transaction of three partitions, dropped up to 0.6 ms behind its first records: then they are being added."""
    producer = KafkaProducerFactory(Connection(bootstrap)).open_transaction(unique("dropped"), 60.0)
    producer.partition_count(topic)
    producer.send(topic, [b"order"] * 500, keys=[b"user-%d" % user for user in range(500)])
    time.sleep(number % 7 * 0.0001)
    producer.drop()


def test_what_a_dropped_producer_was_given_has_left_before_it_is_gone(kafka: Broker) -> None:
    """Else it would be destroyed while it adds partitions to its transaction, which can end the process."""
    topic = kafka.create_topic(partitions=3)
    drop_at_once(kafka.bootstrap, topic)
    assert kafka.values(topic) == []
    assert kafka.values(topic, "read_uncommitted") == [b"order"] * 500


@pytest.mark.slow
def test_a_producer_can_be_dropped_at_any_moment(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=3)
    command = [sys.executable, "-c", DROPPING, kafka.bootstrap, topic, str(DROPS)]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(PROCESSES)]
    assert [one.wait() for one in running] == [0] * PROCESSES
