"""The stored form of keyed state: pieces, each with what one subtask kept of some key groups, which can be read one by
one.

A piece says by itself what is in it (format, key type, names of states) and whether it is whole (checksum): it can be
read at any parallelism, by any backend, and without the program. Nothing here knows a declared type: values stay bytes.

    "TGKS" | format, 2 bytes | xxh3-64 of all that follows, 8 bytes | length of the header, 4 bytes | header | chunks

The header is the msgpack of `PieceHeader`; each chunk is the msgpack of columns of one group, a column for each state.
A group has as many chunks as keep each of them short, since decoding one holds the interpreter.

A *full* piece adds keys of which nothing was said before it; any other one replaces what was said of its keys, and may
remove keys. Format 1 had full pieces only, and one chunk a group.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import xxhash

from tidegate.errors import CorruptError
from tidegate.ids import KeyGroup

MAGIC = b"TGKS"
FORMAT = 2
"""Version of the form. A reader refuses a higher one."""

_PREFIX = struct.Struct(">4sHQI")
_CHECKED_FROM = 14
"""Where that begins which the checksum covers."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class StoredRow(NamedTuple):
    """What one key has in one state, as stored by any backend: canonical."""

    state: str
    group: KeyGroup
    key: bytes
    """As `state.keys` writes it."""
    value: bytes
    """As the `stored` serializer of the state's descriptor writes it."""


class PieceHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a piece holds."""

    first_group: Count
    last_group: Count
    max_parallelism: Annotated[int, msgspec.Meta(ge=1)]
    key_type: str
    states: tuple[str, ...]
    """Names, in the order in which columns number them."""
    groups: tuple[tuple[Count, Count], ...]
    """For each chunk, in order, its group and the length of its bytes. Groups ascend."""
    is_full: bool = True


class Column(msgspec.Struct, frozen=True, array_like=True):
    """One state's keys of one chunk, as canonical bytes, and their values, in the same order."""

    state: Count
    keys: list[bytes]
    values: list[bytes]
    removed: list[bytes] = []
    """Keys that have nothing in this state any more."""


_HEADER = msgspec.msgpack.Decoder(PieceHeader)
_COLUMNS = msgspec.msgpack.Decoder(list[Column])


class PieceWriter:
    """One piece, made of chunks that come in the order of their groups."""

    def __init__(self, max_parallelism: int, key_type: str, states: tuple[str, ...], *, is_full: bool = True) -> None:
        self._max_parallelism = max_parallelism
        self._key_type = key_type
        self._states = states
        self._is_full = is_full
        self._lengths: list[tuple[KeyGroup, int]] = []
        self._chunks: list[bytes] = []
        self.size = 0
        """Bytes of the chunks so far."""

    def add(self, group: KeyGroup, columns: list[Column]) -> None:
        chunk = msgspec.msgpack.encode(columns)
        self._lengths.append((group, len(chunk)))
        self._chunks.append(chunk)
        self.size += len(chunk)

    def finish(self, groups: range) -> bytes:
        """The piece, which covers `groups`."""
        header = msgspec.msgpack.encode(
            PieceHeader(
                groups[0],
                groups[-1],
                self._max_parallelism,
                self._key_type,
                self._states,
                tuple(self._lengths),
                self._is_full,
            )
        )
        checked = b"".join((len(header).to_bytes(4, "big"), header, *self._chunks))
        return _PREFIX.pack(MAGIC, FORMAT, xxhash.xxh3_64_intdigest(checked), 0)[:_CHECKED_FROM] + checked


def write_piece(
    groups: range,
    max_parallelism: int,
    key_type: str,
    states: tuple[str, ...],
    columns: Mapping[KeyGroup, list[Column]],
    *,
    is_full: bool = True,
) -> bytes:
    """The piece that covers `groups`, with the columns of each group that has any, a chunk for each."""
    writer = PieceWriter(max_parallelism, key_type, states, is_full=is_full)
    for group in sorted(columns):
        writer.add(group, columns[group])
    return writer.finish(groups)


class Piece:
    """A piece opened for reading; chunks are decoded when asked for. Raises CorruptError for what is none."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _PREFIX.size:
            raise CorruptError(f"a piece of keyed state of {len(data)} bytes is shorter than its header")
        magic, version, checksum, length = _PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise CorruptError(f"a piece of keyed state begins with {magic!r} and not with {MAGIC!r}")
        if not 1 <= version <= FORMAT:
            raise CorruptError(
                f"a piece of keyed state has format {version}; this version reads up to {FORMAT}",
                remedy="Restore it with the version of Tidegate that wrote it, or a later one.",
            )
        self._data = memoryview(data)
        if xxhash.xxh3_64_intdigest(self._data[_CHECKED_FROM:]) != checksum:
            raise CorruptError("a piece of keyed state does not have the checksum that it was written with")
        start = _PREFIX.size + length
        self.header: PieceHeader = _decode(_HEADER, self._data[_PREFIX.size : start], "header")
        self._places = self._index(start)

    def _index(self, start: int) -> dict[KeyGroup, list[tuple[int, int]]]:
        """Where the chunks of each group begin and end."""
        header = self.header
        places: dict[KeyGroup, list[tuple[int, int]]] = {}
        previous = header.first_group
        for group, length in header.groups:
            if not previous <= group <= header.last_group:
                raise CorruptError(
                    f"a piece of keyed state for groups {header.first_group} to {header.last_group} "
                    f"lists group {group} behind {previous}"
                )
            places.setdefault(KeyGroup(group), []).append((start, start + length))
            previous, start = group, start + length
        if start != len(self._data):
            raise CorruptError(f"a piece of keyed state has {len(self._data)} bytes where its header says {start}")
        return places

    def groups(self, wanted: range) -> list[KeyGroup]:
        """The groups among `wanted` that have keys, ascending."""
        return [group for group in self._places if group in wanted]

    def size(self, wanted: range) -> int:
        """Bytes that concern groups among `wanted`."""
        return sum(end - start for group in self.groups(wanted) for start, end in self._places[group])

    def columns(self, group: KeyGroup) -> Iterator[tuple[str, Column]]:
        """The columns of one group, each with the name of its state. Raises CorruptError."""
        for start, end in self._places.get(group, ()):
            columns: list[Column] = _decode(_COLUMNS, self._data[start:end], f"group {group}")
            for column in columns:
                if not self._fits(column):
                    raise CorruptError(f"a column of group {group} in a piece of keyed state does not fit together")
                yield self.header.states[column.state], column

    def _fits(self, column: Column) -> bool:
        return (
            column.state < len(self.header.states)
            and len(column.keys) == len(column.values)
            and not (self.header.is_full and column.removed)
        )


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: memoryview, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"the {what} of a piece of keyed state cannot be read: {error}") from error
