"""What is to be sent to which broker next, and what its answers mean: the part of a producer that decides. Pure.

Records of a partition arrive in the order in which they were given, each once: batches carry sequence numbers, several
may be under way, and when one comes back, nothing more is sent to its partition until all are answered; then all are
sent again in their order, the same bytes. A partition is added to the transaction before anything is sent to it.
"""

from collections import deque
from collections.abc import Iterable

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches.building import Compression, Sealed, halves
from tidegate.connectors.kafka.batches.queues import Leaders, Node, Queue
from tidegate.connectors.kafka.batches.readings import FIRST_PAUSE, LONGEST_PAUSE, NOBODY
from tidegate.connectors.kafka.batches.sending_protocol import (
    TICK,
    Added,
    AddPartitions,
    AskMetadata,
    Command,
    Described,
    Event,
    Fail,
    FindCoordinator,
    NotAdded,
    NotDescribed,
    NotProduced,
    Produce,
    Produced,
    Put,
)
from tidegate.connectors.kafka.batches.writers import Producing
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import name_of
from tidegate.errors import TidegateError, UnavailableError

NONE = 0
OUT_OF_ORDER, DUPLICATE = 45, 46
NOT_COORDINATOR = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
CONCURRENT = 51
NOT_ATTEMPTED = 55
"""OPERATION_NOT_ATTEMPTED: another partition of the request is to blame."""
PASSING = frozenset({2, 3, 5, 6, 7, 8, 9, 13, 19, 20, 56, 74, 76, 80, 100, 103})
"""CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT,
BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, PREFERRED_LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_ID,
INCONSISTENT_TOPIC_ID: the same again may be taken."""
UNKNOWN_TOPIC = 3
UNKNOWN_WITHIN = 30.0
"""Seconds for which a topic may be unknown to the brokers that are asked."""

IN_FLIGHT_MAX = 5
"""Requests at one broker: a broker knows the last five batches of a producer in a partition again."""
REQUEST_BYTES = 4 * 1024 * 1024
"""Of one request, unless one batch is larger."""


class Sending:
    """`place` is said in errors. `who` writes: in a transaction partitions have to be added first. patience: seconds
    for which a batch is tried to be delivered. compression: of batches that have to be made smaller."""

    def __init__(self, place: str, leaders: Leaders, who: Producing, patience: float, compression: Compression) -> None:
        self._place = place
        self._who = who
        self._compression = compression
        self._patience = patience
        self._leaders = leaders
        self._queues: dict[TopicPartition, Queue] = {}
        self._nodes: dict[int, Node] = {}
        self._adding: list[TopicPartition] = []
        self._add_at = 0.0
        self._add_pause = FIRST_PAUSE
        self._wants_metadata = False
        self._metadata_asked = False
        self._metadata_at = 0.0
        self._metadata_pause = FIRST_PAUSE
        self._due = 0.0
        self._commands: list[Command] = []
        self.unwritten = 0
        """Bytes that no broker has taken yet."""
        self.unwritten_records = 0
        self.trouble = ""
        """What went wrong last, and was tried again."""

    @property
    def is_done(self) -> bool:
        """Every batch that was put has been written, or has failed."""
        return not self.unwritten

    def has_waiting(self, partition: TopicPartition) -> bool:
        """Whether batches of that partition could not be sent yet."""
        queue = self._queues.get(partition)
        return queue is not None and bool(queue.waiting or queue.returned)

    def handle(self, event: Event, now: float) -> list[Command]:
        """`now` in seconds of a monotonic clock."""
        if event is TICK and now < self._due:
            return []
        self._take(event, now)
        self._due = float("inf")
        self._add(now)
        self._send(now)
        self._ask_metadata(now)
        commands, self._commands = self._commands, []
        return commands

    def _take(self, event: Event, now: float) -> None:
        match event:
            case Put():
                self._put(event)
            case Described():
                self._described(event.cluster, now)
            case NotDescribed():
                self._metadata_asked = False
                self._judge(event.error)
                self._want_metadata(now)
            case Added():
                self._added(event, now)
            case NotAdded():
                self._add_later(now)
                self._judge(event.error)
                self._commands.append(FindCoordinator())
            case Produced():
                self._produced(event, now)
            case NotProduced():
                self._not_produced(event, now)

    def _put(self, event: Put) -> None:
        for partition, batch in event.batches:
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = Queue(not self._who.is_transactional)
            queue.waiting.append(batch)
            self.unwritten += len(batch.data)
            self.unwritten_records += batch.records

    def _judge(self, error: TidegateError) -> None:
        """Fail for what will not pass by itself."""
        self.trouble = error.failure.message
        if not isinstance(error, UnavailableError):
            self._commands.append(Fail(error, 0))

    def _subject(self, partition: TopicPartition, size: int | None = None) -> errors.Subject:
        return errors.Subject(topic=partition.topic, operation="WRITE", size=size)

    def _doing(self, partition: TopicPartition) -> str:
        return f"{self._place}, writing to topic {partition.topic}"

    # ---- who leads -------------------------------------------------------------------------------------------------

    def _want_metadata(self, now: float) -> None:
        if not self._wants_metadata:
            self._wants_metadata = True
            self._metadata_at = now + self._metadata_pause
            self._metadata_pause = min(2 * self._metadata_pause, LONGEST_PAUSE)

    def _ask_metadata(self, now: float) -> None:
        if self._metadata_asked or not self._wants_metadata:
            return
        if now < self._metadata_at:
            self._due = min(self._due, self._metadata_at)
            return
        self._wants_metadata, self._metadata_asked = False, True
        self._commands.append(AskMetadata(sorted({partition.topic for partition in self._queues})))

    def _described(self, cluster: Cluster, now: float) -> None:
        """Also when nobody here asked."""
        self._metadata_asked = False
        self._leaders.learn(cluster)
        self._metadata_pause = FIRST_PAUSE
        for partition, queue in self._queues.items():
            code = cluster.errors.get(partition.topic, NONE)
            is_described = not code and TopicPartition(partition.topic, 0) in cluster.leaders
            if code == UNKNOWN_TOPIC or (is_described and partition not in cluster.leaders):
                self._unknown(partition, queue, now)
            elif code and code not in PASSING:
                error = errors.of_code(code, self._doing(partition), name_of(code), self._subject(partition))
                self._drop(queue, error)
            else:
                queue.unknown_since = None

    def _unknown(self, partition: TopicPartition, queue: Queue, now: float) -> None:
        since = queue.unknown_since = now if queue.unknown_since is None else queue.unknown_since
        if now >= since + UNKNOWN_WITHIN:
            what = f"{partition} is unknown to the brokers"
            self._drop(queue, errors.of_code(UNKNOWN_TOPIC, self._doing(partition), what, self._subject(partition)))

    def _drop(self, queue: Queue, error: TidegateError) -> None:
        """Nothing that waits will ever be written. What is under way may be."""
        dropped = [*queue.returned, *queue.waiting]
        queue.returned, queue.waiting = [], deque()
        queue.retries = queue.retries_waiting = 0
        self._lose(dropped, error)

    def _lose(self, batches: Iterable[Sealed], error: TidegateError) -> None:
        batches = list(batches)
        self.unwritten -= sum(len(batch.data) for batch in batches)
        records = sum(batch.records for batch in batches)
        self.unwritten_records -= records
        if records:
            self._commands.append(Fail(error, records))

    # ---- the transaction -------------------------------------------------------------------------------------------

    def _add(self, now: float) -> None:
        if self._adding:
            return
        missing = [partition for partition, queue in self._queues.items() if not queue.is_added and queue.waiting]
        if not missing:
            return
        if now < self._add_at:
            self._due = min(self._due, self._add_at)
            return
        self._adding = missing
        self._commands.append(AddPartitions(missing))

    def _add_later(self, now: float) -> None:
        self._adding = []
        self._add_at = now + self._add_pause
        self._add_pause = min(2 * self._add_pause, LONGEST_PAUSE)

    def _added(self, event: Added, now: float) -> None:
        wrong = {code for code in event.codes.values() if code}
        if not wrong:
            self._adding, self._add_pause = [], FIRST_PAUSE
            for partition in event.codes:
                self._queues[partition].is_added = True
            return
        self._add_later(now)
        if wrong & NOT_COORDINATOR:
            self._commands.append(FindCoordinator())
        for partition, code in event.codes.items():
            if code and code not in PASSING | NOT_COORDINATOR | {CONCURRENT, NOT_ATTEMPTED}:
                doing = f"{self._place}, adding {partition} to the transaction"
                error = errors.of_code(code, doing, name_of(code), self._subject(partition))
                self._drop(self._queues[partition], error)

    # ---- records ---------------------------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        while ready := self._ready(now):
            for node, batches in ready.items():
                self._nodes[node].in_flight += 1
                self._commands.append(Produce(node, batches))
                for partition in batches:
                    queue = self._queues.pop(partition)
                    queue.node = node
                    queue.sent()
                    # Others are first next time.
                    self._queues[partition] = queue

    def _ready(self, now: float) -> dict[int, dict[TopicPartition, Sealed]]:
        """One request for each broker that may get one, with one batch of each partition."""
        ready: dict[int, dict[TopicPartition, Sealed]] = {}
        sizes: dict[int, int] = {}
        for partition, queue in self._queues.items():
            queue.settle()
            if not queue.may_send or not queue.is_added or self._has_expired(partition, queue, now):
                continue
            leader = self._leaders.of(partition)
            if leader == NOBODY:
                self._want_metadata(now)
                continue
            node = self._nodes.setdefault(leader, Node())
            # Without sequence numbers one batch would overtake another that comes back.
            must_wait = queue.under_way and (queue.node != leader or self._who.id < 0)
            if node.in_flight >= IN_FLIGHT_MAX or must_wait:
                continue
            at = max(queue.not_before, node.not_before)
            if now < at:
                self._due = min(self._due, at)
                continue
            size = sizes[leader] = sizes.get(leader, 0) + len(queue.waiting[0].data)
            if size <= REQUEST_BYTES or leader not in ready:
                ready.setdefault(leader, {})[partition] = queue.waiting[0]
        return ready

    def _has_expired(self, partition: TopicPartition, queue: Queue, now: float) -> bool:
        """Whether what waits there is given up: what is behind the first is not sent without it."""
        expires = queue.waiting[0].born + self._patience
        if now < expires:
            self._due = min(self._due, expires)
            return False
        what = f"{self._doing(partition)}: not accepted within {self._patience:g} s"
        self._drop(queue, UnavailableError(f"{what}: {self.trouble}" if self.trouble else what))
        return True

    def _produced(self, event: Produced, now: float) -> None:
        node = self._nodes[event.asked.node]
        node.in_flight -= 1
        node.not_before = now + event.throttle
        for partition, batch in event.asked.batches.items():
            code, text = event.codes.get(partition, (7, ""))
            queue = self._queues[partition]
            if code in (NONE, DUPLICATE):
                queue.written(batch)
                self.unwritten -= len(batch.data)
                self.unwritten_records -= batch.records
            else:
                self._refused(partition, queue, batch, code, text, now)

    def _refused(
        self, partition: TopicPartition, queue: Queue, batch: Sealed, code: int, text: str, now: float
    ) -> None:
        is_first = not queue.returned and queue.under_way[0] is batch
        if code in PASSING or (code == OUT_OF_ORDER and not is_first):
            queue.take_back(batch)
            queue.back_off(now)
            if code in errors.UNKNOWN_TOPIC or code in (5, 6, 56, 74, 76, 100, 103):
                self._leaders.forget(partition)
                self._want_metadata(now)
            return
        if code in errors.TOO_LARGE and batch.records > 1:
            parts = halves(batch, self._who, self._compression)
            self.unwritten += sum(len(part.data) for part in parts) - len(batch.data)
            queue.take_apart(batch, parts)
            return
        queue.resolved(batch)
        what = f"{name_of(code)}, {text}" if text else name_of(code)
        error = errors.of_code(code, self._doing(partition), what, self._subject(partition, batch.largest))
        self._lose([batch], error)

    def _not_produced(self, event: NotProduced, now: float) -> None:
        """Nobody knows whether the broker has them: it knows them again."""
        self._nodes[event.asked.node].in_flight -= 1
        for partition, batch in event.asked.batches.items():
            queue = self._queues[partition]
            queue.take_back(batch)
            queue.back_off(now)
        self._want_metadata(now)
        self._judge(event.error)
