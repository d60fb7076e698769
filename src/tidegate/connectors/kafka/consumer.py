"""Reading partitions through confluent-kafka: messages in, columns out, nothing per record that can be per batch.

It reads what it is given from exactly where it is told: partitions are assigned, never subscribed to, and an offset
that is not there is an error, never a jump. The group serves lag tools alone: nothing is ever read back from it.
"""

import ctypes
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka.client import Chunk, Columns, Header, Isolation, OnLostOffsets, TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.errors import Subject, of_confluent
from tidegate.connectors.kafka.lost import lost_offsets
from tidegate.connectors.kafka.rare_log import RareLog
from tidegate.errors import InvalidError, LostDataError

LOGGER = logging.getLogger("tidegate.kafka")

ANSWER_WITHIN = 5.0
"""Seconds for a question about a partition's range; asked only when an offset is out of it."""
CLOSED_WITHIN = 0.5
"""Seconds that `close` waits for a last commit of group offsets."""

TUNING: Mapping[str, int] = {
    # A partition that has prefetched enough would by default pause for a whole second, in which it is read empty.
    "fetch.queue.backoff.ms": 5,
    # Also how long an empty fetch may keep waiting what comes behind it: a partition's end, one that is added.
    "fetch.wait.max.ms": 100,
    # Of all partitions together; one fetch more a broker may be on its way.
    "queued.max.messages.kbytes": 32_768,
    "fetch.max.bytes": 16_777_216,
}
"""Defaults, which the user's settings override."""

VALUES_ONLY = Columns()

# What librdkafka's types call optional is always there in a message that is a record.
_ERROR = Message.error
_TOPIC = cast(Callable[[Message], str], Message.topic)
_PARTITION = cast(Callable[[Message], int], Message.partition)
_OFFSET = cast(Callable[[Message], int], Message.offset)
_VALUE, _KEY, _TIMESTAMP = Message.value, Message.key, Message.timestamp
_HEADERS = cast(Callable[[Message], list[Header] | None], Message.headers)


class ConfluentConsumer:
    """`client.Consumer`. What passes by itself is logged, and reading goes on; the rest is raised by `fetch`."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        columns: Columns = VALUES_ONLY,
        isolation: Isolation = "read_committed",
        on_lost_offsets: OnLostOffsets = "fail",
        clock: Clock | None = None,
    ) -> None:
        self._bootstrap = connection.bootstrap
        self._group = group
        self._columns = columns
        self._on_lost_offsets = on_lost_offsets
        self._positions: dict[TopicPartition, int] = {}
        self._told: list[KafkaError] = []
        clock = clock or SystemClock()
        self._log = RareLog(clock)
        self._commits = GroupCommits(group, self._log, clock)
        self.lost_offsets = 0
        """Offsets that were passed over because they are gone, under on_lost_offsets='earliest'."""
        config: dict[str, Any] = {
            **TUNING,
            **connection.consumer_config(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "error_cb": self._told.append,
            "on_commit": self._commits.answered,
        }
        try:
            self._client = confluent_kafka.Consumer(config)
        except KafkaException as error:
            raise of_confluent(error, f"setting up a consumer of {self._bootstrap}") from None

    # ---- what is read ----------------------------------------------------------------------------------------------

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.update(positions)
        self._client.incremental_assign([_at(partition, offset) for partition, offset in positions.items()])

    def remove(self, partition: TopicPartition) -> None:
        del self._positions[partition]
        self._client.incremental_unassign([_at(partition)])

    def _jump(self, partition: TopicPartition, offset: int) -> None:
        self.remove(partition)
        self.add({partition: offset})

    def fetch(self, max_records: int) -> list[Chunk]:
        messages = self._client.consume(max_records, 0)
        self._commits.send(self._client)
        self._look_at_told()
        if not any(map(_ERROR, messages)):
            return self._chunks(messages)
        events = [message for message in messages if message.error() is not None]
        chunks = self._chunks([message for message in messages if message.error() is None])
        chunks += [chunk for event in events for chunk in self._of_event(event)]
        return chunks

    def _chunks(self, messages: list[Message]) -> list[Chunk]:
        return [self._chunk(partition, run) for partition, run in _runs(messages) if partition in self._positions]

    def _chunk(self, partition: TopicPartition, run: list[Message]) -> Chunk:
        end = self._positions[partition] = _OFFSET(run[-1]) + 1
        columns = self._columns
        return Chunk(
            partition=partition,
            values=list(map(_VALUE, run)),
            next_offset=end,
            keys=list(map(_KEY, run)) if columns.keys else None,
            timestamps=[time if kind else -1 for kind, time in map(_TIMESTAMP, run)] if columns.timestamps else None,
            headers=[headers or [] for headers in map(_HEADERS, run)] if columns.headers else None,
            offsets=list(map(_OFFSET, run)) if columns.offsets else None,
        )

    # ---- what is no record -----------------------------------------------------------------------------------------

    def _of_event(self, event: Message) -> list[Chunk]:
        error, topic, number, offset = event.error(), event.topic(), event.partition(), event.offset()
        assert error is not None
        if topic is None or number is None:
            self._judge(error, topic or "")
            return []
        partition = TopicPartition(topic, number)
        if partition not in self._positions:
            return []
        match error.code():
            case KafkaError._PARTITION_EOF:
                return self._moved(partition, offset or 0)
            case KafkaError._AUTO_OFFSET_RESET | KafkaError.OFFSET_OUT_OF_RANGE:
                return self._out_of_range(partition, self._positions[partition])
            case KafkaError._LOG_TRUNCATION:
                what = f"{partition} at {self._bootstrap} has lost records that were already read: {error.str()}"
                raise LostDataError(what, remedy="Bring them back, or start afresh on what is there now (--fresh).")
        self._judge(error, topic)
        return []

    def _moved(self, partition: TopicPartition, end: int) -> list[Chunk]:
        """Behind the last record there may be more offsets, of markers and of what was aborted."""
        if end <= self._positions[partition]:
            return []
        self._positions[partition] = end
        return [Chunk(partition, [], end, *_no_records(self._columns))]

    def _judge(self, error: KafkaError, topic: str) -> None:
        """Raise what somebody has to mend; log what passes."""
        meaning = of_confluent(error, self._doing(topic), Subject(topic=topic, group=self._group, operation="READ"))
        is_about_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        if error.fatal() or (isinstance(meaning, InvalidError) and not is_about_group):
            raise meaning
        self._log.warn(meaning.failure.message)

    def _doing(self, topic: str) -> str:
        return f"reading topic {topic} at {self._bootstrap}" if topic else f"reading from {self._bootstrap}"

    def _look_at_told(self) -> None:
        """Errors of the client as a whole come through a callback, which must not raise."""
        while self._told:
            self._judge(self._told.pop(0), "")

    def _out_of_range(self, partition: TopicPartition, offset: int) -> list[Chunk]:
        low, end = self._range(partition)
        if low <= offset <= end:
            self._log.warn(f"{partition} at {self._bootstrap} had no offset {offset} for a moment; going on there")
            self._jump(partition, offset)
            return []
        if offset > end or self._on_lost_offsets == "fail":
            raise lost_offsets(partition, self._bootstrap, offset, low, end)
        self.lost_offsets += low - offset
        LOGGER.warning(
            "%s at %s: offsets %d to %d are gone, reading goes on at %d (on_lost_offsets='earliest'; %d lost in all)",
            *(partition, self._bootstrap, offset, low - 1, low, self.lost_offsets),
        )
        self._jump(partition, low)
        return [Chunk(partition, [], low, *_no_records(self._columns))]

    def _range(self, partition: TopicPartition) -> tuple[int, int]:
        try:
            low, end = self._client.get_watermark_offsets(_at(partition), timeout=ANSWER_WITHIN)
        except KafkaException as error:
            raise of_confluent(error, f"asking {self._bootstrap} for the range of {partition}") from None
        return low, end

    # ---- group offsets, closing ------------------------------------------------------------------------------------

    def commit_group_offsets(self, positions: Mapping[TopicPartition, int]) -> None:
        self._commits.want(positions)
        self._commits.send(self._client)

    def close(self) -> None:
        """Waits for `CLOSED_WITHIN` at most."""
        self._client.unassign()
        until = time.monotonic() + CLOSED_WITHIN
        while self._commits.is_under_way and time.monotonic() < until:
            self._client.poll(0.01)
            self._commits.send(self._client)
        if self._commits.is_under_way:
            # Closing and collecting it would both wait for the answer, a minute and longer, with all of Python held up.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._client))
        else:
            self._client.close()


class GroupCommits:
    """Commits of group offsets, few under way at a time: of those that have to wait only the newest is kept.

    Through the consumer and not an admin client: in librdkafka 2.16, whatever an admin client asks a group's
    coordinator ends the process when the connection breaks (librdkafka's issues 3663 and 4605).
    """

    def __init__(self, group: str, log: RareLog, clock: Clock) -> None:
        self._group = group
        self._log = log
        self._clock = clock
        self._wanted: Mapping[TopicPartition, int] = {}
        self._under_way = 0
        self._sent_at = 0.0

    @property
    def is_under_way(self) -> bool:
        return self._under_way > 0

    def want(self, positions: Mapping[TopicPartition, int]) -> None:
        self._wanted = positions

    def send(self, client: confluent_kafka.Consumer) -> None:
        """Unless one has just been sent: whether it was answered shows when the consumer is polled, and a reader that
        has enough in hand does not do that. Does not wait."""
        now = self._clock.now().monotonic
        if not self._wanted or (self._under_way and now < self._sent_at + ANSWER_WITHIN):
            return
        offsets = [_at(partition, offset) for partition, offset in self._wanted.items()]
        self._wanted = {}
        try:
            client.commit(offsets=offsets, asynchronous=True)
            self._under_way += 1
            self._sent_at = now
        except KafkaException as error:
            self._failed(error)

    def answered(self, error: KafkaError | None, partitions: Sequence[confluent_kafka.TopicPartition]) -> None:
        """librdkafka's callback, called while the consumer is polled."""
        self._under_way -= 1
        problems = [error] if error else [partition.error for partition in partitions if partition.error]
        if problems:
            self._failed(problems[0])

    def _failed(self, error: object) -> None:
        self._log.warn(f"offsets of group {self._group}, which serve lag tools only, were not committed: {error}")


def _runs(messages: Sequence[Message]) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Neighbours of one partition together, in order."""
    for topic, of_topic in groupby(messages, _TOPIC):
        for partition, run in groupby(of_topic, _PARTITION):
            yield TopicPartition(topic, partition), list(run)


def _no_records(columns: Columns) -> tuple[list[Any] | None, ...]:
    """The columns of a chunk without records, in `Chunk`'s order."""
    wanted = (columns.keys, columns.timestamps, columns.headers, columns.offsets)
    return tuple([] if is_wanted else None for is_wanted in wanted)


def _at(partition: TopicPartition, offset: int = confluent_kafka.OFFSET_INVALID) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
