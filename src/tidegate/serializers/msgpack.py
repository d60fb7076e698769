"""Values as MessagePack, through msgspec: the serializer of every declared type that msgspec knows."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers.checks import check_for, node_classes
from tidegate.serializers.containers import (
    LIST,
    MAP,
    element_id,
    is_container,
    join_elements,
    join_entries,
    split_elements,
    split_entries,
)
from tidegate.serializers.port import MSGPACK, check_id
from tidegate.serializers.spelling import schema_of
from tidegate.serializers.stamped import unstamped, without_stamp
from tidegate.serializers.types import constrained, describe, immutable_node

T = TypeVar("T")


class MsgpackSerializer(Generic[T]):
    """Values of one declared type. `label` says in errors what the values are: 'state total'.

    Raises InvalidError when the type is not one that comes back as it was.
    """

    id = MSGPACK
    __slots__ = ("_constrained", "_decoder", "_encoder", "classes", "conforms", "immutable", "label", "type_spelling")

    def __init__(self, declared: Any, label: str = "") -> None:
        node = describe(declared)
        self.label = label or "a value"
        self.type_spelling = str(schema_of(node))
        self.immutable = immutable_node(node)
        self.classes = node_classes(node)
        self.conforms = check_for(node)
        self._constrained = constrained(node)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(declared)

    def admit(self, value: Any) -> T:
        """`value`; an int where a float is declared as the float that a restore would give."""
        if not self.conforms(value):
            raise self._mismatch(value)
        if type(value) is int and int not in self.classes:
            value = float(value)
        admitted: T = value
        return admitted

    def encode(self, value: T) -> bytes:
        try:
            if not self.conforms(value):
                raise self._mismatch(value)
            data = self._encoder.encode(value)
            if self._constrained:
                self._decoder.decode(data)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidError(
                f"{self.label} holds a value of type {self.type_spelling} that cannot be written: {error}",
                remedy="msgpack holds 64-bit integers and text without lone surrogates; msgspec.Meta limits apply.",
            ) from error
        return data

    def decode(self, data: bytes) -> T:
        # Classes of the program take part in decoding (__post_init__, enums) and may raise anything.
        try:
            return self._decoder.decode(data)
        except Exception as error:
            raise CorruptError(f"{self.label}: stored bytes are no {self.type_spelling}: {error}") from error

    def reader(self, stored: str) -> Callable[[bytes], T]:
        inner = unstamped(element_id(stored))
        if inner != stored:
            check_id(inner, self.id, self.label)
            return lambda data: self.decode(_without_stamps(data, stored))
        check_id(stored, self.id, self.label)
        return self.decode

    def _mismatch(self, value: Any) -> InvalidError:
        given = type(value).__name__
        same = given == self.type_spelling or type(value) in self.classes
        detail = "some part of it is of another type" if same else "which is another type"
        remedy = "Write what was declared, or declare what is written."
        if value is None:
            remedy = f"Declare {self.type_spelling} | None where None is a value; clear() removes one."
        message = f"{self.label} is declared {self.type_spelling} and was given a {given}, {detail}"
        return InvalidError(message, remedy=remedy)


def _without_stamps(data: bytes, stored: str) -> bytes:
    """A value, or a whole list or map, as it would be had its values never carried a time."""
    if is_container(stored, LIST):
        return join_elements(list(map(without_stamp, split_elements(data, stored))), MSGPACK)
    if is_container(stored, MAP):
        return join_entries([(key, without_stamp(value)) for key, value in split_entries(data, stored)], MSGPACK)
    return without_stamp(data)
