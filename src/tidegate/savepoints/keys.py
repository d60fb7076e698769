"""Keys as plain Python from their canonical bytes, without the program's classes, and canonical bytes from plain keys.

A record is a dict of its fields, a tuple a tuple, an enum's member its value. Nothing here imports a class that a
checkpoint names.
"""

import base64
import datetime as dt
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from tidegate.errors import CorruptError, InvalidError
from tidegate.state.key_types import ANY, KeyLayout
from tidegate.state.keys import ENUM, NONE, RECORD, SCALARS, TUPLE, encode_key, join_parts, split_parts

_CLASSES: dict[str, Any] = {cls.__name__: cls for cls in SCALARS if cls is not type(None)}
_BY_TAG = {bytes((tag,)): scalar for scalar in SCALARS.values() for tag in scalar.tags}
_TRUTH = {"true": True, "false": False}

# ---- from bytes ----------------------------------------------------------------------------------------------------


def plain_key(data: bytes, layout: KeyLayout) -> Any:
    """The key whose canonical bytes are `data`; a tuple for a tuple, a dict for a record. Raises CorruptError."""
    tag = data[:1]
    if tag in _BY_TAG and _may_be(tag, layout):
        try:
            return _BY_TAG[tag].decode(data)
        except (ValueError, KeyError, ArithmeticError) as error:
            raise CorruptError(f"a stored key is not of type {layout}: {error}") from error
    if tag == ENUM and ":" in layout.name and data[1:2] != ENUM:
        return plain_key(data[1:], ANY)
    parts = layout.parts
    if tag not in (TUPLE, RECORD) or parts is None:
        raise CorruptError(f"a stored key is not of type {layout}: it begins with {data[:8]!r}")
    encoded = split_parts(data[1:])
    if len(encoded) != len(parts):
        raise CorruptError(f"a stored key of type {layout} has {len(encoded)} parts")
    values = [plain_key(part, kind) for part, (_, kind) in zip(encoded, parts, strict=True)]
    return tuple(values) if tag == TUPLE else dict(zip((name for name, _ in parts), values, strict=True))


def _may_be(tag: bytes, layout: KeyLayout) -> bool:
    """Whether a scalar with that tag may stand for a key of type `layout`: None for all but co-partitioned keys, and a
    member's value."""
    if tag == NONE or layout == ANY:
        return layout.partitions is None
    return layout.name in _CLASSES and layout.parts is None and tag in SCALARS[_CLASSES[layout.name]].tags


# ---- to bytes ------------------------------------------------------------------------------------------------------


def stored_key(key: Any, layout: KeyLayout) -> bytes:
    """The canonical bytes of a key of type `layout`, plain or as the program has it. Raises InvalidError."""
    if key is None and layout.partitions is None:
        return NONE
    if layout.parts is not None and isinstance(key, Mapping | list | tuple) and not hasattr(key, "_fields"):
        return _stored_parts(key, layout, layout.parts)
    if ":" in layout.name and layout.parts is None and not isinstance(key, Enum):
        return ENUM + encode_key(key)
    if layout.name in _CLASSES and type(key) is not _CLASSES[layout.name]:
        raise _unfit(key, layout)
    return encode_key(key)


def _stored_parts(key: Any, layout: KeyLayout, parts: tuple[tuple[str, KeyLayout], ...]) -> bytes:
    names = [name for name, _ in parts]
    if isinstance(key, Mapping):
        if layout.name == "tuple" or set(key) != set(names):
            raise _unfit(key, layout)
        key = [key[name] for name in names]
    if len(key) != len(parts):
        raise _unfit(key, layout)
    tag = TUPLE if layout.name == "tuple" else RECORD
    return tag + join_parts(stored_key(part, kind) for part, (_, kind) in zip(key, parts, strict=True))


# ---- from text -----------------------------------------------------------------------------------------------------


def key_from_text(text: str, layout: KeyLayout) -> Any:
    """The plain key that somebody wrote on a command line, as rows show it in JSON; a str without quotes. Raises
    InvalidError."""
    if layout.name in _CLASSES:
        return _scalar(text, layout)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return _from_json(value, layout)


def _from_json(value: Any, layout: KeyLayout) -> Any:
    if isinstance(value, dict) and layout.parts is not None and set(value) == {name for name, _ in layout.parts}:
        return {name: _from_json(value[name], kind) for name, kind in layout.parts}
    if isinstance(value, list) and layout.parts is not None and len(value) == len(layout.parts):
        return [_from_json(part, kind) for part, (_, kind) in zip(value, layout.parts, strict=True)]
    if isinstance(value, dict | list):
        raise _unfit(value, layout)
    if isinstance(value, str) and layout.name in _CLASSES:
        return _scalar(value, layout)
    return value


def _scalar(text: str, layout: KeyLayout) -> Any:
    cls = _CLASSES[layout.name]
    if cls is str:
        return text
    if text == "null":
        return None
    try:
        if cls is bool:
            return _TRUTH[text]
        if cls is bytes:
            return base64.b64decode(text, validate=True)
        return cls.fromisoformat(text) if issubclass(cls, dt.date) else cls(text)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise _unfit(text, layout) from error


def _unfit(key: Any, layout: KeyLayout) -> InvalidError:
    return InvalidError(
        f"{key!r} is not a key of type {layout}",
        remedy="Write it as `tidegate state read` shows it: bytes in base64, tuples and records as JSON.",
    )
