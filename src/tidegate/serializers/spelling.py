"""From msgspec's description of a declared type to its schema, and from a stored text back to one.

The texts of all earlier versions are read: `fixed Name{...}` is only read, never written. A reader must never guess at
a text that it does not know: it raises InvalidError.
"""

import ast
import dataclasses
import re
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from tidegate.errors import InvalidError
from tidegate.serializers.schema import (
    CONTAINER_NAMES,
    HAS_DEFAULT,
    SCALAR_NAMES,
    Collection,
    Field,
    FixedTuple,
    Layout,
    Literal,
    Mapping,
    Members,
    Record,
    Reference,
    Scalar,
    Schema,
    Value,
    is_opaque,
    resolve,
    union_of,
)
from tidegate.serializers.types import COLLECTIONS, RECORDS, SCALARS, class_of, describe
from tidegate.serializers.types import Record as RecordNode

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_DEEPEST = 50
"""Parts within parts of a stored type, so that whatever goes through a type has room for it."""
_SHOWN = 200
"""Characters of a wrong text that an error repeats."""
_LEFT_OUT_FACTORIES = (list, dict, set)
"""Of these msgspec leaves out an empty one."""


# ---- from a description --------------------------------------------------------------------------------------------


def type_spelling(declared: Any) -> str:
    """The text of a declared type: `Total{user: str, total: int = ...}`. Raises as `types.describe` does."""
    return str(schema_of(describe(declared)))


def schema_of(node: inspect.Type) -> Schema:
    """The schema of a declared type that `types.describe` has accepted."""
    return _schema(node, ())


def _schema(node: inspect.Type, inside: tuple[RecordNode, ...]) -> Schema:
    if isinstance(node, RECORDS):
        return _record(node, inside)
    if isinstance(node, inspect.UnionType):
        return union_of([_schema(member, inside) for member in node.types])
    if isinstance(node, inspect.LiteralType):
        return union_of([Literal(tuple(node.values))])
    if isinstance(node, inspect.EnumType):
        return Members(node.cls.__name__, tuple(member.value for member in node.cls))
    if isinstance(node, inspect.DictType):
        return Mapping(_schema(node.key_type, inside), _schema(node.value_type, inside), _limits(node))
    if isinstance(node, inspect.TupleType):
        return FixedTuple(tuple(_schema(item, inside) for item in node.item_types))
    if isinstance(node, inspect.ByteArrayType):
        return Scalar("bytearray", _limits(node))
    if isinstance(node, inspect.CollectionType):
        return Collection(COLLECTIONS[type(node)].__name__, _schema(node.item_type, inside), _limits(node))
    return Scalar("None" if isinstance(node, inspect.NoneType) else SCALARS[type(node)].__name__, _limits(node))


def _limits(node: inspect.Type) -> tuple[str, ...]:
    return tuple(f"{name}={value!r}" for name in _LIMITS if (value := getattr(node, name, None)) is not None)


def _record(node: RecordNode, inside: tuple[RecordNode, ...]) -> Schema:
    name = class_of(node).__name__
    for index, outer in enumerate(reversed(inside)):
        if outer.cls == node.cls:
            between = inside[len(inside) - index :]
            return Reference(name, sum(class_of(record).__name__ == name for record in between))
    defaults = _Defaults(node)
    is_typed_dict = isinstance(node, inspect.TypedDictType)
    fields = tuple(
        Field(
            field.encode_name,
            _schema(field.type, (*inside, node)),
            defaults.text(field),
            is_typed_dict and not field.required,
        )
        for field in node.fields
    )
    if not isinstance(node, inspect.StructType):
        layouts = {inspect.TypedDictType: Layout.TYPED_DICT, inspect.NamedTupleType: Layout.NAMED_TUPLE}
        return Record(name, fields, layouts.get(type(node), Layout.MAP))
    tag = None if node.tag_field is None or node.tag is None else (node.tag_field, node.tag)
    layout = Layout.ARRAY if node.array_like else Layout.MAP
    return Record(name, fields, layout, tag, node.forbid_unknown_fields)


class _Defaults:
    """The text of the defaults of one record's fields: see `Field.default`."""

    def __init__(self, node: RecordNode) -> None:
        cls: Any = class_of(node)
        self._omits = (
            isinstance(node, inspect.StructType) and not node.array_like and cls.__struct_config__.omit_defaults
        )
        self._outside_init = (
            {field.name for field in dataclasses.fields(cls) if not field.init}
            if dataclasses.is_dataclass(cls)
            else set()
        )
        """Fields of a dataclass that no value has unless somebody sets them."""

    def text(self, field: inspect.Field) -> str:
        left_out = self._omits or field.name in self._outside_init
        if field.default is not msgspec.NODEFAULT:
            return _default_text(field.default) if left_out else HAS_DEFAULT
        factory = field.default_factory
        if factory is msgspec.NODEFAULT:
            return ""
        return f"{factory.__name__}()" if left_out and factory in _LEFT_OUT_FACTORIES else HAS_DEFAULT


def _default_text(default: Any) -> str:
    """The same in every process: the order in which a set shows its elements is not."""
    if isinstance(default, set | frozenset):
        return f"{type(default).__name__}({', '.join(sorted(map(repr, default)))})"
    return repr(default)


# ---- from a text ---------------------------------------------------------------------------------------------------


def parse_schema(text: str) -> Schema:
    """The schema whose text is `text`, of this or an earlier version. Raises InvalidError for what is none."""
    parser = _Parser(text)
    schema = parser.whole()
    if not parser.is_at_end:
        parser.fail()
    return schema


def split_map_type(text: str) -> tuple[str, str]:
    """The types of keys and values of a map state, `str -> int`; ('', text) for that of any other state.

    Raises InvalidError for what is neither.
    """
    if is_opaque(text):
        return "", text
    parser = _Parser(text)
    key = parser.whole()
    return ("", text) if parser.is_at_end else (str(key), parser.behind_arrow())


class _Parser:
    """Reads one text from left to right."""

    _STRING = re.compile(r"[bB]?'(?:[^'\\]|\\.)*'|[bB]?\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
    _NAME = re.compile(r"[\w.$@-]+")
    _FIELD_NAME = re.compile(r"[^:]+?(?=\??: )")
    """Once they were written without quotes, whatever was in them."""
    _LIMIT = re.compile(r"(?:" + "|".join(_LIMITS) + r")=")
    _NUMBER = re.compile(r"-?[0-9]+")
    _OLD_TAG = re.compile(r"([^={]+)=([^{]*)(?=\{)")
    _BRACKETS = {"(": ")", "[": "]", "{": "}"}  # noqa: RUF012 - never changed

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def fail(self) -> NoReturn:
        raise InvalidError(f"the stored type {self._text[:_SHOWN]!r} cannot be read from character {self._at}")

    def _take(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self.fail()

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _name(self, plain: re.Pattern[str] = _NAME) -> str:
        quoted = self._match(self._STRING)
        if quoted is not None:
            return str(self._evaluated(quoted))
        return self._match(plain) or self.fail()

    def _evaluated(self, literal: str) -> Any:
        """The value of a string or a number, neither of which needs to be a right one for Python."""
        try:
            return ast.literal_eval(literal)
        except (ValueError, SyntaxError):
            self.fail()

    def whole(self) -> Schema:
        """The type that begins here. Raises InvalidError for what is none."""
        return self.union(())

    def behind_arrow(self) -> str:
        self._expect(" -> ")
        return self._text[self._at :] or self.fail()

    def union(self, around: tuple[Record, ...]) -> Schema:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidError("the stored type has too many parts within parts")
        members = [self._type(around)]
        while self._take(" | "):
            members.append(self._type(around))
        self._depth -= 1
        return union_of(members)

    def _type(self, around: tuple[Record, ...]) -> Schema:
        closed = self._take("closed ")
        layout = next(layout for layout in (*list(Layout)[1:], Layout.MAP) if self._take(layout.value))
        name = self._name()
        if self._text.startswith(("{", "#"), self._at):
            return self._record(Record(name, (), layout, self._tag(), closed), around)
        if closed or layout is not Layout.MAP:
            self.fail()
        if self._take("^"):
            return self._reference(Reference(name, self._number()), around)
        if name in SCALAR_NAMES:
            return Scalar(name, self._limits())
        if name in CONTAINER_NAMES:
            return self._container(name, around)
        if self._take("("):
            return Members(name, self._values(")"))
        return self._reference(Reference(name), around)

    def _number(self) -> int:
        number: int = self._evaluated(self._match(self._NUMBER) or self.fail())
        return number

    def _reference(self, reference: Reference, around: tuple[Record, ...]) -> Schema:
        try:
            resolve(reference, around)
        except LookupError:
            self.fail()
        return reference

    def _limits(self) -> tuple[str, ...]:
        limits: list[str] = []
        if not self._take("("):
            return ()
        while not self._take(")"):
            if limits:
                self._expect(", ")
            limits.append((self._match(self._LIMIT) or self.fail()) + self._expression())
        return tuple(limits)

    def _container(self, name: str, around: tuple[Record, ...]) -> Schema:
        self._expect("[")
        if name == "Literal":
            return union_of([Literal(self._values("]"))])
        items: list[Schema] = []
        while not self._take("]"):
            if items:
                self._expect(", ")
            if name == "tuple" and len(items) == 1 and self._take("...]"):
                return Collection(name, items[0], self._limits())
            items.append(self.union(around))
        if name == "tuple":
            return FixedTuple(tuple(items))
        if name == "dict" and len(items) == 2:
            return Mapping(items[0], items[1], self._limits())
        if name == "dict" or len(items) != 1:
            self.fail()
        return Collection(name, items[0], self._limits())

    def _values(self, end: str) -> tuple[Value, ...]:
        values: list[Value] = []
        while not self._take(end):
            if values:
                self._expect(", ")
            text = self._match(self._STRING) or self._match(self._NUMBER)
            if text is None:
                self._expect("None")
            values.append(None if text is None else self._evaluated(text))
        return tuple(values)

    def _tag(self) -> tuple[str, int | str] | None:
        if not self._take("#"):
            return None
        start = self._at
        try:
            name = self._name()
            self._expect("=")
            number = self._match(self._NUMBER)
            if number is not None and self._text.startswith("{", self._at):
                return name, self._evaluated(number)
            self._at -= len(number or "")
            tag = self._name()
            if not self._text.startswith("{", self._at):
                self.fail()
        except InvalidError:
            # Once tags were written without quotes, whatever was in them.
            self._at = start
            old = self._OLD_TAG.match(self._text, start)
            if old is None:
                raise
            self._at = old.end()
            return old[1], old[2]
        return name, tag

    def _record(self, begun: Record, around: tuple[Record, ...]) -> Record:
        self._expect("{")
        fields: list[Field] = []
        while not self._take("}"):
            if fields:
                self._expect(", ")
            name = self._name(self._FIELD_NAME)
            is_optional = self._take("?")
            self._expect(": ")
            field_type = self.union((*around, begun))
            default = self._expression() if self._take(" = ") else ""
            fields.append(Field(name, field_type, default, is_optional))
        return dataclasses.replace(begun, fields=tuple(fields))

    def _expression(self) -> str:
        """A Python expression, which is not understood: up to a comma or a closing bracket that belongs to the type."""
        start, open_brackets = self._at, list[str]()
        while not self.is_at_end:
            if self._match(self._STRING) is not None:
                continue
            character = self._text[self._at]
            if not open_brackets and character in ",)]}":
                break
            if character in self._BRACKETS:
                open_brackets.append(self._BRACKETS[character])
            elif open_brackets and character == open_brackets[-1]:
                open_brackets.pop()
            self._at += 1
        return self._text[start : self._at] or self.fail()
