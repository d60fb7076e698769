"""Types that a program declared once and declares now, and what becomes of values in between."""

import dataclasses
import enum
from typing import Any, NamedTuple, NotRequired, TypedDict

import msgspec

from tidegate.checkpoint.protocol import StateInfo
from tidegate.serializers import Outcome, explain_evolution, migration, serializer_for

REFUSED = Outcome.REFUSED
MIGRATE = Outcome.MIGRATE
SAME = Outcome.SAME


def row(*fields: Any, **config: Any) -> Any:
    """A struct with these fields: a name and a type, and perhaps a default."""
    return msgspec.defstruct("Row", list(fields), **config)


def form(declared: Any) -> StateInfo:
    serializer = serializer_for(declared)
    return StateInfo("total", "value", serializer.type_spelling, serializer.id)


def outcome(old: Any, new: Any) -> Outcome:
    return explain_evolution(form(old), form(new)).outcome


def why(old: Any, new: Any) -> str:
    return explain_evolution(form(old), form(new)).why


def read(value: Any, declared: Any) -> Any:
    """What bytes of `value` are read as, without a question."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=declared)


def carried(old: Any, value: Any, new: Any) -> Any:
    """`value` of the type `old` as a restore gives it to the type `new`."""
    data, what = serializer_for(old).encode(value), outcome(old, new)
    assert what is not REFUSED
    return serializer_for(new).decode(data if what is SAME else migration(serializer_for(new), "msgpack/1")(data))


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class RedOnly(enum.Enum):
    RED = "red"


class Number(enum.Enum):
    ONE = 1


class Pair(NamedTuple):
    a: int
    b: str


class Triple(NamedTuple):
    a: int
    b: str
    c: float = 0.0


class Options(TypedDict):
    a: int
    b: NotRequired[str]


class AllOptions(TypedDict):
    a: int
    b: str


@dataclasses.dataclass
class Data:
    a: int
    b: str


@dataclasses.dataclass
class Counted:
    a: int
    seen: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class CountedFromOne:
    a: int
    seen: int = dataclasses.field(default=1, init=False)


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


class WiderTree(msgspec.Struct):
    name: str
    children: list["WiderTree"] = []
    size: int = 0


class OtherTree(msgspec.Struct):
    name: int
    children: list["OtherTree"] = []


class Family(msgspec.Struct, frozen=True):
    name: str
    children: "frozenset[Family]" = frozenset()


class WiderFamily(msgspec.Struct, frozen=True):
    name: str
    children: "frozenset[WiderFamily]" = frozenset()
    size: int = 0


class Created(msgspec.Struct, tag=True):
    a: int


class Deleted(msgspec.Struct, tag=True):
    a: int


class Moved(msgspec.Struct, tag=True):
    a: int


LIST: Any = list
DICT: Any = dict
SET: Any = set
"""For element types that a type checker does not see."""

OLD = row(("a", int), ("b", str))
ARRAY = row(("a", int), ("b", str), array_like=True)
SPARSE = row(("a", int), ("b", str, "x"), omit_defaults=True)
