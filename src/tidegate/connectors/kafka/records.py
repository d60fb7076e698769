"""Kafka's records as values of a stream: `KafkaRecord`, and the formats applied to what a consumer read.

A record without a value is a tombstone and means something: it reaches the user as None, and no format ever sees it.
"""

from collections.abc import Collection, Iterable
from itertools import repeat
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

import msgspec

from tidegate.connectors.kafka.client import Chunk, Header
from tidegate.formats import Bytes, Serializer
from tidegate.operators.contracts import Deserializer

T = TypeVar("T")

_VALUE = attrgetter("value")

Field = Literal["key", "timestamp", "headers", "position"]
FIELDS: tuple[Field, ...] = ("key", "timestamp", "headers", "position")


class KafkaRecord(msgspec.Struct, Generic[T], frozen=True):
    """A record with what Kafka keeps beside its value. A field that the source was not asked for has its default."""

    value: T
    """None is a tombstone: in a compacted topic it says that the key is gone."""
    key: Any = None
    """Bytes, or what the source's `key` format makes of them."""
    timestamp: int | None = None
    """Milliseconds since 1970; None where the record has none."""
    headers: tuple[Header, ...] = ()
    """In order; a name may occur several times, and a value may be None."""
    topic: str = ""
    partition: int = -1
    offset: int = -1


def records_of(chunk: Chunk, include: Collection[Field]) -> list[KafkaRecord[bytes | None]]:
    """The records of a chunk as they were read, with the fields of `include`. What is given costs, also where it is the
    default: so nothing is that comes behind the last field that was asked for."""
    headers = chunk.headers if "headers" in include else None
    columns: list[Iterable[Any]] = [
        (chunk.keys if "key" in include else None) or repeat(None),
        _or_none(chunk.timestamps if "timestamp" in include else None) or repeat(None),
    ]
    if headers or "position" in include:
        columns.append(map(tuple, headers) if headers else repeat(()))
    if "position" in include:
        topic, partition = chunk.partition
        columns += repeat(topic), repeat(partition), chunk.offsets or repeat(-1)
    return list(map(KafkaRecord, chunk.values, *columns))


def _or_none(timestamps: list[int] | None) -> list[int] | list[int | None] | None:
    if timestamps is None or -1 not in timestamps:
        return timestamps
    return [None if one == -1 else one for one in timestamps]


class RecordValue:
    """A sink's format for `KafkaRecord`s: their values, through `format`; without one they must be bytes, and stay as
    they are. What surrounds a value is the sink's to ask for: `key=operator.attrgetter("key")` keeps a record's key.
    Encoding raises AttributeError for what is no record."""

    def __init__(self, format: Serializer | None = None) -> None:
        self._format = Bytes() if format is None else format

    def encode(self, values: list[Any]) -> list[bytes | None]:
        return self._format.encode(list(map(_VALUE, values)))

    def __repr__(self) -> str:
        return f"RecordValue({self._format!r})"


class ValueDeserializer:
    """Values through `format`; None stays None."""

    def __init__(self, format: Deserializer) -> None:
        self._format = format

    def decode(self, raw: list[Any]) -> list[Any]:
        return decode_present(self._format, raw)

    def decode_one(self, raw: Any) -> Any:
        return None if raw is None else self._format.decode_one(raw)


class RecordDeserializer:
    """KafkaRecords of bytes into KafkaRecords of what the formats make of value and key."""

    def __init__(self, value: Deserializer | None, key: Deserializer | None) -> None:
        self._value = value
        self._key = key

    def decode(self, raw: list[Any]) -> list[Any]:
        values = decode_present(self._value, [record.value for record in raw])
        keys = decode_present(self._key, [record.key for record in raw])
        return [
            KafkaRecord(value, key, old.timestamp, old.headers, old.topic, old.partition, old.offset)
            for value, key, old in zip(values, keys, raw, strict=True)
        ]

    def decode_one(self, raw: Any) -> Any:
        (record,) = self.decode([raw])
        return record


def deserializer_of(
    value: Deserializer | None, key: Deserializer | None, include: Collection[Field]
) -> Deserializer | None:
    """How what the reader brings becomes the stream's values; None where it is that already."""
    if value is None and key is None:
        return None
    if include:
        return RecordDeserializer(value, key)
    return None if value is None else ValueDeserializer(value)


def decode_present(format: Deserializer | None, raw: list[Any]) -> list[Any]:
    """All through `format`, except what is None. Raises ValueError when the format does not give one for each."""
    if format is None:
        return raw
    # What is all true has no None, and is looked through in half the time.
    if all(raw) or None not in raw:
        return format.decode(raw)
    present = [one for one in raw if one is not None]
    decoded = format.decode(present)
    if len(decoded) != len(present):
        raise ValueError(f"the format {format!r} made {len(decoded)} values of {len(present)}")
    following = iter(decoded)
    return [None if one is None else next(following) for one in raw]
