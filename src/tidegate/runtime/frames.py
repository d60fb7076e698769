"""Frames: what goes over a wire between two workers, as bytes, and back. `encode_element` and `encode_credit` make the
payload, `encode_frame` puts the header in front; `decode_frame`, `decode_element` and `decode_credit` are the way back.
Never decides anything: whether a frame is wanted is the business of `channels`.

Records are the user's own objects. Columns of strings, bytes and numbers go as msgpack, columns of one msgspec.Struct
class field by field, and keys that are a field of their records go with it; everything else goes through pickle.

Unpickling trusts whoever wrote the bytes: the wire connects processes of one user that run one program, authenticated,
and the checksum is tested first, so that damaged bytes are never unpickled. Classes are found again by module and name:
workers import the program under its real name.
"""

import copyreg
import enum
import pickle
import struct
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, NoReturn

import msgspec
import xxhash

from tidegate.elements import Barrier, Batch, Element, EndOfInput, Watermark
from tidegate.errors import InternalError, UserCodeError
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt, CheckpointId, SubtaskIndex

VERSION = 2
PICKLE_PROTOCOL = 5

_HEADER = struct.Struct("!BBQIIIQ")
"""Version, kind, attempt, edge, source, target, sequence."""
_CHECKSUM = struct.Struct("!Q")
"""xxh3-64 of header and payload."""
_NUMBER = struct.Struct("!Q")
_DRAINED = b"\1"
_WATERMARK = struct.Struct("!q?")
_PAYLOAD_START = _HEADER.size + _CHECKSUM.size
_PLAIN_TYPES = frozenset({str, bytes, int, float, bool, type(None)})
"""What msgpack is faster for, and brings back as it was. Exactly these: a subclass would come back as its base."""


class FrameKind(enum.IntEnum):
    """What a frame carries. All but CREDIT go with the records, in one sequence; CREDIT goes against them, in
    another."""

    BATCH = 1
    BARRIER = 2
    END = 3
    CREDIT = 4
    WATERMARK = 5


class Frame(msgspec.Struct, frozen=True):
    """A frame whose header and checksum were found right; the payload is not looked at yet."""

    kind: FrameKind
    attempt: Attempt
    channel: ChannelId
    sequence: int
    """Counts the frames of one channel and direction in one attempt, from 0."""
    payload: memoryview


# ---- header ----------------------------------------------------------------------------------------------------------


def encode_frame(kind: FrameKind, attempt: Attempt, channel: ChannelId, sequence: int, payload: bytes) -> bytes:
    header = _HEADER.pack(VERSION, kind, attempt, channel.edge, channel.source, channel.target, sequence)
    return b"".join((header, _CHECKSUM.pack(_checksum(header, payload)), payload))


def decode_frame(data: bytes) -> Frame:
    """The frame in `data`. Raises InternalError when these are not the bytes that `encode_frame` made."""
    if not data or data[0] != VERSION:
        raise InternalError(
            f"a frame between workers has format version {data[0] if data else 'none'}, this worker knows {VERSION}",
            remedy="Run all workers of a job with the same version of Tidegate.",
        )
    view = memoryview(data)
    if len(data) < _PAYLOAD_START:
        raise InternalError(f"a frame between workers has {len(data)} bytes, a header alone has {_PAYLOAD_START}")
    header, payload = view[: _HEADER.size], view[_PAYLOAD_START:]
    _, kind, attempt, edge, source, target, sequence = _HEADER.unpack(header)
    channel = ChannelId(edge, SubtaskIndex(source), SubtaskIndex(target))
    if _CHECKSUM.unpack_from(data, _HEADER.size)[0] != _checksum(header, payload):
        raise InternalError(f"a frame between workers is damaged: its checksum is wrong (it says {channel})")
    try:
        return Frame(FrameKind(kind), Attempt(attempt), channel, sequence, payload)
    except ValueError as error:
        raise InternalError(f"a frame of {channel} has the unknown kind {kind}") from error


def _checksum(header: bytes | memoryview, payload: bytes | memoryview) -> int:
    hasher = xxhash.xxh3_64(header)
    hasher.update(payload)
    return hasher.intdigest()


# ---- payloads --------------------------------------------------------------------------------------------------------


def encode_element(element: Element) -> tuple[FrameKind, bytes]:
    """Kind and payload. Raises UserCodeError, naming the type, when a record or key cannot be pickled."""
    if isinstance(element, Batch):
        return FrameKind.BATCH, _encode_batch(element)
    if isinstance(element, Watermark):
        return FrameKind.WATERMARK, _WATERMARK.pack(element.timestamp, element.is_idle)
    if isinstance(element, Barrier):
        return FrameKind.BARRIER, _NUMBER.pack(element.checkpoint)
    return FrameKind.END, _DRAINED if element.is_drained else b""


def decode_element(frame: Frame) -> Element:
    """What `encode_element` was given. Raises InternalError for a payload that it did not make, UserCodeError when
    an object of the user's cannot be put together again."""
    if frame.kind is FrameKind.BATCH:
        return _decode_batch(frame)
    if frame.kind is FrameKind.WATERMARK and len(frame.payload) == _WATERMARK.size:
        return Watermark(*_WATERMARK.unpack(frame.payload))
    if frame.kind is FrameKind.BARRIER:
        return Barrier(CheckpointId(_decode_number(frame)))
    if frame.kind is FrameKind.END and frame.payload in (b"", _DRAINED):
        return EndOfInput(is_drained=bool(frame.payload))
    raise _malformed(frame)


def encode_credit(amount: int) -> bytes:
    """Payload of a CREDIT frame: so many more bytes may come."""
    return _NUMBER.pack(amount)


def decode_credit(frame: Frame) -> int:
    """Raises InternalError for a payload that `encode_credit` did not make."""
    if frame.kind is not FrameKind.CREDIT:
        raise _malformed(frame)
    return _decode_number(frame)


def _decode_number(frame: Frame) -> int:
    if len(frame.payload) != _NUMBER.size:
        raise _malformed(frame)
    number: int = _NUMBER.unpack(frame.payload)[0]
    return number


def _malformed(frame: Frame) -> InternalError:
    return InternalError(f"frame {frame.sequence} of {frame.channel} is no well-formed {frame.kind.name.lower()}")


# ---- columns ---------------------------------------------------------------------------------------------------------


class _Plain(msgspec.Struct, tag=0, array_like=True):
    values: list[Any]


class _Pickled(msgspec.Struct, tag=1, array_like=True):
    data: memoryview


class _Structs(msgspec.Struct, tag=2, array_like=True):
    """Objects of one msgspec.Struct class, as one column a field."""

    cls: memoryview
    """The class, pickled: its module and name."""
    fields: list[_Plain | _Pickled]


class _Sent(msgspec.Struct, tag=3, array_like=True):
    """The very objects that are sent as a column of the values: a field of theirs, or themselves."""

    column: int


_Column = _Plain | _Pickled | _Structs


class _BatchPayload(msgspec.Struct, array_like=True):
    tag: str | None
    values: _Column
    keys: _Plain | _Pickled | _Sent | None
    timestamps: list[int] | None


_encode_payload = msgspec.msgpack.Encoder().encode
_decode_payload = msgspec.msgpack.Decoder(_BatchPayload).decode


def _encode_batch(batch: Batch) -> bytes:
    try:
        values, columns = _value_column(batch.values)
        keys = None if batch.keys is None else _key_column(batch.keys, columns)
        return _encode_payload(_BatchPayload(batch.tag, values, keys, batch.timestamps))
    except (UnicodeEncodeError, OverflowError):
        # A lone surrogate, which UTF-8 does not have, or an int of more than 64 bits; pickle does.
        pickled = None if batch.keys is None else _pickled_column(batch.keys, "key")
        values = _pickled_column(batch.values, "record")
        return _encode_payload(_BatchPayload(batch.tag, values, pickled, batch.timestamps))


def _value_column(values: list[Any]) -> tuple[_Column, list[list[Any]]]:
    """The column, and what is sent for it."""
    if not values or not isinstance(values[0], msgspec.Struct) or len(set(map(type, values))) > 1:
        return _simple_column(values, "record"), [values]
    cls = type(values[0])
    try:
        if not _goes_by_fields(values[0]):
            return _pickled_column(values, "record"), [values]
        columns = [list(map(attrgetter(field), values)) for field in cls.__struct_fields__]
    except AttributeError:
        # A field was deleted from one of them; pickle will say so.
        return _pickled_column(values, "record"), [values]
    fields = [_simple_column(column, f"field of {cls.__qualname__}") for column in columns]
    return _Structs(memoryview(_pickle(cls, values, "record")), fields), columns


def _key_column(keys: list[Any], columns: list[list[Any]]) -> _Plain | _Pickled | _Sent:
    for position, column in enumerate(columns):
        if all(map(is_, keys, column)):
            return _Sent(position)
    return _simple_column(keys, "key")


def _goes_by_fields(value: msgspec.Struct) -> bool:
    """Whether pickle, too, would do nothing but call the class with the fields by position."""
    cls = type(value)
    own_rules = (
        cls in copyreg.dispatch_table
        or cls.__reduce__ is not msgspec.Struct.__reduce__
        or cls.__reduce_ex__ is not object.__reduce_ex__
    )
    # Keyword-only fields make `__reduce__` name another function.
    return not own_rules and bool(cls.__struct_fields__) and value.__reduce__()[0] is cls


def _simple_column(values: list[Any], what: str) -> _Plain | _Pickled:
    types = list(map(type, values))
    # Counting is faster, and one type the usual case.
    if values and types.count(types[0]) == len(types):
        is_plain = types[0] in _PLAIN_TYPES
    else:
        is_plain = _PLAIN_TYPES.issuperset(types)
    return _Plain(values) if is_plain else _pickled_column(values, what)


def _pickled_column(values: list[Any], what: str) -> _Pickled:
    return _Pickled(memoryview(_pickle(values, values, what)))


def _pickle(content: Any, values: list[Any], what: str) -> bytes:
    # Classes of the program take part in pickling and may raise anything.
    try:
        return pickle.dumps(content, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        _refuse(values, what, error)


def _refuse(values: list[Any], what: str, error: Exception) -> NoReturn:
    culprit = next((value for value in values if not _can_pickle(value)), values[0])
    raise UserCodeError(
        f"a {what} of type {type(culprit).__module__}.{type(culprit).__qualname__} cannot be sent to another worker, "
        f"because it cannot be pickled: {error}",
        remedy="Emit plain values, or objects of classes that are defined at the top level of a module and hold only "
        "such values: no open files, locks, connections, generators or lambdas.",
    ) from error


def _can_pickle(value: Any) -> bool:
    try:
        pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception:
        return False
    return True


def _decode_batch(frame: Frame) -> Batch:
    try:
        payload = _decode_payload(frame.payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _malformed(frame) from error
    try:
        columns = _columns(payload.values, frame)
        values = _values(payload.values, columns)
        keys = None if payload.keys is None else _keys(payload.keys, columns, frame)
    except InternalError:
        raise
    except Exception as error:
        # The checksum was right, so these are the bytes that were sent: it is a class of the user's that fails.
        raise UserCodeError(
            f"a record that came from another worker cannot be unpickled: {type(error).__name__}: {error}",
            remedy="Objects of its class must survive pickle.loads(pickle.dumps(x)): check its __init__, "
            "__post_init__, __reduce__ and __setstate__.",
        ) from error
    batch = Batch(values, keys, payload.timestamps, payload.tag)
    if any(column is not None and len(column) != len(values) for column in (keys, batch.timestamps)):
        raise _malformed(frame)
    return batch


def _columns(column: _Column, frame: Frame) -> list[list[Any]]:
    """What was sent: the fields, or the values themselves."""
    if not isinstance(column, _Structs):
        return [_simple_values(column)]
    fields = [_simple_values(field) for field in column.fields]
    if len({len(field) for field in fields}) != 1:
        raise _malformed(frame)
    return fields


def _values(column: _Column, columns: list[list[Any]]) -> list[Any]:
    if not isinstance(column, _Structs):
        return columns[0]
    make: Callable[..., Any] = pickle.loads(column.cls)
    return list(map(make, *columns))


def _keys(keys: _Plain | _Pickled | _Sent, columns: list[list[Any]], frame: Frame) -> list[Any]:
    if not isinstance(keys, _Sent):
        return _simple_values(keys)
    if not 0 <= keys.column < len(columns):
        raise _malformed(frame)
    return columns[keys.column]


def _simple_values(column: _Plain | _Pickled) -> list[Any]:
    if isinstance(column, _Plain):
        return column.values
    values = pickle.loads(column.data)
    if not isinstance(values, list):
        raise InternalError(f"a column that came from another worker is a {type(values).__name__} and no list")
    return values
