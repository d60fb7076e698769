"""From a batch of a stream to the columns that a producer sends: the user's functions are called here, and only here.

Nothing is reordered within a topic, and nothing is sent before every column of the batch has been made: a function that
raises leaves the batch unsent as a whole.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tidegate.connectors.kafka.client import Header, Producer
from tidegate.connectors.kafka.records import RecordColumns, RecordValue
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.formats import Serializer

Key = bytes | str | None


class Encoding(NamedTuple):
    """How the records of a sink are written."""

    topic: str | Callable[[Any], str]
    value: Serializer
    key: Callable[[Any], Key] | None = None
    headers: Callable[[Any], Sequence[Header]] | None = None
    timestamp: Callable[[Any], int] | None = None
    partition: Callable[[Any, int], int] | None = None


class PartitionCounts:
    """How many partitions topics have, asked once for each use: a transaction sees one number from begin to end."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, topic: str, producer: Producer) -> int:
        """Blocks when it is asked for a topic for the first time."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = producer.partition_count(topic)
        return count

    @property
    def topics(self) -> list[str]:
        return list(self._counts)


def takes_columns(encoding: Encoding) -> bool:
    """Whether all that is written of records of Kafka is in their columns, so that no record need be made."""
    others = (encoding.headers, encoding.timestamp, encoding.partition)
    has_key = encoding.key is None or _is_key_of_record(encoding.key)
    is_plain = isinstance(encoding.topic, str) and others == (None, None, None)
    return is_plain and has_key and type(encoding.value) is RecordValue


def _is_key_of_record(function: Callable[[Any], Any]) -> bool:
    return isinstance(function, attrgetter) and function.__reduce__()[1] == ("key",)


def send(encoding: Encoding, batch: Batch, producer: Producer, counts: PartitionCounts) -> None:
    """Send the batch, in order: one call a topic. Raises what the user's functions and the producer raise."""
    if not batch.values:
        return
    records: Any = batch.values
    if isinstance(records, RecordColumns):
        _send_columns(encoding, records, batch.timestamps, producer)
        return
    values = encoding.value.encode(batch.values)
    if callable(encoding.topic):
        parts = _by_topic([_as_topic(encoding.topic(value)) for value in batch.values])
    else:
        parts = {encoding.topic: None}
    sends = []
    for topic, indexes in parts.items():
        part = batch if indexes is None else _selected(batch, indexes)
        encoded = values if indexes is None else [values[index] for index in indexes]
        sends.append((topic, encoded, *_columns(encoding, part, topic, producer, counts)))
    for one in sends:
        producer.send(*one)


def _send_columns(encoding: Encoding, records: RecordColumns, timestamps: list[int] | None, producer: Producer) -> None:
    """As `takes_columns` says. What was read are bytes or None, and needs no second look."""
    assert isinstance(encoding.topic, str)
    assert isinstance(encoding.value, RecordValue)
    keys = None if encoding.key is None else records.beside.keys or [None] * len(records)
    producer.send(encoding.topic, encoding.value.encode_read(records.values), keys, None, timestamps, None)


def _columns(
    encoding: Encoding, batch: Batch, topic: str, producer: Producer, counts: PartitionCounts
) -> tuple[list[bytes | None] | None, list[int] | None, list[int] | None, list[Sequence[Header]] | None]:
    records = batch.values
    keys = None if encoding.key is None else _as_keys(list(map(encoding.key, records)))
    partitions = None
    if encoding.partition is not None:
        count = counts.of(topic, producer)
        partitions = [_as_partition(encoding.partition(record, count), count, topic) for record in records]
    timestamps = batch.timestamps
    if encoding.timestamp is not None:
        timestamps = [_as_timestamp(encoding.timestamp(record)) for record in records]
    headers = None if encoding.headers is None else [encoding.headers(record) for record in records]
    return keys, partitions, timestamps, headers


def _by_topic(topics: list[str]) -> dict[str, list[int] | None]:
    """The indexes of each topic's records; None for all of them."""
    if topics.count(topics[0]) == len(topics):
        return {topics[0]: None}
    found: dict[str, list[int]] = {}
    for index, topic in enumerate(topics):
        found.setdefault(topic, []).append(index)
    return dict(found)


def _selected(batch: Batch, indexes: list[int]) -> Batch:
    timestamps = None if batch.timestamps is None else [batch.timestamps[index] for index in indexes]
    return Batch([batch.values[index] for index in indexes], timestamps=timestamps)


def _as_topic(topic: Any) -> str:
    if isinstance(topic, str) and topic:
        return topic
    raise InvalidError(f"topic= must give the name of a topic, not {topic!r}")


def _as_keys(keys: list[Any]) -> list[bytes | None]:
    """Most keys are all of one kind."""
    if isinstance(keys[0], str):
        try:
            return list(map(str.encode, keys))
        except TypeError:
            return list(map(_as_key, keys))
    return keys if set(map(type, keys)) == {bytes} else list(map(_as_key, keys))


def _as_key(key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise InvalidError(f"key= must give bytes, str or None, not {type(key).__name__}: {key!r}")


def _as_timestamp(timestamp: Any) -> int:
    if isinstance(timestamp, int):
        return timestamp
    raise InvalidError(f"timestamp= must give whole milliseconds since 1970, not {timestamp!r}")


def _as_partition(partition: Any, count: int, topic: str) -> int:
    if isinstance(partition, int) and 0 <= partition < count:
        return partition
    raise InvalidError(f"partition= gave {partition!r}, and topic {topic} has the partitions 0 to {count - 1}")
