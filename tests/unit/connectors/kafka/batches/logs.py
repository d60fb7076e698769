"""Partition logs for tests, as brokers keep them: record batches, markers, compacted and aborted ones, as bytes."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiokafka.record._crecords import DefaultRecordBatchBuilder
from aiokafka.record._crecords.cutil import crc32c_cython

Headers = Sequence[tuple[str, bytes | None]]
CONTROL, TRANSACTIONAL = 0x20, 0x10
ATTRIBUTES_AT, CRC_AT, EPOCH_AT, LAST_DELTA_AT = 21, 17, 12, 23


class Record(NamedTuple):
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: Headers = ()


def batch(
    records: Sequence[Record],
    *,
    first: int | None = None,
    end: int | None = None,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """From offset `first` to before `end`, by default those of the records."""
    first = records[0].offset if first is None else first
    end = records[-1].offset + 1 if end is None else end
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 30,
    )
    for record in records:
        builder.append(record.offset - first, record.timestamp, record.key, record.value, list(record.headers))
    made = bytearray(builder.build())
    struct.pack_into(">q", made, 0, first)
    return stamped(made, attributes, end - first - 1, leader_epoch)


def stamped(made: bytearray, attributes: int, last_delta: int, leader_epoch: int) -> bytes:
    """With what a broker, or a cleaner, writes into a header, and the checksum of that."""
    (own,) = struct.unpack_from(">h", made, ATTRIBUTES_AT)
    struct.pack_into(">h", made, ATTRIBUTES_AT, own | attributes)
    struct.pack_into(">i", made, LAST_DELTA_AT, last_delta)
    struct.pack_into(">i", made, EPOCH_AT, leader_epoch)
    struct.pack_into(">I", made, CRC_AT, crc32c_cython(bytes(made[ATTRIBUTES_AT:])))
    return bytes(made)


def marker(offset: int, producer_id: int, *, commit: bool, leader_epoch: int = 0) -> bytes:
    record = Record(offset, struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(commit)))
    attributes = CONTROL | TRANSACTIONAL
    return batch([record], attributes=attributes, producer_id=producer_id, leader_epoch=leader_epoch)


def texts(first: int, *values: str | None, **columns: Any) -> list[Record]:
    """Records from offset `first` on."""
    return [
        Record(first + index, None if value is None else value.encode(), **columns)
        for index, value in enumerate(values)
    ]
