"""Values of declared types as bytes and back. `serializer_for` chooses msgpack, or what a program asks for: pickle, or
a serializer of its own.

Nothing here knows what the values are for; whoever does gives a label that errors name.
"""

from typing import Any

from tidegate.serializers.containers import (
    element_id,
    join_elements,
    join_entries,
    split_elements,
    split_entries,
)
from tidegate.serializers.custom import CustomSerializer, Serialized, TypeSerializer, serialized
from tidegate.serializers.evolution import (
    Evolution,
    Outcome,
    StateForm,
    check_evolution,
    explain_evolution,
    migration,
    unfit,
)
from tidegate.serializers.msgpack import MsgpackSerializer
from tidegate.serializers.pickles import Pickled, PickleSerializer, pickle_warning, pickled
from tidegate.serializers.port import Serializer
from tidegate.serializers.spelling import type_spelling
from tidegate.serializers.stamped import Stamped, StampedSerializer
from tidegate.serializers.types import is_immutable
from tidegate.serializers.wholes import ListOf, OpaqueListSerializer, OpaqueMapSerializer

__all__ = [
    "Evolution",
    "Outcome",
    "Pickled",
    "Serialized",
    "Serializer",
    "Stamped",
    "StateForm",
    "TypeSerializer",
    "check_evolution",
    "element_id",
    "explain_evolution",
    "is_immutable",
    "join_elements",
    "join_entries",
    "list_of",
    "list_serializer",
    "map_serializer",
    "migration",
    "pickle_warning",
    "pickled",
    "serialized",
    "serializer_for",
    "split_elements",
    "split_entries",
    "type_spelling",
    "unfit",
]

_OPAQUE = (Pickled, Serialized, Stamped, ListOf)
"""Declared types that msgspec does not know."""


def serializer_for(declared: Any, label: str = "") -> Serializer[Any]:
    """The serializer of a declared type; `label` says in errors what the values are ('state total').

    Raises InvalidError, naming the type and saying how to choose pickle, for what msgspec cannot write faithfully.
    """
    if isinstance(declared, Pickled):
        return PickleSerializer(declared.type, label)
    if isinstance(declared, Stamped):
        return StampedSerializer(serializer_for(declared.type, label), label)
    if isinstance(declared, Serialized):
        return CustomSerializer(declared, label)
    if isinstance(declared, ListOf):
        return OpaqueListSerializer(serializer_for(declared.element, label), label)
    return MsgpackSerializer(declared, label)


def list_of(declared: Any) -> Any:
    """The declared type of lists whose elements are of the declared type: as the value of a state."""
    return ListOf(declared) if isinstance(declared, _OPAQUE) else list[declared]


def list_serializer(declared: Any, label: str = "") -> Serializer[Any]:
    """The serializer of whole lists whose elements are of the declared type."""
    if isinstance(declared, _OPAQUE):
        return OpaqueListSerializer(serializer_for(declared, label), label)
    return MsgpackSerializer(list[declared], label)


def map_serializer(key: Any, value: Any, label: str = "") -> Serializer[Any]:
    """The serializer of whole maps, as lists of pairs."""
    if isinstance(value, _OPAQUE):
        return OpaqueMapSerializer(serializer_for(key, f"a map key of {label}"), serializer_for(value, label), label)
    return MsgpackSerializer(list[tuple[key, value]], label)
