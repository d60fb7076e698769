"""Keys as canonical bytes: the same key gives the same bytes in every process, equal keys give equal bytes, different
ones different bytes. Routing, and finding state again after a restart, rest on it: these bytes may never change.

A tag byte says the type, so that 1, True and "1" differ. Tuples and records hold their parts with lengths. Nothing here
may use `hash`, the interpreter's seed or the order of a set. What cannot keep these promises is refused, with a remedy.
"""

import dataclasses
import datetime as dt
import importlib
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID  # noqa: TID251 - the class of keys, never a source of new ones

import msgspec

from tidegate.errors import CorruptError, InvalidError

Encode = Callable[[Any], bytes]

NONE = b"n"
TUPLE = b"t"
RECORD = b"r"
ENUM = b"e"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_MICROSECOND = dt.timedelta(microseconds=1)
_LENGTH = struct.Struct(">I")

_REMEDIES: dict[type, str] = {
    float: "Rounding makes other keys of equal amounts: use an int (cents, microseconds), a Decimal or a str.",
    list: "Use a tuple.",
    set: "Use a tuple of its sorted elements.",
    frozenset: "Use a tuple of its sorted elements.",
    dict: "Use a frozen msgspec.Struct, or a tuple of the fields that matter.",
    bytearray: "Use bytes.",
    memoryview: "Use bytes.",
}


LONGEST_MODULE = 500
"""Characters of a module's name. Importing takes memory that grows with the square of its length."""


def encode_key(key: Any) -> bytes:
    """The canonical bytes of `key`. Raises InvalidError, naming the type and what to use, for what cannot be a key."""
    return _CLASSES[type(key)].encode(key)


class KeyClass(NamedTuple):
    """How keys of one class are taken apart."""

    encode: Encode
    fields: tuple[str, ...] | None = None
    """Names of the parts of a record; None for scalars, enums and tuples."""
    parts: Callable[[Any], Iterable[Any]] | None = None
    """The parts of a tuple or record; None where there are none."""


def key_class(cls: type) -> KeyClass:
    """How keys of `cls` are taken apart. Raises InvalidError for classes whose values cannot be keys."""
    return _CLASSES[cls]


class _KeyClasses(dict[type, KeyClass]):
    """What is known of each class that was met, found out once."""

    def __missing__(self, cls: type) -> KeyClass:
        known = self[cls] = _examine(cls)
        return known


_CLASSES = _KeyClasses()


def _examine(cls: type) -> KeyClass:
    if cls in SCALARS:
        return KeyClass(SCALARS[cls].encode)
    if cls is tuple:
        return KeyClass(lambda key: TUPLE + _join(key), None, iter)
    if issubclass(cls, Enum):
        class_path(cls)
        return KeyClass(lambda key: ENUM + encode_key(key.value))
    fields = record_fields(cls)
    class_path(cls)

    def parts(key: Any) -> Iterable[Any]:
        return [getattr(key, name) for name in fields]

    return KeyClass(lambda key: RECORD + _join(parts(key)), fields, parts)


def record_fields(cls: type) -> tuple[str, ...]:
    """The field names of a frozen struct, frozen dataclass or named tuple. Raises InvalidError for other classes."""
    if issubclass(cls, msgspec.Struct):
        if not (cls.__struct_config__.frozen and cls.__struct_config__.eq):
            raise _refusal(cls, "Declare it with frozen=True (and without eq=False).")
        return cls.__struct_fields__
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        parameters = cls.__dataclass_params__  # type: ignore[attr-defined]
        if not (parameters.frozen and parameters.eq and all(field.compare and field.init for field in fields)):
            raise _refusal(cls, "Declare it with @dataclass(frozen=True), every field compared and set by __init__.")
        return tuple(field.name for field in fields)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple(cls._fields)
    raise _refusal(cls, _REMEDIES.get(cls) or _derived_remedy(cls))


def _refusal(cls: type, remedy: str) -> InvalidError:
    return InvalidError(f"a {cls.__qualname__} cannot be a key or a part of one", remedy=remedy)


def _derived_remedy(cls: type) -> str:
    base = next((base for base in cls.__mro__ if base in SCALARS and base is not object), None)
    if base is not None:
        return f"Convert it: {base.__name__}(key); subclasses may compare in their own way."
    return "Use a str, int, bytes, a tuple of such, or a frozen msgspec.Struct or dataclass."


def class_path(cls: type) -> str:
    """`module:Class`, by which a later process finds the class again. Raises InvalidError where it could not."""
    if "<locals>" in cls.__qualname__:
        raise _refusal(cls, "Define the class at the top level of a module, where a restarted process can find it.")
    return f"{cls.__module__}:{cls.__qualname__}"


def import_stored(module: str) -> ModuleType:
    """A module of which stored data says the name. Raises ImportError, and whatever the module does."""
    if len(module) > LONGEST_MODULE:
        raise ImportError(f"its name has {len(module)} characters")
    return importlib.import_module(module)


def find_class(path: str) -> type:
    """The class that `class_path` named. Raises InvalidError when it is not there any more."""
    module, _, names = path.partition(":")
    try:
        found: Any = import_stored(module)
        for name in names.split("."):
            found = getattr(found, name)
    # A module that is imported runs, and may raise anything; a script without a guard ends itself.
    except (Exception, SystemExit) as error:
        raise InvalidError(
            f"stored keys are of class {path}, which cannot be found: {error}",
            remedy="Keys may never change type: keep the class importable in its place.",
        ) from error
    if not isinstance(found, type):
        raise InvalidError(f"stored keys are of class {path}, which is no class any more", remedy="Restore the class.")
    return found


def _join(parts: Iterable[Any]) -> bytes:
    return join_parts(map(encode_key, parts))


def join_parts(encoded: Iterable[bytes]) -> bytes:
    """The parts of a tuple or record, each as its canonical bytes, as what follows the tag."""
    return b"".join([piece for part in encoded for piece in (_LENGTH.pack(len(part)), part)])


def split_parts(data: bytes) -> list[bytes]:
    """The bytes of the parts of a tuple or record, from what follows its tag. Raises CorruptError."""
    parts, position = [], 0
    while position < len(data):
        start = position + _LENGTH.size
        if start > len(data):
            raise CorruptError("the parts of a stored key end in the middle of a length")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise CorruptError("a part of a stored key is longer than the key")
        parts.append(data[start:position])
    return parts


# ---- scalars -------------------------------------------------------------------------------------------------------


class Scalar(NamedTuple):
    """How keys of one class without parts are written and read."""

    tags: bytes
    """The tags that its values may have."""
    encode: Encode
    decode: Callable[[bytes], Any]
    """From bytes with the tag."""


def _encode_int(key: int) -> bytes:
    return b"i" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data[1:], "big", signed=True)


def _encode_datetime(key: dt.datetime) -> bytes:
    if key.tzinfo is None:
        return b"d" + _encode_int((key - _NAIVE_EPOCH) // _MICROSECOND)
    if type(key.tzinfo) is not dt.timezone:
        # Within a named zone an hour can come twice, and such moments equal nothing in another zone.
        raise _refusal(type(key), "Named time zones make moments that equal nothing: use key.astimezone(datetime.UTC).")
    return b"z" + _encode_int((key - _EPOCH) // _MICROSECOND)


def _decode_datetime(data: bytes) -> dt.datetime:
    epoch = _NAIVE_EPOCH if data[:1] == b"d" else _EPOCH
    return epoch + _decode_int(data[1:]) * _MICROSECOND


def _encode_decimal(key: Decimal) -> bytes:
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        raise _refusal(type(key), "It is not a finite number; leave such records out, or use None as their key.")
    text = "".join(map(str, digits))
    significant = text.rstrip("0")
    if not significant:
        return b"m0E0"
    return f"m{'-' if sign else ''}{significant}E{exponent + len(text) - len(significant)}".encode()


def _decode_decimal(data: bytes) -> Decimal:
    number = Decimal(data[1:].decode("ascii"))
    if not number.is_finite():
        raise ValueError(f"{number} is not a finite number")
    return number


SCALARS: dict[type, Scalar] = {
    type(None): Scalar(NONE, lambda key: NONE, {NONE: None}.__getitem__),
    bool: Scalar(b"b", lambda key: b"b1" if key else b"b0", lambda data: {b"b1": True, b"b0": False}[data]),
    int: Scalar(b"i", _encode_int, _decode_int),
    str: Scalar(
        b"s",
        lambda key: b"s" + key.encode("utf-8", "surrogatepass"),
        lambda data: data[1:].decode("utf-8", "surrogatepass"),
    ),
    bytes: Scalar(b"y", lambda key: b"y" + key, lambda data: data[1:]),
    UUID: Scalar(b"u", lambda key: b"u" + key.bytes, lambda data: UUID(bytes=data[1:])),
    dt.datetime: Scalar(b"dz", _encode_datetime, _decode_datetime),
    dt.date: Scalar(
        b"a", lambda key: b"a" + _encode_int(key.toordinal()), lambda data: dt.date.fromordinal(_decode_int(data[1:]))
    ),
    Decimal: Scalar(b"m", _encode_decimal, _decode_decimal),
}
"""Every class whose values are keys without parts. Tags and forms are stored and may never change."""
