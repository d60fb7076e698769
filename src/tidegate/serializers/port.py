"""The port between typed values and bytes: what keyed state asks of whoever writes its values.

A serializer has an id with a version, which is stored beside the data, and knows the one declared type that it is for.
What `decode` gives back equals what `encode` was given; a value of which that would not be true is never written.
Nothing here may depend on the process: the bytes are read by another one, perhaps years later.
"""

import re
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from tidegate.errors import InvalidError

T = TypeVar("T")

MSGPACK = "msgpack/1"
"""The id of values that msgspec writes."""
PICKLE = "pickle/1"
"""The id of pickled values."""


class Serializer(Protocol[T]):
    """Values of one declared type as bytes. Immutable; may be used by several threads at once."""

    @property
    def id(self) -> str:
        """Name and version of the form in which values are written: 'msgpack/1'."""
        ...

    @property
    def type_spelling(self) -> str:
        """The declared type, spelled so that a change shows."""
        ...

    @property
    def immutable(self) -> bool:
        """Whether no value of the declared type can ever change, so that a reference to it is as good as a copy."""
        ...

    @property
    def classes(self) -> frozenset[type]:
        """Values of exactly these classes need no `admit`. Empty: every value needs it."""
        ...

    def admit(self, value: Any) -> T:
        """`value` as it is to be kept, for classes not among `classes`. Raises InvalidError if it does not belong."""
        ...

    def conforms(self, value: Any) -> bool:
        """Whether `value` is one of the declared type, through and through."""
        ...

    def encode(self, value: T) -> bytes:
        """Raises InvalidError for what is not of the declared type or cannot be written."""
        ...

    def decode(self, data: bytes) -> T:
        """Raises CorruptError, and nothing else, when `data` is not a value of the declared type."""
        ...

    def reader(self, stored: str) -> Callable[[bytes], T]:
        """What `decode` is for bytes written by the serializer with the id `stored`, an earlier version of this one.

        Raises InvalidError for an id that is not of an earlier version: see `explain_evolution`, which asks first.
        """
        ...


_VERSION = re.compile(r"[1-9][0-9]{0,8}")


def version_in(text: str) -> int | None:
    """The version that the end of a serializer's id says; None for what is none."""
    return int(text) if _VERSION.fullmatch(text) else None


def check_id(stored: str, declared: str, label: str) -> None:
    """Raise InvalidError unless the bytes of what `label` names were written by the serializer that is declared."""
    if stored != declared:
        raise InvalidError(
            f"{label} was written by the serializer {stored} and is declared with {declared}",
            remedy="Declare the serializer that wrote it, or give the new state another name.",
        )


class OfOneClass(Generic[T]):
    """What serializers share whose values are of one class, or of one derived from it."""

    __slots__ = ("_class", "label", "type_spelling")
    _class: type
    label: str
    type_spelling: str

    def conforms(self, value: Any) -> bool:
        return isinstance(value, self._class)

    def admit(self, value: Any) -> T:
        """Raises InvalidError for a value of another class."""
        if not isinstance(value, self._class):
            raise InvalidError(
                f"{self.label} is declared {self.type_spelling} and was given a {type(value).__name__}",
                remedy="Write what was declared, or declare what is written.",
            )
        return cast(T, value)
