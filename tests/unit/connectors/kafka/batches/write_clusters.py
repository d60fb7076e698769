"""Brokers for tests of what a producer decides: they check sequence numbers as brokers do, and everything goes wrong.

A broker that knows nothing of a producer in a partition takes whatever sequence number comes first.

Requests at one broker are answered in order. When a connection breaks, some of what was under way has been done, some
has not, and some is done later, when its producer has long sent it again.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from tests.unit.connectors.kafka.batches.clusters import LOST
from tidegate.connectors.kafka.batches.building import SEQUENCES, Sealed
from tidegate.connectors.kafka.batches.sending_protocol import (
    Added,
    AddPartitions,
    AskMetadata,
    Described,
    Event,
    NotAdded,
    NotDescribed,
    NotProduced,
    Produce,
    Produced,
)
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address

OUT_OF_ORDER, NOT_LEADER, TOO_LARGE, NOT_ENOUGH, CONCURRENT = 45, 6, 10, 19, 51


@dataclass
class Written:
    """One partition."""

    leader: int = 1
    epoch: int = 0
    batches: list[Sealed] = field(default_factory=list)
    is_added: bool = False

    def append(self, batch: Sealed, sequenced: bool) -> int:
        """Its code."""
        assert self.is_added, "written to before it was added to the transaction"
        if sequenced and self.batches:
            if any(known.sequence == batch.sequence for known in self.batches[-5:]):
                return 0
            expected = (self.batches[-1].sequence + self.batches[-1].records) % SEQUENCES
            if batch.sequence != expected:
                return OUT_OF_ORDER
        self.batches.append(batch)
        return 0


class WriteBrokers:
    """`faults`: of a hundred answers, how many go wrong. `largest`: records that a batch may have."""

    def __init__(
        self, written: dict[TopicPartition, Written], source: random.Random, faults: int = 0, sequenced: bool = True
    ) -> None:
        self.written = written
        self.faults = faults
        self.largest = 1000
        self._source = source
        self._sequenced = sequenced
        self._old: dict[TopicPartition, tuple[int, int]] = {}
        self._late: deque[Produce] = deque()

    @property
    def _goes_wrong(self) -> bool:
        return self._source.randrange(100) < self.faults

    def move(self, partition: TopicPartition) -> None:
        one = self.written[partition]
        self._old[partition] = (one.leader, one.epoch)
        one.leader, one.epoch = self._source.choice([1, 2, 3]), one.epoch + 1

    def do_late(self) -> None:
        """What came over a connection that broke long ago."""
        if self._late:
            self._codes(self._late.popleft())

    def break_connection(self, under_way: list[Produce]) -> list[Event]:
        done = self._source.randrange(len(under_way) + 1)
        for command in under_way[:done]:
            self._codes(command)
        if self._sequenced and self._source.random() < 0.5:
            self._late.extend(under_way[done:])
        return [NotProduced(command, LOST) for command in under_way]

    def answer(self, command: Produce | AddPartitions | AskMetadata) -> Event:
        match command:
            case AskMetadata():
                return NotDescribed(LOST) if self._goes_wrong else Described(self._cluster())
            case AddPartitions():
                if self._goes_wrong:
                    return NotAdded(LOST)
                if self._goes_wrong:
                    return Added(dict.fromkeys(command.partitions, self._source.choice([CONCURRENT, 16, 14])))
                for partition in command.partitions:
                    self.written[partition].is_added = True
                return Added(dict.fromkeys(command.partitions, 0))
            case Produce():
                return Produced(command, self._codes(command), 0.05 if self._goes_wrong else 0.0)

    def _cluster(self) -> Cluster:
        leaders = {}
        for partition, one in self.written.items():
            now = (one.leader, one.epoch)
            leaders[partition] = self._old.get(partition, now) if self._goes_wrong else now
        return Cluster({node: Address("host", node) for node in (1, 2, 3)}, leaders, {})

    def _codes(self, command: Produce) -> dict[TopicPartition, tuple[int, str]]:
        return {
            partition: (self._code(command.node, partition, batch), "") for partition, batch in command.batches.items()
        }

    def _code(self, node: int, partition: TopicPartition, batch: Sealed) -> int:
        one = self.written[partition]
        if node != one.leader:
            return NOT_LEADER
        if batch.records > self.largest:
            return TOO_LARGE
        return NOT_ENOUGH if self._goes_wrong else one.append(batch, self._sequenced)
