"""Topics of a session: the input, filled once and used again, and an output for each run, whose records bear the
broker's time of appending.
"""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from benchmarks.suite.workloads import Data
from tidegate.connectors.kafka.batches.factory import BatchProducerFactory
from tidegate.connectors.kafka.connection import Connection
from tidegate.errors import UnavailableError

AT_ONCE = 2_000_000
"""Bytes of values that are handed to the producer together."""
PATIENCE = 60.0
_PAUSE = 0.05


class Topics:
    """Of one broker. Each method waits until what it does is done."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def ensure_source(self, data: Data) -> str:
        """The topic with exactly these orders, made when it is not there."""
        topic = data.topic
        known = self._known()
        if topic in known:
            if sum(self.ends(topic)) == data.records:
                return topic
            self.delete(topic)
        self._create(topic, data.partitions, {})
        fill(self._bootstrap, topic, data)
        if (found := sum(self.ends(topic))) != data.records:
            raise UnavailableError(f"{topic} has {found} records, not {data.records}", remedy="Measure again.")
        return topic

    def create_output(self, topic: str, partitions: int) -> None:
        """Empty, whatever there was before."""
        self.delete(topic)
        self._create(topic, partitions, {"message.timestamp.type": "LogAppendTime"})

    def delete(self, *topics: str) -> None:
        """Those that exist; their names are free again afterwards."""
        known = [topic for topic in topics if topic in self._known()]
        for future in self._admin.delete_topics(known).values() if known else ():
            future.result(PATIENCE)
        while not self._known().isdisjoint(known):
            time.sleep(_PAUSE)

    def ends(self, topic: str) -> Sequence[int]:
        """Offset behind the last record of each partition, with markers of transactions counted; open ones too. Raises
        UnavailableError while a partition has no leader."""
        partitions = self._admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): latest for partition in sorted(partitions)}
        answers = self._admin.list_offsets(asked, request_timeout=PATIENCE)
        try:
            return [future.result(PATIENCE).offset for future in answers.values()]
        except KafkaException as error:
            raise UnavailableError(f"{topic} says not how long it is: {error}", remedy="Try again.") from error

    def _known(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE).topics)

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config))])
        made[topic].result(PATIENCE)
        # A broker says that a topic is made before it knows it itself.
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready(topic, partitions):
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"{topic} is not ready after {PATIENCE:.0f} s", remedy="Look at the broker's log."
                )
            time.sleep(_PAUSE)

    def _is_ready(self, topic: str, partitions: int) -> bool:
        try:
            return len(self.ends(topic)) == partitions
        except UnavailableError:
            return False


def fill(bootstrap: str, topic: str, data: Data) -> None:
    """Write all orders, those of one user into one partition and in order."""
    producer = BatchProducerFactory(Connection(bootstrap)).open_plain()
    step = max(1, AT_ONCE // data.value_bytes)
    for begin in range(0, data.records, step):
        numbers = range(begin, min(begin + step, data.records))
        producer.send(topic, list(map(data.value, numbers)), list(map(data.key, numbers)))
        while not producer.has_room:
            time.sleep(0.001)
    producer.flush()
    producer.drop()
