"""The serializers of whole lists and maps with parts that are not msgpack: pickled, the program's own, or with a time.

A whole is stored as `containers` says, part by part. Once a whole of pickled parts was one pickle: that is still read.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers.containers import (
    LIST,
    MAP,
    container_id,
    element_id,
    join_elements,
    join_entries,
    split_elements,
    split_entries,
)
from tidegate.serializers.pickles import PickleSerializer
from tidegate.serializers.port import PICKLE, Serializer
from tidegate.serializers.stamped import UNKNOWN_TIME, unstamped

E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")

_PICKLED_WHOLE = PickleSerializer[list[Any]](list, "a list that was one pickle")


class ListOf:
    """A declared type whose values are lists of what msgspec does not write; see `list_of`."""

    __slots__ = ("element",)

    def __init__(self, element: Any) -> None:
        self.element = element


class OpaqueListSerializer(Generic[E]):
    """Whole lists of elements that another serializer than msgpack writes."""

    immutable = False
    classes: frozenset[type] = frozenset({list})
    __slots__ = ("_element", "id", "label", "type_spelling")

    def __init__(self, element: Serializer[E], label: str = "") -> None:
        self._element = element
        self.label = label or "a list"
        self.id = container_id(LIST, element.id)
        self.type_spelling = f"list[{element.type_spelling}]"

    def conforms(self, value: Any) -> bool:
        return type(value) is list and all(map(self._element.conforms, value))

    def admit(self, value: Any) -> list[E]:
        _check_list(self.label, value)
        return list(map(self._element.admit, value))

    def encode(self, value: list[E]) -> bytes:
        _check_list(self.label, value)
        return join_elements(list(map(self._element.encode, value)), self.id)

    def decode(self, data: bytes) -> list[E]:
        return self.reader(self.id)(data)

    def reader(self, stored: str) -> Callable[[bytes], list[E]]:
        if stored == PICKLE and unstamped(self._element.id) == PICKLE:
            return self._decode_pickle
        read = self._element.reader(element_id(stored))
        return lambda data: [read(part) for part in split_elements(data, stored)]

    def _decode_pickle(self, data: bytes) -> list[E]:
        values: list[Any] = _PICKLED_WHOLE.decode(data)
        if unstamped(self._element.id) != self._element.id:
            values = [(UNKNOWN_TIME, value) for value in values]
        return _checked(self, values)


class OpaqueMapSerializer(Generic[K, V]):
    """Whole maps, as lists of pairs, whose values another serializer than msgpack writes."""

    immutable = False
    classes: frozenset[type] = frozenset()
    __slots__ = ("_key", "_value", "id", "label", "type_spelling")

    def __init__(self, key: Serializer[K], value: Serializer[V], label: str = "") -> None:
        self.label = label or "a map"
        self._key = key
        self._value = value
        self.id = container_id(MAP, value.id)
        self.type_spelling = f"list[tuple[{key.type_spelling}, {value.type_spelling}]]"

    def conforms(self, value: Any) -> bool:
        return type(value) is list and all(
            type(pair) is tuple and len(pair) == 2 and self._key.conforms(pair[0]) and self._value.conforms(pair[1])
            for pair in value
        )

    def admit(self, value: Any) -> list[tuple[K, V]]:
        _check_list(self.label, value)
        return [(self._key.admit(key), self._value.admit(part)) for key, part in value]

    def encode(self, value: list[tuple[K, V]]) -> bytes:
        _check_list(self.label, value)
        return join_entries([(self._key.encode(key), self._value.encode(part)) for key, part in value], self.id)

    def decode(self, data: bytes) -> list[tuple[K, V]]:
        return self.reader(self.id)(data)

    def reader(self, stored: str) -> Callable[[bytes], list[tuple[K, V]]]:
        if stored == PICKLE and unstamped(self._value.id) == PICKLE:
            return self._decode_pickle
        read_key, read = self._key.decode, self._value.reader(element_id(stored))
        return lambda data: [(read_key(key), read(part)) for key, part in split_entries(data, stored)]

    def _decode_pickle(self, data: bytes) -> list[tuple[K, V]]:
        pairs: list[Any] = _PICKLED_WHOLE.decode(data)
        if unstamped(self._value.id) != self._value.id:
            pairs = [(key, (UNKNOWN_TIME, value)) for key, value in pairs]
        return _checked(self, pairs)


def _check_list(label: str, value: Any) -> None:
    if type(value) is not list:
        raise InvalidError(f"{label} was given a {type(value).__name__} where it keeps a list")


def _checked(serializer: OpaqueListSerializer[Any] | OpaqueMapSerializer[Any, Any], value: list[Any]) -> list[Any]:
    if not serializer.conforms(value):
        raise CorruptError(f"{serializer.label}: stored is another list than a {serializer.type_spelling}")
    return value
