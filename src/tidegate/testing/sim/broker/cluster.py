"""A simulated cluster: topics, one transaction coordinator, groups, and what happens when a broker goes and comes back.

Every request answers or raises BrokerError, and has then had its effect or none. The cluster writes no marker by
itself: `decisions` says what is to be written, `write_marker` writes one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.connectors.kafka.client import (
    At,
    Isolation,
    PartitionProducer,
    Topic,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.broker.coordinator import Coordinator, CoordinatorLimits, Decision
from tidegate.testing.sim.broker.partition import Batch, Partition, Record

NO_LIMITS = CoordinatorLimits()
"""None but Kafka's own."""


@dataclass(frozen=True)
class Limits:
    """`verifies`: whether a batch that opens a transaction in a partition is checked with the coordinator, as brokers
    do since 3.6; without it, one that comes late opens a transaction that nobody ends."""

    coordinator: CoordinatorLimits = NO_LIMITS
    verifies: bool = True


USUAL = Limits()


class SimTopic:
    """`id` is another one when a topic of this name is made again."""

    def __init__(self, name: str, id: str, partitions: int) -> None:
        self.name = name
        self.id = id
        self.partitions: list[Partition] = []
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        for number in range(len(self.partitions), partitions):
            self.partitions.append(Partition(f"{self.name}/{number}"))


class SimCluster:
    """`now` in milliseconds since 1970. `on_marker` is told of each marker that came into a partition."""

    def __init__(self, now: Callable[[], int], limits: Limits = USUAL) -> None:
        self._now = now
        self.limits = limits
        self.coordinator = Coordinator(now, limits.coordinator)
        self.topics: dict[str, SimTopic] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.on_marker: list[Callable[[TopicPartition, int, bool], None]] = []
        """Partition, producer id, whether it is a commit."""
        self.is_up = True
        self.has_coordinator = True
        self._made = 0

    # ---- topics ----------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        """A new one; what was there under the name is gone."""
        self._made += 1
        self.topics[name] = SimTopic(name, f"topic-{self._made}", partitions)

    def delete_topic(self, name: str) -> None:
        del self.topics[name]

    def described(self, name: str) -> Topic | None:
        self._serve()
        topic = self.topics.get(name)
        return None if topic is None else Topic(name, topic.id, tuple(range(len(topic.partitions))), False)

    def names(self) -> list[str]:
        self._serve()
        return sorted(self.topics)

    def partition(self, at: TopicPartition) -> Partition:
        topic = self.topics.get(at.topic)
        if topic is None or at.partition >= len(topic.partitions):
            raise BrokerError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{at} does not exist")
        return topic.partitions[at.partition]

    # ---- reading ---------------------------------------------------------------------------------------------------

    def fetch(
        self, at: TopicPartition, position: int, most: int, isolation: Isolation, until: int | None = None
    ) -> tuple[list[tuple[int, Record]], int]:
        self._serve()
        return self.partition(at).fetch(position, most, isolation, until)

    def offset(self, at: TopicPartition, where: At, isolation: Isolation) -> int:
        self._serve()
        partition = self.partition(at)
        match where:
            case "earliest":
                return partition.log_start
            case "latest":
                return partition.end_for(isolation)
            case int():
                return partition.first_at(where)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._serve()
        self.groups.setdefault(group, {}).update(offsets)

    # ---- writing ---------------------------------------------------------------------------------------------------

    def append(self, at: TopicPartition, records: Sequence[Record]) -> int:
        """By a producer without guarantees."""
        self._serve()
        return self.partition(at).append_plain(records)

    def initialise(self, id: str | None, timeout: int) -> tuple[int, int]:
        """InitProducerId; without an id for an idempotent producer."""
        if id is None:
            self._serve()
            return self.coordinator.new_producer_id(), 0
        return self._coordinated().initialise(id, timeout)

    def add_partitions(self, id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.partition(partition)
        self._coordinated().add_partitions(id, producer_id, epoch, partitions)

    def produce(self, at: TopicPartition, id: str | None, batch: Batch) -> int:
        """`id`: of the producer's transactions."""
        self._serve()
        partition = self.partition(at)
        if id is not None and self.limits.verifies and not partition.is_open_for(batch.producer_id, batch.epoch):
            self._coordinated().verify(id, batch.producer_id, batch.epoch, at)
        return partition.append(batch)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def end(self, id: str, producer_id: int, epoch: int, commit: bool, version: int = 3) -> None:
        self._coordinated().end(id, producer_id, epoch, commit, version)

    def describe(self, id: str) -> TransactionDescription | None:
        return self._coordinated().describe(id)

    def ids(self, state: TransactionState) -> list[str]:
        return self._coordinated().ids(state)

    def producers(self, at: TopicPartition) -> list[PartitionProducer]:
        self._serve()
        return [
            PartitionProducer(
                at,
                producer_id,
                entry.epoch,
                entry.last_sequence + 1,
                None if entry.span is None else entry.span.first_offset,
                entry.coordinator_epoch,
            )
            for producer_id, entry in sorted(self.partition(at).producers.items())
        ]

    def sequence_at(self, at: TopicPartition, offset: int) -> int:
        self._serve()
        return self.partition(at).log[offset].sequence

    def mark(self, at: TopicPartition, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> None:
        """WriteTxnMarkers, by whomever."""
        self._serve()
        self.partition(at).write_marker(producer_id, epoch, commit, coordinator_epoch)
        self._tell(at, producer_id, commit)

    def _tell(self, at: TopicPartition, producer_id: int, commit: bool) -> None:
        for told in self.on_marker:
            told(at, producer_id, commit)

    # ---- what brokers do by themselves -----------------------------------------------------------------------------

    @property
    def decisions(self) -> list[Decision]:
        """Those with markers to be written."""
        return list(self.coordinator.decisions.values())

    def write_marker(self, decision: Decision, at: TopicPartition) -> bool:
        """The coordinator's marker of the decision comes into the partition. False while nobody can do that."""
        if at not in decision.missing or self.coordinator.decisions.get(decision.id) is not decision:
            return True
        if not (self.is_up and self.has_coordinator):
            return False
        try:
            partition = self.partition(at)
            partition.write_marker(decision.producer_id, decision.epoch, decision.commit, decision.coordinator_epoch)
        except BrokerError:
            # The topic is gone, or somebody else has ended it there with a later epoch.
            self.coordinator.written(decision, at)
            return True
        self.coordinator.written(decision, at)
        self._tell(at, decision.producer_id, decision.commit)
        return True

    def write_all_markers(self) -> None:
        for decision in self.decisions:
            for partition in list(decision.missing):
                self.write_marker(decision, partition)

    def forget_markers(self, is_forgotten: Callable[[Decision], bool] = lambda decision: decision.commit) -> int:
        """What a broker did that was killed behind a decision and did not know the topics yet when it read it again: it
        took the partitions for deleted. Returns of how many decisions."""
        doomed = [decision for decision in self.decisions if is_forgotten(decision)]
        for decision in doomed:
            self.coordinator.complete(decision)
        return len(doomed)

    def go_away(self) -> None:
        self.is_up = False

    def lose_coordinator(self) -> None:
        self.has_coordinator = False

    def come_back(self) -> None:
        """With everything that was written."""
        if not (self.is_up and self.has_coordinator):
            self.is_up = self.has_coordinator = True
            self.coordinator.restart()

    def tick(self) -> None:
        """Time has passed: what is past its timeout is aborted."""
        if self.is_up and self.has_coordinator:
            self.coordinator.tick()

    def _serve(self) -> None:
        if not self.is_up:
            raise BrokerError(Code.BROKER_NOT_AVAILABLE, "the broker is away")
        self.tick()

    def _coordinated(self) -> Coordinator:
        self._serve()
        if not self.has_coordinator:
            raise BrokerError(Code.COORDINATOR_NOT_AVAILABLE, "the coordinator is away")
        return self.coordinator
