"""Records of the embedded log: appending them at the next offsets, and reading what may be seen.

Functions over one connection, each called inside a transaction of `database`. An offset that was given out is never
given out again, also when its record is aborted or deleted: positions in checkpoints point into this numbering.
"""

import sqlite3
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tidegate.errors import LostDataError

Isolation = Literal["read_committed", "read_uncommitted"]

SCAN = 10_000
"""Offsets looked at in one read at most, so that a long stretch of aborted records does not hold the reader up."""

READ_UNCOMMITTED = """
SELECT offset, timestamp, key, value FROM records AS record
WHERE partition_number = ? AND offset >= ? AND offset < ?
"""
READ_COMMITTED = f"""{READ_UNCOMMITTED}
AND (transaction_number IS NULL
     OR (SELECT state FROM transactions WHERE number = record.transaction_number) = 'CompleteCommit')
"""
READ = {
    "read_committed": f"{READ_COMMITTED} ORDER BY offset LIMIT ?",
    "read_uncommitted": f"{READ_UNCOMMITTED} ORDER BY offset LIMIT ?",
}


class Row(NamedTuple):
    """A record on its way in."""

    partition_number: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class PartitionInfo(NamedTuple):
    """Where a partition begins and ends. `number` is its place in the database, not in its topic."""

    number: int
    low_watermark: int
    end_offset: int
    last_stable_offset: int


class Chunk(NamedTuple):
    """Records as columns, and where to read on."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    next_offset: int


def append(
    connection: sqlite3.Connection, rows: Sequence[Row], transaction_number: int | None = None
) -> dict[int, int]:
    """Add `rows` in order; the first new offset of each partition number."""
    first: dict[int, int] = {}
    end: dict[int, int] = {}
    placed = []
    for number, timestamp, key, value in rows:
        if number not in end:
            first[number] = end[number] = _end_offset(connection, number)
        placed.append((number, end[number], transaction_number, timestamp, key, value))
        end[number] += 1
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", placed)
    connection.executemany(
        "UPDATE partitions SET end_offset = ? WHERE number = ?", [(offset, number) for number, offset in end.items()]
    )
    return first


def _end_offset(connection: sqlite3.Connection, number: int) -> int:
    row = connection.execute("SELECT end_offset FROM partitions WHERE number = ?", (number,)).fetchone()
    return int(row[0])


def partition_info(connection: sqlite3.Connection, topic: str, partition: int) -> PartitionInfo | None:
    """None when there is no such partition."""
    row = connection.execute(
        "SELECT number, low_watermark, end_offset,"
        " (SELECT min(first_offset) FROM open_partitions WHERE partition_number = number)"
        " FROM partitions WHERE topic = ? AND partition = ?",
        (topic, partition),
    ).fetchone()
    if row is None:
        return None
    number, low_watermark, end_offset, first_open = row
    return PartitionInfo(number, low_watermark, end_offset, end_offset if first_open is None else first_open)


def read(
    connection: sqlite3.Connection,
    place: str,
    info: PartitionInfo,
    offset: int,
    max_records: int,
    isolation: Isolation,
    stop: int | None,
) -> Chunk:
    """Visible records from `offset` on, before `stop`. Raises LostDataError, naming `place`, when they are gone."""
    if offset < info.low_watermark:
        raise LostDataError(
            f"{place}: the records at offsets {offset} to {info.low_watermark - 1} were deleted before they were read",
            remedy="Restore a later checkpoint, or accept the loss by starting afresh from 'earliest'.",
        )
    if offset > info.end_offset:
        raise LostDataError(
            f"{place}: offset {offset} is beyond the end of the log, which is {info.end_offset}",
            remedy="The log is not the one that was read before; put the old one back, or start afresh.",
        )
    limit = info.last_stable_offset if isolation == "read_committed" else info.end_offset
    limit = min(limit, offset + max(SCAN, max_records), limit if stop is None else stop)
    found = connection.execute(READ[isolation], (info.number, offset, limit, max_records)).fetchall()
    next_offset = found[-1][0] + 1 if len(found) == max_records else max(offset, limit)
    offsets, timestamps, keys, values = zip(*found, strict=True) if found else ((), (), (), ())
    return Chunk(offsets, timestamps, keys, values, next_offset)
