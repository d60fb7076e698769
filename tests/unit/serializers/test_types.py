"""A declared type is judged once, before any value: its spelling, whether it can change, what it may become."""

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest

from tidegate.errors import InvalidError
from tidegate.serializers import can_evolve, is_immutable, serializer_for, type_spelling

T = TypeVar("T")


class Frozen(msgspec.Struct, frozen=True):
    user: str
    total: int | None = None


class FrozenAround(msgspec.Struct, frozen=True):
    inner: tuple[Frozen, ...]
    at: dt.datetime


class FrozenWithList(msgspec.Struct, frozen=True):
    items: list[int]


class FrozenDeep(msgspec.Struct, frozen=True):
    inner: tuple[FrozenWithList, ...] | None


class Mutable(msgspec.Struct):
    user: str


class Chain(msgspec.Struct, frozen=True):
    name: str
    next: "Chain | None" = None


class Box(msgspec.Struct, Generic[T], frozen=True):
    content: T


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    user_name: str


class ByPosition(msgspec.Struct, array_like=True):
    one: int


class Sparse(msgspec.Struct, omit_defaults=True):
    one: int = 1
    two: list[int] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: list[int]


class Options(TypedDict):
    name: str


@dataclasses.dataclass(frozen=True)
class Data:
    name: str


@dataclasses.dataclass
class MutableData:
    name: str


@pytest.mark.parametrize(
    "declared",
    [
        *(int, str, bytes, float, bool, None, dt.datetime, dt.date, dt.timedelta, UUID, Decimal, Colour, Literal["a"]),
        *(tuple[int, ...], tuple[int, str], frozenset[str], int | None, Frozen, FrozenAround, Chain, Box[int], Data),
    ],
    ids=repr,
)
def test_what_can_never_change_is_known_for_immutable(declared: Any) -> None:
    assert is_immutable(declared)


@pytest.mark.parametrize(
    "declared",
    [
        *(list[int], dict[str, int], set[int], bytearray, tuple[list[int], ...], FrozenWithList, FrozenDeep, Mutable),
        *(MutableData, Options, Pair, Box[list[int]], Frozen | list[int], Any, object, complex),
    ],
    ids=repr,
)
def test_what_can_change_in_some_part_is_not(declared: Any) -> None:
    assert not is_immutable(declared)


@pytest.mark.parametrize(
    ("declared", "spelling"),
    [
        (int, "int"),
        (None, "None"),
        (Optional[str], "str | None"),  # noqa: UP045 - both spellings are one type
        (None | int | str, "int | str | None"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[int, str], "tuple[int, str]"),
        (tuple[()], "tuple[]"),
        (frozenset[dt.datetime], "frozenset[datetime]"),
        (bytearray, "bytearray"),
        (Literal["b", "a", 1], "Literal['a', 'b', 1]"),
        (Colour, "Colour('red', 'blue')"),
        (Frozen, "Frozen{user: str, total: int | None}"),
        (FrozenAround, "FrozenAround{inner: tuple[Frozen{user: str, total: int | None}, ...], at: datetime}"),
        (Chain, "Chain{name: str, next: Chain | None}"),
        (Box[int], "Box{content: int}"),
        (Renamed, "Renamed#type=renamed{userName: str}"),
        (ByPosition, "fixed ByPosition{one: int}"),
        (Sparse, "fixed Sparse{one: int = 1, two: list[int] = list()}"),
        (Pair, "fixed Pair{left: int, right: list[int]}"),
        (Options, "Options{name: str}"),
        (Data, "Data{name: str}"),
    ],
    ids=repr,
)
def test_a_type_is_spelled_so_that_a_change_shows(declared: Any, spelling: str) -> None:
    assert type_spelling(declared) == spelling


def _version(**fields: Any) -> Any:
    defaults = [
        (name, *declared) if isinstance(declared, tuple) else (name, declared) for name, declared in fields.items()
    ]
    return msgspec.defstruct("Total", defaults)


OLD = _version(user=str, total=int)


@pytest.mark.parametrize(
    "new",
    [
        _version(total=int, user=str),
        _version(user=str, total=int, note=(str, "none")),
        _version(user=str),
        _version(user=str, total=int | str),
        _version(user=str, total=float),
    ],
    ids=type_spelling,
)
def test_fields_may_be_added_with_a_default_removed_widened_and_moved(new: Any) -> None:
    data = serializer_for(OLD).encode(OLD("a", 1))
    assert can_evolve(type_spelling(OLD), type_spelling(new))
    assert serializer_for(new).decode(data).user == "a"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ByPosition, OLD),
        (OLD, Sparse),
        (list[ByPosition], list[Frozen]),
        (dict[str, int], OLD),
        (OLD, dict[str, int]),
        (tuple[int, ...], list[int]),
        (int, list[int]),
    ],
    ids=repr,
)
def test_a_change_that_reading_would_not_notice_is_refused(old: Any, new: Any) -> None:
    assert not can_evolve(type_spelling(old), type_spelling(new))
    assert can_evolve(type_spelling(old), type_spelling(old))


def test_a_pickled_type_cannot_change() -> None:
    assert can_evolve("pickled(app.A)", "pickled(app.A)")
    assert not can_evolve("pickled(app.A)", "pickled(app.B)")
    assert not can_evolve("int", "pickled(builtins.int)")


def test_a_type_that_cannot_be_stored_has_no_spelling() -> None:
    with pytest.raises(InvalidError):
        type_spelling(complex)
