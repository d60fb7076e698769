"""The stored form of keyed state: one piece holds the state of one subtask, in key groups that can be read one by one.

A piece says by itself what is in it (format, key type, names of states) and whether it is whole (checksum): it can be
read at any parallelism, by any backend, and without the program. Nothing here knows a declared type: values stay bytes.

    "TGKS" | format, 2 bytes | xxh3-64 of all that follows, 8 bytes | length of the header, 4 bytes | header | groups

The header is the msgpack of `PieceHeader`; each group is the msgpack of its columns, one for each state with keys.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import xxhash

from tidegate.errors import CorruptError
from tidegate.ids import KeyGroup

MAGIC = b"TGKS"
FORMAT = 1
"""Version of the form. A reader refuses any other."""

_PREFIX = struct.Struct(">4sHQI")
_CHECKED_FROM = 14
"""Where that begins which the checksum covers."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class PieceHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a piece holds."""

    first_group: Count
    last_group: Count
    max_parallelism: Annotated[int, msgspec.Meta(ge=1)]
    key_type: str
    states: tuple[str, ...]
    """Names, in the order in which columns number them."""
    groups: tuple[tuple[Count, Count], ...]
    """Each group that has keys, ascending, with the length of its bytes."""


class Column(msgspec.Struct, frozen=True, array_like=True):
    """One state's keys of one group, as canonical bytes, and their values, in the same order."""

    state: Count
    keys: list[bytes]
    values: list[bytes]


_HEADER = msgspec.msgpack.Decoder(PieceHeader)
_COLUMNS = msgspec.msgpack.Decoder(list[Column])


def write_piece(
    groups: range,
    max_parallelism: int,
    key_type: str,
    states: tuple[str, ...],
    columns: Mapping[KeyGroup, list[Column]],
) -> bytes:
    """The piece that covers `groups`, with the columns of each group that has any."""
    bodies = [(group, msgspec.msgpack.encode(columns[group])) for group in sorted(columns)]
    lengths = tuple((group, len(body)) for group, body in bodies)
    header = msgspec.msgpack.encode(
        PieceHeader(groups[0], groups[-1], max_parallelism, key_type, states, lengths),
    )
    checked = b"".join((len(header).to_bytes(4, "big"), header, *(body for _, body in bodies)))
    return _PREFIX.pack(MAGIC, FORMAT, xxhash.xxh3_64_intdigest(checked), 0)[:_CHECKED_FROM] + checked


class Piece:
    """A piece opened for reading; groups are decoded when asked for. Raises CorruptError for what is none."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _PREFIX.size:
            raise CorruptError(f"a piece of keyed state of {len(data)} bytes is shorter than its header")
        magic, version, checksum, length = _PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise CorruptError(f"a piece of keyed state begins with {magic!r} and not with {MAGIC!r}")
        if version != FORMAT:
            raise CorruptError(
                f"a piece of keyed state has format {version}; this version reads {FORMAT}",
                remedy="Restore it with the version of Tidegate that wrote it, or a later one.",
            )
        self._data = memoryview(data)
        if xxhash.xxh3_64_intdigest(self._data[_CHECKED_FROM:]) != checksum:
            raise CorruptError("a piece of keyed state does not have the checksum that it was written with")
        start = _PREFIX.size + length
        self.header: PieceHeader = _decode(_HEADER, self._data[_PREFIX.size : start], "header")
        self._places = self._index(start)

    def _index(self, start: int) -> dict[KeyGroup, tuple[int, int]]:
        """Where the bytes of each group begin and end."""
        header = self.header
        places: dict[KeyGroup, tuple[int, int]] = {}
        previous = header.first_group - 1
        for group, length in header.groups:
            if not previous < group <= header.last_group:
                raise CorruptError(
                    f"a piece of keyed state for groups {header.first_group} to {header.last_group} "
                    f"lists group {group} behind {previous}"
                )
            places[KeyGroup(group)] = (start, start + length)
            previous, start = group, start + length
        if start != len(self._data):
            raise CorruptError(f"a piece of keyed state has {len(self._data)} bytes where its header says {start}")
        return places

    def groups(self, wanted: range) -> list[KeyGroup]:
        """The groups among `wanted` that have keys, ascending."""
        return [group for group in self._places if group in wanted]

    def columns(self, group: KeyGroup) -> Iterator[tuple[str, Column]]:
        """The columns of one group, each with the name of its state. Raises CorruptError."""
        start, end = self._places[group]
        columns: list[Column] = _decode(_COLUMNS, self._data[start:end], f"group {group}")
        for column in columns:
            if column.state >= len(self.header.states) or len(column.keys) != len(column.values):
                raise CorruptError(f"a column of group {group} in a piece of keyed state does not fit together")
            yield self.header.states[column.state], column


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: memoryview, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"the {what} of a piece of keyed state cannot be read: {error}") from error
