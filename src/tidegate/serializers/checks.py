"""From a declared type to a function that says whether a value is of it, through and through.

msgspec's encoder writes whatever it is given; a value of another type would only be noticed when a restore fails. So
values are checked before they are written. A value conforms when decoding its bytes gives an equal value: classes are
compared exactly (True is no int, a tuple is no list, a subclass would lose what it adds), but a float may be an int.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import inspect

from tidegate.serializers.types import COLLECTIONS, RECORDS, SCALARS, Record, class_of

Check = Callable[[Any], bool]


def node_classes(node: inspect.Type) -> frozenset[type]:
    """The classes that values of the type have, at the top level."""
    if isinstance(node, inspect.UnionType):
        return frozenset[type]().union(*map(node_classes, node.types))
    if isinstance(node, inspect.LiteralType):
        return frozenset(map(type, node.values))
    if isinstance(node, inspect.DictType | inspect.TypedDictType):
        return frozenset({dict})
    if isinstance(node, inspect.TupleType):
        return frozenset({tuple})
    if isinstance(node, inspect.ByteArrayType):
        return frozenset({bytearray})
    if isinstance(node, (*RECORDS, inspect.EnumType)):
        return frozenset({class_of(node)})
    return frozenset({SCALARS.get(type(node)) or COLLECTIONS[type(node)]})


def check_for(node: inspect.Type) -> Check:
    """The check of one declared type, compiled once."""
    return _Compiler().check(node)


class _Compiler:
    """Compiles one type. Records are kept by class, so that a type that contains itself comes to an end."""

    def __init__(self) -> None:
        self._records: dict[Any, Check] = {}

    def check(self, node: inspect.Type) -> Check:
        if isinstance(node, inspect.FloatType):
            return lambda value: type(value) is float or type(value) is int
        if isinstance(node, inspect.UnionType):
            return self._union(node)
        if isinstance(node, inspect.LiteralType):
            allowed = {(type(value), value) for value in node.values}
            return lambda value: isinstance(value, int | str | None) and (type(value), value) in allowed
        if isinstance(node, inspect.DictType):
            return self._mapping(node)
        if isinstance(node, inspect.TupleType):
            return self._tuple(node)
        if isinstance(node, inspect.CollectionType):
            return self._collection(node)
        if isinstance(node, RECORDS):
            return self._record(node)
        (cls,) = node_classes(node)
        return lambda value: type(value) is cls

    def _union(self, node: inspect.UnionType) -> Check:
        checks = [self.check(member) for member in node.types]
        if _has_numbers_apart(node):
            # An integer would be written as one, and read as the literal or the enum's member of that number.
            checks = [
                _is_float if isinstance(member, inspect.FloatType) else check
                for member, check in zip(node.types, checks, strict=True)
            ]
        return lambda value: any(check(value) for check in checks)

    def _collection(self, node: inspect.CollectionType) -> Check:
        cls, item, item_class = COLLECTIONS[type(node)], self.check(node.item_type), _scalar_class(node.item_type)
        return lambda value: type(value) is cls and _all(value, item, item_class)

    def _mapping(self, node: inspect.DictType) -> Check:
        key, key_class = self.check(node.key_type), _scalar_class(node.key_type)
        item, item_class = self.check(node.value_type), _scalar_class(node.value_type)
        return lambda value: (
            type(value) is dict and _all(value, key, key_class) and _all(value.values(), item, item_class)
        )

    def _tuple(self, node: inspect.TupleType) -> Check:
        fields = self._fields(node.item_types)
        return lambda value: type(value) is tuple and len(value) == len(node.item_types) and fields(value)

    def _record(self, node: Record) -> Check:
        if node.cls in self._records:
            return self._records[node.cls]
        self._records[node.cls] = partial(self._later, node.cls)
        self._records[node.cls] = (
            self._typed_dict(node) if isinstance(node, inspect.TypedDictType) else self._object(node)
        )
        return self._records[node.cls]

    def _later(self, cls: Any, value: Any) -> bool:
        """The check of a record inside itself, which is not compiled yet while this is handed out."""
        return self._records[cls](value)

    def _object(self, node: Record) -> Check:
        cls, fields = class_of(node), self._fields(tuple(field.type for field in node.fields))
        read: Callable[[Any], tuple[Any, ...]] = _reader([field.name for field in node.fields])
        if isinstance(node, inspect.StructType):
            read = msgspec.structs.astuple
        return lambda value: type(value) is cls and fields(read(value))

    def _typed_dict(self, node: inspect.TypedDictType) -> Check:
        checks = {field.name: self.check(field.type) for field in node.fields}
        required = {field.name for field in node.fields if field.required}

        def conforms(value: Any) -> bool:
            if type(value) is not dict or not required <= value.keys() <= checks.keys():
                return False
            return all(checks[name](part) for name, part in value.items())

        return conforms

    def _fields(self, nodes: tuple[inspect.Type, ...]) -> Callable[[tuple[Any, ...]], bool]:
        checks = [self.check(node) for node in nodes]
        classes = tuple(map(_scalar_class, nodes))

        def conforms(parts: tuple[Any, ...]) -> bool:
            if tuple(map(type, parts)) == classes:
                return True
            return all(check(part) for check, part in zip(checks, parts, strict=True))

        return conforms


def _scalar_class(node: inspect.Type) -> type | None:
    """The class that says it all: a value of it conforms."""
    return SCALARS.get(type(node))


def _all(values: Any, check: Check, cls: type | None) -> bool:
    classes = set(map(type, values))
    return not classes or classes == {cls} or all(map(check, values))


def _has_numbers_apart(node: inspect.UnionType) -> bool:
    """Whether integers are of the union only as literals or members of an enum, and floats are, too."""
    classes = set(map(type, node.types))
    values = [
        value
        for member in node.types
        if isinstance(member, inspect.LiteralType | inspect.EnumType)
        for value in (member.values if isinstance(member, inspect.LiteralType) else (one.value for one in member.cls))
    ]
    return (
        inspect.FloatType in classes
        and inspect.IntType not in classes
        and any(isinstance(value, int) for value in values)
    )


def _is_float(value: Any) -> bool:
    return type(value) is float


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The fields of a value as a tuple; `attrgetter` makes one of two names or more only."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
