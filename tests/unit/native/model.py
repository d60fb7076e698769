"""Kafka's record batches in plain Python, as slow and plain as Java's clients say them (`DefaultRecordBatch`,
`DefaultRecord`, `ByteUtils`): the judge where Tidegate's compiled part and aiokafka's differ.

Pure, and shares nothing with what it judges but the checksum. Strict: whatever does not add up is a ValueError.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate.connectors.kafka.batches.checksums import checksum_of
from tidegate.connectors.kafka.batches.writers import Columns, Producing

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and latest timestamp,
producer id and epoch, base sequence, count."""
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, COUNT_AT = 8, 17, 21, 57
LENGTH_END = 12
BY_APPEND_TIME, TRANSACTIONAL = 0x08, 0x10
BITS = (1 << 64) - 1
LONGEST_NUMBER = 10
NOBODY = Producing()


class Row(NamedTuple):
    """A record as a batch has it."""

    number: int
    passed: int
    """Since the batch's first timestamp."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    attributes: int = 0


def wrapped(number: int) -> int:
    """As 64 bits have it."""
    return (number + (1 << 63) & BITS) - (1 << 63)


# ---- writing -------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    rest = (value << 1 ^ value >> 63) & BITS
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def span(data: Any) -> bytes:
    return number(-1) if data is None else number(memoryview(data).nbytes) + bytes(data)


def record(row: Row) -> bytes:
    headers = b"".join(span(name) + span(value) for name, value in row.headers)
    body = bytes([row.attributes]) + number(row.passed) + number(row.number) + span(row.key) + span(row.value)
    body += number(len(row.headers)) + headers
    return number(len(body)) + body


def sealed(batch: bytes) -> bytes:
    """With the length and the checksum that belong to it."""
    made = bytearray(batch)
    struct.pack_into(">i", made, LENGTH_AT, len(made) - LENGTH_END)
    struct.pack_into(">I", made, CRC_AT, checksum_of(made))
    return bytes(made)


def batch(
    body: bytes,
    count: int,
    *,
    first: int = 0,
    last_delta: int = 0,
    times: tuple[int, int] = (0, 0),
    attributes: int = 0,
    who: Producing = NOBODY,
    sequence: int = -1,
) -> bytes:
    """`body`: the records, as the attributes say that they are compressed."""
    return sealed(
        HEADER.pack(first, 0, -1, 2, 0, attributes, last_delta, *times, who.id, who.epoch, sequence, count) + body
    )


class Writer:
    """Of one batch, as `writers.Writer`, by Java's `MemoryRecordsBuilder`: a record has room when the batch has at most
    `limit` bytes with it."""

    def __init__(self, limit: int, who: Producing) -> None:
        self._limit = limit
        self._who = who
        self._body = b""
        self._times: list[int] = []

    @property
    def records(self) -> int:
        return len(self._times)

    @property
    def size(self) -> int:
        return HEADER.size + len(self._body)

    def add(self, columns: Columns, begin: int) -> int:
        for index in range(begin, len(columns.values)):
            time = columns.timestamps[index]
            headers = () if columns.headers is None else columns.headers[index] or ()
            made = record(
                Row(
                    self.records,
                    wrapped(time - (self._times or [time])[0]),
                    None if columns.keys is None else columns.keys[index],
                    columns.values[index],
                    [(name.encode(), value) for name, value in headers],
                )
            )
            if self._times and self.size + len(made) > self._limit:
                return index
            self._body += made
            self._times.append(time)
        return max(begin, len(columns.values))

    def build(self, sequence: int) -> bytearray:
        times = self._times[0], max(self._times)
        attributes = TRANSACTIONAL if self._who.is_transactional else 0
        last = self.records - 1
        return bytearray(
            batch(
                *(self._body, self.records),
                last_delta=last,
                times=times,
                attributes=attributes,
                who=self._who,
                sequence=sequence,
            )
        )


# ---- reading -------------------------------------------------------------------------------------------------------


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise ValueError("behind the end")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = 0
        for index in range(LONGEST_NUMBER):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                value &= BITS
                return value >> 1 ^ -(value & 1)
        raise ValueError("a number that is too long")

    def span(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        if size > len(self.data) - self.at:
            raise ValueError("behind the end")
        self.at += size
        return self.data[self.at - size : self.at]

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.data)


def rows(body: bytes, count: int) -> list[Row]:
    """So many records, and nothing behind them. `body` is not compressed."""
    cursor = Cursor(body)
    found: list[Row] = []
    while len(found) < count:
        own = Cursor(cursor.span() or b"")
        attributes = own.byte()
        passed, place = own.number(), own.number()
        key, value = own.span(), own.span()
        headers = [_header(own) for _ in range(_count(own))]
        if not own.is_at_end:
            raise ValueError("a record is longer than what is in it")
        found.append(Row(place, passed, key, value, headers, attributes))
    if count < 0 or not cursor.is_at_end:
        raise ValueError("another number of records")
    return found


def _count(cursor: Cursor) -> int:
    """Of headers: none has no bytes."""
    count = cursor.number()
    if not 0 <= count <= len(cursor.data) - cursor.at:
        raise ValueError(f"{count} headers")
    return count


def _header(cursor: Cursor) -> tuple[bytes, bytes | None]:
    name, value = cursor.span(), cursor.span()
    if name is None:
        raise ValueError("a header without a name")
    return name, value


def has_strange_attributes(body: bytes) -> bool:
    """Whether a record's byte of attributes has its highest bit: aiokafka takes it for the first byte of a number. Of
    records that cannot be read, those that can be found by their lengths are looked at."""
    cursor = Cursor(body)
    try:
        while not cursor.is_at_end:
            cursor.number()
            begin = cursor.at
            if cursor.byte() >= 0x80:
                return True
            cursor.at = begin
            own = Cursor(body[begin:])
            own.byte(), own.number(), own.number(), own.span(), own.span()
            for _ in range(_count(own)):
                _header(own)
            cursor.at += own.at
    except ValueError:
        pass
    return False
