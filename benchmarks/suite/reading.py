"""What is committed in an output topic, a partition at a time: columns for the check, and when the broker appended
them.

It reads through librdkafka, so that no system under test is judged through its own reader.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, TopicPartition

from benchmarks.suite.checks import Check, Column
from tidegate.errors import InvalidError, UnavailableError

AT_ONCE = 2_000
"""Records in one call. Of more of them each costs more."""
PATIENCE = 30.0
_CONFIG = {
    "log_level": 0,
    "group.id": "bench-check",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.queue.backoff.ms": 5,
}


class AppendTimes:
    """How many records the broker appended in each millisecond."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, milliseconds: Sequence[int]) -> None:
        self._counts.update(milliseconds)

    def __len__(self) -> int:
        return self._counts.total()

    def at(self, share: float) -> float:
        """When so much of all records had been appended, in seconds since 1970; 0 means the first record. Raises
        InvalidError when there is none."""
        wanted, appended = share * len(self), 0
        for moment, count in sorted(self._counts.items()):
            appended += count
            if appended >= wanted:
                return moment / 1000
        raise InvalidError("there is no record", remedy="See the log of what should have written some.")


class Chunk(NamedTuple):
    partition: int
    keys: Column
    values: Column
    appended: Sequence[int]
    """Milliseconds since 1970."""


class Output:
    """The committed records of a topic; reading goes on where it has stopped. For one thread; `close` it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, check: Check) -> None:
        self._topic = topic
        self._positions = dict.fromkeys(range(partitions), 0)
        self._consumer = Consumer(_CONFIG | {"bootstrap.servers": bootstrap})
        self._check = check
        self.times = AppendTimes()

    @property
    def records(self) -> int:
        return self._check.records

    def read_on(self) -> int:
        """Hand over to the check what is committed by now, and return how many records that were in all. Raises
        WrongResult for what no check can read, UnavailableError."""
        for partition in self._positions:
            for chunk in self._chunks(partition):
                self._check.add(chunk.partition, chunk.keys, chunk.values)
                self.times.add(chunk.appended)
        return self.records

    def _chunks(self, partition: int) -> Iterator[Chunk]:
        self._consumer.assign([TopicPartition(self._topic, partition, self._positions[partition])])
        is_ended = False
        while not is_ended:
            messages = self._consumer.consume(AT_ONCE, timeout=0.2)
            records = [message for message in messages if message.error() is None]
            is_ended = len(records) < len(messages)
            if is_ended:
                _raise_errors(messages)
            if records:
                self._positions[partition] = (records[-1].offset() or 0) + 1
                yield _chunk(partition, records)
        self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()


def _raise_errors(messages: list[Message]) -> None:
    """The end of a partition is none. Raises UnavailableError."""
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise UnavailableError(f"the output cannot be read: {error}", remedy="Look at the broker's log.")


def _chunk(partition: int, messages: list[Message]) -> Chunk:
    kinds, appended = zip(*[message.timestamp() for message in messages], strict=True)
    if kinds.count(TIMESTAMP_LOG_APPEND_TIME) != len(kinds):
        raise InvalidError("the records bear no time of appending", remedy="Let the suite make the output topic.")
    keys = [message.key() for message in messages]
    return Chunk(partition, keys, [message.value() for message in messages], appended)
