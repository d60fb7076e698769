"""What is written comes back equal, or it is refused before it is written; what cannot be read is corrupt."""

import dataclasses
import datetime as dt
import enum
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import Stamped, list_serializer, map_serializer, pickle_warning, pickled, serializer_for


class Total(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Node(msgspec.Struct):
    name: str
    children: list["Node"] = []


class Created(msgspec.Struct, tag=True):
    at: dt.datetime


class Deleted(msgspec.Struct, tag=True):
    why: str | None = None


class ByPosition(msgspec.Struct, array_like=True, omit_defaults=True):
    one: int = 0
    two: str = ""


class Wider(Total, frozen=True):
    more: int = 0


class Colour(enum.Enum):
    RED = "red"


class Level(enum.Enum):
    HIGH = 1


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Place:
    name: str
    tags: set[str] = dataclasses.field(default_factory=set)


class Plain:
    """A class that msgspec does not know."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


class Unwilling(Plain):
    def __reduce__(self) -> tuple[Any, ...]:
        raise ArithmeticError("no")


RIGHT: list[tuple[Any, list[Any]]] = [
    (int, [0, -(2**63), 2**64 - 1]),
    (str, ["", "ä\u0000"]),
    (bytes, [b"", b"\xff"]),
    (float, [0.5, math.inf, 1]),
    (bool, [True, False]),
    (None, [None]),
    (
        dt.datetime,
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)],
    ),
    (dt.date, [dt.date(2024, 1, 1)]),
    (dt.timedelta, [dt.timedelta(microseconds=1)]),
    (Decimal, [Decimal("1.50")]),
    (UUID, [UUID(int=7)]),
    (list[int], [[], [1, 2]]),
    (dict[str, list[int | None]], [{}, {"a": [1, None]}]),
    (dict[int, str], [{1: "a"}]),
    (tuple[int, ...], [(), (1, 2, 3)]),
    (tuple[int, str], [(1, "a")]),
    (set[str], [{"a"}]),
    (frozenset[tuple[int, str]], [frozenset({(1, "a")})]),
    (int | str | None, [1, "a", None]),
    (Literal["a", "b"], ["a"]),
    (Colour, [Colour.RED]),
    (float | Literal[1], [1, 1.0, 2.0]),
    (float | Level, [Level.HIGH, 1.0]),
    (Total, [Total("a", 1)]),
    (Node, [Node("a", [Node("b"), Node("c", [Node("d")])])]),
    (Created | Deleted, [Created(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)), Deleted(), Deleted("x")]),
    (ByPosition, [ByPosition(), ByPosition(1, "a")]),
    (Place, [Place("a"), Place("a", {"b"})]),
    (Pair, [Pair(1, "a")]),
    (Options, [{"name": "a"}, {"name": "a", "size": 1}]),
    (Annotated[int, msgspec.Meta(ge=0)], [0, 5]),
    (pickled(Plain), [Plain(1)]),
]

WRONG: list[tuple[Any, list[Any]]] = [
    (int, [True, 1.0, "1", None, 2**64]),
    (str, [b"a", "\ud800", Colour.RED]),
    (bytes, ["a", bytearray(b"a")]),
    (float, [True, "1", Decimal(1)]),
    (list[int], [(1,), [True], [1, "1"], [None]]),
    (dict[str, list[int | None]], [{1: []}, {"a": (1,)}, {"a": [1.5]}]),
    (tuple[int, str], [(1,), [1, "a"], (1, "a", "b"), (True, "a")]),
    (set[str], [frozenset({"a"}), {1}]),
    (int | str | None, [True, b"a", 1.0]),
    (Literal["a", "b"], ["c", 1, None]),
    (Literal[1], [True, 2]),
    (Colour, ["red"]),
    (float | Literal[1], [2]),
    (list[float | Level], [[1], [2]]),
    (Total, [Wider("a", 1), Total("a", True), Total(None, 1), ("a", 1)]),  # type: ignore[arg-type]
    (Node, [Node("a", [Node("b", [Node(1)])]), Node("a", (Node("b"),))]),  # type: ignore[arg-type]
    (Created | Deleted, [Total("a", 1), Deleted(1), None]),  # type: ignore[arg-type]
    (Place, [Place("a", ["b"]), Place(1)]),  # type: ignore[arg-type]
    (Pair, [(1, "a"), Pair(1, 2)]),  # type: ignore[arg-type]
    (Options, [{}, {"name": "a", "other": 1}, {"name": 1}]),
    (Annotated[int, msgspec.Meta(ge=0)], [-1]),
    (pickled(Plain), [1, None, Unwilling(1)]),
]


def _cases(table: list[tuple[Any, list[Any]]]) -> list[Any]:
    return [
        pytest.param(declared, value, id=f"{declared}-{value}"[:60]) for declared, group in table for value in group
    ]


@pytest.mark.parametrize(("declared", "value"), _cases(RIGHT))
def test_a_value_of_the_declared_type_comes_back_equal(declared: Any, value: Any) -> None:
    serializer = serializer_for(declared)
    assert serializer.conforms(value)
    assert serializer.decode(serializer.encode(value)) == value
    assert type(serializer.admit(value)) in serializer.classes or not serializer.classes


@pytest.mark.parametrize(("declared", "value"), _cases(WRONG))
def test_a_value_of_another_type_is_never_written_and_the_error_names_state_and_type(declared: Any, value: Any) -> None:
    serializer = serializer_for(declared, "state total")
    with pytest.raises(InvalidError, match="state total") as caught:
        serializer.encode(value)
    assert serializer.type_spelling in str(caught.value) or "pickled" in str(caught.value)


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@given(json, st.sampled_from([declared for declared, _ in RIGHT]))
def test_whatever_is_given_comes_back_equal_or_is_refused(value: Any, declared: Any) -> None:
    serializer = serializer_for(declared)
    try:
        data = serializer.encode(value)
    except InvalidError:
        return
    assert serializer.decode(data) == value


@given(st.binary(), st.sampled_from([declared for declared, _ in RIGHT]))
def test_bytes_that_are_no_value_are_corrupt(data: bytes, declared: Any) -> None:
    serializer = serializer_for(declared)
    try:
        value = serializer.decode(data)
    except CorruptError:
        return
    assert serializer.conforms(value)


def test_an_error_of_the_programs_own_classes_while_reading_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="no picky"):
        serializer_for(Picky).decode(b"\x80")
    with pytest.raises(CorruptError, match="not pickled"):
        serializer_for(pickled(Plain)).decode(serializer_for(pickled(int)).encode(1))


class Picky(msgspec.Struct):
    def __post_init__(self) -> None:
        raise ArithmeticError("no picky")


@pytest.mark.parametrize(
    ("declared", "culprit"),
    [
        (complex, "complex"),
        (object, "object"),
        (list[Plain], "Plain"),
        (Any, "Any"),
        (dict, "dict"),
        (list, "list"),
        (dict[str, Any], "Any"),
        (msgspec.Raw, "Raw"),
        (int | list[int] | tuple[int, str], "array-like"),
        (Callable[[int], int], "Callable"),
        ("Total", "Total"),
    ],
    ids=repr,
)
def test_a_type_that_would_not_come_back_is_refused_and_pickle_is_offered(declared: Any, culprit: str) -> None:
    with pytest.raises(InvalidError, match=culprit) as caught:
        serializer_for(declared)
    assert "pickled(" in caught.value.failure.remedy


def test_pickle_takes_a_class_only() -> None:
    with pytest.raises(InvalidError, match="class"):
        serializer_for(pickled(int | str))  # type: ignore[arg-type]


def test_a_state_of_pickled_values_is_warned_of_and_no_other() -> None:
    of_pickles = (serializer_for(pickled(Plain)), list_serializer(pickled(Plain)), map_serializer(str, pickled(Plain)))
    for serializer in (*of_pickles, serializer_for(Stamped(pickled(Plain)))):
        warning = pickle_warning("state model of operator totals", serializer.id)
        assert warning is not None
        assert warning.startswith("state model of operator totals is pickled: ")
    others: list[Any] = [int, list[int], Stamped(int)]
    for declared in others:
        assert pickle_warning("state model", serializer_for(declared).id) is None
