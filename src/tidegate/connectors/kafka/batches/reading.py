"""Bytes of record batches into columns, a batch at a time: by the compiled part of Tidegate; through aiokafka's codec
where that could not be built, and for the formats before the current one.

Pure. Nothing is decoded that nobody asked for, and nothing is believed that does not add up: a batch whose checksum or
structure is wrong is an error with its place, never records. Offsets are never counted through gaps: only a batch that
has a record for each of its offsets is taken for dense.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from aiokafka.record._crecords import DefaultRecordBatch, LegacyRecordBatch

from tidegate.connectors.kafka.batches.checksums import checksum_of
from tidegate.connectors.kafka.batches.layout import (
    ATTRIBUTES_AT,
    BY_APPEND_TIME,
    COMPRESSION,
    CONTROL,
    CRC_AT,
    CURRENT,
    HEADER,
    LENGTH_END,
    MAGIC_AT,
    TRANSACTIONAL,
)
from tidegate.connectors.kafka.batches.plain_records import PlainRecord, decompressed, plain_records
from tidegate.connectors.kafka.client import Chunk, Columns, TopicPartition
from tidegate.errors import CorruptError
from tidegate.native import native

_LEGACY_HEADER = struct.Struct(">qiIb")
"""Of a message in the formats before 2: offset, length, checksum, magic."""
LEGACY_SMALLEST = 14
"""A message of format 0 without key and value: what its length counts."""

ABORT_MARKER = 0

_CONTROL_KEY = struct.Struct(">hh")
"""Version and type of a control record."""


class Span(NamedTuple):
    """One batch in a response: where its bytes are, and what its header says."""

    start: int
    end: int
    magic: int
    first_offset: int
    """In formats before 2 that of its last record."""
    end_offset: int
    """Behind its last offset, which compaction may have left without a record."""
    leader_epoch: int
    """-1 where the format has none."""
    attributes: int
    producer_id: int
    records: int
    """-1 where the format does not say."""

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_dense(self) -> bool:
        return self.magic == CURRENT and self.records == self.end_offset - self.first_offset


def spans(records: bytes) -> Iterator[Span]:
    """The complete batches, in order. Brokers cut what they send at a number of bytes, so the last may be cut off.

    Raises ValueError for what no batch can be."""
    start = 0
    while len(records) - start > MAGIC_AT:
        length = int.from_bytes(records[start + 8 : start + LENGTH_END], "big", signed=True)
        magic = records[start + MAGIC_AT]
        smallest = HEADER.size - LENGTH_END if magic == CURRENT else LEGACY_SMALLEST
        if magic > CURRENT or length < smallest:
            raise ValueError(f"a batch of format {magic} and {length} bytes")
        end = start + LENGTH_END + length
        if end > len(records):
            return
        yield _span(records, start, end, magic)
        start = end


def _span(records: bytes, start: int, end: int, magic: int) -> Span:
    if magic < CURRENT:
        offset, *_ = _LEGACY_HEADER.unpack_from(records, start)
        return Span(start, end, magic, offset, offset + 1, -1, 0, -1, -1)
    first, _, epoch, _, _, attributes, delta, _, _, producer_id, _, _, count = HEADER.unpack_from(records, start)
    if first < 0 or delta < 0 or count < 0:
        raise ValueError(f"a batch of {count} records from offset {first} to {first + delta}")
    return Span(start, end, magic, first, first + delta + 1, epoch, attributes, producer_id, count)


def is_abort(records: bytes, span: Span) -> bool:
    """Whether a control batch ends its transaction with an abort. Raises ValueError for one that says nothing."""
    for record in DefaultRecordBatch(records[span.start : span.end]):
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        return bool(kind == ABORT_MARKER)
    raise ValueError("a control batch without a record")


def _plain(data: memoryview, batch: Any) -> Iterator[Any]:
    appended = batch.max_timestamp if batch.timestamp_type else None
    return plain_records(
        bytes(data[HEADER.size :]), batch.compression_type, batch.base_offset, batch.first_timestamp, appended
    )


def columns_of(records: Iterable[Any], names: tuple[str, ...]) -> list[list[Any]]:
    """A column for each attribute of the records. No record outlives the next one: thousands of them at a time would
    keep the garbage collector busy for longer than it takes to make them."""
    match names:
        case ("value",):
            return [[record.value for record in records]]
        case ("value", "key"):
            values, keys = [], []
            for record in records:
                values.append(record.value)
                keys.append(record.key)
            return [values, keys]
    flat = list(chain.from_iterable(map(attrgetter(*names), records)))
    return [flat[index :: len(names)] for index in range(len(names))]


def _wanted(columns: Columns) -> Sequence[tuple[str, bool]]:
    """The attributes of records that may be columns of a chunk, in the chunk's order."""
    return ("key", columns.keys), ("timestamp", columns.timestamps), ("headers", columns.headers)


class Batches(NamedTuple):
    """Batches of one partition as a broker sent them, without those that nobody may see."""

    partition: TopicPartition
    records: bytes
    visible: Sequence[Span]
    position: int
    """Records before it are not wanted: brokers send the batch that has the offset as a whole."""
    end: int
    """Where to read on behind them: behind the last batch, also when that is not a visible one."""


class Reader:
    """Decodes. `place` is said in errors. Raises CorruptError for a batch that is not what it should be."""

    def __init__(self, columns: Columns, place: str, checks: bool = True) -> None:
        self._columns = columns
        self._names = ("value", *(name for name, is_wanted in _wanted(columns) if is_wanted))
        self._wanted = 0
        if native is not None:
            flags = native.KEYS, native.TIMESTAMPS, native.HEADERS
            self._wanted = sum(flag for flag, (_, is_wanted) in zip(flags, _wanted(columns), strict=True) if is_wanted)
        self._place = place
        self._checks = checks

    def chunk(self, batches: Batches, index: int) -> Chunk:
        """Of the visible batch of that index."""
        span = batches.visible[index]
        is_last = index == len(batches.visible) - 1
        try:
            return self._chunk(batches, span, batches.position, batches.end if is_last else span.end_offset)
        except Exception as error:  # Every codec has errors of its own, and none of them is anything but this.
            raise self._corrupt(batches.partition, span, f"{type(error).__name__}: {error}") from error

    def empty(self, partition: TopicPartition, end: int) -> Chunk:
        """No record, and a position."""
        wanted = (*_wanted(self._columns), ("offset", self._columns.offsets))
        return Chunk(partition, [], end, *([] if is_wanted else None for _, is_wanted in wanted))

    def _chunk(self, batches: Batches, span: Span, position: int, end: int) -> Chunk:
        data = memoryview(batches.records)[span.start : span.end]
        columns, offsets = self._read(data, span)
        begin = bisect_left(offsets, position)
        if begin:
            columns, offsets = [column[begin:] for column in columns], offsets[begin:]
        found = dict(zip(self._names, columns, strict=True))
        return Chunk(
            batches.partition,
            found["value"],
            end,
            found.get("key"),
            found.get("timestamp"),
            found.get("headers"),
            offsets if self._columns.offsets else None,
        )

    def _read(self, data: memoryview, span: Span) -> tuple[list[list[Any]], Sequence[int]]:
        """A column for each of the names, and the offsets of all records of the batch."""
        if span.magic < CURRENT:
            return self._with_offsets(self._legacy(data, span))
        if self._checks and int.from_bytes(data[CRC_AT:ATTRIBUTES_AT]) != checksum_of(data):
            raise ValueError("its checksum is another one")
        if native is not None:
            return self._natively(data, span)
        batch = DefaultRecordBatch(data)
        try:
            if not span.is_dense:
                return self._with_offsets(batch)
            return columns_of(batch, self._names), range(span.first_offset, span.end_offset)
        except UnicodeDecodeError:
            return self._with_offsets(_plain(data, batch))

    def _natively(self, data: memoryview, span: Span) -> tuple[list[list[Any]], Sequence[int]]:
        assert native is not None
        _, _, _, _, _, attributes, _, first_time, latest_time, *_ = HEADER.unpack_from(data)
        body, start = data, HEADER.size
        if codec := attributes & COMPRESSION:
            body, start = memoryview(decompressed(codec, bytes(data[start:]))), 0
        wanted = self._wanted if span.is_dense else self._wanted | native.OFFSETS
        if attributes & BY_APPEND_TIME:
            wanted |= native.APPENDED
        found = native.read_records(
            body, start, len(body), span.records, wanted, span.first_offset, first_time, latest_time
        )
        *columns, offsets = found
        dense = range(span.first_offset, span.end_offset)
        return [column for column in columns if column is not None], dense if offsets is None else offsets

    def _with_offsets(self, records: Iterable[Any]) -> tuple[list[list[Any]], Sequence[int]]:
        *columns, offsets = columns_of(records, (*self._names, "offset"))
        return columns, offsets

    def _legacy(self, data: memoryview, span: Span) -> Iterator[Any]:
        batch = LegacyRecordBatch(data, span.magic)
        if self._checks and not batch.validate_crc():
            raise ValueError("its checksum is another one")
        for record in batch:
            time = -1 if record.timestamp is None else record.timestamp
            yield PlainRecord(record.offset, time, record.key, record.value, record.headers)

    def _corrupt(self, partition: TopicPartition, span: Span, what: str) -> CorruptError:
        return CorruptError(
            f"{partition} at {self._place}: the record batch at offset {span.first_offset} cannot be read: {what}",
            remedy="Look whether other consumers can read it. To go on behind it, start at a later offset (--fresh).",
        )
