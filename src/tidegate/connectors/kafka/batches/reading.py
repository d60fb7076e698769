"""Bytes of record batches into columns, a batch at a time, through aiokafka's compiled codec.

Pure. Nothing is decoded that nobody asked for, and nothing is believed that does not add up: a batch whose checksum or
structure is wrong is an error with its place, never records. Offsets are never counted through gaps: only a batch that
has a record for each of its offsets is taken for dense.
"""

import struct
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from aiokafka.record._crecords import DefaultRecordBatch, LegacyRecordBatch

from tidegate.connectors.kafka.batches.plain_records import plain_records
from tidegate.connectors.kafka.client import Chunk, Columns, TopicPartition
from tidegate.errors import CorruptError

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last timestamp, producer
id and epoch, base sequence, count."""
_LEGACY_HEADER = struct.Struct(">qiIb")
"""Of a message in the formats before 2: offset, length, checksum, magic."""
LENGTH_END = 12
"""A batch's length counts what comes behind it."""
MAGIC_AT = 16
CURRENT = 2
"""The format of record batches."""
LEGACY_SMALLEST = 14
"""A message of format 0 without key and value: what its length counts."""

TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT_MARKER = 0

_CONTROL_KEY = struct.Struct(">hh")
"""Version and type of a control record."""
_VALUE = attrgetter("value")
_KEY = attrgetter("key")
_OFFSET = attrgetter("offset")
_HEADERS = attrgetter("headers")


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
        smallest = _HEADER.size - LENGTH_END if magic == CURRENT else LEGACY_SMALLEST
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
    first, _, epoch, _, _, attributes, delta, _, _, producer_id, _, _, count = _HEADER.unpack_from(records, start)
    if first < 0 or delta < 0 or count < 0:
        raise ValueError(f"a batch of {count} records from offset {first} to {first + delta}")
    return Span(start, end, magic, first, first + delta + 1, epoch, attributes, producer_id, count)


def is_abort(records: bytes, span: Span) -> bool:
    """Whether a control batch ends its transaction with an abort. Raises ValueError for one that says nothing."""
    for record in DefaultRecordBatch(records[span.start : span.end]):
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        return bool(kind == ABORT_MARKER)
    raise ValueError("a control batch without a record")


def _plain(data: bytes, batch: Any) -> Iterator[Any]:
    appended = batch.max_timestamp if batch.timestamp_type else -1
    return plain_records(
        data[_HEADER.size :], batch.compression_type, batch.base_offset, batch.first_timestamp, appended
    )


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
        columns = self._columns
        wanted = (columns.keys, columns.timestamps, columns.headers, columns.offsets)
        return Chunk(partition, [], end, *([] if is_wanted else None for is_wanted in wanted))

    def _chunk(self, batches: Batches, span: Span, position: int, end: int) -> Chunk:
        data = batches.records[span.start : span.end]
        if span.magic < CURRENT:
            return self._of_records(batches.partition, list(self._legacy(data, span)), position, end)
        batch = DefaultRecordBatch(data)
        if self._checks and not batch.validate_crc():
            raise ValueError("its checksum is another one")
        columns = self._columns
        try:
            if columns.keys or columns.timestamps or columns.headers or not span.is_dense:
                return self._of_records(batches.partition, list(batch), position, end)
            values: list[bytes | None] = [record.value for record in batch]
        except UnicodeDecodeError:
            return self._of_records(batches.partition, list(_plain(data, batch)), position, end)
        if position > span.first_offset:
            del values[: position - span.first_offset]
        first = max(position, span.first_offset)
        offsets = list(range(first, first + len(values))) if columns.offsets else None
        return Chunk(batches.partition, values, end, offsets=offsets)

    def _legacy(self, data: bytes, span: Span) -> Iterator[Any]:
        batch = LegacyRecordBatch(data, span.magic)
        if self._checks and not batch.validate_crc():
            raise ValueError("its checksum is another one")
        return iter(batch)

    def _of_records(self, partition: TopicPartition, records: list[Any], position: int, end: int) -> Chunk:
        """With all that was asked for. `records` are objects here; they do not outlive this."""
        if records and records[0].offset < position:
            records = [record for record in records if record.offset >= position]
        columns = self._columns
        return Chunk(
            partition,
            list(map(_VALUE, records)),
            end,
            list(map(_KEY, records)) if columns.keys else None,
            [-1 if record.timestamp is None else record.timestamp for record in records]
            if columns.timestamps
            else None,
            list(map(_HEADERS, records)) if columns.headers else None,
            list(map(_OFFSET, records)) if columns.offsets else None,
        )

    def _corrupt(self, partition: TopicPartition, span: Span, what: str) -> CorruptError:
        return CorruptError(
            f"{partition} at {self._place}: the record batch at offset {span.first_offset} cannot be read: {what}",
            remedy="Look whether other consumers can read it. To go on behind it, start at a later offset (--fresh).",
        )
