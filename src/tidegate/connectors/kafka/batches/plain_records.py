"""Records of a batch one by one in Python, for batches that the compiled codec refuses: those in which the name of a
header is no text. Other clients write them, and one such record must not keep a job from all that is behind it.

Slow, and never used for anything else. Such names come with their bytes as escapes.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aiokafka import codec
from aiokafka.errors import UnsupportedCodecError
from aiokafka.record._crecords.cutil import decode_varint_cython

from tidegate.connectors.kafka.client import Header

_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: codec.gzip_decode,
    2: codec.snappy_decode,
    3: codec.lz4_decode,
    4: codec.zstd_decode,
}


def decompressed(codec_number: int, body: bytes) -> bytes:
    """What comes behind a batch's header. Raises UnsupportedCodecError, and what a codec raises."""
    decompress = _DECOMPRESS.get(codec_number)
    if decompress is None:
        raise UnsupportedCodecError(f"number {codec_number}")
    return decompress(body)


class PlainRecord(NamedTuple):
    """As the compiled codec's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def plain_records(
    body: bytes, codec_number: int, first_offset: int, first_timestamp: int, appended: int | None
) -> Iterator[PlainRecord]:
    """Of `body`, what comes behind a batch's header. `appended` is the broker's time of appending, or None where
    each record has a time of its own."""
    cursor = _Cursor(bytearray(decompressed(codec_number, body)))
    while not cursor.is_at_end:
        cursor.number()  # the record's length
        cursor.skip(1)  # its attributes, of which there are none
        passed, offset = cursor.number(), first_offset + cursor.number()
        key, value = cursor.bytes(), cursor.bytes()
        headers = [(cursor.name(), cursor.bytes()) for _ in range(cursor.number())]
        yield PlainRecord(offset, first_timestamp + passed if appended is None else appended, key, value, headers)


class _Cursor:
    """Reads on in bytes that hold together: their checksum has been looked at. Raises what is an error of the batch."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def skip(self, count: int) -> None:
        self._at += count

    def number(self) -> int:
        found: int
        found, self._at = decode_varint_cython(self._data, self._at)
        return found

    def bytes(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        begin, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError(f"{size} bytes from {begin} on, of {len(self._data)}")
        return bytes(self._data[begin : self._at])

    def name(self) -> str:
        found: Any = self.bytes()
        return str(found, errors="backslashreplace")
