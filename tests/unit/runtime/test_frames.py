"""Frames bring back what was sent, and anything else than what was sent is an InternalError."""

import copyreg
import math
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.elements import Barrier, Batch, Element, EndOfInput, Watermark
from tidegate.errors import InternalError, UserCodeError
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt, CheckpointId, SubtaskIndex
from tidegate.runtime.frames import (
    Frame,
    FrameKind,
    decode_credit,
    decode_element,
    decode_frame,
    encode_credit,
    encode_element,
    encode_frame,
)

CHANNEL = ChannelId(3, SubtaskIndex(1), SubtaskIndex(2))
ATTEMPT = Attempt(7)


class Order(msgspec.Struct):
    user: str
    amount: int
    parts: list[Any] = []


class KeywordOnly(msgspec.Struct, kw_only=True):
    user: str
    amount: int = 0


class Late(Order, kw_only=True):
    reason: str = ""


class Wrapped(msgspec.Struct):
    """A struct with rules of its own for pickle."""

    value: int

    def __reduce__(self) -> tuple[Any, ...]:
        return Wrapped, (self.value + 100,)


class Registered(msgspec.Struct):
    """A struct for which the program registers a rule."""

    value: int


class Nothing(msgspec.Struct):
    """A struct without fields."""


class Text(str):
    """A str that must not come back as its base."""

    __slots__ = ()


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Refusing(msgspec.Struct):
    value: int

    def __post_init__(self) -> None:
        if self.value > 1:
            raise ValueError("too much")


def frame_of(element: Element, sequence: int = 0) -> bytes:
    kind, payload = encode_element(element)
    return encode_frame(kind, ATTEMPT, CHANNEL, sequence, payload)


def copied(element: Element) -> Element:
    return decode_element(decode_frame(frame_of(element)))


def copied_batch(batch: Batch) -> Batch:
    result = copied(batch)
    assert isinstance(result, Batch)
    return result


def columns(batch: Batch) -> tuple[Any, ...]:
    return batch.values, batch.keys, batch.timestamps, batch.tag


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary(max_size=20)
    | st.text(st.characters(), max_size=10)
    | st.text(st.characters(categories=["Cs", "L"]), max_size=3)
)
objects = (
    scalars | st.tuples(scalars, scalars) | st.builds(Order, st.text(max_size=5), st.integers(), st.lists(scalars))
)
columns_of_values = st.one_of(
    *(
        st.lists(kind, min_size=1, max_size=8)
        for kind in (scalars, st.binary(), st.text(), st.builds(Point, scalars, scalars), objects)
    ),
)


@given(columns_of_values, st.data())
def test_every_batch_comes_back_as_it_was(values: list[Any], data: st.DataObject) -> None:
    size = len(values)
    keys = data.draw(st.none() | st.lists(scalars | st.tuples(scalars, scalars), min_size=size, max_size=size))
    stamps = data.draw(st.none() | st.lists(st.integers(-(2**40), 2**40), min_size=size, max_size=size))
    batch = Batch(values, keys, stamps, data.draw(st.none() | st.just("late")))
    result = copied_batch(batch)
    assert columns(result) == columns(batch)
    assert list(map(type, result.values)) == list(map(type, values))


@given(
    st.lists(st.builds(Order, scalars, scalars, st.lists(scalars, max_size=2)), min_size=1, max_size=8),
    st.sampled_from(["user", "amount", "parts"]),
    st.integers(0, 8),
)
def test_keys_that_are_a_field_of_their_records_come_back_as_such_and_others_as_they_are(
    values: list[Order], field: str, exception: int
) -> None:
    keys: list[Any] = [getattr(value, field) for value in values]
    plain = copied_batch(Batch(values, [(key,) for key in keys])).keys or []
    if exception < len(keys):
        keys[exception] = Text(keys[exception]) if isinstance(keys[exception], str) else (keys[exception],)
    result = copied_batch(Batch(values, keys))
    assert result.values == values
    assert result.keys == keys
    assert list(map(type, result.keys)) == list(map(type, keys))
    assert exception < len(keys) or [(repr(key),) for key in result.keys] == [(repr(key),) for (key,) in plain]


@pytest.mark.parametrize("values", [["a", "b"], [Point(1, 2), Point(3, 4)], [1, 2**70], ["a", "\ud800"], [Text("a")]])
def test_records_that_are_their_own_keys_come_back_as_both(values: list[Any]) -> None:
    result = copied_batch(Batch(values, list(values)))
    assert (result.values, result.keys) == (values, values)
    assert result.keys is not None
    assert list(map(type, result.keys)) == list(map(type, result.values)) == list(map(type, values))


@pytest.mark.parametrize("equal", [True, 1.0])
def test_equal_keys_of_another_type_than_the_field_keep_theirs(equal: Any) -> None:
    result = copied_batch(Batch([Order("a", 1)], [equal]))
    assert result.keys is not None
    assert type(result.keys[0]) is type(equal)


@pytest.mark.parametrize("column", [-1, 3])
def test_keys_that_are_said_to_be_a_column_that_was_not_sent_are_an_internal_error(column: int) -> None:
    kind, payload = encode_element(Batch([Order("a", 1)], ["a"]))
    tag, values, keys, stamps = msgspec.msgpack.decode(payload)
    forged = msgspec.msgpack.encode([tag, values, [3, column], stamps])
    assert msgspec.msgpack.encode([tag, values, keys, stamps]) == payload
    with pytest.raises(InternalError, match="no well-formed batch"):
        decode_element(decode_frame(encode_frame(kind, ATTEMPT, CHANNEL, 0, forged)))


@pytest.mark.parametrize(
    "values",
    [
        [2**63, 2**64 - 1, -(2**63)],
        [2**64, 1],
        [math.pi, None, 3],
        [True, None, "a", b"a", 1.5, 2],
        [Order("a", True), Order("b", 1.0)],  # type: ignore[arg-type]
        [Order("a", 1), Order("b", 2, [Point(1, 2)])],
        [KeywordOnly(user="a"), KeywordOnly(user="b", amount=3)],
        [Late("a", 1, reason="r")],
        [Order("a", 1), KeywordOnly(user="b"), None],
        [Order("a", 1), Late("b", 2, reason="r")],
        [Nothing(), Nothing()],
        [Text("a"), Text("b")],
        [True, 1, 1.0],
        [2**70, -(2**70)],
        ["\ud800", "a"],
        [Order("\ud800", 2**70)],
        [math.inf, -0.0],
    ],
)
def test_objects_come_back_with_their_class_and_content(values: list[Any]) -> None:
    result = copied_batch(Batch(values)).values
    assert result == values
    assert [(type(value), repr(value)) for value in result] == [(type(value), repr(value)) for value in values]


def test_a_struct_with_rules_of_its_own_is_pickled_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copied_batch(Batch([Wrapped(1), Wrapped(2)])).values == [Wrapped(101), Wrapped(102)]
    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda value: (Registered, (value.value + 7,)))
    assert copied_batch(Batch([Registered(1)])).values == [Registered(8)]


@pytest.mark.parametrize(
    "element",
    [
        Barrier(CheckpointId(0)),
        Barrier(CheckpointId(2**40)),
        EndOfInput(),
        EndOfInput(is_drained=True),
        Watermark(-5),
        Watermark(2**62, is_idle=True),
    ],
)
def test_barriers_and_ends_come_back(element: Element) -> None:
    assert copied(element) == element


def test_credit_and_header_come_back() -> None:
    frame = decode_frame(encode_frame(FrameKind.CREDIT, ATTEMPT, CHANNEL, 5, encode_credit(4711)))
    assert (frame.kind, frame.attempt, frame.channel, frame.sequence) == (FrameKind.CREDIT, ATTEMPT, CHANNEL, 5)
    assert decode_credit(frame) == 4711


@pytest.mark.parametrize(
    "element", [Batch(["a", "b"], [1, 2], [3, 4]), Batch([Order("a", 1)]), Barrier(CheckpointId(9)), EndOfInput()]
)
def test_a_frame_with_any_bit_changed_or_any_end_missing_is_an_internal_error(element: Element) -> None:
    data = frame_of(element)
    damaged = [
        data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
        for place in range(len(data))
        for bit in range(8)
    ]
    for bad in [*damaged, *(data[:size] for size in range(len(data))), data + b"\0"]:
        with pytest.raises(InternalError):
            decode_frame(bad)


@given(st.sampled_from(list(FrameKind)), st.binary(max_size=40))
def test_a_payload_that_nobody_made_is_an_internal_error_or_harmless(kind: FrameKind, payload: bytes) -> None:
    frame = decode_frame(encode_frame(kind, ATTEMPT, CHANNEL, 0, payload))
    try:
        decode_credit(frame) if kind is FrameKind.CREDIT else decode_element(frame)
    except InternalError:
        return
    assert len(payload) in {FrameKind.END: (0, 1), FrameKind.WATERMARK: (9,)}.get(kind, (8,))


def test_columns_of_unequal_length_are_an_internal_error() -> None:
    for batch in (Batch(["a"], keys=["k", "l"]), Batch(["a", "b"], timestamps=[1])):
        with pytest.raises(InternalError, match="well-formed"):
            copied(batch)


def test_credit_is_no_element_and_an_element_no_credit() -> None:
    with pytest.raises(InternalError):
        decode_element(decode_frame(encode_frame(FrameKind.CREDIT, ATTEMPT, CHANNEL, 0, encode_credit(1))))
    with pytest.raises(InternalError):
        decode_credit(decode_frame(frame_of(Barrier(CheckpointId(1)))))


def test_an_unknown_kind_and_another_version_are_named() -> None:
    with pytest.raises(InternalError, match="unknown kind 9"):
        decode_frame(encode_frame(9, ATTEMPT, CHANNEL, 0, b""))  # type: ignore[arg-type]
    data = frame_of(EndOfInput())
    with pytest.raises(InternalError, match="version 1, this worker knows 2"):
        decode_frame(b"\x01" + data[1:])


def test_a_record_that_cannot_be_pickled_is_named_by_its_type_with_a_remedy() -> None:
    with pytest.raises(UserCodeError, match=r"record of type _thread\.lock cannot be sent") as caught:
        encode_element(Batch([1, threading.Lock(), 2]))
    assert "top level of a module" in caught.value.failure.remedy
    with pytest.raises(UserCodeError, match=r"field of Order of type builtins\.list .*lock"):
        encode_element(Batch([Order("a", 1), Order("b", 2, [threading.Lock()])]))


def test_a_class_that_no_other_process_can_import_is_named() -> None:
    class Hidden(msgspec.Struct):
        value: int

    with pytest.raises(UserCodeError, match="Hidden cannot be sent"):
        encode_element(Batch([Hidden(1)]))


def test_a_struct_with_a_deleted_field_is_refused_and_not_sent_in_part() -> None:
    broken = Order("b", 2)
    del broken.amount
    with pytest.raises(UserCodeError, match="'amount' is unset"):
        encode_element(Batch([Order("a", 1), broken]))


def test_an_object_that_cannot_be_made_again_is_the_users_error() -> None:
    broken = Refusing(1)
    broken.value = 2
    with pytest.raises(UserCodeError, match="ValueError: too much"):
        copied(Batch([broken]))


def test_a_frame_says_in_errors_which_channel_it_belongs_to() -> None:
    frame = Frame(FrameKind.END, ATTEMPT, CHANNEL, 4, memoryview(b"x"))
    with pytest.raises(InternalError, match=r"frame 4 of ChannelId\(edge=3, source=1, target=2\)"):
        decode_element(frame)
