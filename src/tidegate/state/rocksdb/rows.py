"""The rows of a database: which row holds what of which key, and what the database says of itself.

    group, 2 bytes | number of the state, 2 bytes | length of the key, 4 bytes | key | part

A *whole* state has one row a key, with the canonical value and no part. A list in *chunks* has rows that each hold a
list of some elements, by a number that grows. A map by *entries* has a row for each, by the bytes of its key, with a
number before the value that says which was put first. So rows can be made canonical, and canonical ones be cut into
rows, without the program's types; nothing here may ever decode a value. The form is stored and may only grow.
"""

import itertools
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError
from tidegate.ids import KeyGroup
from tidegate.serializers import join_elements, join_entries, split_elements, split_entries
from tidegate.serializers.pickles import PickleSerializer
from tidegate.serializers.spelling import split_map_type

Layout = Literal["whole", "chunks", "entries"]
Part = tuple[bytes, bytes]
"""The end of a row behind its key, and the value there."""

FORMAT = 1
"""Version of the form of rows. A reader refuses a higher one."""

INFO_ROW = b"\xff\xff\xff\xff"
"""Where the database says what it is; behind all rows of state."""
END = b"\xff\xff\xff\xff\xff"

_STATE = struct.Struct(">HH")
_KEY = struct.Struct(">HHI")
_NUMBER = struct.Struct(">Q")
_EXACT = frozenset(("str", "int", "bytes", "UUID", "date", "tuple", "None", ""))
_WORDS = re.compile(r"[\[\], |.]+")


class StateRows(msgspec.Struct, frozen=True):
    """Where one state is."""

    name: str
    number: int
    layout: Layout


class DatabaseInfo(msgspec.Struct, frozen=True):
    """What a database holds. Its groups are exactly those of one subtask."""

    first_group: int
    last_group: int
    max_parallelism: int
    key_type: str
    next_number: int
    """Greater than every number in a row."""
    states: tuple[StateRows, ...]
    format: int = FORMAT

    @property
    def groups(self) -> range:
        return range(self.first_group, self.last_group + 1)


def encode_info(info: DatabaseInfo) -> bytes:
    return msgspec.msgpack.encode(info)


def decode_info(data: bytes | None, where: str) -> DatabaseInfo:
    """Raises CorruptError when the database at `where` does not say what it is, or is of a newer version."""
    try:
        info = msgspec.msgpack.decode(data or b"", type=DatabaseInfo)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError(f"the database of {where} does not say what it holds: {error}") from error
    if info.format > FORMAT:
        raise CorruptError(
            f"the database of {where} has format {info.format}; this version reads up to {FORMAT}",
            remedy="Restore it with the version of Tidegate that wrote it, or a later one.",
        )
    return info


def layout_of(state: StateInfo) -> Layout:
    """How the rows of a state are laid out.

    An entry is found by the bytes of its key: so only where two keys are equal exactly when their bytes are. Equal
    Decimals, for example, may differ in their bytes: a map by such keys is kept whole.
    """
    if state.kind == "list":
        return "chunks"
    if state.kind == "map" and state.serializer != PickleSerializer.id:  # one pickle once held a whole map
        key_type, _ = split_map_type(state.value_type)
        return "entries" if set(_WORDS.split(key_type)) <= _EXACT else "whole"
    return "whole"


# ---- names of rows -------------------------------------------------------------------------------------------------


def group_prefix(group: int) -> bytes:
    return group.to_bytes(2, "big")


def state_prefix(group: int, number: int) -> bytes:
    return _STATE.pack(group, number)


def key_prefix(group: int, number: int, key: bytes) -> bytes:
    return _KEY.pack(group, number, len(key)) + key


def key_of(row: bytes) -> bytes:
    """How all rows of the key to which `row` belongs begin."""
    return row[: _KEY.size + _KEY.unpack_from(row)[2]]


def stored_key(prefix: bytes) -> bytes:
    """The key in what `key_of` and `key_prefix` return."""
    return prefix[_KEY.size :]


def encode_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def decode_number(data: bytes) -> int:
    found: int = _NUMBER.unpack_from(data)[0]
    return found


NUMBER_SIZE = _NUMBER.size


class StoredKey(NamedTuple):
    """One key in one state with all its parts."""

    group: KeyGroup
    state: int
    key: bytes
    parts: list[Part]


def by_key(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[StoredKey]:
    """Rows in their order, put together. Raises CorruptError for what is no row of state."""
    for (group, state, key), found in itertools.groupby(map(_take_apart, rows), lambda row: row[0]):
        yield StoredKey(KeyGroup(group), state, key, [part for _, part in found])


def _take_apart(row: tuple[bytes, bytes]) -> tuple[tuple[int, int, bytes], Part]:
    name, value = row
    if len(name) < _KEY.size:
        raise CorruptError(f"a database of keyed state has a row with the name {name!r}, which is none of state")
    group, state, length = _KEY.unpack_from(name)
    end = _KEY.size + length
    if len(name) < end:
        raise CorruptError(f"a database of keyed state has a row with the name {name!r}, which ends within its key")
    return (group, state, name[_KEY.size : end]), (name[end:], value)


# ---- canonical values ----------------------------------------------------------------------------------------------


def join_parts(layout: Layout, parts: Sequence[Part], serializer: str) -> bytes:
    """The canonical value of a key from all its parts. serializer: the id of whoever writes wholes."""
    if layout == "entries":
        if any(len(value) < NUMBER_SIZE for _, value in parts):
            raise CorruptError("an entry of a stored map is too short for the number that it should begin with")
        ordered = sorted(parts, key=lambda part: part[1][:NUMBER_SIZE])
        return join_entries([(key, value[NUMBER_SIZE:]) for key, value in ordered], serializer)
    if len(parts) == 1:
        return parts[0][1]
    if layout == "whole":
        raise CorruptError("a key has several values in a state that keeps one")
    elements = [element for _, chunk in parts for element in split_elements(chunk, serializer)]
    return join_elements(elements, serializer)


def cut_parts(layout: Layout, whole: bytes, serializer: str, numbers: Iterator[int]) -> list[Part]:
    """The parts that hold a canonical value. numbers: each greater than all before."""
    if layout == "whole":
        return [(b"", whole)]
    if layout == "chunks":
        return [(encode_number(next(numbers)), whole)]
    return [(key, encode_number(next(numbers)) + value) for key, value in split_entries(whole, serializer)]
