"""What makes the bytes of a record batch of columns: the compiled part of Tidegate, or aiokafka's builder where that
could not be built. Both make the same bytes.

Pure.
"""

import struct
from collections.abc import Sequence
from itertools import count, repeat
from typing import Any, NamedTuple, Protocol, TypeVar

from aiokafka.record._crecords import DefaultRecordBatchBuilder

from tidegate.connectors.kafka.batches.checksums import checksum_of
from tidegate.connectors.kafka.batches.layout import CRC_AT, CURRENT, HEADER, LENGTH_END, TRANSACTIONAL
from tidegate.connectors.kafka.client import Header
from tidegate.native import native

T = TypeVar("T")

NO_HEADERS: list[Header] = []
_UNSIGNED = struct.Struct(">I")


class Columns(NamedTuple):
    """Records for one partition."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps: Sequence[int]
    headers: Sequence[Sequence[Header] | None] | None

    def behind(self, index: int) -> "Columns":
        """Those from that index on."""
        keys = None if self.keys is None else self.keys[index:]
        headers = None if self.headers is None else self.headers[index:]
        return Columns(self.values[index:], keys, self.timestamps[index:], headers)


class Producing(NamedTuple):
    """Who writes: what a batch says of its producer; -1 where there is none."""

    id: int = -1
    epoch: int = -1
    is_transactional: bool = False


class Writer(Protocol):
    """Of one batch, without compression. `limit`: bytes; one record may be larger."""

    @property
    def records(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes, with the batch's header."""

    def add(self, columns: Columns, begin: int) -> int:
        """Records from that index on, as many as there is room for: behind which index it is full, or all are in.
        Raises what is wrong with a record, and has those before it."""

    def build(self, sequence: int) -> bytearray:
        """The whole batch. Nothing can be added any more."""


class NativeWriter:
    """By the compiled part."""

    def __init__(self, limit: int, who: Producing) -> None:
        self._limit = limit
        self._who = who
        self._batch = bytearray(HEADER.size)
        self._first = self._latest = -1
        self.records = 0

    @property
    def size(self) -> int:
        return len(self._batch)

    def add(self, columns: Columns, begin: int) -> int:
        assert native is not None
        values, keys, times, headers = columns
        lists = (
            _plain(values),
            keys and _plain(keys),
            _plain(times),
            headers and [one if one is None else _plain(one) for one in headers],
        )
        while begin < len(values):
            state = self.records, self._first, self._latest, self._limit
            behind, self._first, self._latest = native.append_records(self._batch, *lists, begin, *state)
            if behind == begin:
                break
            self.records += behind - begin
            begin = behind
        return begin

    def build(self, sequence: int) -> bytearray:
        batch, who = self._batch, self._who
        attributes = TRANSACTIONAL if who.is_transactional else 0
        times = self._first, self._latest
        HEADER.pack_into(
            *(batch, 0, 0, len(batch) - LENGTH_END, -1, CURRENT, 0, attributes, self.records - 1, *times),
            *(who.id, who.epoch, sequence, self.records),
        )
        _UNSIGNED.pack_into(batch, CRC_AT, checksum_of(batch))
        return batch


def _plain(column: T) -> T | list[Any]:
    """As the compiled part takes it. What is no sequence at all is its to refuse, in turn with the others."""
    return list(column) if isinstance(column, Sequence) and not isinstance(column, list | tuple) else column


class AiokafkaWriter:
    """By aiokafka's compiled builder, a call a record."""

    def __init__(self, limit: int, who: Producing) -> None:
        self._who = who
        self._builder = DefaultRecordBatchBuilder(
            magic=CURRENT,
            compression_type=0,
            is_transactional=int(who.is_transactional),
            producer_id=who.id,
            producer_epoch=who.epoch,
            base_sequence=-1,
            batch_size=limit + 1,
        )
        self.records = 0

    @property
    def size(self) -> int:
        size: int = self._builder.size()
        return size

    def add(self, columns: Columns, begin: int) -> int:
        rest = columns if begin == 0 else columns.behind(begin)
        numbers = count(self.records)
        appended = map(
            self._builder.append,
            numbers,
            rest.timestamps,
            repeat(None) if rest.keys is None else rest.keys,
            rest.values,
            repeat(NO_HEADERS) if rest.headers is None else map(_own_headers, rest.headers),
        )
        try:
            # What was appended is true; None is what had no room.
            all(appended)
        finally:
            # A number was also taken for what was not appended, or for the end.
            added = next(numbers) - 1 - self.records
            self.records += added
        return begin + added

    def build(self, sequence: int) -> bytearray:
        self._builder.set_producer_state(self._who.id, self._who.epoch, sequence)
        batch: bytearray = self._builder.build()
        return batch


def _own_headers(headers: Sequence[Header] | None) -> list[Header]:
    return list(headers) if headers else NO_HEADERS


def writer(limit: int, who: Producing) -> Writer:
    """The quicker one that there is."""
    return AiokafkaWriter(limit, who) if native is None else NativeWriter(limit, who)
