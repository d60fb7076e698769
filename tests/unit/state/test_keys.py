"""Keys have bytes, groups and types that never change; what cannot promise that is refused with a way out."""

import dataclasses
import datetime as dt
import enum
import itertools
import json
import os
import subprocess
import sys
import zoneinfo
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import CorruptError, InvalidError
from tidegate.state.key_groups import KeyChecker, key_group, key_type_name, merge_key_types
from tidegate.state.key_types import decode_keys, layout_of, parse_layout
from tidegate.state.keys import encode_key
from tidegate.testing.conformance.state_kit import Colour, Point


@dataclasses.dataclass(frozen=True)
class Place:
    name: str
    floor: int


class Pair(NamedTuple):
    left: int
    right: str


class Level(enum.IntEnum):
    LOW = 1


class Mutable(msgspec.Struct):
    name: str


@dataclasses.dataclass
class MutableData:
    name: str


@dataclasses.dataclass(frozen=True)
class Careless:
    name: str
    note: str = dataclasses.field(default="", compare=False)


class ByIdentity(msgspec.Struct, frozen=True, eq=False):
    name: str


class Text(str):
    __slots__ = ()


GOLDEN: list[tuple[Any, str, int]] = [
    (None, "6e", 10),
    (True, "6231", 114),
    (False, "6230", 78),
    (0, "6900", 77),
    (1, "6901", 45),
    (-1, "69ff", 0),
    (128, "690080", 77),
    (2**64, "69010000000000000000", 44),
    ("", "73", 19),
    ("user-1", "73757365722d31", 46),
    ("ä", "73c3a4", 66),
    (b"user-1", "79757365722d31", 120),
    (("a", 1), "74000000027361000000026901", 42),
    ((), "74", 45),
    (Point(1, "a"), "72000000026901000000027361", 53),
    (Colour.RED, "6573726564", 109),
    (UUID(int=7), "7500000000000000000000000000000007", 15),
    (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "7a69060dd710212000", 5),
    (dt.datetime(2024, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None), "6469060dd710212000", 34),
    (dt.date(2024, 1, 1), "61690b4646", 98),
    (Decimal("1.50"), "6d3135452d31", 118),
]
"""Key, bytes in hexadecimal, group of 128. These are in stored checkpoints: never change them."""


@pytest.mark.parametrize(("key", "encoded", "group"), GOLDEN, ids=lambda value: repr(value)[:40])
def test_the_bytes_and_the_group_of_a_key_never_change(key: Any, encoded: str, group: int) -> None:
    assert encode_key(key).hex() == encoded
    assert key_group(key, 128) == group


def test_B06_groups_are_the_same_under_every_hash_seed() -> None:
    program = (
        "import json; from tidegate.state.key_groups import key_group;"
        "print(json.dumps([key_group(k, 128) for k in ['user-1', b'user-1', 1, None, ('a', 1)]]))"
    )
    for seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert json.loads(result.stdout) == [46, 120, 45, 10, 42]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.uuids(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from(Colour),
)
keys = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Point, st.integers(), st.none() | st.text()),
        st.builds(Place, st.text(), st.integers()),
        st.builds(Pair, st.integers(), st.text()),
    ),
    max_leaves=6,
)


@given(keys)
def test_a_key_comes_back_from_its_bytes_with_its_type(key: Any) -> None:
    layout = parse_layout(key_type_name(key))
    assert layout == layout_of(key)
    (back,) = decode_keys([encode_key(key)], layout)
    assert back == key
    assert layout_of(back) == layout
    assert hash(back) == hash(key)


@given(keys, keys)
def test_different_keys_have_different_bytes_and_equal_keys_of_one_type_equal_ones(one: Any, other: Any) -> None:
    same = one == other and key_type_name(one) == key_type_name(other)
    assert (encode_key(one) == encode_key(other)) == same or type(one) is not type(other)


@given(keys, st.binary(max_size=12))
def test_bytes_that_are_no_key_of_the_type_are_corrupt_or_some_key_of_it(key: Any, junk: bytes) -> None:
    encoded = encode_key(key)
    layout = layout_of(key)
    for damaged in (junk, encoded[: len(junk)], encoded[:1] + junk):
        try:
            (back,) = decode_keys([damaged], layout)
        except (CorruptError, InvalidError):
            continue
        encode_key(back)


def test_one_true_and_one_point_zero_are_never_the_same_key() -> None:
    assert len({encode_key(key) for key in (1, True, "1", b"1", Level.LOW, (1,), Decimal(1))}) == 7
    for one, other in itertools.permutations((1, True, "1", Level.LOW, Decimal(1)), 2):
        checker = KeyChecker("totals")
        checker.check([one, one])
        for wrong in ([other], [one, other], [other, one]):
            with pytest.raises(InvalidError, match=r"operator totals: a key of type"):
                checker.check(wrong)
        checker = KeyChecker("totals")
        checker.check([("a", one)])
        with pytest.raises(InvalidError, match="tuple"):
            checker.check([("a", one), ("a", other)])


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (1.0, "Decimal"),
        ([1], "tuple"),
        ({1}, "sorted"),
        (frozenset({1}), "sorted"),
        ({"a": 1}, "frozen"),
        (bytearray(b"a"), "bytes"),
        (Mutable("a"), "frozen=True"),
        (MutableData("a"), "frozen=True"),
        (Careless("a"), "every field compared"),
        (ByIdentity("a"), "eq=False"),
        (Text("a"), r"str\(key\)"),
        (object(), "str, int, bytes"),
        (Decimal("NaN"), "finite"),
        (dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), "astimezone"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_a_key_is_refused_also_as_a_part_of_one(key: Any, advice: str) -> None:
    for whole in (key, ("a", key), Point(1, key)):
        with pytest.raises(InvalidError, match=advice) as caught:
            key_group(whole, 128)
        assert type(key).__name__ in caught.value.failure.message


def test_a_class_that_a_restarted_process_could_not_find_is_refused() -> None:
    class Local(enum.Enum):
        A = 1

    with pytest.raises(InvalidError, match="top level"):
        encode_key(Local.A)


def test_equal_decimals_and_moments_are_one_key() -> None:
    assert encode_key(Decimal("1.0")) == encode_key(Decimal("1.00")) == encode_key(Decimal(1))
    assert encode_key(Decimal("-0")) == encode_key(Decimal("0E+5"))
    berlin = dt.timezone(dt.timedelta(hours=2))
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=berlin)
    assert encode_key(noon) == encode_key(noon.astimezone(dt.UTC))


# ---- the type of an operator's keys --------------------------------------------------------------------------------


def test_the_type_of_keys_is_spelled_part_by_part() -> None:
    assert key_type_name("a") == "str"
    assert key_type_name(None) == "None"
    assert key_type_name(("a", (1, None))) == "tuple[str, tuple[int, None]]"
    assert key_type_name(Point(1, "a")) == "tidegate.testing.conformance.state_kit:Point[x: int, y: str]"
    assert key_type_name(Colour.RED) == "tidegate.testing.conformance.state_kit:Colour"


def test_none_is_a_key_beside_every_type_and_in_every_part() -> None:
    checker = KeyChecker()
    checker.check([None])
    assert checker.key_type == "None"
    checker.check([None, ("a", None)])
    checker.check([("a", 1), None])
    assert checker.key_type == "tuple[str, int]"
    checker.check([(None, None)])
    with pytest.raises(InvalidError):
        checker.check([("a", "1")])
    with pytest.raises(InvalidError):
        checker.check([("a", 1, 1)])


def test_the_type_of_keys_can_be_declared() -> None:
    for declared, right, wrong in (
        (str, "a", 1),
        (int | None, 1, True),
        (tuple[str, int], ("a", 1), ("a", True)),
        (Point, Point(1, "a"), Colour.RED),
        (Colour, Colour.RED, "red"),
    ):
        checker = KeyChecker("totals", declared)
        checker.check([right, None])
        with pytest.raises(InvalidError):
            checker.check([wrong])


@pytest.mark.parametrize("declared", [float, list, tuple, tuple[str, ...], int | str, Mutable, "str"])
def test_a_declaration_that_is_no_type_of_key_is_refused(declared: Any) -> None:
    with pytest.raises(InvalidError):
        KeyChecker("totals", declared)


def test_stored_keys_settle_the_type() -> None:
    checker = KeyChecker("totals")
    checker.expect("")
    checker.expect("tuple[str, None]")
    checker.check([("a", 1)])
    with pytest.raises(InvalidError, match="stored keys of type int"):
        checker.expect("int")


def test_key_types_of_several_subtasks_merge() -> None:
    assert merge_key_types("", "") == ""
    assert merge_key_types("", "int") == "int"
    assert merge_key_types("None", "int") == "int"
    assert merge_key_types("tuple[None, int]", "tuple[str, None]") == "tuple[str, int]"
    assert merge_key_types("int", "str") is None
    assert merge_key_types("tuple[int]", "tuple[int, int]") is None


@pytest.mark.parametrize("text", ["", "[", "int]", "tuple[", "tuple[int", "tuple[int,int]", "a b", "tuple[" * 100_000])
def test_text_that_is_no_type_of_key_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_layout(text)


def test_a_class_of_stored_keys_that_is_gone_or_changed_is_refused() -> None:
    module = "tidegate.testing.conformance.state_kit"
    for text in (f"{module}:Gone[x: int]", "no_such_module:Point[x: int]", f"{module}:Point[x: int, z: str]"):
        with pytest.raises(InvalidError, match="never change type"):
            decode_keys([encode_key(Point(1, "a"))], parse_layout(text))
    with pytest.raises(InvalidError, match="member"):
        decode_keys([b"e" + encode_key("green")], parse_layout(f"{module}:Colour"))
