"""Frames: what goes over a wire between two workers, as bytes, and back. `encode_element` and `encode_credit` make the
payload, `encode_frame` puts the header in front; `decode_frame`, `decode_element` and `decode_credit` are the way back.
Never decides anything: whether a frame is wanted is the business of `channels`.

Records are the user's own objects. Columns of strings or bytes go as msgpack, columns of one msgspec.Struct class field
by field; everything else goes through pickle. Writing and reading together take, in nanoseconds a record, in batches of
2,048: bytes 40 (pickle 100), strings 39 (48), structs of four fields 267 (415); for numbers msgpack and the check of
their types are no faster.

Unpickling trusts whoever wrote the bytes: the wire connects processes of one user that run one program, authenticated,
and the checksum is tested first, so that damaged bytes are never unpickled. Classes are found again by module and name:
workers import the program under its real name.
"""

import copyreg
import enum
import pickle
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn

import msgspec
import xxhash

from tidegate.elements import Barrier, Batch, Element, EndOfInput, Watermark
from tidegate.errors import InternalError, UserCodeError
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt, CheckpointId, SubtaskIndex

VERSION = 1
PICKLE_PROTOCOL = 5

_HEADER = struct.Struct("!BBQIIIQ")
"""Version, kind, attempt, edge, source, target, sequence."""
_CHECKSUM = struct.Struct("!Q")
"""xxh3-64 of header and payload."""
_NUMBER = struct.Struct("!Q")
_DRAINED = b"\1"
_WATERMARK = struct.Struct("!q?")
_PAYLOAD_START = _HEADER.size + _CHECKSUM.size
_PLAIN_TYPES = frozenset({str, bytes, type(None)})
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


_Column = _Plain | _Pickled | _Structs


class _BatchPayload(msgspec.Struct, array_like=True):
    tag: str | None
    values: _Column
    keys: _Plain | _Pickled | None
    timestamps: list[int] | None


_encode_payload = msgspec.msgpack.Encoder().encode
_decode_payload = msgspec.msgpack.Decoder(_BatchPayload).decode


def _encode_batch(batch: Batch) -> bytes:
    keys = None if batch.keys is None else _simple_column(batch.keys, "key")
    try:
        return _encode_payload(_BatchPayload(batch.tag, _value_column(batch.values), keys, batch.timestamps))
    except UnicodeEncodeError:
        # A lone surrogate, which UTF-8 does not have; pickle does.
        keys = None if batch.keys is None else _pickled_column(batch.keys, "key")
        values = _pickled_column(batch.values, "record")
        return _encode_payload(_BatchPayload(batch.tag, values, keys, batch.timestamps))


def _value_column(values: list[Any]) -> _Column:
    if not values or not isinstance(values[0], msgspec.Struct) or len(set(map(type, values))) > 1:
        return _simple_column(values, "record")
    cls = type(values[0])
    try:
        if not _goes_by_fields(values[0]):
            return _pickled_column(values, "record")
        columns = [list(map(attrgetter(field), values)) for field in cls.__struct_fields__]
    except AttributeError:
        # A field was deleted from one of them; pickle will say so.
        return _pickled_column(values, "record")
    fields = [_simple_column(column, f"field of {cls.__qualname__}") for column in columns]
    return _Structs(memoryview(_pickle(cls, values, "record")), fields)


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
    if _PLAIN_TYPES.issuperset(map(type, values)):
        return _Plain(values)
    return _pickled_column(values, what)


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
        values = _column_values(payload.values, frame)
        keys = None if payload.keys is None else _simple_values(payload.keys)
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


def _column_values(column: _Column, frame: Frame) -> list[Any]:
    if not isinstance(column, _Structs):
        return _simple_values(column)
    make: Callable[..., Any] = pickle.loads(column.cls)
    fields = [_simple_values(field) for field in column.fields]
    if len({len(field) for field in fields}) != 1:
        raise _malformed(frame)
    return list(map(make, *fields))


def _simple_values(column: _Plain | _Pickled) -> list[Any]:
    if isinstance(column, _Plain):
        return column.values
    values = pickle.loads(column.data)
    if not isinstance(values, list):
        raise InternalError(f"a column that came from another worker is a {type(values).__name__} and no list")
    return values
