"""Records as Arrow tables and back, for batch functions. Needs the package pyarrow.

The columns are those of the declared class, with types that follow from the types of its fields: what the records of a
batch happen to hold never changes them. Values that do not fit are refused, never bent.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple
from uuid import UUID  # noqa: TID251 - the class of values, never a source of new ones

import msgspec
from msgspec import inspect

from tidegate.errors import InvalidError
from tidegate.savepoints.columns import Column, arrow, schema_column
from tidegate.serializers.schema import Collection, Literal, Members, Scalar, Schema, Union
from tidegate.serializers.spelling import schema_of
from tidegate.serializers.types import RECORDS, describe, type_name

_KEPT = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)
"""Values that are no plain ones to msgspec, and are to Arrow."""


class _Field(NamedTuple):
    """A field of a class of records, and the column that it is."""

    name: str
    encoded_name: str
    """Under which msgspec reads it."""
    required: bool
    read: Callable[[Any], Any]
    column: Column


class ArrowTables:
    """Tables of records of class `given`, and records of class `taken` from tables. Raises InvalidError where one of
    them is no class of records, or has a field that has no column."""

    def __init__(self, given: Any, taken: Any) -> None:
        self._given = _fields(given)
        self._schema = arrow().schema([(field.name, field.column.type) for field in self._given])
        self._taken = _fields(taken)
        self._records: Any = list[taken]
        self._in_place = _is_read_by_position(taken)
        self._kinds = arrow().Table, arrow().RecordBatch

    def given(self, records: list[Any]) -> Any:
        """A `pyarrow.Table` with a row for each record. Raises InvalidError for a value of another type."""
        return arrow().Table.from_arrays([_array(field, records) for field in self._given], schema=self._schema)

    def taken(self, outputs: Any) -> Iterable[Any]:
        """The rows of a table as records. Raises TypeError for what is no table, ValueError for what does not fit."""
        if not isinstance(outputs, self._kinds):
            raise TypeError(f"the function returned {type(outputs).__name__} and not a pyarrow.Table")
        fields = [field for field in self._taken if field.name in outputs.column_names]
        missing = [field.name for field in self._taken if field not in fields and (field.required or self._in_place)]
        if missing:
            raise ValueError(f"the function returned a table without the column {missing[0]}")
        rows: Iterable[Any] = zip(*(outputs.column(field.name).to_pylist() for field in fields), strict=True)
        if not self._in_place:
            names = [field.encoded_name for field in fields]
            rows = (dict(zip(names, row, strict=True)) for row in rows)
        records: list[Any] = msgspec.convert(list(rows), self._records)
        return records


def _array(field: _Field, records: list[Any]) -> Any:
    try:
        values = msgspec.to_builtins(list(map(field.read, records)), builtin_types=_KEPT)
        return arrow().array(list(map(field.column.fit, values)), type=field.column.type)
    except (arrow().ArrowException, OverflowError, TypeError, ValueError, AttributeError, KeyError) as error:
        raise InvalidError(
            f"field {field.name} of a record does not fit its column of type {field.column.type}: {error}",
            remedy="Give in types= the class that the records are of.",
        ) from error


def _fields(cls: Any) -> list[_Field]:
    node = describe(cls)
    if not isinstance(node, RECORDS) or not node.fields:
        raise InvalidError(
            f"{type_name(cls)} has no fields that could be columns",
            remedy="Give a msgspec.Struct, a dataclass, a NamedTuple or a TypedDict.",
        )
    reader = itemgetter if isinstance(node, inspect.TypedDictType) else attrgetter
    return [_field(cls, field, reader(field.name)) for field in node.fields]


def _field(cls: Any, field: inspect.Field, read: Callable[[Any], Any]) -> _Field:
    schema = schema_of(field.type)
    if not _has_column(schema):
        raise InvalidError(
            f"field {field.name} of {type_name(cls)} is of type {schema}, which has no column of its own",
            remedy="Columns are made of numbers, text, bytes, times, enums, literals, and lists of these.",
        )
    return _Field(field.name, field.encode_name, field.required, read, schema_column(schema))


def _is_read_by_position(cls: Any) -> bool:
    node = describe(cls)
    return isinstance(node, inspect.NamedTupleType) or (isinstance(node, inspect.StructType) and node.array_like)


def _has_column(schema: Schema) -> bool:
    """Whether values of the type come through a column as they are, or as what msgspec makes them of again."""
    match schema:
        case Scalar() | Literal() | Members():
            return True
        case Collection(_, item):
            return _has_column(item)
        case Union(members):
            names = {str(member) for member in members} - {"None"}
            return (len(names) == 1 or names == {"float", "int"}) and all(map(_has_column, members))
    return False
