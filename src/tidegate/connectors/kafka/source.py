"""Reading Kafka topics as a source: one split a partition, positions are offsets.

The reader hands out what the consumer brings and knows where that ends, no more: it never chooses an offset, never
counts by offsets, which have gaps, and ends a bounded split by its position, not by a record.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka.buffers import PartitionBuffer
from tidegate.connectors.kafka.client import (
    Chunk,
    Columns,
    Consumer,
    Isolation,
    OnLostOffsets,
    Question,
    Questions,
    TopicPartition,
    partition_of,
)
from tidegate.connectors.kafka.connection import Client, Connection
from tidegate.connectors.kafka.discovery import Discovery, Selection, Where
from tidegate.connectors.kafka.identity import TopicIdentity
from tidegate.connectors.kafka.records import FIELDS, Field, deserializer_of, records_of
from tidegate.connectors.kafka.settings import Setting
from tidegate.errors import InvalidError
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext
from tidegate.operators.watching import watched_by

BUFFERED_RECORDS = 10_000
BUFFERED_BYTES = 16_777_216
"""About so much is fetched ahead of what is handed out, so that partitions can take turns."""
SAMPLED = 16
"""One value in so many is measured."""

Start = Literal["earliest", "latest"] | Mapping[int | str, int] | datetime
Bound = bool | Literal["latest"] | Mapping[int | str, int] | datetime


class KafkaSource:
    """Records of Kafka topics, exactly once with the job's checkpoints; offsets of the group are never read.

    bootstrap: 'HOST:PORT', several with commas between.
    topics: one or several names; or pattern: a regular expression that the whole name must match, also of topics that
        are created later. Internal topics never match.
    value, key: the formats; without one, bytes. A record without a value is None, whatever the format.
    include: makes the stream's values KafkaRecords with these fields filled: 'key', 'timestamp', 'headers', 'position'.
    timestamps: give the records' timestamps to the engine.
    start: where to begin when there is no checkpoint: 'earliest', 'latest', offsets by partition (by 'topic/partition'
        with several topics; partitions not named begin at their beginning), or the first record of an aware datetime.
        Partitions found later begin at their beginning.
    bounded: stop at the end that each partition has at the start (True or 'latest'), before offsets by partition
        (those not named: at their end), or before the first record of an aware datetime.
    isolation: 'read_committed' holds back what is in open transactions and leaves out what was aborted.
    discovery_interval: seconds between two looks for new partitions and topics; None looks once, as bounded reads do.
    group: of the offsets that are committed after each checkpoint for lag tools, unless commit_group_offsets is False;
        the job's name by default.
    on_lost_offsets: 'fail' when records are gone before they were read, or go on at the 'earliest' that is there.
    settings: for security and tuning, by librdkafka's names.
    client: who reads the records: 'batches', Tidegate's own client, which moves whole record batches and is the
        default, or 'librdkafka', which costs more and follows every setting.

    Raises InvalidError for arguments that contradict each other or mean nothing.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        value: Deserializer | None = None,
        key: Deserializer | None = None,
        include: Collection[Field] = (),
        timestamps: bool = False,
        start: Start = "earliest",
        bounded: Bound = False,
        isolation: Isolation = "read_committed",
        discovery_interval: float | None = 10.0,
        group: str | None = None,
        commit_group_offsets: bool = True,
        on_lost_offsets: OnLostOffsets = "fail",
        settings: Mapping[str, Setting] = {},
        client: Client | None = None,
    ) -> None:
        self.connection = Connection.for_records(bootstrap, settings, client)
        self._selection = _selection(topics, pattern)
        self._include = tuple(_one_of("include", field, FIELDS) for field in include)
        if key is not None and "key" not in self._include:
            raise InvalidError("key= is a format, and the key is not asked for", remedy="Add include=['key'].")
        self._deserializer = deserializer_of(value, key, self._include)
        self._timestamps = timestamps or "timestamp" in self._include
        self._isolation: Isolation = _one_of("isolation", isolation, ("read_committed", "read_uncommitted"))
        self._on_lost_offsets: OnLostOffsets = _one_of("on_lost_offsets", on_lost_offsets, ("fail", "earliest"))
        if discovery_interval is not None and not discovery_interval > 0:
            raise InvalidError(
                f"discovery_interval={discovery_interval} is not above 0", remedy="Give seconds or None."
            )
        if group == "":
            raise InvalidError("group='' is no name", remedy="Leave it out for the job's name.")
        self._group = group
        self._commits_group_offsets = commit_group_offsets
        end = "latest" if bounded is True else bounded
        bound = None if end is False else _where("bounded", end, self._selection)
        self._discovery = Discovery(
            self._questions, self._selection, _where("start", start, self._selection), bound, self._isolation
        )
        self.starts_at_end = start == "latest"
        self._bounded = bound is not None
        self._discovery_interval = None if self._bounded else discovery_interval

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def deserializer(self) -> Deserializer | None:
        return self._deserializer

    @property
    def discovery_interval(self) -> float | None:
        return self._discovery_interval

    @property
    def inspection_spec(self) -> RecoverySpec:
        return RecoverySpec(
            "tidegate.connectors.kafka.discovery:open_inspection",
            {**self.connection.arguments(), "isolation": self._isolation},
        )

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return self._discovery.splits(known)

    def partition_of(self, split: str) -> tuple[str, int]:
        return partition_of(split)

    def open_reader(self, context: SourceContext) -> "KafkaSourceReader":
        columns = Columns(
            keys="key" in self._include, timestamps=self._timestamps, headers="headers" in self._include, offsets=True
        )
        identity = TopicIdentity(self._asker(), self.connection.bootstrap, self._selection, self._clock())
        consumer = self._consumer(self._group or context.job, columns)
        return KafkaSourceReader(consumer, identity, self._include, self._commits_group_offsets)

    # What reaches the brokers. A source on simulated ones overrides these four, and nothing else.

    def _questions(self) -> Questions:
        from tidegate.connectors.kafka.cluster import Cluster

        return Cluster(self.connection)

    def _asker(self) -> Callable[[Sequence[str]], Question]:
        from tidegate.connectors.kafka.cluster import TopicQuestion, admin_client

        admin = admin_client(self.connection)
        return lambda names: TopicQuestion(admin, names, self.connection.bootstrap)

    def _consumer(self, group: str, columns: Columns) -> Consumer:
        if self.connection.moves_batches:
            from tidegate.connectors.kafka.batches.consumer import BatchConsumer

            return BatchConsumer(self.connection, group, columns, self._isolation, self._on_lost_offsets)
        from tidegate.connectors.kafka.consumer import ConfluentConsumer

        return ConfluentConsumer(self.connection, group, columns, self._isolation, self._on_lost_offsets)

    def _clock(self) -> Clock:
        return SystemClock()


class KafkaSourceReader:
    """Reads its partitions in turns, after `identity` has found that they are those that were discovered."""

    def __init__(
        self, consumer: Consumer, identity: TopicIdentity, include: Collection[Field] = (), commits: bool = True
    ) -> None:
        self._consumer = consumer
        self._identity = identity
        self._include = include
        self._commits = commits
        self._given: set[str] = set()
        self._reading: dict[TopicPartition, PartitionBuffer] = {}
        self._ready: deque[PartitionBuffer] = deque()
        self._paused: set[str] = set()
        self._left_out: dict[str, SplitState] = {}
        """Those of the paused ones that are verified, from where each is to be read on."""
        self._buffered = 0
        self._size = BUFFERED_BYTES // BUFFERED_RECORDS
        """Bytes that a record is estimated to have."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._given.update(split.id for split in splits)
        self._identity.add(splits)

    def pause_or_resume_splits(self, to_pause: Collection[str], to_resume: Collection[str]) -> None:
        """What was fetched of a paused split is let go, or the room for others would fill up with it; the consumer,
        too, drops what it has of a partition that it is not to read for a while."""
        self._paused.update(to_pause)
        self._paused.difference_update(to_resume)
        for id in to_pause:
            self._let_go(id)
        self._begin([self._left_out.pop(id) for id in to_resume if id in self._left_out])

    def _let_go(self, id: str) -> None:
        partition = partition_of(id)
        buffer = self._reading.pop(partition, None)
        if buffer is not None:
            self._consumer.remove(partition)
        buffer = buffer or next((ready for ready in self._ready if ready.split == id), None)
        if buffer is None:
            # It is not verified yet.
            return
        if buffer.has_more:
            self._ready.remove(buffer)
        self._buffered -= buffer.records
        self._left_out[id] = buffer.rest

    def poll(self, max_records: int) -> Fetched | None:
        found = self._identity.verified()
        if found:
            self._begin(found)
        room = min(BUFFERED_RECORDS, max(1, BUFFERED_BYTES // self._size)) - self._buffered
        if room > 0 and self._reading:
            for chunk in self._consumer.fetch(room):
                self._put(chunk)
        return self._next(max_records)

    def watched(self) -> Sequence[int]:
        return watched_by(self._consumer) if self._reading and self._identity.is_settled else ()

    def _begin(self, splits: Sequence[SplitState]) -> None:
        positions: dict[TopicPartition, int] = {}
        for split in splits:
            buffer = PartitionBuffer(split)
            if split.id in self._paused:
                self._left_out[split.id] = split
            elif buffer.is_complete:
                self._ready.append(buffer)
            else:
                self._reading[buffer.partition] = buffer
                positions[buffer.partition] = split.position
        if positions:
            self._consumer.add(positions)

    def _put(self, chunk: Chunk) -> None:
        buffer = self._reading.get(chunk.partition)
        if buffer is None:
            return
        if chunk.values:
            sample = [len(value) if value else 0 for value in chunk.values[::SAMPLED]]
            measured = 1 + sum(sample) // len(sample)
            self._size = max(measured, (3 * self._size + measured) // 4)
        was_waiting = buffer.has_more
        self._buffered += buffer.put(chunk, records_of(chunk, self._include) if self._include else chunk.values)
        if buffer.is_complete:
            del self._reading[chunk.partition]
            self._consumer.remove(chunk.partition)
        if buffer.has_more and not was_waiting:
            self._ready.append(buffer)

    def _next(self, max_records: int) -> Fetched | None:
        if not self._ready:
            return None
        buffer = self._ready.popleft()
        fetched = buffer.take(max_records)
        self._buffered -= len(fetched.values)
        if fetched.finished:
            self._identity.remove(fetched.split)
        if buffer.has_more:
            self._ready.append(buffer)
        return fetched

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        if not self._commits:
            return
        mine = [split for split in splits if split.id in self._given and split.position >= 0]
        if mine:
            self._consumer.commit_group_offsets({partition_of(split.id): split.position for split in mine})

    def close(self) -> None:
        self._consumer.close()


# ---- arguments -----------------------------------------------------------------------------------------------------


def _one_of(argument: str, given: Any, known: Sequence[str]) -> Any:
    if given not in known:
        raise InvalidError(f"{argument}={given!r} is not known", remedy=f"Known are {', '.join(map(repr, known))}.")
    return given


def _selection(topics: str | Sequence[str] | None, pattern: str | None) -> Selection:
    if (topics is None) == (pattern is None):
        raise InvalidError("a KafkaSource needs topics or a pattern, and not both", remedy="Give one of the two.")
    if pattern is not None:
        try:
            return Selection(pattern=re.compile(pattern))
        except re.error as error:
            raise InvalidError(f"pattern={pattern!r} is no regular expression: {error}") from None
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics or ()))
    if not names or "" in names:
        raise InvalidError(f"topics={topics!r} names no topic", remedy="Name at least one.")
    return Selection(names)


def _where(argument: str, given: object, selection: Selection) -> Where:
    match given:
        case "earliest" | "latest" if (argument, given) != ("bounded", "earliest"):
            return given
        case datetime():
            if given.tzinfo is None:
                remedy = "Give one with a time zone: datetime(..., tzinfo=UTC)."
                raise InvalidError(f"{argument}={given!r} has no time zone, so it is no moment", remedy=remedy)
            return given
        case Mapping():
            return {_split(argument, place, selection): _offset(argument, offset) for place, offset in given.items()}
    known = "'earliest', 'latest'" if argument == "start" else "True, 'latest'"
    raise InvalidError(
        f"{argument}={given!r} is not known", remedy=f"Use {known}, {{partition: offset}} or an aware datetime."
    )


def _split(argument: str, place: object, selection: Selection) -> str:
    match place:
        case str() if re.fullmatch(r"[^/]+/[0-9]+", place):
            return place
        case int() if len(selection.names) == 1:
            return f"{selection.names[0]}/{place}"
        case int():
            raise InvalidError(f"{argument} names partition {place} by number alone", remedy="Use 'topic/partition'.")
    raise InvalidError(f"{argument} names {place!r}, which is no partition", remedy="Use 'topic/partition'.")


def _offset(argument: str, offset: object) -> int:
    if not isinstance(offset, int) or offset < 0:
        raise InvalidError(f"{argument} names {offset!r}, which is no offset", remedy="Offsets are 0 and more.")
    return offset
