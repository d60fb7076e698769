"""Kafka's records as values of a stream: `KafkaRecord`, and the formats applied to what a consumer read.

A record without a value is a tombstone and means something: it reaches the user as None, and no format ever sees it.
Records stay columns until somebody asks for one: to make an object of each costs as much as to decode its bytes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import msgspec

from tidegate.connectors.kafka.client import Chunk, Header, TopicPartition
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


class Beside(NamedTuple):
    """Columns beside the values. None where nobody asked for one: every record then has the field's default."""

    keys: list[Any] | None = None
    timestamps: Sequence[int] | None = None
    """-1 where a record has none."""
    headers: Sequence[Sequence[Header]] | None = None
    offsets: Sequence[int] | None = None


NOTHING = Beside()


class RecordColumns(Sequence[KafkaRecord[Any]]):
    """Records of one partition that are columns: each is made anew when it is asked for. `place`: the partition, where
    the records say it. The columns are others', too, and are not changed."""

    __slots__ = ("beside", "place", "values")

    def __init__(self, values: list[Any], beside: Beside = NOTHING, place: TopicPartition | None = None) -> None:
        self.values = values
        self.beside = beside
        self.place = place

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[KafkaRecord[Any]]:
        """What is given costs, also where it is the default: so nothing is that comes behind the last field that was
        asked for."""
        keys, timestamps, headers, offsets = self.beside
        columns: list[Iterable[Any]] = [keys or repeat(None), _or_none(timestamps) or repeat(None)]
        if headers or self.place is not None:
            columns.append(map(tuple, headers) if headers else repeat(()))
        if self.place is not None:
            columns += repeat(self.place.topic), repeat(self.place.partition), offsets or repeat(-1)
        return map(KafkaRecord, self.values, *columns)

    @overload
    def __getitem__(self, index: int) -> KafkaRecord[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> "RecordColumns": ...
    def __getitem__(self, index: int | slice) -> "KafkaRecord[Any] | RecordColumns":
        if isinstance(index, slice):
            cut: list[Any] = [None if column is None else column[index] for column in self.beside]
            return RecordColumns(self.values[index], Beside(*cut), self.place)
        position = range(len(self.values))[index]
        (record,) = self[position : position + 1]
        return record

    @staticmethod
    def joined(parts: "Sequence[RecordColumns]") -> "RecordColumns":
        """Those of one partition, one behind the other. All have the same columns."""
        beside = Beside(*map(_joined, zip(*(part.beside for part in parts), strict=True)))
        return RecordColumns(list(chain.from_iterable(part.values for part in parts)), beside, parts[0].place)


def _joined(columns: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    present = [column for column in columns if column is not None]
    return list(chain.from_iterable(present)) if present else None


def records_of(chunk: Chunk, include: Collection[Field]) -> RecordColumns:
    """The records of a chunk as they were read, with the fields of `include`."""
    beside = Beside(
        chunk.keys if "key" in include else None,
        chunk.timestamps if "timestamp" in include else None,
        chunk.headers if "headers" in include else None,
        chunk.offsets if "position" in include else None,
    )
    return RecordColumns(chunk.values, beside, chunk.partition if "position" in include else None)


def _or_none(timestamps: Sequence[int] | None) -> Sequence[int | None] | None:
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

    def encode_read(self, values: list[bytes | None]) -> list[bytes | None]:
        """As `encode`, for the values of records as they were read."""
        return values if type(self._format) is Bytes else self._format.encode(values)

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
    """Columns of bytes into KafkaRecords of what the formats make of value and key."""

    def __init__(self, value: Deserializer | None, key: Deserializer | None) -> None:
        self._value = value
        self._key = key
        self.keeps = value is None and key is None
        """Whether columns have all that the records have."""

    def decode(self, raw: Sequence[Any]) -> list[Any]:
        if not isinstance(raw, RecordColumns):
            return list(map(self.decode_one, raw))
        if self.keeps:
            return list(raw)
        values = _decoded(self._value, raw.values)
        keys = raw.beside.keys
        decoded = raw.beside if keys is None else raw.beside._replace(keys=_decoded(self._key, keys))
        return list(RecordColumns(values, decoded, raw.place))

    def decode_one(self, raw: Any) -> Any:
        if self.keeps:
            return raw
        (value,), (key,) = _decoded(self._value, [raw.value]), _decoded(self._key, [raw.key])
        return msgspec.structs.replace(raw, value=value, key=key)


def deserializer_of(
    value: Deserializer | None, key: Deserializer | None, include: Collection[Field]
) -> Deserializer | None:
    """How what the reader brings becomes the stream's values; None where it is that already."""
    if include:
        return RecordDeserializer(value, key)
    return None if value is None else ValueDeserializer(value)


def _decoded(format: Deserializer | None, raw: list[Any]) -> list[Any]:
    """As `decode_present`. Raises ValueError when the format does not give one for each."""
    decoded = decode_present(format, raw)
    if len(decoded) != len(raw):
        raise ValueError(f"the format {format!r} made {len(decoded)} values of {len(raw)}")
    return decoded


def decode_present(format: Deserializer | None, raw: list[Any]) -> list[Any]:
    """All through `format`, except what is None. Raises ValueError when the format does not give one for each of the
    others beside it."""
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
