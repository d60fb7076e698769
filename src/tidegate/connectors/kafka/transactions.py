"""What coordinators and partition leaders know of transactions, whoever opened them, and ending them.

It aborts only by `fence`, and concludes nothing from an error: what happened to a transaction says `describe` alone.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest

from tidegate.connectors.kafka import fetching, messages
from tidegate.connectors.kafka.client import (
    EndAnswer,
    PartitionProducer,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.errors import Subject
from tidegate.connectors.kafka.messages import FIRST_VERSION, MAXIMUM_TIMEOUT_SETTING, Cluster
from tidegate.connectors.kafka.pauses import growing
from tidegate.connectors.kafka.wire import Address, Brokers, check, name_of
from tidegate.errors import UnavailableError

LOGGER = logging.getLogger("tidegate.kafka")
T = TypeVar("T")

REQUEST_TIMEOUT = 10.0
"""Seconds for one request, unless socket.timeout.ms says otherwise."""
PATIENCE = 30.0
"""Seconds during which a request is repeated whose answer says that another one may come later."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
UNKNOWN_TOPIC_PAUSES = (0.1, 0.4, 1.0)
"""A broker that has just started may not know a topic yet: it is believed after so many more tries."""

FENCE_TIMEOUT_MS = 1000
"""A transaction time-out must be given when fencing; no transaction follows it. Below every broker's maximum."""
DEFAULT_MAXIMUM_TIMEOUT = 900.0
"""Seconds: Kafka's default of transaction.max.timeout.ms, for users that may not read it."""
TRANSACTION_TOPIC = "__transaction_state"
TRANSACTION_KEY = 1

RAISING_LEVEL = 2
"""Of the feature `transaction.version`: from here on a coordinator can raise the epoch when it ends a transaction."""
LAST_RAISED_EPOCH = 32_000
"""Behind the very last epoch comes a new producer id, by which a transaction is not known again."""

# Versions that every broker since 3.0 has.
END_VERSION = 3
RAISING_END_VERSION = 5
INITIALISE_VERSION = 4
FIND_COORDINATOR_VERSION = 4
METADATA_VERSION = 9

UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
UNKNOWN_ID = 105
CONCURRENT = 51
CLUSTER_AUTHORIZATION_FAILED = 31
REFUSED = frozenset({47, 48, 49, 59, 90})
"""INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID, PRODUCER_FENCED."""
OVERTAKEN = frozenset({47, 90})
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: somebody else initialised the id at the same moment."""


def end_version(epoch: int, level: int) -> int:
    """Of EndTxn for a transaction of this epoch, where `level` is the cluster's of `transaction.version`.

    When the epoch rises, what its producer sent before and what arrives behind the end is refused: it can neither open
    the transaction again nor write behind its marker."""
    return RAISING_END_VERSION if level >= RAISING_LEVEL and epoch <= LAST_RAISED_EPOCH else END_VERSION


class KafkaTransactionAdmin:
    """The `TransactionAdmin` of a cluster. Connects on first use; after an error it goes on as if new.

    Raises InvalidError at once for settings that kafka-python has no counterpart of. patience: seconds for which an
    operation is repeated before it raises UnavailableError.
    """

    def __init__(
        self, connection: Connection, *, patience: float = PATIENCE, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        config = connection.kafka_python_config()
        timeout = config.get("request_timeout_ms", REQUEST_TIMEOUT * 1000) / 1000
        self._brokers = Brokers(connection.bootstrap, config, timeout)
        self._place = f"Kafka at {connection.bootstrap}"
        self._patience = patience
        self._sleep = sleep
        self._coordinators: dict[str, Address] = {}
        self._said_assumed = False

    # ---- one transactional id --------------------------------------------------------------------------------------

    def describe(self, id: str) -> TransactionDescription | None:
        subject = Subject(id=id, operation="WRITE (it includes DESCRIBE)")
        return self._repeated(lambda: self._describe(id, subject))

    def _describe(self, id: str, subject: Subject) -> TransactionDescription | None:
        request = DescribeTransactionsRequest(transactional_ids=[id], version=FIRST_VERSION)
        (row,) = self._brokers.send(self._coordinator(id), request).transaction_states
        if row.error_code == UNKNOWN_ID:
            return None
        self._check_coordinator(row.error_code, f"describing the transaction of {id!r}", subject)
        return messages.description(row)

    def commit(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        return self._repeated(lambda: self._commit(id, producer_id, epoch))

    def _commit(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        coordinator = self._coordinator(id)
        version = end_version(epoch, self._brokers.level(coordinator, "transaction.version"))
        request = EndTxnRequest(
            transactional_id=id, producer_id=producer_id, producer_epoch=epoch, committed=True, version=version
        )
        code = self._brokers.send(coordinator, request).error_code
        if code in REFUSED:
            return EndAnswer.REFUSED
        if code == CONCURRENT:
            return EndAnswer.CONCURRENT
        self._check_coordinator(code, f"committing the transaction of {id!r}", Subject(id=id, operation="WRITE"))
        return EndAnswer.DONE

    def fence(self, id: str) -> None:
        """An id that the coordinator does not know is known to it afterwards, with nothing open."""
        self._repeated(lambda: self._fence(id))

    def _fence(self, id: str) -> None:
        request = InitProducerIdRequest(
            transactional_id=id,
            transaction_timeout_ms=FENCE_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            version=INITIALISE_VERSION,
        )
        code = self._brokers.send(self._coordinator(id), request).error_code
        if code in OVERTAKEN:
            raise UnavailableError(f"fencing {id!r}: {name_of(code)}")
        self._check_coordinator(code, f"fencing {id!r}", Subject(id=id, operation="WRITE"))

    def _coordinator(self, id: str) -> Address:
        if id not in self._coordinators:
            request = FindCoordinatorRequest(
                key_type=TRANSACTION_KEY, coordinator_keys=[id], version=FIND_COORDINATOR_VERSION
            )
            (row,) = self._brokers.send_any(request).coordinators
            subject = Subject(id=id, operation="WRITE (it includes DESCRIBE)")
            self._check_coordinator(row.error_code, f"finding the coordinator of {id!r}", subject)
            self._coordinators[id] = Address(row.host, row.port)
        return self._coordinators[id]

    def _check_coordinator(self, code: int, doing: str, subject: Subject) -> None:
        check(code, f"{self._place}: {doing}", subject=subject)

    # ---- the cluster -----------------------------------------------------------------------------------------------

    def open_ids(self) -> list[str]:
        return self._repeated(self._open_ids)

    def _open_ids(self) -> list[str]:
        # A coordinator that moves from a broker not yet asked to one already asked would hide its ids.
        before = self._transaction_cluster()
        ids: set[str] = set()
        for address in before.brokers.values():
            request = ListTransactionsRequest(state_filters=[TransactionState.ONGOING.value], version=FIRST_VERSION)
            response = self._brokers.send(address, request)
            check(response.error_code, f"{self._place}: listing transactions at {address}")
            ids.update(row.transactional_id for row in response.transaction_states)
        if self._transaction_cluster() != before:
            raise UnavailableError(f"{self._place}: coordinators moved while transactions were listed")
        return sorted(ids)

    def _transaction_cluster(self) -> Cluster:
        """The cluster with all coordinators. Their topic may not exist yet, or be hidden from the user: then empty."""
        cluster = self._cluster([TRANSACTION_TOPIC])
        lost = [partition for partition, (leader, _) in cluster.leaders.items() if leader not in cluster.brokers]
        if lost or cluster.errors.get(TRANSACTION_TOPIC) == LEADER_NOT_AVAILABLE:
            names = ", ".join(map(str, lost)) or TRANSACTION_TOPIC
            raise UnavailableError(f"{self._place}: {names} without a leader: its transactions cannot be listed")
        return cluster

    def producers(self, partitions: Sequence[TopicPartition]) -> list[PartitionProducer]:
        """A partition that does not exist (any more) has no rows: what was written there is gone with it. A topic that
        was deleted and made anew has those of the new one."""
        wanted = sorted(set(partitions))
        rows, missing = self._repeated(lambda: self._producers(wanted))
        for pause in UNKNOWN_TOPIC_PAUSES:
            if not missing:
                break
            self._sleep(pause)
            rows, missing = self._repeated(lambda: self._producers(wanted))
        return sorted(rows, key=lambda row: (row.partition, row.producer_id))

    def _producers(self, partitions: list[TopicPartition]) -> tuple[list[PartitionProducer], bool]:
        """What the leaders say, and whether partitions are missing."""
        cluster = self._cluster(sorted({partition.topic for partition in partitions}))
        by_leader: dict[Address, list[TopicPartition]] = {}
        missing = False
        for partition in partitions:
            code = cluster.errors.get(partition.topic, 0)
            if code == UNKNOWN_TOPIC or (not code and partition not in cluster.leaders):
                missing = True
                continue
            self._check_topic(code, partition)
            by_leader.setdefault(self._leader(cluster, partition), []).append(partition)
        rows: list[PartitionProducer] = []
        for address, led in by_leader.items():
            for answer in messages.partition_answers(self._brokers.send(address, messages.producers_request(led))):
                partition, row = answer
                if row.error_code == UNKNOWN_TOPIC:
                    missing = True
                    continue
                self._check_topic(row.error_code, partition)
                rows += [messages.partition_producer(partition, each) for each in row.active_producers]
        return rows, missing

    def write_markers(self, rows: Sequence[PartitionProducer], commit: bool) -> None:
        cluster = self._cluster(sorted({row.partition.topic for row in rows}))
        by_leader: dict[Address, list[PartitionProducer]] = {}
        for row in rows:
            by_leader.setdefault(self._leader(cluster, row.partition), []).append(row)
        subject = Subject(operation="CLUSTER_ACTION")
        for address, led in by_leader.items():
            answers = messages.marker_answers(self._brokers.send(address, messages.markers_request(led, commit)))
            for partition, code in answers:
                check(code, f"{self._place}: writing the end of a transaction into {partition}", subject=subject)

    def first_sequences(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        while len(found) < len(offsets):
            self._repeated(lambda: self._add_first_sequences(offsets, found))
        return found

    def _add_first_sequences(self, offsets: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        """One request to each leader: adds at least one partition, or raises."""
        left = {partition: offset for partition, offset in offsets.items() if partition not in found}
        cluster = self._cluster(sorted({partition.topic for partition in left}))
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for partition, offset in left.items():
            self._check_topic(cluster.errors.get(partition.topic, 0), partition)
            by_leader.setdefault(self._leader(cluster, partition), {})[partition] = offset
        most = fetching.BATCH_BYTES_MAX if found else fetching.FIRST_BYTES
        for address, led in by_leader.items():
            answer = self._brokers.send(address, fetching.request(led, most))
            for partition, code, sequence in fetching.first_sequences(answer):
                self._check_topic(code, partition)
                if sequence is not None:
                    found[partition] = sequence
        if not left.keys() & found.keys():
            raise UnavailableError(f"{self._place}: nothing was fetched of {', '.join(map(str, left))}")

    def _check_topic(self, code: int, partition: TopicPartition) -> None:
        subject = Subject(topic=partition.topic, operation="READ and DESCRIBE")
        check(code, f"{self._place}: asking for the producers of {partition}", subject=subject)

    def _leader(self, cluster: Cluster, partition: TopicPartition) -> Address:
        node, _ = cluster.leaders.get(partition, (-1, -1))
        if node not in cluster.brokers:
            raise UnavailableError(f"{self._place}: {partition} has no leader")
        return cluster.brokers[node]

    def maximum_timeout(self) -> float:
        """Without the ACL to read it (DESCRIBE_CONFIGS on the cluster): Kafka's default of 900 s, and a line in the log
        the first time."""
        return self._repeated(self._maximum_timeout)

    def _maximum_timeout(self) -> float:
        values = []
        for node, address in self._cluster([]).brokers.items():
            (row,) = self._brokers.send(address, messages.configs_request(node)).results
            if row.error_code == CLUSTER_AUTHORIZATION_FAILED:
                self._say_assumed()
                return DEFAULT_MAXIMUM_TIMEOUT
            check(row.error_code, f"{self._place}: reading {MAXIMUM_TIMEOUT_SETTING}")
            values += [int(each.value) / 1000 for each in row.configs if each.name == MAXIMUM_TIMEOUT_SETTING]
        return min(values, default=DEFAULT_MAXIMUM_TIMEOUT)

    def _say_assumed(self) -> None:
        if not self._said_assumed:
            self._said_assumed = True
            LOGGER.warning(
                "%s: %s may not be read (that needs DESCRIBE_CONFIGS on the cluster); taking its default of %g s",
                self._place,
                MAXIMUM_TIMEOUT_SETTING,
                DEFAULT_MAXIMUM_TIMEOUT,
            )

    def _cluster(self, topics: Sequence[str]) -> Cluster:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic, version=METADATA_VERSION) for topic in topics],
            allow_auto_topic_creation=False,
            version=METADATA_VERSION,
        )
        cluster = messages.cluster_of(self._brokers.send_any(request))
        if not cluster.brokers:
            raise UnavailableError(f"{self._place} names no brokers")
        self._brokers.learn([*cluster.brokers.values()])
        return cluster

    # ---- patience --------------------------------------------------------------------------------------------------

    def _repeated(self, once: Callable[[], T]) -> T:
        """Its result, after as many tries as it takes until it raises no UnavailableError or patience is over."""
        deadline = time.monotonic() + self._patience
        for pause in growing(FIRST_PAUSE, LONGEST_PAUSE):
            try:
                return self._understood(once)
            except UnavailableError:
                self._coordinators.clear()
                if time.monotonic() + pause > deadline:
                    raise
            self._sleep(pause)
        raise AssertionError("pauses never end")

    def _understood(self, once: Callable[[], T]) -> T:
        """Its result. What is well-formed and makes no sense all the same is as good as no answer."""
        try:
            return once()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"{self._place} answered what cannot be understood: {type(error).__name__}: {error}"
            raise UnavailableError(text, remedy="Look whether all of bootstrap= are Kafka brokers.") from error

    def close(self) -> None:
        self._brokers.close()
