"""Values of declared types as bytes and back. `serializer_for` chooses msgpack, or pickle where a program asks for it.

Nothing here knows what the values are for; whoever does gives a label that errors name.
"""

from typing import Any

from tidegate.serializers.msgpack import MsgpackSerializer
from tidegate.serializers.pickles import Pickled, PickleSerializer, pickled
from tidegate.serializers.port import Serializer
from tidegate.serializers.types import can_evolve, is_immutable, type_spelling

__all__ = [
    "Pickled",
    "Serializer",
    "can_evolve",
    "is_immutable",
    "list_serializer",
    "map_serializer",
    "pickled",
    "serializer_for",
    "type_spelling",
]


def serializer_for(declared: Any, label: str = "") -> Serializer[Any]:
    """The serializer of a declared type; `label` says in errors what the values are ('state total').

    Raises InvalidError, naming the type and saying how to choose pickle, for what msgspec cannot write faithfully.
    """
    if isinstance(declared, Pickled):
        return PickleSerializer(declared.type, label)
    return MsgpackSerializer(declared, label)


def list_serializer(declared: Any, label: str = "") -> Serializer[Any]:
    """The serializer of whole lists whose elements are of the declared type."""
    if isinstance(declared, Pickled):
        return PickleSerializer(list, label)
    return MsgpackSerializer(list[declared], label)


def map_serializer(key: Any, value: Any, label: str = "") -> Serializer[Any]:
    """The serializer of whole maps, as lists of pairs."""
    if isinstance(value, Pickled):
        return PickleSerializer(list, label)
    return MsgpackSerializer(list[tuple[key, value]], label)
