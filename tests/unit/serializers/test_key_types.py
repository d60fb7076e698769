"""Keys never change type, whatever the change: not those of a stream, by which state is found, nor those of a map."""

import enum
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest

from tests.unit.serializers.earlier_spelling import earlier_spelling
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.serializers import Evolution, Outcome, explain_evolution, serializer_for
from tidegate.state.key_groups import KeyChecker, key_type_name


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Point(NamedTuple):
    x: int
    y: int


class Place(msgspec.Struct, frozen=True):
    name: str
    floor: int


class NoFloor(msgspec.Struct, frozen=True):
    name: str


class Shop(msgspec.Struct, frozen=True):
    name: str
    floor: int
    open: bool = True


class FloorFirst(msgspec.Struct, frozen=True):
    floor: int
    name: str


class WithDefault(msgspec.Struct, frozen=True):
    name: str
    floor: int = 0


class Tagged(msgspec.Struct, frozen=True, tag=True):
    name: str
    floor: int


CHANGES: list[tuple[Any, Any, Any, Any]] = [
    (int, 1, str, "1"),
    (int, 1, bool, True),
    (str, "a", bytes, b"a"),
    (str, "red", Colour, Colour.RED),
    (Colour, Colour.RED, str, "red"),
    (Colour, Colour.RED, Shade, Shade.RED),
    (int, 1, tuple[int], (1,)),
    (tuple[int, str], (1, "a"), tuple[str, int], ("a", 1)),
    (tuple[int, str], (1, "a"), tuple[int, str, int], (1, "a", 2)),
    (tuple[int, int], (1, 2), Point, Point(1, 2)),
    (Place, Place("a", 1), NoFloor, NoFloor("a")),
    (Place, Place("a", 1), Shop, Shop("a", 1)),
    (Place, Place("a", 1), tuple[str, int], ("a", 1)),
    (Place, Place("a", 1), Tagged, Tagged("a", 1)),
]


@pytest.mark.parametrize(("old", "stored", "new", "given"), CHANGES, ids=str)
def test_a_key_of_another_type_than_the_stored_ones_is_refused(old: Any, stored: Any, new: Any, given: Any) -> None:
    checker = KeyChecker("totals")
    checker.expect(key_type_name(stored))
    checker.check([stored])
    with pytest.raises(InvalidError, match="keys are of type") as caught:
        checker.check([given])
    assert "never changes" in caught.value.failure.remedy


def map_state(key: str) -> StateInfo:
    return StateInfo("by_device", "map", f"{key} -> int", "msgpack/1")


def evolution(old: Any, new: Any) -> Evolution:
    texts = (serializer_for(old).type_spelling, serializer_for(new).type_spelling)
    return explain_evolution(*map(map_state, texts))


@pytest.mark.parametrize(
    ("old", "new"),
    [*((old, new) for old, _, new, _ in CHANGES), (int, float), (int, int | None), (int | str, int)],
    ids=str,
)
def test_a_map_whose_keys_have_another_type_is_refused_also_where_a_value_could_change_so(old: Any, new: Any) -> None:
    found = evolution(old, new)
    assert found.outcome is Outcome.REFUSED
    assert found.why.startswith("the type of a map's keys can never change: it was ")


@pytest.mark.parametrize("new", [FloorFirst, WithDefault], ids=str)
def test_the_keys_of_a_map_that_are_stored_as_they_were_are_the_same(new: Any) -> None:
    assert evolution(Place, new).outcome is Outcome.SAME


def test_limits_on_the_keys_of_a_map_are_looked_at_key_by_key() -> None:
    assert evolution(int, Annotated[int, msgspec.Meta(ge=0)]).outcome is Outcome.MIGRATE


@pytest.mark.parametrize("declared", [Place, Point, WithDefault, Tagged, Colour, tuple[int, Place]], ids=str)
def test_the_keys_of_a_map_that_an_earlier_version_stored_are_the_same(declared: Any) -> None:
    now = map_state(serializer_for(declared).type_spelling)
    assert explain_evolution(map_state(earlier_spelling(declared)), now).why == ""
    for other in (NoFloor, str):
        changed = map_state(serializer_for(other).type_spelling)
        assert explain_evolution(map_state(earlier_spelling(declared)), changed).outcome is Outcome.REFUSED


def test_a_map_and_what_is_none_are_never_taken_for_each_other() -> None:
    value = StateInfo("by_device", "map", "int", "msgpack/1")
    for one, other in ((map_state("str"), value), (value, map_state("str"))):
        assert explain_evolution(one, other).why.startswith("the type of a map's keys can never change")
