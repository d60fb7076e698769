"""Stored values as plain Python by the text of their type, which is stored beside them: no class of the program is
needed to give records their field names and moments their class.

A record becomes a dict, an enum's member its value, a set a list. What a text does not tell stays as it was stored; a
value must never be refused here, since the types of the program alone say what is wrong.
"""

import ast
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID  # noqa: TID251 - the class of values, never a source of new ones

import msgspec

from tidegate.errors import InvalidError
from tidegate.serializers.schema import (
    NONE,
    Around,
    Collection,
    Field,
    FixedTuple,
    Layout,
    Mapping,
    Record,
    Reference,
    Scalar,
    Schema,
    Union,
    is_opaque,
    resolve,
)
from tidegate.serializers.spelling import parse_schema

Shape = Callable[[Any], Any]
"""From what msgpack gives without types to plain Python."""

_AS_TEXT: dict[str, type] = {
    "datetime": dt.datetime,
    "date": dt.date,
    "time": dt.time,
    "timedelta": dt.timedelta,
    "UUID": UUID,
    "Decimal": Decimal,
}
"""Scalars that are stored as text, or may be."""

_EMPTY: dict[str, Any] = {"list()": [], "dict()": {}, "set()": []}


def schema_or_none(text: str) -> Schema | None:
    """The schema that a stored text says; None for what only the program can read."""
    if is_opaque(text):
        return None
    try:
        return parse_schema(text)
    except InvalidError:
        return None


def shape_of(schema: Schema | None, around: Around = ()) -> Shape:
    """How values of the schema become plain. `around`: the records around it."""
    match schema:
        case Scalar(name) if name in _AS_TEXT:
            return _scalar(_AS_TEXT[name])
        case Collection(name, item):
            return _sequence(shape_of(item, around), tuple if name == "tuple" else list)
        case FixedTuple(items):
            return _tuple([shape_of(item, around) for item in items])
        case Mapping(key, value):
            return _dict(shape_of(key, around), shape_of(value, around))
        case Record():
            return _record(schema, around)
        case Union(members):
            return _union(members, around)
        case Reference():
            return _reference(schema, around)
    return _same


def _same(value: Any) -> Any:
    return value


def _scalar(cls: type) -> Shape:
    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, cls) if isinstance(value, str) else value
        except msgspec.ValidationError:
            return value

    return convert


def _sequence(item: Shape, make: Callable[[Any], Any]) -> Shape:
    return lambda value: make(map(item, value)) if isinstance(value, list | tuple) else value


def _tuple(items: list[Shape]) -> Shape:
    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            return value
        return tuple(item(part) for item, part in zip(items, value, strict=True))

    return convert


def _dict(key: Shape, value: Shape) -> Shape:
    def convert(entries: Any) -> Any:
        if not isinstance(entries, dict):
            return entries
        return {key(one): value(other) for one, other in entries.items()}

    return convert


def _record(record: Record, around: Around) -> Shape:
    shapes: dict[str, Shape] = {}
    inside = (*around, record)

    def shape(field: Field) -> Shape:
        # Made when it is first needed: a record may contain itself.
        if field.name not in shapes:
            shapes[field.name] = shape_of(field.type, inside)
        return shapes[field.name]

    def convert(value: Any) -> Any:
        if isinstance(value, list | tuple) and record.layout in (Layout.ARRAY, Layout.NAMED_TUPLE, Layout.FIXED):
            value = _named(record, value)
        if not isinstance(value, dict):
            return value
        known = {field.name: shape(field)(value[field.name]) for field in record.fields if field.name in value}
        left_out = {field.name: _default(field) for field in record.fields if _is_left_out(field, value)}
        return {**value, **known, **left_out}

    return convert


def _named(record: Record, values: Any) -> dict[str, Any]:
    names = [field.name for field in record.fields]
    if record.tag is not None and record.layout is not Layout.NAMED_TUPLE:
        names = [record.tag[0], *names]
    return dict(zip(names, values, strict=False))


def _is_left_out(field: Field, value: dict[str, Any]) -> bool:
    """Whether the field equals its default, whose text is known, and was therefore not written."""
    return field.may_be_missing and not field.is_optional and field.name not in value


def _default(field: Field) -> Any:
    if field.default in _EMPTY:
        return _EMPTY[field.default].copy()
    try:
        return ast.literal_eval(field.default)
    except (ValueError, SyntaxError):
        return None


def _union(members: tuple[Schema, ...], around: Around) -> Shape:
    """Where the value shows which member it is of: by its tag, or because there is one besides None."""
    others = [member for member in members if member != NONE]
    if len(others) == 1:
        only = shape_of(others[0], around)
        return lambda value: None if value is None else only(value)
    tagged = {
        member.tag: shape_of(member, around)
        for member in others
        if isinstance(member, Record) and member.tag is not None
    }

    def convert(value: Any) -> Any:
        for (field, tag), shape in tagged.items():
            if isinstance(value, dict) and value.get(field) == tag:
                return shape(value)
            if isinstance(value, list) and value and value[0] == tag:
                return shape(value)
        return value

    return convert


def _reference(reference: Reference, around: Around) -> Shape:
    try:
        meant, outside = resolve(reference, around)
    except LookupError:
        return _same
    return shape_of(meant, outside)
