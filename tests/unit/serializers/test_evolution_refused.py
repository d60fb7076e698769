"""What is refused, each with what reading would have made of the bytes had nobody asked."""

import datetime as dt
import re
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

from tests.unit.serializers.declared_rows import (
    ARRAY,
    DICT,
    LIST,
    MIGRATE,
    OLD,
    REFUSED,
    SAME,
    SET,
    SPARSE,
    AllOptions,
    Colour,
    Counted,
    CountedFromOne,
    Created,
    Deleted,
    Family,
    Number,
    Options,
    OtherTree,
    Pair,
    RedOnly,
    Tree,
    Triple,
    WiderFamily,
    carried,
    form,
    outcome,
    read,
    row,
    why,
)
from tidegate.serializers import explain_evolution, serializer_for

# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[Any, Any, str]] = [
    (int, str, "value was int and is str"),
    (float, int, "value was float and is int"),
    (int | None, int, "value could be None, and no longer can"),
    (str, Literal["a"], "value could be str, and no longer can"),
    (Literal["a", "b"], Literal["a"], "value no longer has 'b' among its values"),
    (Colour, RedOnly, "value no longer has 'blue' among its values"),
    (Number, int, r"value was Number\(1\) and is int"),
    (int, Number, "value was int and is Number"),
    (list[int], tuple[int, ...], r"value was list\[int\] and is tuple"),
    (tuple[int, str], tuple[int, str, str], "value was tuple"),
    (tuple[int, str], tuple[int, int], r"value\[1\] was str and is int"),
    (dict[str, int], OLD, "value was dict"),
    (OLD, dict[str, int | str], r"value was Row\{a: int, b: str\} and is dict"),
    (OLD, row(("a", int), ("b", str), ("c", int)), r"value\.c of type int was added without a default"),
    (OLD, row(("a", str), ("b", str)), r"value\.a was int and is str"),
    (OLD, row(("a", int), forbid_unknown_fields=True), r"value\.b was removed, and Row forbids unknown fields"),
    (OLD, row(("c", int, 0)), "value had the fields a, b and has c: nothing of what is stored would remain"),
    (LIST[OLD], LIST[row(("a", int), ("b", bool))], r"value\[\]\.b was str and is bool"),
    (DICT[str, OLD], DICT[str, row(("a", int), ("b", bool))], r"value\{\}\.b was str and is bool"),
    (OLD | None, row(("a", int), ("b", bool)) | None, r"value\.b was str and is bool"),
    (Options, AllOptions, r"value\.b could be absent and is now required"),
    (Tree, OtherTree, r"value\.name was str and is int"),
]


@pytest.mark.parametrize(("old", "new", "expected"), REFUSALS, ids=str)
def test_what_changed_or_became_narrower_is_refused_whether_such_a_value_is_there_or_not(
    old: Any, new: Any, expected: str
) -> None:
    evolution = explain_evolution(form(old), form(new))
    assert evolution.outcome is REFUSED
    assert re.match(expected, evolution.why), evolution.why
    assert outcome(old, old) is SAME


def test_a_text_that_looks_like_a_date_would_be_read_as_one() -> None:
    for new, value in ((dt.datetime, "2024-01-01T00:00:00"), (UUID, str(UUID(int=1)))):
        assert isinstance(read(value, new), new)
        assert why(str, new).startswith("value was str and is ")
    assert read(dt.datetime(2024, 1, 1), str) == "2024-01-01T00:00:00"  # noqa: DTZ001 - one without a time zone
    assert outcome(dt.datetime, str) is REFUSED


def test_fields_by_position_that_changed_places_would_be_read_as_each_other() -> None:
    old, new = row(("a", int), ("b", int), array_like=True), row(("b", int), ("a", int), array_like=True)
    assert read(old(1, 2), new).a == 2
    assert "was a and is b, and fields of Row are stored by position" in why(old, new)


def test_a_field_by_position_under_another_name_could_be_another_field() -> None:
    old, new = row(("width", int), array_like=True), row(("height", int), array_like=True)
    assert read(old(1), new).height == 1
    assert outcome(old, new) is REFUSED
    assert outcome(old, row(("w", int), array_like=True, rename={"w": "width"})) is SAME


def test_a_field_by_position_comes_and_goes_at_the_end_only() -> None:
    in_front = row(("c", int, 0), ("a", int, 0), ("b", str, ""), array_like=True)
    assert outcome(ARRAY, in_front) is REFUSED
    assert why(ARRAY, row(("b", str), array_like=True)).startswith("value[0] was a and is b")
    assert carried(ARRAY, ARRAY(1, "x"), Triple) == Triple(1, "x", 0.0)
    with pytest.raises(msgspec.ValidationError):
        read(Triple(1, "x", 2.0), Pair)
    assert "NamedTuple with more fields than it has" in why(Triple, Pair)
    closed = row(("a", int), array_like=True, forbid_unknown_fields=True)
    assert "forbids unknown fields" in why(ARRAY, closed)
    assert "without a default" in why(ARRAY, row(("a", int), ("b", str), ("c", int), array_like=True))


def test_fields_by_name_and_by_position_are_other_bytes() -> None:
    for old, new in ((ARRAY, OLD), (OLD, ARRAY), (OLD, Pair), (Options, Pair)):
        with pytest.raises(msgspec.ValidationError):
            read(old(a=1, b="x"), new)
        assert "its fields by" in why(old, new)
    assert outcome(tuple[int, str], Pair) is REFUSED


def test_a_field_that_was_left_out_would_be_read_as_the_new_default() -> None:
    new = row(("a", int), ("b", str, "y"), omit_defaults=True)
    assert read(SPARSE(1, "x"), new).b == "y"
    assert why(SPARSE, new) == "value.b was not written where it was 'x', its default, which is now 'y'"
    assert "is not known to be the same" in why(SPARSE, row(("a", int), ("b", str, "x")))
    assert outcome(SPARSE, OLD) is REFUSED
    first, second = (msgspec.defstruct("Row", [("a", int), ("b", Colour, b)], omit_defaults=True) for b in Colour)
    assert "which is now <Colour.BLUE: 'blue'>" in why(first, second)


def test_a_field_of_a_dataclass_that_no_value_has_of_its_own_is_left_out_too() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Counted(1))) == {"a": 1}
    assert read(Counted(1), CountedFromOne).seen == 1
    assert "was not written where it was 0" in why(Counted, CountedFromOne)


def test_elements_of_a_set_that_lost_what_told_them_apart_would_be_one() -> None:
    old = row(("a", int), ("b", str), frozen=True)
    new = row(("a", int), frozen=True)
    assert len(read({old(1, "x"), old(1, "y")}, SET[new])) == 1
    for container in (set, frozenset):
        assert "two that differed could become equal" in why(container[old], container[new])
    assert len(read({2**60: "x", 2**60 + 1: "y"}, dict[float, str])) == 1
    assert why(dict[int, str], dict[float, str]).startswith("value{key}")
    assert outcome(Family, WiderFamily) is REFUSED
    assert outcome(Family, Family) is SAME


def test_a_float_that_was_stored_as_an_integer_would_be_read_as_a_literal_or_a_member() -> None:
    assert serializer_for(list[float]).encode([1]) == b"\x91\x01"
    assert read(1, float | Number) is Number.ONE
    assert "could not be told from the values 1" in why(float, float | Number)
    assert "could not be told from the values 1, 2" in why(list[float], list[float | Literal[1, 2]])
    assert outcome(float, float | int) is SAME
    assert outcome(float | Number, float | Number | None) is SAME


# ---- tags ------------------------------------------------------------------------------------------------------------


def test_a_tag_that_meets_a_field_of_its_name_would_be_read_as_that_field() -> None:
    tagged, with_field = row(("a", int), tag="old"), row(("a", int), ("type", str, ""))
    assert read(tagged(1), with_field).type == "old"
    assert "type as the name of a field" in why(tagged, with_field)
    assert "type as the name of a field" in why(with_field, tagged)


def test_a_tag_that_changed_cannot_be_read() -> None:
    one, other = row(("a", int), tag="one"), row(("a", int), tag="other")
    with pytest.raises(msgspec.ValidationError):
        read(one(1), other)
    assert why(one, other) == "value was stored with the tag type='one' and is declared with the tag type='other'"
    assert "the tag kind='one'" in why(one, row(("a", int), tag="one", tag_field="kind"))
    assert "forbids unknown fields" in why(one, row(("a", int), forbid_unknown_fields=True))
    assert "no tag" in why(ARRAY, row(("a", int), ("b", str), tag=True, array_like=True))


def test_one_of_several_records_is_found_by_its_tag_alone() -> None:
    plain = row(("a", int))
    with pytest.raises(msgspec.ValidationError):
        read(plain(1), Created | Deleted)
    assert "could be Row stored with no tag" in why(plain, Created | Deleted)
    assert read(Deleted(1), plain) == read(Created(1), plain)
    assert outcome(Created | Deleted, plain) is REFUSED
    assert outcome(Created | Deleted, Created) is REFUSED
    assert outcome(Created, plain | None) is MIGRATE
