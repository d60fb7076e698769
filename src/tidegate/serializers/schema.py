"""A declared type as data: what of it decides how stored bytes are read, and its text, which is stored beside them.

`str` of a schema is that text, and `spelling.parse_schema` its inverse. A schema never refers to a class of the
program: two of them are compared without the program that declared either.
"""

import re
from dataclasses import dataclass
from enum import Enum

Value = int | str | None
"""What a literal type and an enum hold."""

SCALAR_NAMES = frozenset(
    {
        *("None", "bool", "int", "float", "str", "bytes", "bytearray"),
        *("datetime", "date", "time", "timedelta", "UUID", "Decimal"),
    }
)
CONTAINER_NAMES = frozenset({"list", "set", "frozenset", "tuple", "dict", "Literal"})
HAS_DEFAULT = "..."
"""For a field with a default that is always written."""

_PLAIN_NAME = re.compile(r"[\w.$@-]+")
_OPAQUE = re.compile(r"(pickled|serialized)\(.*\)", re.DOTALL)


def name_text(name: str) -> str:
    """`name` as it stands in a text: quoted where it would be taken for something else."""
    return name if _PLAIN_NAME.fullmatch(name) else repr(name)


def is_opaque(text: str) -> bool:
    """Whether `text` is of a type whose values are pickled or written by the program."""
    return _OPAQUE.fullmatch(text) is not None


class Layout(Enum):
    """How the fields of a record are stored. The value is how its text begins."""

    MAP = ""
    """By name."""
    TYPED_DICT = "typeddict "
    """By name; some may be absent."""
    ARRAY = "array "
    """By position; behind the last there may be more, and the last may be missing."""
    NAMED_TUPLE = "namedtuple "
    """By position; the last may be missing, but there are never more."""
    FIXED = "fixed "
    """By position, or by name without those that equal their default: an earlier form of the text did not say which."""


@dataclass(frozen=True)
class Scalar:
    """A type without parts. Limits are those of msgspec.Meta: 'ge=0'."""

    name: str
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name + _limits_text(self.limits)


@dataclass(frozen=True)
class Literal:
    """One of these values, of which none is None."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"Literal[{', '.join(map(repr, self.values))}]"


@dataclass(frozen=True)
class Members:
    """An enum: by the values of its members."""

    name: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{name_text(self.name)}({', '.join(map(repr, self.values))})"


@dataclass(frozen=True)
class Collection:
    """A list, set, frozenset or tuple of any length, by its class's name."""

    name: str
    item: "Schema"
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}[{self.item}{', ...' if self.name == 'tuple' else ''}]{_limits_text(self.limits)}"


@dataclass(frozen=True)
class FixedTuple:
    """A tuple of these types in this order."""

    items: tuple["Schema", ...]

    def __str__(self) -> str:
        return f"tuple[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True)
class Mapping:
    """A dict."""

    key: "Schema"
    value: "Schema"
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"dict[{self.key}, {self.value}]{_limits_text(self.limits)}"


@dataclass(frozen=True)
class Union:
    """One of these, None last; made by `union_of`."""

    members: tuple["Schema", ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.members))


@dataclass(frozen=True)
class Field:
    """A field of a record, by the name that is stored.

    default: '' without one; '...' for a field that is always written; otherwise the text of the default, which is not
    written when a value equals it. is_optional: the key of a TypedDict that may be absent.
    """

    name: str
    type: "Schema"
    default: str = ""
    is_optional: bool = False

    def __str__(self) -> str:
        mark, default = "?" if self.is_optional else "", f" = {self.default}" if self.default else ""
        return f"{name_text(self.name)}{mark}: {self.type}{default}"

    @property
    def may_be_missing(self) -> bool:
        """Whether bytes of the record may be without it."""
        return self.is_optional or self.default not in ("", HAS_DEFAULT)

    @property
    def is_required(self) -> bool:
        """Whether bytes without it cannot be read."""
        return not self.is_optional and not self.default


@dataclass(frozen=True)
class Record:
    """A struct, dataclass, NamedTuple or TypedDict. tag: name and value of the field that tells it from others.
    is_closed: bytes with more fields than these cannot be read."""

    name: str
    fields: tuple[Field, ...]
    layout: Layout = Layout.MAP
    tag: tuple[str, int | str] | None = None
    is_closed: bool = False

    def __str__(self) -> str:
        tag = f"#{name_text(self.tag[0])}={_tag_text(self.tag[1])}" if self.tag else ""
        closed = "closed " if self.is_closed else ""
        return f"{closed}{self.layout.value}{name_text(self.name)}{tag}{{{', '.join(map(str, self.fields))}}}"

    @property
    def is_by_position(self) -> bool:
        return self.layout in (Layout.ARRAY, Layout.NAMED_TUPLE)


@dataclass(frozen=True)
class Reference:
    """A record around this place: the nearest of that name, or that behind so many others of the name."""

    name: str
    skipped: int = 0

    def __str__(self) -> str:
        text = name_text(self.name)
        return f"{text}^{self.skipped}" if self.skipped or text in SCALAR_NAMES | CONTAINER_NAMES else text


Schema = Scalar | Literal | Members | Collection | FixedTuple | Mapping | Union | Record | Reference

NONE = Scalar("None")
Around = tuple[Record, ...]
"""The records around a place, from the outermost: what references mean depends on it."""


def union_of(members: list[Schema]) -> Schema:
    """The union of `members`: literals as one, None last, in one order whatever the declaration's was."""
    flat = [part for member in members for part in (member.members if isinstance(member, Union) else (member,))]
    values = {value for part in flat if isinstance(part, Literal) for value in part.values}
    others: dict[str, Schema] = {str(part): part for part in flat if not isinstance(part, Literal)}
    if None in values:
        others["None"] = NONE
    if values - {None}:
        literal = Literal(tuple(sorted(values - {None}, key=repr)))
        others[str(literal)] = literal
    parts = tuple(others[text] for text in sorted(others, key=lambda text: (text == "None", text)))
    return parts[0] if len(parts) == 1 else Union(parts)


def resolve(schema: Schema, around: Around) -> tuple[Schema, Around]:
    """What a reference means, with the records around that; any other schema as it is. Raises LookupError."""
    if not isinstance(schema, Reference):
        return schema, around
    skipped = schema.skipped
    for index in range(len(around) - 1, -1, -1):
        if around[index].name == schema.name:
            if not skipped:
                return around[index], around[:index]
            skipped -= 1
    raise LookupError(schema.name)


def _limits_text(limits: tuple[str, ...]) -> str:
    return f"({', '.join(limits)})" if limits else ""


def _tag_text(tag: int | str) -> str:
    """An integer as it is, and a text that could be taken for one in quotes."""
    return repr(tag) if isinstance(tag, int) or tag.lstrip("-").isdecimal() else name_text(tag)
