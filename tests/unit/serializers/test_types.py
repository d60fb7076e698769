"""A declared type is judged once, before any value: whether it can be stored, and whether it can change."""

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest

from tidegate.serializers import is_immutable

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
