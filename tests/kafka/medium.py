"""Kafka as the medium of a bench: the tests that kill jobs on the embedded log kill them here too."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka.admin import KafkaAdminClient

from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tests.integration.streams import Stream
from tests.kafka.brokers import Broker, unique
from tidegate.connectors.kafka.connection import DEFAULT_CLIENT, Client

STREAM = Stream(pause=0.0005, options=("--checkpoint-interval", "200ms"), count=30_000, waits=True)
"""A transaction begins and ends slower than in the embedded log, by some ten to some hundred milliseconds."""
READERS_PATIENCE = 10.0
"""Seconds in which the markers of a commit are written and a record is read."""
UNKNOWN_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
APPEND_PATIENCE = 60.0
"""Seconds; longer than a broker's restart."""


class KafkaAppender:
    """Appends in order and once, also while the broker is away and comes back."""

    def __init__(self, bootstrap: str) -> None:
        room = {"queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **room})

    def append(self, topic: str, by_partition: Sequence[Sequence[bytes]]) -> None:
        errors: list[KafkaError] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)

        for partition, values in enumerate(by_partition):
            for value in values:
                self._producer.produce(topic, value, partition=partition, on_delivery=report)
        left = self._producer.flush(APPEND_PATIENCE)
        assert left == 0, f"{left} records were not delivered"
        assert not errors, errors[0]


class KafkaMedium:
    """Topics, jobs and groups of one test in a Kafka that others may use. See `Medium`."""

    def __init__(self, broker: Broker, client: Client = DEFAULT_CLIENT) -> None:
        """`client`: of the jobs."""
        self.broker = broker
        self.place = ["--bootstrap", broker.bootstrap]
        self.arguments = [*self.place, *(["--client", client] if client != DEFAULT_CLIENT else [])]
        self._appender = KafkaAppender(broker.direct)
        self._names: dict[str, str] = {}
        self._topics: set[str] = set()

    def name(self, base: str) -> str:
        if base not in self._names:
            self._names[base] = unique(base)
        return self._names[base]

    def create_topic(self, topic: str, partitions: int) -> None:
        if topic not in self._topics:
            self.broker.create_topic(topic, partitions)
            wait_until(lambda: self._knows(topic), f"the leaders of {topic}")
            self._topics.add(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        """`total` partitions, with those it has."""
        self.broker.add_partitions(topic, total)
        # The old one would learn of them minutes later.
        self._appender = KafkaAppender(self.broker.direct)

    def _knows(self, topic: str) -> bool:
        """A broker may say in its metadata that it leads a partition a moment before it does; of several, one may not
        have heard of the topic yet."""
        try:
            self.broker.end_offsets(topic)
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_YET:
                raise
            return False
        return True

    def append(self, topic: str, by_partition: Sequence[Sequence[bytes]]) -> None:
        self._appender.append(topic, by_partition)

    def read(self, topic: str) -> list[list[bytes]]:
        if topic not in self._topics:
            return []
        found: dict[int, list[bytes]] = {partition: [] for partition in self.broker.partitions(topic)}
        for record in self.broker.read(topic):
            found[record.partition].append(record.value or b"")
        return list(found.values())

    def open_transactions(self) -> list[str]:
        return self.transactional_ids("Ongoing")

    def transactional_ids(self, *states: str) -> list[str]:
        """Of the whole cluster; without `states` all that the coordinators know."""
        # A new client each time: an old one refuses for a while after the broker was away.
        admin = KafkaAdminClient(bootstrap_servers=self.broker.direct)
        listed = admin.list_transactions(state_filters=list(states))
        admin.close()
        return sorted(one.transactional_id for found in listed.values() for one in found)

    def assert_readers_are_free(self, topic: str) -> None:
        def are_stable() -> bool:
            return self.broker.end_offsets(topic, "read_committed") == self.broker.end_offsets(topic)

        # The markers of the last commit are written after it was answered.
        wait_until(are_stable, f"the end of what holds readers of {topic} back", READERS_PATIENCE)
        fresh = unique("fresh").encode()
        self.append(topic, [[fresh] for _ in self.broker.partitions(topic)])
        wait_until(
            lambda: all(values[-1:] == [fresh] for values in self.read(topic)), "a fresh record", READERS_PATIENCE
        )

    def clear(self) -> None:
        for topic in sorted(self._topics):
            self.broker.delete_topic(topic)


@contextmanager
def kafka_bench(broker: Broker, folder: Path, client: Client = DEFAULT_CLIENT) -> Iterator[Bench]:
    """A bench on Kafka, cleared away whatever happens."""
    made = Bench(folder, KafkaMedium(broker, client))
    try:
        yield made
    finally:
        made.clear()
