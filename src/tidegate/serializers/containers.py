"""Whole lists and maps as bytes, and their parts: what a backend that keeps parts one by one makes a whole from.

A list is a msgpack array of its elements, a map a msgpack array of pairs. Elements that are msgpack stand in it as they
are; those of any other serializer as msgpack binary. So the stored serializer id of the whole says how to take it apart
and put it together again, without the program's types; no function that does it may ever look into an element.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.serializers.port import MSGPACK

LIST = "list"
MAP = "map"

_PAIR = b"\x92"
"""How a msgpack array of two begins."""
_SHORT_ARRAY = 16
_MEDIUM_ARRAY = 1 << 16
_LONG_ARRAY = 1 << 32
_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_RAW_PAIRS = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw]])
_BINARY_LIST = msgspec.msgpack.Decoder(list[bytes])
_BINARY_PAIRS = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, bytes]])


# ---- the names of stored forms -------------------------------------------------------------------------------------


def container_id(container: str, element: str) -> str:
    """The serializer id of a whole 'list' or 'map' with elements of that id: 'msgpack/1', 'list[money/2]'."""
    return element if element == MSGPACK else f"{container}[{element}]"


def element_id(serializer: str) -> str:
    """The serializer id of the elements of a whole with that id; of what is no container, the id itself."""
    for container in (LIST, MAP):
        if is_container(serializer, container):
            return serializer[len(container) + 1 : -1]
    return serializer


def is_container(serializer: str, container: str) -> bool:
    """Whether it is the id of a whole 'list' or 'map' whose elements are binary."""
    return serializer.startswith(f"{container}[") and serializer.endswith("]")


def _is_inline(serializer: str) -> bool:
    if serializer == MSGPACK:
        return True
    if element_id(serializer) == serializer:
        raise InternalError(f"values written by {serializer} are no list or map that has parts of its own")
    return False


# ---- parts as bytes ------------------------------------------------------------------------------------------------


def join_elements(elements: Sequence[bytes], serializer: str) -> bytes:
    """The list whose elements, each as its own serializer wrote it, these are. `serializer` is the id of the whole."""
    parts = elements if _is_inline(serializer) else map(msgspec.msgpack.encode, elements)
    return b"".join((_array(len(elements)), *parts))


def split_elements(data: bytes, serializer: str) -> list[bytes]:
    """The elements of a list, each as its own serializer wrote it. Raises CorruptError for what is no list."""
    if _is_inline(serializer):
        return [bytes(element) for element in _take_apart(_RAW_LIST, data)]
    elements: list[bytes] = _take_apart(_BINARY_LIST, data)
    return elements


def join_entries(entries: Sequence[tuple[bytes, bytes]], serializer: str) -> bytes:
    """The map whose keys and values, each as its own serializer wrote it, these are, in this order."""
    encode = bytes if _is_inline(serializer) else msgspec.msgpack.encode
    return b"".join((_array(len(entries)), *(_PAIR + key + encode(value) for key, value in entries)))


def split_entries(data: bytes, serializer: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of a map, each as its own serializer wrote it. Raises CorruptError for what is no map."""
    decoder = _RAW_PAIRS if _is_inline(serializer) else _BINARY_PAIRS
    return [(bytes(key), bytes(value)) for key, value in _take_apart(decoder, data)]


def _take_apart(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"a stored list or map cannot be taken apart: {error}") from error


def _array(length: int) -> bytes:
    """How a msgpack array of that many elements begins, in the shortest form, which msgspec writes too."""
    if length < _SHORT_ARRAY:
        return bytes((0x90 | length,))
    if length < _MEDIUM_ARRAY:
        return b"\xdc" + length.to_bytes(2, "big")
    if length < _LONG_ARRAY:
        return b"\xdd" + length.to_bytes(4, "big")
    raise InvalidError(f"a list or map of {length} elements is longer than msgpack allows", remedy="Keep fewer.")
