"""A whole list or map and its parts are two forms of the same bytes, whatever serializer wrote the parts."""

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.serializers.money import Money, MoneySerializer
from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.serializers import (
    element_id,
    join_elements,
    join_entries,
    list_serializer,
    map_serializer,
    pickled,
    serialized,
    serializer_for,
    split_elements,
    split_entries,
)

ELEMENTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int | str | None, st.none() | st.integers(-(2**63), 2**64 - 1) | st.text()),
    (list[bytes], st.lists(st.binary())),
    (pickled(Money), st.builds(Money, st.integers(), st.text())),
    (serialized(Money, MoneySerializer()), st.builds(Money, st.integers(), st.text(st.characters(codec="ascii")))),
]
MONEY = serialized(Money, MoneySerializer())


@st.composite
def typed_lists(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    declared, values = draw(st.sampled_from(ELEMENTS))
    return declared, draw(st.lists(values, max_size=20))


@given(typed_lists())
def test_the_parts_of_a_list_are_what_the_elements_serializer_writes_and_make_the_same_list(
    drawn: tuple[Any, list[Any]],
) -> None:
    declared, values = drawn
    whole, element = list_serializer(declared), serializer_for(declared)
    data, parts = whole.encode(values), [element.encode(value) for value in values]
    assert split_elements(data, whole.id) == parts
    assert join_elements(parts, whole.id) == data
    assert whole.decode(data) == values
    assert element_id(whole.id) == element.id


@given(typed_lists())
def test_the_parts_of_a_map_are_what_both_serializers_write_and_make_the_same_map(drawn: tuple[Any, list[Any]]) -> None:
    declared, values = drawn
    entries = [((number, "k"), value) for number, value in enumerate(values)]
    key, value_of = serializer_for(tuple[int, str]), serializer_for(declared)
    whole = map_serializer(tuple[int, str], declared)
    data, parts = whole.encode(entries), [(key.encode(one), value_of.encode(value)) for one, value in entries]
    assert split_entries(data, whole.id) == parts
    assert join_entries(parts, whole.id) == data
    assert whole.decode(data) == entries
    assert element_id(whole.id) == value_of.id


@pytest.mark.parametrize("length", [0, 15, 16, 2**16 - 1, 2**16])
@pytest.mark.parametrize("serializer", ["msgpack/1", "list[money/2]"])
def test_a_list_of_any_length_begins_as_msgpack_does(length: int, serializer: str) -> None:
    data = join_elements([b"\x01"] * length, serializer)
    assert data == msgspec.msgpack.encode([1 if serializer == "msgpack/1" else b"\x01"] * length)
    assert split_elements(data, serializer) == [b"\x01"] * length


@pytest.mark.parametrize("declared", [declared for declared, _ in ELEMENTS], ids=str)
def test_what_is_no_list_and_no_map_is_corrupt(declared: Any) -> None:
    whole, pairs = list_serializer(declared), map_serializer(str, declared)
    for data in (b"", b"\x91", b"\xdd\xff\xff\xff\xff", b"\x80"):
        with pytest.raises(CorruptError):
            whole.decode(data)
        with pytest.raises(CorruptError):
            pairs.decode(data)
    for data in (b"", b"\x91", b"\x80"):
        with pytest.raises(CorruptError):
            split_elements(data, whole.id)
        with pytest.raises(CorruptError):
            split_entries(data, pairs.id)
    with pytest.raises(CorruptError):
        split_elements(msgspec.msgpack.encode([1]), "list[pickle/1]")


def test_a_pickled_whole_has_no_parts_of_its_own() -> None:
    for take_apart in (split_elements, split_entries):
        with pytest.raises(InternalError, match="pickle/1"):
            take_apart(b"", "pickle/1")
    with pytest.raises(InternalError, match="money/2"):
        join_elements([b""], "money/2")


@pytest.mark.parametrize("declared", [pickled(Money), MONEY], ids=["pickled", "serialized"])
def test_whole_lists_and_maps_hold_only_what_is_declared(declared: Any) -> None:
    whole, pairs = list_serializer(declared, "state purse"), map_serializer(str, declared, "state purse")
    assert whole.conforms([Money(1, "EUR")])
    assert not whole.conforms([1])
    assert not whole.conforms((Money(1, "EUR"),))
    assert pairs.conforms([("a", Money(1, "EUR"))])
    assert not pairs.conforms([(1, Money(1, "EUR"))])
    assert whole.admit([Money(1, "EUR")]) == [Money(1, "EUR")]
    assert pairs.admit([("a", Money(1, "EUR"))]) == [("a", Money(1, "EUR"))]
    for serializer, wrong in ((whole, [1]), (whole, (Money(1, "EUR"),)), (pairs, [("a", 1)]), (pairs, {})):
        for write in (serializer.encode, serializer.admit):
            with pytest.raises(InvalidError, match="state purse"):
                write(wrong)
    with pytest.raises(InvalidError, match="map key of state purse"):
        pairs.encode([(1, Money(1, "EUR"))])


def test_lists_and_maps_that_were_one_pickle_are_read_and_written_part_by_part() -> None:
    values = [Money(1, "EUR"), Money(2, "USD")]
    whole, pairs = list_serializer(pickled(Money)), map_serializer(str, pickled(Money))
    assert (whole.id, pairs.id) == ("list[pickle/1]", "map[pickle/1]")
    assert whole.reader("pickle/1")(pickle.dumps(values)) == values
    assert pairs.reader("pickle/1")(pickle.dumps([("a", values[0])])) == [("a", values[0])]
    for serializer, other in ((whole, [1]), (whole, (values[0],)), (pairs, [(1, values[0])]), (pairs, values)):
        with pytest.raises(CorruptError):
            serializer.reader("pickle/1")(pickle.dumps(other))
    with pytest.raises(InvalidError, match=r"money/2.*pickle/1|pickle/1.*money/2"):
        list_serializer(MONEY).reader("pickle/1")
