"""A consumer's chunks put together, and looked at on the way: nothing may come twice and no position may go back."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tests.kafka.brokers import Broker, unique
from tidegate.connectors.kafka.batches.consumer import BatchConsumer
from tidegate.connectors.kafka.client import Chunk, Columns, Isolation, TopicPartition
from tidegate.connectors.kafka.connection import Connection

ALL = Columns(keys=True, timestamps=True, headers=True, offsets=True)


class Collected:
    """What a consumer brings of some partitions, put together."""

    def __init__(self, consumer: Any, positions: Mapping[TopicPartition, int]) -> None:
        self.consumer = consumer
        self.positions = dict(positions)
        self.chunks: dict[TopicPartition, list[Chunk]] = {partition: [] for partition in positions}
        consumer.add(positions)

    def poll(self) -> int:
        chunks = self.consumer.fetch(10_000)
        for chunk in chunks:
            assert chunk.next_offset >= self.positions[chunk.partition]
            if chunk.offsets:
                assert chunk.offsets[0] >= self.positions[chunk.partition], "read twice"
            self.positions[chunk.partition] = chunk.next_offset
            self.chunks[chunk.partition].append(chunk)
        if not chunks:
            time.sleep(0.002)
        return sum(len(chunk.values) for chunk in chunks)

    def until(self, ends: Mapping[TopicPartition, int], patience: float = 60.0) -> "Collected":
        deadline = time.monotonic() + patience
        while any(self.positions[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"after {patience:g} s at {self.positions} of {ends}"
            self.poll()
        return self

    def column(self, name: str, partition: TopicPartition) -> list[Any]:
        return [one for chunk in self.chunks[partition] for one in getattr(chunk, name)]

    def values(self) -> dict[TopicPartition, list[bytes]]:
        return {partition: self.column("values", partition) for partition in self.chunks}


def ends(broker: Broker, topic: str) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): end for number, end in broker.end_offsets(topic).items()}


def beginnings(broker: Broker, topic: str) -> dict[TopicPartition, int]:
    return dict.fromkeys(ends(broker, topic), 0)


def batches(broker: Broker, columns: Columns = ALL, isolation: Isolation = "read_committed", **settings: Any) -> Any:
    return closing(BatchConsumer(Connection(broker.bootstrap, settings), unique("group"), columns, isolation))
