"""A running Kafka as tests use it: topics with names of their own, records in and out, transactions left open.

Reads and writes through confluent-kafka directly, never through the connector under test.
"""

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from kafka import KafkaAdminClient

from tidegate.deploy.dev_kafka import DEFAULT_VERSION, DevKafka
from tidegate.deploy.dev_kafka.settings import USERS

# Read before any test runs: tests do not see the environment.
VERSION = os.environ.get("TIDEGATE_TEST_KAFKA", DEFAULT_VERSION)
"""The Kafka that tests run against."""
PATIENCE = 30.0
"""Seconds in which the broker must have answered."""
COORDINATOR_MOVES = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""A group's coordinator is not there yet, and soon will be."""
LEADERLESS = frozenset(
    {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT, 76, 75}
)
"""The last two: UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH. _NOENT is librdkafka's word for leaders that no broker names
yet."""
_numbers = itertools.count(1)

Isolation = Literal["read_committed", "read_uncommitted"]
Bytes = bytes | str | None
Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    """Milliseconds since 1970."""
    headers: list[tuple[str, bytes | None]]


def unique(prefix: str) -> str:
    """A name that no other topic, group or transaction has: 'topic-17-x3fa9'."""
    return f"{prefix}-{next(_numbers)}-{os.urandom(3).hex()}"


def login(user: str) -> dict[str, str]:
    """What a client of a cluster with `security="sasl"` needs: 'admin' may do everything, 'app' what ACLs allow."""
    own = {"sasl.username": user, "sasl.password": USERS[user]}
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **own}


class Transaction:
    """One that is open, until it is committed or aborted. Records are visible, or gone, when that returns."""

    def __init__(self, transactional_id: str, producer: Producer, bootstrap: str) -> None:
        self.transactional_id = transactional_id
        self._producer = producer
        self._bootstrap = bootstrap

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE)
        self._await("CompleteCommit")

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE)
        self._await("CompleteAbort")

    def _await(self, state: str) -> None:
        """The coordinator answers when it has decided, before it has told the partitions."""
        deadline = time.monotonic() + PATIENCE
        while transaction_state(self._bootstrap, self.transactional_id) != state:
            assert time.monotonic() < deadline, f"{self.transactional_id} did not become {state}"


def transaction_state(bootstrap: str, transactional_id: str) -> str:
    """'Ongoing', 'CompleteCommit' and so on, as the coordinator says."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        described = admin.describe_transactions([transactional_id])
        return str(described[transactional_id].state.value)


class Broker:
    """What tests do with a `DevKafka` that runs, besides what the code under test does."""

    def __init__(self, kafka: DevKafka, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` are librdkafka's, for a cluster that wants TLS or a login; by default the administrator's."""
        self.kafka = kafka
        self._settings = dict(settings if settings is not None else login("admin") if kafka.security == "sasl" else {})
        self.admin = AdminClient(self._configuration())

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    @property
    def direct(self) -> str:
        """Where the test itself reads, writes and looks: past the proxies, where there are any."""
        return self.bootstrap if self.kafka.advertised_ports is None else self.kafka.internal_bootstrap

    def _configuration(self, **settings: Any) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.direct, "log_level": 0, **named, **self._settings}

    # ---- topics ----------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str | None = None, partitions: int = 1, config: Mapping[str, str] = {}, copies: int = 1
    ) -> str:
        """Returns its name, which is a new one by default. It can be used when this returns."""
        name = unique("topic") if name is None else name
        self._done(self.admin.create_topics([NewTopic(name, partitions, copies, config=dict(config))]))
        self._await_partitions(name, partitions)
        return name

    def delete_topic(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        """`total` partitions, with those it has."""
        self._done(self.admin.create_partitions([NewPartitions(topic, total)]))
        self._await_partitions(topic, total)

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)

    def _await_partitions(self, topic: str, count: int) -> None:
        """Until all have a leader: a topic is made a moment before it can be used."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            partitions = self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            if len(partitions) == count and all(one.leader >= 0 for one in partitions.values()):
                return
            time.sleep(0.005)
        raise AssertionError(f"{topic} has no leaders for {count} partitions")

    # ---- writing ---------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Sequence[Bytes],
        *,
        keys: Sequence[Bytes] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int] | None = None,
        partitioner: str = "murmur2_random",
    ) -> None:
        """Write records without a transaction; they are there when this returns. partitioner: by librdkafka's name."""
        producer = Producer(self._configuration(enable_idempotence=True, partitioner=partitioner))
        self._send(producer, topic, values, keys, partition, headers, timestamps)

    def produce_in_transaction(
        self,
        topic: str,
        values: Sequence[Bytes],
        *,
        commit: bool | None = True,
        transactional_id: str | None = None,
        timeout: float = 60.0,
        keys: Sequence[Bytes] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int] | None = None,
    ) -> Transaction:
        """Write records in a transaction that is committed (True), aborted (False) or left open (None), with all
        records at the broker. `timeout` in seconds."""
        transactional_id = unique("transaction") if transactional_id is None else transactional_id
        milliseconds = int(timeout * 1000)
        producer = Producer(
            self._configuration(
                transactional_id=transactional_id,
                transaction_timeout_ms=milliseconds,
                message_timeout_ms=milliseconds,
                partitioner="murmur2_random",
            )
        )
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        self._send(producer, topic, values, keys, partition, headers, timestamps)
        transaction = Transaction(transactional_id, producer, self.kafka.internal_bootstrap)
        if commit is True:
            transaction.commit()
        elif commit is False:
            transaction.abort()
        return transaction

    @staticmethod
    def _send(
        producer: Producer,
        topic: str,
        values: Sequence[Bytes],
        keys: Sequence[Bytes] | None,
        partition: int | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int] | None,
    ) -> None:
        errors: list[KafkaError] = []
        delivered: list[int] = []

        def report(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            errors.extend([] if error is None else [error])
            delivered.append(message.partition())

        for index, value in enumerate(values):
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition
            if headers is not None:
                options["headers"] = list(headers[index])
            if timestamps is not None:
                options["timestamp"] = timestamps[index]
            producer.produce(topic, value, None if keys is None else keys[index], on_delivery=report, **options)
            producer.poll(0)
        producer.flush(PATIENCE)
        assert not errors, errors[0]
        assert len(delivered) == len(values), f"{len(delivered)} of {len(values)} records were delivered"

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """The partition then begins with offset `before`."""
        self._done(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    # ---- reading ---------------------------------------------------------------------------------------------------

    def read(self, topic: str, isolation: Isolation = "read_committed") -> list[Record]:
        """All records, by partition and offset, that are there now: up to the high watermark, or with "read_committed"
        up to the first record of a transaction that is open."""
        ends = self.end_offsets(topic, isolation)
        waiting = {partition for partition, end in ends.items() if end > 0}
        consumer = Consumer(
            self._configuration(
                group_id="unused",
                enable_auto_commit=False,
                enable_partition_eof=True,
                # The end of a partition is told by a fetch that finds nothing.
                fetch_wait_max_ms=10,
                isolation_level=isolation,
                auto_offset_reset="earliest",
            )
        )
        records: list[Record] = []
        consumer.assign([TopicPartition(topic, partition, 0) for partition in sorted(waiting)])
        while waiting:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"nothing more came of {topic}, partitions {sorted(waiting)}"
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None and offset < ends[partition]:
                records.append(_record(message))
            if offset + (error is None) >= ends[partition]:
                waiting.discard(partition)
        consumer.close()
        return sorted(records, key=lambda record: record[:2])

    def values(self, topic: str, isolation: Isolation = "read_committed") -> list[bytes | None]:
        """The values of `read`."""
        return [record.value for record in self.read(topic, isolation)]

    def end_offsets(self, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
        """By partition: the high watermark, or with "read_committed" the last stable offset."""
        return self._offsets(topic, OffsetSpec.latest(), isolation)

    def start_offsets(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.earliest(), "read_uncommitted")

    def _offsets(self, topic: str, which: Any, isolation: Isolation) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): which for partition in self.partitions(topic)}
        level = IsolationLevel[isolation.upper()]
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.admin.list_offsets(asked, isolation_level=level, request_timeout=PATIENCE)
            try:
                return {one.partition: future.result(PATIENCE).offset for one, future in found.items()}
            except KafkaException as error:
                # Just after a topic is made or a broker has started.
                if error.args[0].code() not in LEADERLESS or time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)

    # ---- consumer groups -------------------------------------------------------------------------------------------

    # Through a consumer: in librdkafka 2.16 an AdminClient's questions about a group end the process when the
    # coordinator is only starting or moves (its issues 3663 and 4605).

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """By partition, of those that have one; of none while the group's coordinator has only begun."""
        with self._member(group) as consumer:
            wanted = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
            try:
                found = consumer.committed(wanted, PATIENCE)
            except KafkaException as error:
                if error.args[0].code() in COORDINATOR_MOVES:
                    return {}
                raise
            return {one.partition: one.offset for one in found if one.offset >= 0}

    def set_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        with self._member(group) as consumer:
            wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=wanted, asynchronous=False)

    def _member(self, group: str) -> "closing[Consumer]":
        """Of no rebalance: it subscribes to nothing."""
        return closing(Consumer(self._configuration(group_id=group, enable_auto_commit=False)))

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(PATIENCE)


def _record(message: confluent_kafka.Message) -> Record:
    partition, offset, timestamp = message.partition(), message.offset(), message.timestamp()[1]
    return Record(partition, offset, message.key(), message.value(), timestamp, message.headers() or [])
