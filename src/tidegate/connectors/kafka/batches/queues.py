"""What a producer knows of each partition that it writes to, and of each broker; `Sending` decides on it."""

from collections import deque

from tidegate.connectors.kafka.batches.building import Sealed
from tidegate.connectors.kafka.batches.readings import FIRST_PAUSE, LONGEST_PAUSE, NOBODY
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster


class Queue:
    """One partition that is written to."""

    def __init__(self, is_added: bool) -> None:
        self.waiting: deque[Sealed] = deque()
        self.under_way: list[Sealed] = []
        self.returned: list[Sealed] = []
        """Answered, and to be sent again when nothing is under way."""
        self.retries = 0
        """How many batches came back and are not written yet: only those are sent then. A broker knows again no more
        than its last few batches, and what came back may be among them."""
        self.retries_waiting = 0
        self.is_split = False
        """Some of the retries are parts of one that was too large: they go one by one, being more than there were."""
        self.is_known = False
        """A broker has written a batch. One that knows nothing of a producer takes any sequence number for its first:
        so nothing goes behind a first batch that may still come back."""
        self.node = NOBODY
        """At which batches are under way."""
        self.is_added = is_added
        self.not_before = 0.0
        self.pause = FIRST_PAUSE
        self.unknown_since: float | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.under_way or self.returned)

    def back_off(self, now: float) -> None:
        self.not_before = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def settle(self) -> None:
        """What came back goes first, in the order in which it was sent."""
        if self.returned and not self.under_way:
            self.waiting.extendleft(reversed(self.returned))
            self.retries = self.retries_waiting = len(self.returned)
            self.returned = []

    @property
    def may_send(self) -> bool:
        """Whether what waits first may be sent, as far as it concerns those sent before."""
        if not self.waiting or self.returned:
            return False
        if not self.is_known and self.under_way:
            return False
        return not self.retries or (self.retries_waiting > 0 and not (self.is_split and self.under_way))

    def sent(self) -> Sealed:
        """What waited first is under way now."""
        batch = self.waiting.popleft()
        self.under_way.append(batch)
        self.retries_waiting = max(0, self.retries_waiting - 1)
        return batch

    def take_back(self, batch: Sealed) -> None:
        self.under_way.remove(batch)
        self.returned.append(batch)

    def take_apart(self, batch: Sealed, parts: list[Sealed]) -> None:
        self.under_way.remove(batch)
        self.returned += parts
        self.is_split = True

    def written(self, batch: Sealed) -> None:
        self.is_known = True
        self.pause = FIRST_PAUSE
        self.resolved(batch)

    def resolved(self, batch: Sealed) -> None:
        """It is written, or never will be."""
        self.under_way.remove(batch)
        self.retries = max(0, self.retries - 1)
        self.is_split = self.is_split and self.retries > 0


class Node:
    def __init__(self) -> None:
        self.in_flight = 0
        self.not_before = 0.0


class Leaders:
    """Who leads the partitions, as far as it is known."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[int, int]] = {}

    def of(self, partition: TopicPartition) -> int:
        return self._known.get(partition, (NOBODY, -1))[0]

    def learn(self, cluster: Cluster) -> None:
        for partition, (node, epoch) in cluster.leaders.items():
            if node in cluster.brokers and epoch >= self._known.get(partition, (NOBODY, -1))[1]:
                self._known[partition] = (node, epoch)

    def forget(self, partition: TopicPartition) -> None:
        """Whoever led it does not any more. What is older than that is not believed afterwards, either."""
        _, epoch = self._known.get(partition, (NOBODY, -1))
        self._known[partition] = (NOBODY, epoch)
