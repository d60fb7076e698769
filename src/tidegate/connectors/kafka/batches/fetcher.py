"""What to ask which broker next, and what its answers mean: the part of a consumer that decides. Pure.

It is told what happened and says what to do, and knows neither sockets nor clocks. It reads each partition from exactly
where it is told, with one request under way at a time, so that nothing can be read twice or passed over: an answer that
belongs to no request under way is dropped. An offset is left behind only for what an answer says.
"""

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches import requests
from tidegate.connectors.kafka.batches.commands import (
    AskMetadata,
    AskRange,
    Command,
    Fail,
    Fetch,
    Hand,
    Pass,
    Warn,
)
from tidegate.connectors.kafka.batches.events import (
    TICK,
    Added,
    Described,
    Event,
    Fetched,
    NoRange,
    NotDescribed,
    NotFetched,
    Range,
    Removed,
    Taken,
)
from tidegate.connectors.kafka.batches.reading import Batches, Span, spans
from tidegate.connectors.kafka.batches.readings import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    NOBODY,
    Limits,
    Node,
    Reading,
)
from tidegate.connectors.kafka.batches.requests import FetchedRow, FetchRow
from tidegate.connectors.kafka.batches.visibility import visible
from tidegate.connectors.kafka.client import OnLostOffsets, TopicPartition
from tidegate.connectors.kafka.lost import lost_offsets
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import name_of
from tidegate.errors import CorruptError, InvalidError, LostDataError, TidegateError

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
LEADER_MOVES = frozenset({3, 5, 6, 9, 56, 74, 75, 76, 78, 100, 103})
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID: ask who leads
now, and then that one."""

UNKNOWN_WITHIN = 30.0
"""Seconds for which a topic that is read may be unknown to the brokers that are asked."""
METADATA_AGE = 300.0
"""Seconds after which the brokers are asked again who leads, though nothing went wrong."""
REPLICA_AGE = 300.0
"""Seconds after which a leader is asked again who is nearest."""
REPLICA_PAUSE = 30.0
"""Seconds for which only the leader is asked after a replica could not answer."""
SHORT_WAIT = 0.005
"""Seconds that a broker may wait for records where another partition of it will soon be asked for."""


class Fetcher:
    """`place` is said in errors, as is all that is about the cluster."""

    def __init__(self, place: str, on_lost_offsets: OnLostOffsets, limits: Limits) -> None:
        self._place = place
        self._on_lost_offsets = on_lost_offsets
        self._limits = limits
        self._readings: dict[TopicPartition, Reading] = {}
        self._nodes: dict[int, Node] = {}
        self._brokers: frozenset[int] = frozenset()
        self._buffered = 0
        self._wants_metadata = False
        self._metadata_asked = False
        self._metadata_at = 0.0
        """Not to be asked for before."""
        self._metadata_pause = FIRST_PAUSE
        self._metadata_due = float("inf")
        self._due = 0.0
        self._commands: list[Command] = []

    def handle(self, event: Event, now: float) -> list[Command]:
        """`now` in seconds of a monotonic clock."""
        if event is TICK and now < self._due:
            return []
        self._take(event, now)
        self._due = float("inf")
        self._ask_metadata(now)
        self._ask_records(now)
        commands, self._commands = self._commands, []
        return commands

    def _take(self, event: Event, now: float) -> None:
        match event:
            case Added():
                self._readings.update((partition, Reading(offset)) for partition, offset in event.positions.items())
                self._wants_metadata = True
                for node in self._nodes.values():
                    node.hurry()
            case Removed():
                self._buffered -= self._readings.pop(event.partition).buffered
            case Taken():
                self._taken(event)
            case Described():
                self._described(event.cluster, now)
            case NotDescribed():
                self._metadata_asked = False
                self._want_metadata_later(now)
                self._no_answer(event.error)
            case Fetched():
                self._fetched(event, now)
            case NotFetched():
                self._not_fetched(event, now)
            case Range():
                self._range(event, now)
            case NoRange():
                self._no_range(event, now)

    def _judge(self, error: TidegateError) -> None:
        """Fail for what somebody has to mend; warn of what passes."""
        if isinstance(error, InvalidError):
            self._commands.append(Fail(error))
        else:
            self._commands.append(Warn(error.failure.message))

    def _no_answer(self, error: TidegateError) -> None:
        if isinstance(error, InvalidError):
            self._commands.append(Fail(error))
        else:
            self._commands.append(Warn(f"{self._doing()}: {error.failure.message}"))

    def _taken(self, event: Taken) -> None:
        for partition, size in event.sizes.items():
            reading = self._readings.get(partition)
            if reading is not None:
                reading.buffered -= size
                self._buffered -= size

    # ---- who leads -------------------------------------------------------------------------------------------------

    def _want_metadata_later(self, now: float) -> None:
        if not self._wants_metadata:
            self._wants_metadata = True
            self._metadata_at = now + self._metadata_pause
            self._metadata_pause = min(2 * self._metadata_pause, LONGEST_PAUSE)

    def _ask_metadata(self, now: float) -> None:
        if now >= self._metadata_due:
            self._wants_metadata = True
        if self._metadata_asked or not self._readings:
            return
        if not self._wants_metadata:
            self._due = min(self._due, self._metadata_due)
        elif now < self._metadata_at:
            self._due = min(self._due, self._metadata_at)
        else:
            self._wants_metadata, self._metadata_asked = False, True
            self._metadata_due = float("inf")
            topics = sorted({partition.topic for partition in self._readings})
            self._commands.append(AskMetadata(topics))

    def _described(self, cluster: Cluster, now: float) -> None:
        self._metadata_asked = False
        self._metadata_due = now + METADATA_AGE
        self._brokers = frozenset(cluster.brokers)
        is_complete = True
        for topic, code in cluster.errors.items():
            if code not in LEADER_MOVES:
                subject = errors.Subject(topic=topic, operation="READ")
                self._judge(errors.of_code(code, self._doing(topic), name_of(code), subject))
        for partition, reading in self._readings.items():
            is_complete &= self._lead(partition, reading, cluster, now)
        if is_complete:
            self._metadata_pause = FIRST_PAUSE
        else:
            self._want_metadata_later(now)

    def _lead(self, partition: TopicPartition, reading: Reading, cluster: Cluster, now: float) -> bool:
        """Whether it is known who leads the partition."""
        if partition not in cluster.leaders and cluster.errors.get(partition.topic, UNKNOWN_TOPIC) == UNKNOWN_TOPIC:
            return self._unknown(partition, reading, now)
        reading.unknown_since = None
        leader, epoch = cluster.leaders.get(partition, (NOBODY, requests.NO_EPOCH))
        if leader not in cluster.brokers:
            return False
        if epoch >= reading.leader_epoch or epoch == requests.NO_EPOCH:
            # What a broker says that has not heard of the newest leader yet would lead back to the old one.
            if (leader, epoch) != (reading.leader, reading.leader_epoch):
                reading.leader, reading.leader_epoch = leader, epoch
                # What the old leader may still answer is dropped, and so is what it has said.
                reading.asked, reading.replica = None, NOBODY
                reading.not_before = now
            self._nodes.setdefault(leader, Node())
        return True

    def _unknown(self, partition: TopicPartition, reading: Reading, now: float) -> bool:
        since = reading.unknown_since = now if reading.unknown_since is None else reading.unknown_since
        if now >= since + UNKNOWN_WITHIN and not reading.is_stuck:
            subject = errors.Subject(topic=partition.topic, operation="READ")
            what = f"{partition} is unknown to the brokers"
            self._stop(partition, reading, errors.of_code(UNKNOWN_TOPIC, self._doing(partition.topic), what, subject))
        return False

    def _stop(self, partition: TopicPartition, reading: Reading, error: TidegateError) -> None:
        reading.is_stuck = True
        self._commands.append(Fail(error, partition))

    def _doing(self, topic: str = "") -> str:
        return f"reading topic {topic} at {self._place}" if topic else f"reading from {self._place}"

    # ---- records ---------------------------------------------------------------------------------------------------

    def _ask_records(self, now: float) -> None:
        if self._buffered >= self._limits.total:
            return
        asked: dict[int, list[FetchRow]] = {}
        held_back: set[int] = set()
        for partition, reading in self._readings.items():
            if now >= reading.replica_until:
                reading.replica = NOBODY
            node = self._nodes.get(reading.node)
            if node is None or node.is_asked or reading.is_stuck:
                continue
            if reading.buffered >= self._limits.partition:
                held_back.add(reading.node)
                continue
            at = max(node.not_before, reading.not_before)
            if now < at:
                self._due = min(self._due, at)
                continue
            row = FetchRow(partition, reading.offset, reading.leader_epoch, reading.last_epoch)
            asked.setdefault(reading.node, []).append(row)
        for number, rows in asked.items():
            wait = min(self._nodes[number].ask(), self._limits.wait)
            readings = [self._readings[row.partition] for row in rows]
            for reading in readings:
                reading.asked = number
            itself = any(now < reading.leader_until for reading in readings)
            self._commands.append(Fetch(number, rows, SHORT_WAIT if number in held_back else wait, itself))

    def _fetched(self, event: Fetched, now: float) -> None:
        node = self._nodes[event.node]
        node.answered(any(row.records for row in event.rows), self._limits.wait)
        node.not_before = now + event.throttle
        answered = set()
        for row in event.rows:
            reading = self._answer_to(event.node, row.partition)
            if reading is not None:
                answered.add(row.partition)
                code = row.code or event.code
                if code:
                    self._refused(row.partition, reading, code, now)
                elif row.nearer != NOBODY:
                    self._follow(reading, row.nearer, now)
                else:
                    self._brought(row, reading, now)
        for partition, reading in self._readings.items():
            if reading.asked == event.node:
                # Not answered, or the broker refused as a whole.
                reading.asked = None
                if event.code:
                    self._refused(partition, reading, event.code, now)
        self._let_others_be_first(event)

    def _answer_to(self, node: int, partition: TopicPartition) -> Reading | None:
        reading = self._readings.get(partition)
        if reading is None or reading.asked != node:
            return None
        reading.asked = None
        return reading

    def _let_others_be_first(self, event: Fetched) -> None:
        """A broker fills its answer partition by partition, and what does not fit has to wait."""
        for row in event.rows:
            if row.records and row.partition in self._readings:
                self._readings[row.partition] = self._readings.pop(row.partition)

    def _follow(self, reading: Reading, replica: int, now: float) -> None:
        if replica in self._brokers:
            self._nodes.setdefault(replica, Node())
            reading.follow(replica, now + REPLICA_AGE)
        else:
            reading.stay(now + REPLICA_PAUSE)
            self._want_metadata_later(now)

    def _return(self, reading: Reading, now: float) -> None:
        """To the leader, from a replica that could not answer: it may be behind, and knows nothing for sure."""
        reading.stay(now + REPLICA_PAUSE)
        reading.back_off(now)

    def _brought(self, row: FetchedRow, reading: Reading, now: float) -> None:
        if row.diverged_at >= 0 and reading.replica != NOBODY:
            self._return(reading, now)
            return
        reading.succeeded()
        if row.diverged_at >= 0:
            self._stop(row.partition, reading, self._truncated(row.partition, reading.offset, row.diverged_at))
            return
        try:
            found = [span for span in spans(row.records) if span.end_offset > reading.offset]
            seen = visible(row.records, found, row.aborted)
        except ValueError as error:
            self._stop(row.partition, reading, self._corrupt(row.partition, reading.offset, str(error)))
            return
        if found:
            self._hand(row, reading, found, seen)

    def _hand(self, row: FetchedRow, reading: Reading, found: list[Span], seen: list[Span]) -> None:
        begin, end = reading.offset, found[-1].end_offset
        reading.offset = end
        if found[-1].leader_epoch != requests.NO_EPOCH:
            reading.last_epoch = found[-1].leader_epoch
        if not seen:
            self._commands.append(Pass(row.partition, end))
            return
        size = len(row.records)
        reading.buffered += size
        self._buffered += size
        self._commands.append(Hand(Batches(row.partition, row.records, seen, begin, end), size))

    def _truncated(self, partition: TopicPartition, offset: int, at: int) -> LostDataError:
        return LostDataError(
            f"{partition} at {self._place} has lost records that were already read: its log is another one from offset "
            f"{at} on, and reading had reached {offset}",
            remedy="Bring them back, or start afresh on what is there now (--fresh).",
        )

    def _corrupt(self, partition: TopicPartition, offset: int, what: str) -> CorruptError:
        return CorruptError(
            f"{partition} at {self._place}: what was answered from offset {offset} on is no record batch: {what}",
            remedy="Look whether other consumers can read it. To go on behind it, start at a later offset (--fresh).",
        )

    # ---- what goes wrong -------------------------------------------------------------------------------------------

    def _refused(self, partition: TopicPartition, reading: Reading, code: int, now: float) -> None:
        if reading.replica != NOBODY:
            self._return(reading, now)
            self._want_metadata_later(now)
            return
        if code == OFFSET_OUT_OF_RANGE:
            reading.is_stuck = True
            self._commands.append(AskRange(reading.leader, partition, reading.leader_epoch))
            return
        reading.back_off(now)
        if code in LEADER_MOVES:
            self._want_metadata_later(now)
            return
        subject = errors.Subject(topic=partition.topic, operation="READ")
        doing = self._doing(partition.topic)
        self._judge(errors.of_code(code, doing, f"{partition}: {name_of(code)}", subject))

    def _not_fetched(self, event: NotFetched, now: float) -> None:
        self._nodes[event.node].is_asked = False
        for reading in self._readings.values():
            if reading.asked == event.node:
                reading.asked = None
                if reading.replica != NOBODY:
                    reading.stay(now + REPLICA_PAUSE)
                reading.back_off(now)
        self._want_metadata_later(now)
        self._no_answer(event.error)

    def _range(self, event: Range, now: float) -> None:
        reading = self._readings.get(event.partition)
        if reading is None:
            return
        partition, low, end = event
        offset = reading.offset
        if low <= offset <= end:
            self._commands.append(
                Warn(f"{partition} at {self._place} had no offset {offset} for a moment; going on there")
            )
        elif offset > end or self._on_lost_offsets == "fail":
            self._stop(partition, reading, lost_offsets(partition, self._place, offset, low, end))
            return
        else:
            self._commands.append(Pass(partition, low, low - offset))
            reading.offset = low
        reading.is_stuck = False
        # A broker that has forgotten all of an epoch cannot compare it.
        reading.last_epoch = requests.NO_EPOCH
        reading.back_off(now)

    def _no_range(self, event: NoRange, now: float) -> None:
        reading = self._readings.get(event.partition)
        if reading is not None:
            reading.is_stuck = False
            reading.back_off(now)
        self._want_metadata_later(now)
        self._no_answer(event.error)
