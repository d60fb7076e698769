"""KafkaSource keeps every promise of a source, on a real broker."""

import time
from collections.abc import Callable, Sequence

import pytest

from tests.kafka.brokers import Broker
from tidegate.formats import String
from tidegate.kafka import KafkaSource
from tidegate.operators.contracts import Source
from tidegate.testing.conformance.source import SourceConformance


@pytest.mark.usefixtures("each_client")
class TestKafkaSource(SourceConformance):
    idle_time = 0.3

    @pytest.fixture(autouse=True)
    def _on_broker(self, kafka: Broker) -> None:
        self.kafka = kafka

    def create(self, splits: int) -> None:
        self.topic = self.kafka.create_topic(partitions=splits)

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.kafka.produce(self.topic, list(values), partition=split)

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self.kafka.produce_in_transaction(self.topic, list(values), partition=split, commit=False)

    def append_open(self, split: int, values: Sequence[str | None]) -> Callable[[], object]:
        return self.kafka.produce_in_transaction(self.topic, list(values), partition=split, commit=None).commit

    def add_split(self) -> None:
        self.kafka.add_partitions(self.topic, len(self.kafka.partitions(self.topic)) + 1)

    def lose(self, split: int) -> None:
        self.kafka.delete_records(self.topic, split, 2)

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return KafkaSource(self.kafka.bootstrap, self.topic, value=String(), bounded=bounded, start=start)

    def pause(self) -> None:
        time.sleep(0.005)
