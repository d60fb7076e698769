"""Columns into record batches: what a producer sends, before anybody owns it.

Pure. A batch gets its producer and its sequence number when it is sealed, and never changes afterwards: what is sent
again is the same bytes, by which a broker knows it.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import cramjam
from aiokafka.record._crecords import DefaultRecordBatch

from tidegate.connectors.kafka.batches.checksums import checksum_of
from tidegate.connectors.kafka.batches.layout import ATTRIBUTES_AT, CRC_AT, HEADER, LENGTH_AT, LENGTH_END
from tidegate.connectors.kafka.batches.writers import Columns, Producing, writer

SMALLEST_GAIN = 1
SEQUENCES = 1 << 31
"""Sequence numbers begin again at 0 behind so many."""

_INT, _UNSIGNED, _SHORT = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">h")


class Sealed(NamedTuple):
    """A batch as it goes to a broker."""

    data: bytes
    records: int
    sequence: int
    """Of its first record."""
    born: float
    """When it was sealed, in seconds of a monotonic clock."""

    @property
    def largest(self) -> int:
        """Bytes of its largest value."""
        return max((len(record.value or b"") for record in DefaultRecordBatch(self.data)), default=0)


# ---- compressing ---------------------------------------------------------------------------------------------------


def _gzip(level: int) -> Callable[[bytes], bytes]:
    def compress(body: bytes) -> bytes:
        compressor = zlib.compressobj(level, wbits=31)
        return compressor.compress(body) + compressor.flush()

    return compress


def _lz4(level: int) -> Callable[[bytes], bytes]:
    def compress(body: bytes) -> bytes:
        # Brokers want blocks that do not refer to each other.
        compressor = cramjam.lz4.Compressor(level=max(level, 1), content_checksum=False, block_linked=False)
        compressor.compress(body)
        return bytes(compressor.finish())

    return compress


def _snappy(level: int) -> Callable[[bytes], bytes]:
    return lambda body: bytes(cramjam.snappy.compress_raw(body))


def _zstd(level: int) -> Callable[[bytes], bytes]:
    return lambda body: bytes(cramjam.zstd.compress(body, level=1 if level < 0 else level))


CODECS: Mapping[str, tuple[int, Callable[[int], Callable[[bytes], bytes]]]] = {
    "gzip": (1, _gzip),
    "snappy": (2, _snappy),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}


class Compression:
    """`name` is none or one of `CODECS`; `level` as the codec counts, -1 for what is quick."""

    def __init__(self, name: str = "none", level: int = -1) -> None:
        self._number, make = CODECS.get(name, (0, None))
        self._compress = None if make is None else make(level)

    def applied(self, batch: bytearray) -> bytes:
        """The batch, compressed where that makes it smaller."""
        if self._compress is not None:
            body = self._compress(bytes(memoryview(batch)[HEADER.size :]))
            if len(body) + SMALLEST_GAIN <= len(batch) - HEADER.size:
                batch[HEADER.size :] = body
                (attributes,) = _SHORT.unpack_from(batch, ATTRIBUTES_AT)
                _SHORT.pack_into(batch, ATTRIBUTES_AT, attributes | self._number)
                _INT.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_END)
                _UNSIGNED.pack_into(batch, CRC_AT, checksum_of(batch))
        return bytes(batch)


UNCOMPRESSED = Compression()


# ---- building ------------------------------------------------------------------------------------------------------


class Building:
    """A batch that is not full yet. `limit`: bytes before compression; one record may be larger."""

    def __init__(self, limit: int, who: Producing) -> None:
        self._writer = writer(limit, who)

    @property
    def records(self) -> int:
        return self._writer.records

    @property
    def size(self) -> int:
        return self._writer.size

    def add(self, columns: Columns, begin: int = 0) -> int:
        """Records from that index on, as many as there is room for: behind which index it is full, or all are in.
        Raises what is wrong with a record, and has those before it."""
        return self._writer.add(columns, begin)

    def seal(self, sequence: int, now: float, compression: Compression = UNCOMPRESSED) -> Sealed:
        """`sequence`: of its first record; -1 for a producer that has none. Nothing can be added any more."""
        return Sealed(compression.applied(self._writer.build(sequence)), self._writer.records, sequence, now)


def halves(batch: Sealed, who: Producing, compression: Compression = UNCOMPRESSED) -> list[Sealed]:
    """The same records in two batches; of one record there is but one. A broker takes less in a batch than was put into
    this one, and says so of the batch, not of a record."""
    records = list(DefaultRecordBatch(batch.data))
    middle = max(1, len(records) // 2)
    parts, sequence = [], batch.sequence
    for part in (records[:middle], records[middle:]):
        if part:
            building = Building(len(batch.data) * 2 + sum(len(record.value or b"") for record in part), who)
            building.add(
                Columns(
                    [record.value for record in part],
                    [record.key for record in part],
                    [record.timestamp for record in part],
                    [record.headers for record in part],
                )
            )
            parts.append(building.seal(sequence, batch.born, compression))
            sequence = sequence if sequence < 0 else (sequence + len(part)) % SEQUENCES
    return parts
