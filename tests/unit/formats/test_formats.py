"""Formats carry records in both directions unchanged, and raise rather than guess."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.formats import Bytes, Json, Serializer, String
from tidegate.operators.contracts import Deserializer


class Order(msgspec.Struct):
    user: str
    amount: int = 0


FORMATS: list[tuple[Any, list[Any]]] = [
    (Json(), [{"a": [1, None, "ü"]}, 3, None, "text"]),
    (Json(Order), [Order("ann", 3), None, Order("bob")]),
    (Json(int | None), [1, None]),
    (Bytes(), [b"", b"\x00\xff", None]),
    (String(), ["", "grüße", None]),
    (String("latin-1"), ["grüße", None]),
]


@pytest.mark.parametrize(("format", "values"), FORMATS, ids=lambda part: repr(part)[:20])
def test_what_is_written_is_read_back(format: Any, values: list[Any]) -> None:
    serializer: Serializer = format
    deserializer: Deserializer = format
    raw = serializer.encode(values)
    assert all(type(one) is bytes for one, value in zip(raw, values, strict=True) if value is not None)
    assert deserializer.decode(list(raw)) == values
    assert [deserializer.decode_one(one) for one in raw] == values


@pytest.mark.parametrize("format", [Json(Order), Bytes(), String()], ids=repr)
def test_a_tombstone_passes_as_none_in_both_directions(format: Any) -> None:
    assert format.encode([None]) == [None]
    assert format.decode([None]) == [None]
    assert format.decode_one(None) is None


def outcome_of(act: Callable[[Any], Any], given: Any) -> object:
    try:
        return act(given)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("format", [Json(), Json(int), String(), String("ascii"), Bytes()], ids=repr)
@given(st.lists(st.none() | st.text(max_size=5) | st.binary(max_size=5) | st.just(float("nan")) | st.integers(0, 3)))
def test_a_batch_becomes_what_its_values_become_one_by_one(format: Any, values: list[Any]) -> None:
    """Or is refused with the same words, whatever is among them."""

    def decode_each(raw: list[Any]) -> list[Any]:
        return [format.decode_one(one) for one in raw]

    def encode_each(values: list[Any]) -> list[Any]:
        return [text for value in values for text in format.encode([value])]

    assert outcome_of(format.decode, values) == outcome_of(decode_each, values)
    assert outcome_of(format.encode, values) == outcome_of(encode_each, values)


def test_null_that_is_not_none_is_no_tombstone() -> None:
    assert Json().encode([float("nan"), None, msgspec.Raw(b"null")]) == [b"null", None, b"null"]


@given(st.lists(st.text()))
def test_any_text_survives(texts: list[str]) -> None:
    for format in (String(), Json(str)):
        assert format.decode(list(format.encode(list(texts)))) == texts


def test_json_of_another_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="amount"):
        Json(Order).decode([b'{"user": "ann", "amount": "three"}'])


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        Json().decode_one(b"{")


def test_two_broken_records_never_add_up_to_good_ones() -> None:
    with pytest.raises(msgspec.DecodeError):
        Json().decode([b"1,2", b'"a', b'b"'])


def test_bytes_of_an_int_are_refused_and_not_read_as_a_length() -> None:
    with pytest.raises(TypeError, match="int"):
        Bytes().encode([5])
    assert Bytes().encode([bytearray(b"x"), memoryview(b"y")]) == [b"x", b"y"]


def test_text_that_does_not_fit_the_encoding_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        String().decode([b"\xff"])
    with pytest.raises(UnicodeEncodeError):
        String("latin-1").encode(["→"])
    with pytest.raises(TypeError, match="bytes"):
        String().encode([b"raw"])
    with pytest.raises(LookupError):
        String("no-such-encoding")
