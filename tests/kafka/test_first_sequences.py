"""The sequence number with which a transaction begins in each of its partitions, whatever the sizes of its batches."""

import pytest

from tests.kafka.brokers import Broker
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.fetching import FIRST_BYTES
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin

SMALL, MIDDLE, LARGE = 100, 2 * FIRST_BYTES, 900_000


@pytest.mark.parametrize("sizes", [[SMALL] * 3, [LARGE] * 3, [LARGE, SMALL, MIDDLE], [SMALL, MIDDLE, MIDDLE]])
def test_what_a_transaction_begins_with_is_read_whatever_the_sizes_of_its_batches(
    kafka: Broker, sizes: list[int]
) -> None:
    topic = kafka.create_topic(partitions=len(sizes))
    for partition, size in enumerate(sizes):
        kafka.produce_in_transaction(topic, [bytes(size)] * 2, partition=partition)
    admin = KafkaTransactionAdmin(Connection(kafka.bootstrap))
    try:
        begins = {TopicPartition(topic, partition): 0 for partition in range(len(sizes))}
        assert admin.first_sequences(begins) == dict.fromkeys(begins, 0)
    finally:
        admin.close()
