"""Stored values as plain Python, without the program's classes: msgpack by the text of its type, and bytes where only
the program knows what they mean (pickled ones, and those of its own serializers).

Nothing here ever runs code that a checkpoint names, unpickling least of all.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.savepoints.shapes import Shape, schema_or_none, shape_of
from tidegate.serializers import check_evolution, element_id, split_elements, split_entries
from tidegate.serializers.containers import LIST, MAP, container_id
from tidegate.serializers.msgpack import MsgpackSerializer
from tidegate.serializers.spelling import split_map_type
from tidegate.serializers.stamped import STAMP_BYTES, stamp_of, unstamped_id
from tidegate.state.descriptors import MapState, StateDescriptor

Decode = Callable[[bytes], Any]

LISTS = frozenset({"list", "list-split", "list-union"})
MAPS = frozenset({"map", "broadcast"})


def plain_value(info: StateInfo) -> Decode:
    """What makes plain Python of everything that one key has in the state: a list for a list state, a dict for a map
    state. Times of last use are left out. It raises CorruptError."""
    key_type, value_type = element_types(info)
    element = _element(info, element_id(info.serializer), shape_of(schema_or_none(value_type)))
    if info.kind in LISTS and _is_split(info):
        return lambda data: list(map(element, split_elements(data, info.serializer)))
    if info.kind in MAPS and _is_split(info):
        key = _element(info, MsgpackSerializer.id, shape_of(schema_or_none(key_type)))
        return lambda data: _mapping((key(one), element(other)) for one, other in split_entries(data, info.serializer))
    return _element(info, info.serializer, shape_of(schema_or_none(value_type)))


def element_types(info: StateInfo) -> tuple[str, str]:
    """The texts of the types of a map's keys ('' for other kinds) and of what is kept under one, or of an element."""
    try:
        return split_map_type(info.value_type) if info.kind in MAPS else ("", info.value_type)
    except InvalidError:
        return "", info.value_type


def _is_split(info: StateInfo) -> bool:
    """Whether a whole list or map can be taken apart: once pickled ones were one pickle."""
    return info.serializer == MsgpackSerializer.id or element_id(info.serializer) != info.serializer


def _element(info: StateInfo, serializer: str, shape: Shape) -> Decode:
    inner = unstamped_id(serializer)
    if inner is not None:
        if unstamped_id(inner) is not None:
            raise CorruptError(f"values of state {info.name} are stored by {serializer[:100]}, which writes two times")
        read = _element(info, inner, shape)
        return lambda data: read(_without_stamp(data))
    if serializer != MsgpackSerializer.id:
        return bytes

    def decode(data: bytes) -> Any:
        try:
            return shape(msgspec.msgpack.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"a stored value of state {info.name} cannot be read: {error}") from error

    return decode


def _without_stamp(data: bytes) -> bytes:
    stamp_of(data)
    return data[STAMP_BYTES:]


def _mapping(entries: Iterable[tuple[Any, Any]]) -> Any:
    """A dict; the pairs where keys are such that no dict takes them."""
    pairs = [(_hashable(key), value) for key, value in entries]
    try:
        return dict(pairs)
    except TypeError:
        return pairs


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


# ---- with the program's types --------------------------------------------------------------------------------------


def typed_value(info: StateInfo, descriptor: StateDescriptor[Any]) -> Decode:
    """As `plain_value`, with objects of the declared type. Raises InvalidError when what is stored cannot be read as
    what is declared."""
    element_form = element_id(info.serializer)
    inner = unstamped_id(element_form)
    without_time = msgspec.structs.replace(info, serializer=_without_time(info))
    check_evolution(without_time, descriptor.info)
    if inner is None and (info.kind not in LISTS | MAPS or not _is_split(info)):
        return _whole(info, descriptor)
    read = descriptor.element.reader(inner or element_form)
    element = read if inner is None else lambda data: read(_without_stamp(data))
    if info.kind in LISTS:
        return lambda data: list(map(element, split_elements(data, info.serializer)))
    if info.kind in MAPS:
        assert isinstance(descriptor, MapState), f"{descriptor} is of kind {info.kind}"
        key = descriptor.key.decode
        return lambda data: {key(one): element(other) for one, other in split_entries(data, info.serializer)}
    return element


def _whole(info: StateInfo, descriptor: StateDescriptor[Any]) -> Decode:
    read = descriptor.stored.reader(info.serializer)
    return (lambda data: dict(read(data))) if info.kind in MAPS else read


def _without_time(info: StateInfo) -> str:
    """The id of the same values without a time of last use."""
    form = element_id(info.serializer)
    inner = unstamped_id(form)
    if inner is None:
        return info.serializer
    if form == info.serializer:
        return inner
    return container_id(LIST if info.kind in LISTS else MAP, inner)
