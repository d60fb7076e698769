"""How stored keys and values become Arrow columns: types by the text of the stored type, and Python values that fit.

What Arrow has no type for is JSON text: unions of several types, records that contain themselves, enums with members of
several types. Needs the package pyarrow, which is imported when a column is made.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.savepoints.json_text import json_text
from tidegate.savepoints.shapes import schema_or_none
from tidegate.savepoints.values import LISTS, MAPS, element_types
from tidegate.serializers.schema import (
    NONE,
    Collection,
    FixedTuple,
    Literal,
    Mapping,
    Members,
    Record,
    Scalar,
    Schema,
    Union,
    is_opaque,
)
from tidegate.state.key_types import KeyLayout

Fit = Callable[[Any], Any]


class Column(NamedTuple):
    """An Arrow type, and what makes of a plain value one that it takes. None stays None."""

    type: Any
    fit: Fit


def arrow() -> Any:
    """The package pyarrow. Raises InvalidError, naming what to install, where it is missing."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise InvalidError("the package pyarrow is not installed", remedy="pip install 'tidegate[arrow]'") from error
    return pa


def key_column(layout: KeyLayout) -> Column:
    """The column of keys of a type."""
    if layout.parts is not None and layout.parts:
        names = [name or str(number) for number, (name, _) in enumerate(layout.parts)]
        return _struct(names, [key_column(part) for _, part in layout.parts])
    return _scalar(layout.name) if layout.parts is None and layout.name in _SCALARS else _text(json_text)


def value_column(info: StateInfo) -> Column:
    """The column of everything that one key has in a state."""
    key, value = element_types(info)
    column = _opaque() if is_opaque(value) else _column(schema_or_none(value))
    if info.kind in LISTS:
        return _list(column)
    return _map(_column(schema_or_none(key)), column) if info.kind in MAPS else column


def schema_column(schema: Schema) -> Column:
    """The column of values of a declared type."""
    return _column(schema)


# ---- by schema -----------------------------------------------------------------------------------------------------


def _column(schema: Schema | None) -> Column:
    match schema:
        case Scalar(name) if name in _SCALARS:
            return _scalar(name)
        case Literal(values) | Members(_, values):
            return _of_values(values)
        case Collection(_, item):
            return _list(_column(item))
        case FixedTuple(items) if items:
            return _struct([str(number) for number in range(len(items))], [_column(item) for item in items])
        case Mapping(key, value):
            return _map(_column(key), _column(value))
        case Record(_, fields) if fields and not _contains_itself(schema, 0):
            return _struct([field.name for field in fields], [_column(field.type) for field in fields])
        case Union(members):
            others = [member for member in members if member != NONE]
            numbers = {str(member) for member in others} == {"float", "int"}
            return _scalar("float") if numbers else _column(others[0]) if len(others) == 1 else _text(json_text)
    return _text(json_text)


def _contains_itself(schema: Schema, depth: int) -> bool:
    """Whether a reference within `schema` means `schema` itself or a record around it."""
    match schema:
        case Collection(_, item):
            return _contains_itself(item, depth)
        case FixedTuple(parts) | Union(parts):
            return any(_contains_itself(part, depth) for part in parts)
        case Mapping(key, value):
            return _contains_itself(key, depth) or _contains_itself(value, depth)
        case Record(_, fields):
            return any(_contains_itself(field.type, depth + 1) for field in fields)
        case Scalar() | Literal() | Members():
            return False
    return True


_SCALARS = {
    "None": ("null", ()),
    "bool": ("bool_", ()),
    "int": ("int64", ()),
    "float": ("float64", ()),
    "str": ("string", ()),
    "bytes": ("binary", ()),
    "bytearray": ("binary", ()),
    "datetime": ("timestamp", ("us", "UTC")),
    "date": ("date32", ()),
    "time": ("time64", ("us",)),
    "timedelta": ("duration", ("us",)),
    "UUID": ("string", ()),
    "Decimal": ("string", ()),
}
"""The name of each scalar, and what makes its Arrow type. Decimals of any scale have no common one."""

_AS_TEXT = ("UUID", "Decimal")


def _scalar(name: str) -> Column:
    make, arguments = _SCALARS[name]
    return Column(getattr(arrow(), make)(*arguments), _or_none(str) if name in _AS_TEXT else _same)


def _of_values(values: Sequence[Any]) -> Column:
    for kind, name in ((str, "str"), (int, "int")):
        if all(type(value) is kind for value in values):
            return _scalar(name)
    return _text(json_text)


def _text(fit: Fit) -> Column:
    return Column(arrow().string(), _or_none(fit))


def _opaque() -> Column:
    """What only the program can read: its bytes, as they are."""
    return Column(arrow().binary(), _same)


def _list(item: Column) -> Column:
    return Column(arrow().list_(item.type), _or_none(lambda values: [item.fit(value) for value in values]))


def _map(key: Column, value: Column) -> Column:
    def fit(entries: Any) -> Any:
        pairs = entries.items() if isinstance(entries, dict) else entries
        return [(key.fit(one), value.fit(other)) for one, other in pairs]

    return Column(arrow().map_(key.type, value.type), _or_none(fit))


def _struct(names: list[str], columns: list[Column]) -> Column:
    def fit(value: Any) -> Any:
        parts = value if isinstance(value, dict) else dict(zip(names, value, strict=True))
        return {name: column.fit(parts.get(name)) for name, column in zip(names, columns, strict=True)}

    pairs = [(name, column.type) for name, column in zip(names, columns, strict=True)]
    return Column(arrow().struct(pairs), _or_none(fit))


def _same(value: Any) -> Any:
    return value


def _or_none(fit: Fit) -> Fit:
    return lambda value: None if value is None else fit(value)
