"""What is known about a declared type before the first value comes: what it consists of, whether it can be stored at
all, and whether its values can change.

All is decided from the declaration alone, by walking msgspec's description of the type; no value is ever looked at.
"""

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any, get_origin
from uuid import UUID  # noqa: TID251 - the class of values, never a source of new ones

from msgspec import inspect

from tidegate.errors import InvalidError

SCALARS: dict[type[inspect.Type], type] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.DateTimeType: dt.datetime,
    inspect.DateType: dt.date,
    inspect.TimeType: dt.time,
    inspect.TimeDeltaType: dt.timedelta,
    inspect.UUIDType: UUID,
    inspect.DecimalType: decimal.Decimal,
}
"""Descriptions of types without parts whose values never change, and the class of these values."""

COLLECTIONS: dict[type[inspect.Type], type] = {
    inspect.ListType: list,
    inspect.VarTupleType: tuple,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
}

Record = inspect.StructType | inspect.DataclassType | inspect.NamedTupleType | inspect.TypedDictType
RECORDS = (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType, inspect.TypedDictType)

PICKLED = "pickled("
"""How the spelling of an explicitly pickled type begins."""

SERIALIZED = "serialized("
"""How the spelling of a type begins whose values the program writes itself."""

_KNOWN: tuple[type[inspect.Type], ...] = (
    *SCALARS,
    *COLLECTIONS,
    *RECORDS,
    inspect.TupleType,
    inspect.DictType,
    inspect.UnionType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.ByteArrayType,
)


def describe(declared: Any) -> inspect.Type:
    """msgspec's description of `declared`. Raises InvalidError, naming the part that cannot be written faithfully."""
    try:
        node = inspect.type_info(declared)
    except (TypeError, NameError, AttributeError) as error:
        message = f"{type_name(declared)} cannot be used as a declared type: {error}"
        raise InvalidError(message, remedy=_remedy(declared)) from error
    for part in walk(node):
        if isinstance(part, inspect.AnyType):
            raise InvalidError(
                f"{type_name(declared)} leaves the type of a part open, and values could come back as another type",
                remedy="Declare every part, for example dict[str, int] instead of dict" + _or_pickle(declared),
            )
        if not isinstance(part, _KNOWN):
            culprit = type_name(getattr(part, "cls", declared))
            raise InvalidError(f"msgspec cannot write values of type {culprit}", remedy=_remedy(declared))
    return node


def type_name(declared: Any) -> str:
    """`declared` as a reader would write it."""
    return declared.__qualname__ if isinstance(declared, type) and get_origin(declared) is None else str(declared)


def class_of(node: Record | inspect.EnumType) -> type:
    """The class of the values that `node` describes, without type arguments."""
    return get_origin(node.cls) or node.cls


def children(node: inspect.Type) -> tuple[inspect.Type, ...]:
    """The descriptions of the parts, one level down."""
    if isinstance(node, RECORDS):
        return tuple(field.type for field in node.fields)
    if isinstance(node, inspect.UnionType):
        return tuple(node.types)
    if isinstance(node, inspect.TupleType):
        return tuple(node.item_types)
    if isinstance(node, inspect.DictType):
        return (node.key_type, node.value_type)
    if isinstance(node, inspect.CollectionType):
        return (node.item_type,)
    return ()


def walk(node: inspect.Type) -> Iterator[inspect.Type]:
    """`node` and all its parts; a record that contains itself comes once."""
    seen: set[Any] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, RECORDS):
            if part.cls in seen:
                continue
            seen.add(part.cls)
        yield part
        waiting.extend(reversed(children(part)))


def is_immutable(declared: Any) -> bool:
    """Whether no value of the declared type can change: a frozen struct with a list in it can. False if unknown."""
    try:
        return immutable_node(describe(declared))
    except InvalidError:
        return False


def immutable_node(node: inspect.Type) -> bool:
    return all(_immutable_itself(part) for part in walk(node))


def _immutable_itself(node: inspect.Type) -> bool:
    if isinstance(node, inspect.StructType):
        return bool(class_of(node).__struct_config__.frozen)  # type: ignore[attr-defined]
    if isinstance(node, inspect.DataclassType):
        parameters = getattr(class_of(node), "__dataclass_params__", None)  # attrs classes have none
        return parameters is not None and bool(parameters.frozen)
    mutable = (inspect.ListType, inspect.SetType, inspect.DictType, inspect.TypedDictType, inspect.ByteArrayType)
    return not isinstance(node, mutable)


def constrained(node: inspect.Type) -> bool:
    """Whether some part has limits beyond its class (msgspec.Meta) that only decoding checks."""
    limits = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
    return any(getattr(part, limit, None) is not None for part in walk(node) for limit in limits)


def _or_pickle(declared: Any) -> str:
    return f", or choose pickle for it: pickled({type_name(declared)})."


def _remedy(declared: Any) -> str:
    return "Use a type that msgspec supports, such as a msgspec.Struct or a dataclass" + _or_pickle(declared)
