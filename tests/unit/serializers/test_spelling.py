"""The text of a declared type says all that reading stored bytes depends on; earlier versions' are still read."""

import dataclasses
import datetime as dt
import enum
import sys
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar, Union

import msgspec
import pytest

from tests.unit.serializers.earlier_spelling import earlier_spelling
from tidegate.errors import InvalidError
from tidegate.serializers import type_spelling
from tidegate.serializers.schema import Collection, Field, Layout, Members, Record, Reference, Scalar, resolve
from tidegate.serializers.spelling import parse_schema, schema_of, split_map_type
from tidegate.serializers.types import describe

T = TypeVar("T")


class Frozen(msgspec.Struct, frozen=True):
    user: str
    total: int | None = None


class Nested(msgspec.Struct, frozen=True):
    inner: tuple[Frozen, ...]
    at: dt.datetime


class Chain(msgspec.Struct, frozen=True):
    name: str
    next: "Chain | None" = None


class Box(msgspec.Struct, Generic[T], frozen=True):
    content: T


class Outer(msgspec.Struct):
    box: Box["Outer | None"]
    all: list[Box[Box["Outer"]]]


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    user_name: str
    other: int = msgspec.field(name="an other", default=0)


class Numbered(msgspec.Struct, tag_field="kind of", tag=7):
    one: int


class NamedByNumber(msgspec.Struct, tag="7"):
    one: int


class NamedOddly(msgspec.Struct, tag="a/b c"):
    one: int


class ByPosition(msgspec.Struct, array_like=True, omit_defaults=True):
    one: int
    two: str = ""


class Sparse(msgspec.Struct, omit_defaults=True):
    one: int = 1
    two: list[int] = []
    three: list[int] = msgspec.field(default_factory=lambda: [1])
    four: frozenset[str] = frozenset({"b", "a"})
    five: str = "a, b}"
    six: tuple[int, ...] = (1, 2)


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    one: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue 'n, white)"


class Pair(NamedTuple):
    left: int
    right: tuple[int, ...] = ()


class Options(TypedDict):
    name: str
    size: NotRequired[int]


@dataclasses.dataclass
class Data:
    name: str
    tags: set[str] = dataclasses.field(default_factory=set)
    seen: int = dataclasses.field(default=0, init=False)


SPELLINGS = [
    (int, "int"),
    (None, "None"),
    (Optional[str], "str | None"),  # noqa: UP045 - both spellings are one type
    (None | int | str, "int | str | None"),
    (Union[int, Literal["a", None]], "Literal['a'] | int | None"),  # noqa: UP007, PYI061 - None inside a literal
    (Literal[None], "None"),  # noqa: PYI061
    (dict[str, list[int]], "dict[str, list[int]]"),
    (tuple[int, ...], "tuple[int, ...]"),
    (tuple[int, str], "tuple[int, str]"),
    (tuple[()], "tuple[]"),
    (frozenset[dt.datetime], "frozenset[datetime]"),
    (bytearray, "bytearray"),
    (Literal["b", "a", 1], "Literal['a', 'b', 1]"),
    (Colour, "Colour('red', \"blue 'n, white)\")"),
    (Annotated[int, msgspec.Meta(ge=0, lt=10)], "int(ge=0, lt=10)"),
    (Annotated[list[int], msgspec.Meta(max_length=3)], "list[int](max_length=3)"),
    (Annotated[str, msgspec.Meta(pattern="^[(,)]'$")], 'str(pattern="^[(,)]\'$")'),
    (Frozen, "Frozen{user: str, total: int | None = ...}"),
    (Nested, "Nested{inner: tuple[Frozen{user: str, total: int | None = ...}, ...], at: datetime}"),
    (Chain, "Chain{name: str, next: Chain | None = ...}"),
    (Box[int], "Box{content: int}"),
    (Outer, "Outer{box: Box{content: Outer | None}, all: list[Box{content: Box{content: Outer}}]}"),
    (Renamed, "Renamed#type=renamed{userName: str, 'an other': int = ...}"),
    (Numbered, "Numbered#'kind of'=7{one: int}"),
    (NamedByNumber, "NamedByNumber#type='7'{one: int}"),
    (NamedOddly, "NamedOddly#type='a/b c'{one: int}"),
    (ByPosition, "array ByPosition{one: int, two: str = ...}"),
    (
        Sparse,
        (
            "Sparse{one: int = 1, two: list[int] = list(), three: list[int] = ..., four: frozenset[str] = "
            "frozenset('a', 'b'), five: str = 'a, b}', six: tuple[int, ...] = (1, 2)}"
        ),
    ),
    (Closed, "closed Closed{one: int}"),
    (Pair, "namedtuple Pair{left: int, right: tuple[int, ...] = ...}"),
    (Options, "typeddict Options{name: str, size?: int}"),
    (Data, "Data{name: str, tags: set[str] = ..., seen: int = 0}"),
]


@pytest.mark.parametrize(("declared", "text"), SPELLINGS, ids=str)
def test_a_type_is_spelled_so_that_a_change_shows(declared: Any, text: str) -> None:
    assert type_spelling(declared) == text


@pytest.mark.parametrize("declared", [declared for declared, _ in SPELLINGS], ids=str)
def test_a_text_is_read_back_as_the_type_that_it_is_of(declared: Any) -> None:
    assert parse_schema(type_spelling(declared)) == schema_of(describe(declared))


@pytest.mark.parametrize("declared", [declared for declared, _ in SPELLINGS], ids=str)
def test_the_text_of_an_earlier_version_is_read_with_the_same_names_in_it(declared: Any) -> None:
    read = parse_schema(earlier_spelling(declared))
    if isinstance(read, Record):
        now = schema_of(describe(declared))
        assert isinstance(now, Record)
        assert (read.name, [field.name for field in read.fields]) == (now.name, [field.name for field in now.fields])


def test_the_record_around_that_a_name_means_is_the_nearest_unless_it_says_otherwise() -> None:
    inner = Record("Box", (Field("own", Reference("Box")), Field("outer", Reference("Box", 1))))
    outer = Record("Box", (Field("inner", inner), Field("odd", Reference("Box"))))
    text = "Box{inner: Box{own: Box, outer: Box^1}, odd: Box}"
    assert str(outer) == text
    assert parse_schema(text) == outer
    assert resolve(Reference("Box"), (outer, inner)) == (inner, (outer,))
    assert resolve(Reference("Box", 1), (outer, inner)) == (outer, ())


def test_a_record_that_is_called_like_a_type_is_taken_for_no_type() -> None:
    record = Record("date", (Field("next", Reference("date")), Field("at", Scalar("date"))))
    assert str(record) == "date{next: date^0, at: date}"
    assert parse_schema(str(record)) == record


def test_what_only_an_earlier_version_wrote_is_read() -> None:
    assert parse_schema("fixed Row{one: int = <lambda>(), a b: int, c/d: list[Row]}") == Record(
        "Row",
        (Field("one", Scalar("int"), "<lambda>()"), Field("a b", Scalar("int")), Field("c/d", _list_of("Row"))),
        Layout.FIXED,
    )
    assert parse_schema("Row#type=a/b c{}") == Record("Row", (), tag=("type", "a/b c"))
    assert parse_schema("Row#kind of=7{}") == Record("Row", (), tag=("kind of", "7"))
    assert parse_schema("fixed Row{at: E(1, 2) = <E.A: 1>, d: Decimal = Decimal('1,5'), s: str = '}'}") == Record(
        "Row",
        (
            Field("at", Members("E", (1, 2)), "<E.A: 1>"),
            Field("d", Scalar("Decimal"), "Decimal('1,5')"),
            Field("s", Scalar("str"), "'}'"),
        ),
        Layout.FIXED,
    )


def _list_of(record: str) -> Collection:
    return Collection("list", Reference(record))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "int ", "int |", "what", "list", "list[]", "list[int, str]", "dict[int]", "tuple[int, ...", "Row{"),
        *("Row{a}", "Row{a: int", "Row{a: int,}", "Row{a: Other}", "closed int", "array int", "Literal[a]", "E(a)"),
        *("int(ge=)", "int(foo=1)", "Row^1", "Row{a: Row^1}", "Row{a: int = }", "pickled(app.A)", "int -> str"),
        *("Row#{a: int}", "Row#type{a: int}"),
    ],
)
def test_a_text_that_is_no_type_is_refused_and_nothing_else(text: str) -> None:
    with pytest.raises(InvalidError, match="stored type"):
        parse_schema(text)


def test_a_text_that_is_nested_deeper_than_the_interpreter_bears_is_refused() -> None:
    # Libraries of other tests may have raised the limit.
    depth = 2 * sys.getrecursionlimit()
    with pytest.raises(InvalidError, match="stored type"):
        parse_schema("list[" * depth + "int" + "]" * depth)


def test_the_text_of_a_map_state_is_that_of_its_keys_and_that_of_its_values() -> None:
    assert split_map_type("str -> int") == ("str", "int")
    assert split_map_type("Key{a: int, b: str} -> pickled(app.A)") == ("Key{a: int, b: str}", "pickled(app.A)")
    assert split_map_type("int | str") == ("", "int | str")
    assert split_map_type("serialized(app.A)") == ("", "serialized(app.A)")
    for text in ("str ->", "str = 1", "what -> int", "int,"):
        with pytest.raises(InvalidError):
            split_map_type(text)
