"""The stored form of state without keys: one piece holds what one subtask kept, state by state.

Handles of the form 'elements' lead to such pieces. A piece says by itself whether it is whole (checksum); what its
states are (kind, type, serializer), the snapshot's `operator_states` say. Each state is one whole, written as a list or
map of keyed state is: `serializers.containers` takes it apart without the program. Nothing here knows a declared type.

    "TGOS" | format, 2 bytes | xxh3-64 of all that follows, 8 bytes | msgpack array of [name of a state, its whole]
"""

import struct
from collections.abc import Sequence

import msgspec
import xxhash

from tidegate.errors import CorruptError

ELEMENTS = "elements"
"""The form of handles that lead to pieces of this kind."""
MAGIC = b"TGOS"
FORMAT = 1
"""Version of the form. A reader refuses any other."""

_PREFIX = struct.Struct(">4sHQ")
_STATES = msgspec.msgpack.Decoder(list[tuple[str, bytes]])


def write_operator_piece(states: Sequence[tuple[str, bytes]]) -> bytes:
    """The piece that holds these states: the name of each, and its elements as one list or map."""
    body = msgspec.msgpack.encode(states)
    return _PREFIX.pack(MAGIC, FORMAT, xxhash.xxh3_64_intdigest(body)) + body


def read_operator_piece(data: bytes) -> list[tuple[str, bytes]]:
    """What was written, in the same order. Raises CorruptError."""
    if len(data) < _PREFIX.size:
        raise CorruptError(f"a piece of state without keys of {len(data)} bytes is shorter than its header")
    magic, version, checksum = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise CorruptError(f"a piece of state without keys begins with {magic!r} and not with {MAGIC!r}")
    if version != FORMAT:
        raise CorruptError(
            f"a piece of state without keys has format {version}; this version reads {FORMAT}",
            remedy="Restore it with the version of Tidegate that wrote it, or a later one.",
        )
    body = memoryview(data)[_PREFIX.size :]
    if xxhash.xxh3_64_intdigest(body) != checksum:
        raise CorruptError("a piece of state without keys does not have the checksum that it was written with")
    try:
        states: list[tuple[str, bytes]] = _STATES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"a piece of state without keys cannot be read: {error}") from error
    return states
