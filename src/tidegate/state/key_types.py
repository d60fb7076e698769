"""The types of keys, as text that is stored with the state: `str`, `tuple[str, int]`, `app:Point[x: int, y: int]`, and
`str in 4 partitions by murmur2` where the partitions of the input keep keys together.

Dicts take 1, True and 1.0 for one key, also inside a tuple; in bytes they are three. So the type of an operator's keys
is settled once, part by part, and never changes. None is the exception: it equals nothing else, and may stand for any
part; but no partitioner gives a partition to it.
"""

import re
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Union, get_args, get_origin

from tidegate.errors import CorruptError, InvalidError
from tidegate.state.key_partitions import PARTITIONED_TYPES, KeyPartitions
from tidegate.state.keys import (
    ENUM,
    NONE,
    RECORD,
    SCALARS,
    TUPLE,
    class_path,
    encode_key,
    find_class,
    key_class,
    split_parts,
)

_NAMES: dict[str, type] = {"None" if cls is type(None) else cls.__name__: cls for cls in SCALARS}
_PARTITIONED = " in "
"""Between the type of keys and their partitions."""
_TOKEN = re.compile(r"(?:(?P<field>\w+): )?(?P<name>[\w.]+(?::[\w.]+)?)")

_DEEPEST = 50
"""Parts within parts, so that whatever goes through a type has room for it."""
_SHOWN = 200
"""Characters of a wrong text that an error repeats."""


class KeyLayout(NamedTuple):
    """The type of a key, part by part."""

    name: str
    """A scalar's name, 'tuple', or `module:Class`; 'None' fits every type."""
    parts: "tuple[tuple[str, KeyLayout], ...] | None" = None
    """Field name ('' in a tuple) and type of each part; None where there are no parts."""
    partitions: KeyPartitions | None = None
    """Of co-partitioned keys, which are a str or bytes each, never None, and no part of another key."""

    def __str__(self) -> str:
        if self.partitions is not None:
            return f"{self.name}{_PARTITIONED}{self.partitions}"
        if self.parts is None:
            return self.name
        return f"{self.name}[{', '.join(f'{name}: {part}' if name else str(part) for name, part in self.parts)}]"


ANY = KeyLayout("None")
"""The type of None, and of a part that has only been None so far."""


def key_type_name(key: Any) -> str:
    """The type of `key` as it is stored: `tuple[str, int]`. Raises InvalidError for what cannot be a key."""
    return str(layout_of(key))


def layout_of(key: Any) -> KeyLayout:
    """The type of `key`. Raises InvalidError for what cannot be a key."""
    cls = type(key)
    known = key_class(cls)
    if known.parts is None:
        return KeyLayout(_class_name(cls))
    names = known.fields or ("",) * len(key)
    return KeyLayout(_class_name(cls), tuple(zip(names, map(layout_of, known.parts(key)), strict=True)))


def declared_layout(declared: Any) -> KeyLayout:
    """The type of keys that a program declares, as far as it says: the parts of a record are settled by the first key.

    Raises InvalidError for what cannot be the type of a key.
    """
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return declared_layout(others[0])
    if origin is tuple and Ellipsis not in arguments:
        return KeyLayout("tuple", tuple(("", declared_layout(argument)) for argument in arguments))
    if declared is None:
        return ANY
    if not isinstance(declared, type) or origin is not None or declared is tuple:
        raise InvalidError(
            f"{declared} does not say one type of key", remedy="Declare one class, or a tuple with all its parts."
        )
    fields = key_class(declared).fields
    parts = None if fields is None else tuple((field, ANY) for field in fields)
    return KeyLayout(_class_name(declared), parts)


def _class_name(cls: type) -> str:
    if cls is type(None):
        return "None"
    return cls.__name__ if cls in SCALARS or cls is tuple else class_path(cls)


def scalar_class(layout: KeyLayout) -> type:
    """The class of keys without parts, of a type that names one of the scalars."""
    return _NAMES[layout.name]


def shape_of(key: Any) -> Any:
    """What two keys share when they have the same classes in all parts: quick to make and to compare."""
    cls = type(key)
    parts = key_class(cls).parts
    return cls if parts is None else (cls, *map(shape_of, parts(key)))


def unify(one: KeyLayout, other: KeyLayout) -> KeyLayout | None:
    """The type that covers both, or None when they contradict."""
    if one.partitions != other.partitions:
        return None
    if one.name == "None" or one == other:
        return other
    if other.name == "None":
        return one
    if one.name != other.name or one.parts is None or other.parts is None:
        return None
    if [name for name, _ in one.parts] != [name for name, _ in other.parts]:
        return None
    parts: list[tuple[str, KeyLayout]] = []
    for (name, mine), (_, theirs) in zip(one.parts, other.parts, strict=True):
        part = unify(mine, theirs)
        if part is None:
            return None
        parts.append((name, part))
    return KeyLayout(one.name, tuple(parts))


def parse_layout(text: str) -> KeyLayout:
    """The type whose text is `text`. Raises CorruptError."""
    plain, partitioned, partitions = text.partition(_PARTITIONED)
    if partitioned:
        if plain not in PARTITIONED_TYPES:
            raise _no_type(text)
        return KeyLayout(plain, partitions=KeyPartitions.parse(partitions))
    (_, layout), end = _parse(text, 0, 0)
    if end != len(text):
        raise _no_type(text)
    return layout


def _no_type(text: str) -> CorruptError:
    return CorruptError(f"{text[:_SHOWN]!r} is not the type of a key")


def _parse(text: str, position: int, depth: int) -> tuple[tuple[str, KeyLayout], int]:
    """Field name and type that begin at `position`, within so many others, and the position behind them."""
    if depth > _DEEPEST:
        raise CorruptError("the type of a key has too many parts within parts")
    token = _TOKEN.match(text, position)
    if token is None:
        raise _no_type(text)
    field, name, position = token["field"] or "", token["name"], token.end()
    if not text.startswith("[", position):
        return (field, KeyLayout(name)), position
    parts: list[tuple[str, KeyLayout]] = []
    position += 1
    while not text.startswith("]", position):
        part, position = _parse(text, position + 2 if parts else position, depth + 1)
        parts.append(part)
        if not text.startswith(("]", ", "), position):
            raise _no_type(text)
    return (field, KeyLayout(name, tuple(parts))), position + 1


# ---- from bytes back to keys ---------------------------------------------------------------------------------------


def decode_keys(encoded: list[bytes], layout: KeyLayout) -> list[Any]:
    """The keys of type `layout` whose bytes these are.

    Raises CorruptError for other bytes, InvalidError when a class of the type is gone or has other fields.
    """
    decode = _decoder(layout)
    # Classes of the program take part (enums, __post_init__) and may raise anything.
    try:
        return list(map(decode, encoded))
    except (CorruptError, InvalidError):
        raise
    except Exception as error:
        raise CorruptError(f"a stored key is not of type {layout}: {error}") from error


def _decoder(layout: KeyLayout) -> Callable[[bytes], Any]:
    if layout.name in _NAMES and layout.parts is None:
        return _scalar_decoder(layout)
    if layout.name == "tuple" and layout.parts is not None:
        return _parts_decoder(TUPLE, layout, tuple)
    if ":" not in layout.name:
        raise CorruptError(f"{layout} is not the type of a key")
    cls = find_class(layout.name)
    known = key_class(cls)
    if (None if layout.parts is None else tuple(name for name, _ in layout.parts)) != known.fields:
        raise InvalidError(
            f"stored keys are of type {layout}; the fields of {layout.name} have changed",
            remedy="Keys may never change type: keep the class as it was, or start with new state.",
        )
    if known.fields is None:
        return _enum_decoder(cls)
    fields = known.fields
    return _parts_decoder(RECORD, layout, lambda parts: cls(**dict(zip(fields, parts, strict=True))))


def _scalar_decoder(layout: KeyLayout) -> Callable[[bytes], Any]:
    scalar = SCALARS[_NAMES[layout.name]]

    def decode(data: bytes) -> Any:
        if data[:1] in scalar.tags and data:
            return scalar.decode(data)
        return _none(data, layout)

    return decode


def _parts_decoder(tag: bytes, layout: KeyLayout, make: Callable[[Iterator[Any]], Any]) -> Callable[[bytes], Any]:
    decoders = [_decoder(part) for _, part in layout.parts or ()]

    def decode(data: bytes) -> Any:
        if data[:1] != tag:
            return _none(data, layout)
        return make(decoder(part) for decoder, part in zip(decoders, split_parts(data[1:]), strict=True))

    return decode


def _enum_decoder(cls: Any) -> Callable[[bytes], Any]:
    members = {encode_key(member.value): member for member in cls}

    def decode(data: bytes) -> Any:
        if data[:1] != ENUM:
            return _none(data, KeyLayout(class_path(cls)))
        if data[1:] not in members:
            raise InvalidError(
                f"a stored key is a member of {class_path(cls)} that is gone", remedy="Keep every member of its keys."
            )
        return members[data[1:]]

    return decode


def _none(data: bytes, layout: KeyLayout) -> None:
    if data != NONE or layout.partitions is not None:
        raise CorruptError(f"a stored key is not of type {layout}: it begins with {data[:8]!r}")
