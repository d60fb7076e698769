"""The text of a declared type as Tidegate's first version stored it: such texts are in checkpoints and stay readable.

Nothing here may be brought up to date: it is what was written once.
"""

from typing import Any

import msgspec
from msgspec import inspect

from tidegate.serializers.types import COLLECTIONS, RECORDS, SCALARS, Record, children, class_of, describe


def earlier_spelling(declared: Any) -> str:
    return _spell(describe(declared), ())


def _spell(node: inspect.Type, inside: tuple[Any, ...]) -> str:
    if isinstance(node, RECORDS):
        return _spell_record(node, inside)
    parts = [_spell(part, inside) for part in children(node)]
    if isinstance(node, inspect.UnionType):
        return " | ".join(sorted(parts, key=lambda part: (part == "None", part)))
    if isinstance(node, inspect.EnumType):
        return f"{node.cls.__name__}({', '.join(repr(member.value) for member in node.cls)})"
    if isinstance(node, inspect.LiteralType):
        return f"Literal[{', '.join(sorted(map(repr, node.values)))}]"
    if isinstance(node, inspect.ByteArrayType):
        return "bytearray"
    if isinstance(node, inspect.DictType | inspect.TupleType):
        return f"{'dict' if isinstance(node, inspect.DictType) else 'tuple'}[{', '.join(parts)}]"
    if isinstance(node, inspect.CollectionType):
        ending = ", ..." if isinstance(node, inspect.VarTupleType) else ""
        return f"{COLLECTIONS[type(node)].__name__}[{parts[0]}{ending}]"
    return "None" if isinstance(node, inspect.NoneType) else SCALARS[type(node)].__name__


def _spell_record(node: Record, inside: tuple[Any, ...]) -> str:
    name = class_of(node).__name__
    if node.cls in inside:
        return name
    if isinstance(node, inspect.StructType) and node.tag_field is not None:
        name += f"#{node.tag_field}={node.tag}"
    omits = isinstance(node, inspect.StructType) and class_of(node).__struct_config__.omit_defaults  # type: ignore[attr-defined]
    fields = [
        f"{field.encode_name}: {_spell(field.type, (*inside, node.cls))}{_spell_default(field) if omits else ''}"
        for field in node.fields
    ]
    by_position = isinstance(node, inspect.NamedTupleType) or (isinstance(node, inspect.StructType) and node.array_like)
    return f"{'fixed ' if omits or by_position else ''}{name}{{{', '.join(fields)}}}"


def _spell_default(field: inspect.Field) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f" = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f" = {getattr(field.default_factory, '__qualname__', 'factory')}()"
    return ""
