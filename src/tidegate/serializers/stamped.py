"""Values that carry the time of their last use, for state with a time to live: `(milliseconds, value)` in memory, eight
bytes before the value's own bytes in what is stored.

Time to live may be switched on over values without a time and off over values with one: the id of the stored form says
which it is. Nothing here knows what time it is, or how long anything lives.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers.port import Serializer

T = TypeVar("T")

STAMP_BYTES = 8
UNKNOWN_TIME = -(2**63)
"""The time of a value that was stored before there was one: whoever restores it puts another in its place."""

_BEGIN, _END = "stamped[", "]"


class Stamped(Generic[T]):
    """A declared type whose values carry a time."""

    __slots__ = ("type",)

    def __init__(self, type: Any) -> None:
        self.type = type


def stamped_id(serializer: str) -> str:
    """The id of the stored form of values with a time, whose values have that of `serializer`."""
    return f"{_BEGIN}{serializer}{_END}"


def unstamped_id(serializer: str) -> str | None:
    """The id of the value's own form, None where `serializer` writes no time."""
    is_stamped = serializer.startswith(_BEGIN) and serializer.endswith(_END)
    return serializer[len(_BEGIN) : -len(_END)] if is_stamped else None


def unstamped(serializer: str) -> str:
    """The id of the value's own form, which is `serializer` itself where it writes no time."""
    return unstamped_id(serializer) or serializer


def stamp_of(data: bytes) -> int:
    """The time in stored bytes of a value that has one. Raises CorruptError."""
    if len(data) < STAMP_BYTES:
        raise CorruptError(f"a stored value of {len(data)} bytes is too short for the time that it should begin with")
    return int.from_bytes(data[:STAMP_BYTES], "big", signed=True)


def without_stamp(data: bytes) -> bytes:
    """The value's own bytes. Raises CorruptError."""
    stamp_of(data)
    return data[STAMP_BYTES:]


class StampedSerializer(Generic[T]):
    """Pairs of a time (milliseconds since 1970, or of the clock that the records carry) and a value."""

    __slots__ = ("_value", "classes", "id", "immutable", "label", "type_spelling")

    def __init__(self, value: Serializer[T], label: str = "") -> None:
        self._value = value
        self.label = label or "a value"
        self.id = stamped_id(value.id)
        self.type_spelling = value.type_spelling
        self.immutable = value.immutable
        self.classes: frozenset[type] = frozenset()

    def conforms(self, value: Any) -> bool:
        return type(value) is tuple and len(value) == 2 and type(value[0]) is int and self._value.conforms(value[1])

    def admit(self, value: Any) -> tuple[int, T]:
        stamp, inner = value
        if type(inner) in self._value.classes:
            return (stamp, inner)
        return (stamp, self._value.admit(inner))

    def encode(self, value: tuple[int, T]) -> bytes:
        stamp, inner = value
        try:
            return stamp.to_bytes(STAMP_BYTES, "big", signed=True) + self._value.encode(inner)
        except OverflowError as error:
            raise InvalidError(f"{self.label} has the time {stamp}, which is no time in milliseconds") from error

    def decode(self, data: bytes) -> tuple[int, T]:
        return stamp_of(data), self._value.decode(data[STAMP_BYTES:])

    def reader(self, stored: str) -> Callable[[bytes], tuple[int, T]]:
        inner = unstamped_id(stored)
        if inner is None:
            read_plain = self._value.reader(stored)
            return lambda data: (UNKNOWN_TIME, read_plain(data))
        read = self._value.reader(inner)
        return lambda data: (stamp_of(data), read(data[STAMP_BYTES:]))
