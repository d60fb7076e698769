"""Serializers that a program brings along: `tg.serialized(Money, MoneySerializer())`.

The program says how values are written and reads what its earlier versions wrote; this module checks what it is given
and what it gives back, and says whose code failed. It must never guess: what another id wrote is not read.
"""

import traceback
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar, get_origin

from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import is_name
from tidegate.serializers.port import OfOneClass, check_id, version_in
from tidegate.serializers.stamped import unstamped, without_stamp
from tidegate.serializers.types import SERIALIZED, type_name

T = TypeVar("T")

RESERVED = ("msgpack", "pickle")
"""Ids of Tidegate's own serializers."""


class TypeSerializer(Protocol[T]):
    """What a program implements to write values of a class itself. One object is used by several threads at once.

    It may also have `immutable = True`: no value can ever change, so that a checkpoint may refer to it instead of
    making bytes of it while processing waits.
    """

    @property
    def id(self) -> str:
        """By which it is found again: 1 to 64 of A-Z a-z 0-9 _ -. Stored beside the values; it never changes."""
        ...

    @property
    def version(self) -> int:
        """Of the form of the bytes, from 1; it grows whenever `encode` begins to write another form."""
        ...

    def encode(self, value: T) -> bytes:
        """`value` as bytes. `decode` of them, with the version of today, gives an equal value."""
        ...

    def decode(self, data: bytes, version: int) -> T:
        """The value that `data` is, as `encode` wrote it when the version was `version`, which is never newer."""
        ...


class Serialized(Generic[T]):
    """A declared type whose values the program writes itself."""

    __slots__ = ("serializer", "type")

    def __init__(self, type: Any, serializer: TypeSerializer[T]) -> None:
        self.type = type
        self.serializer = serializer


def serialized(type: type[T], serializer: TypeSerializer[T]) -> Serialized[T]:
    """Declare that values of class `type` (or of a subclass) are written by `serializer`:
    `tg.ValueState(tg.serialized(Money, MoneySerializer()))`. Also for the elements of a ListState and the values of a
    MapState."""
    return Serialized(type, serializer)


class CustomSerializer(OfOneClass[T]):
    """The values of one class through the program's own serializer. `label` says in errors what the values are.

    Raises InvalidError when the class is none, or when the serializer has no id, version, `encode` or `decode`.
    """

    __slots__ = ("_serializer", "_version", "classes", "id", "immutable")

    def __init__(self, declared: Serialized[T], label: str = "") -> None:
        cls = get_origin(declared.type) or declared.type
        if not isinstance(cls, type) or cls is UnionType:
            message = f"serialized({type_name(declared.type)}, ...) does not name a class"
            raise InvalidError(message, remedy="Give it a class.")
        self.label = label or "a value"
        self._class = cls
        self._serializer = declared.serializer
        name, self._version = _checked_identity(declared.serializer)
        self.id = f"{name}/{self._version}"
        self.immutable = getattr(declared.serializer, "immutable", False) is True
        self.classes = frozenset({cls})
        self.type_spelling = f"{SERIALIZED}{cls.__module__}.{cls.__qualname__})"

    def encode(self, value: T) -> bytes:
        self.admit(value)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise InvalidError(
                f"{self.label}: encode of serializer {self.id} raised {type(error).__name__}: {error}",
                remedy="It must be able to write every value that it is declared for.",
                traceback=_user_frames(error),
            ) from error
        if type(data) is not bytes:
            raise InvalidError(
                f"{self.label}: encode of serializer {self.id} returned a {type(data).__name__}",
                remedy="It must return bytes.",
            )
        return data

    def decode(self, data: bytes) -> T:
        return self._decode(data, self._version)

    def reader(self, stored: str) -> Callable[[bytes], T]:
        plain = unstamped(stored)
        name, _, text = plain.rpartition("/")
        version = version_in(text)
        if version is None or version > self._version or name != self._serializer.id:
            check_id(plain, self.id, self.label)
        known = version or self._version
        if plain != stored:
            return lambda data: self._decode(without_stamp(data), known)
        return lambda data: self._decode(data, known)

    def _decode(self, data: bytes, version: int) -> T:
        try:
            value = self._serializer.decode(data, version)
        except Exception as error:
            raise CorruptError(
                f"{self.label}: decode of serializer {self.id} raised {type(error).__name__} "
                f"on {len(data)} bytes of version {version}: {error}",
                remedy="It must be able to read what each of its earlier versions wrote.",
                traceback=_user_frames(error),
            ) from error
        if not isinstance(value, self._class):
            raise CorruptError(
                f"{self.label}: decode of serializer {self.id} returned a {type(value).__name__} "
                f"for bytes of version {version}, and not a {self._class.__qualname__}"
            )
        return value


def _checked_identity(serializer: Any) -> tuple[str, int]:
    name, version = getattr(serializer, "id", None), getattr(serializer, "version", None)
    what = f"the serializer {type_name(serializer if isinstance(serializer, type) else type(serializer))}"
    if isinstance(serializer, type):
        raise InvalidError(f"{what} was given as a class", remedy="Make an instance.")
    if not isinstance(name, str) or not is_name(name) or name in RESERVED:
        raise InvalidError(
            f"{what} has the id {name!r}",
            remedy=f"Give it an `id` of 1 to 64 of A-Z a-z 0-9 _ - that is none of {', '.join(RESERVED)}.",
        )
    if type(version) is not int or version < 1:
        raise InvalidError(f"{what} has the version {version!r}", remedy="Give it a `version`: a whole number from 1.")
    for method in ("encode", "decode"):
        if not callable(getattr(serializer, method, None)):
            raise InvalidError(f"{what} has no method {method}", remedy="Implement tidegate.TypeSerializer.")
    return name, version


def _user_frames(error: Exception) -> str:
    """The traceback without the frame of this module, which comes first."""
    first = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, first.tb_next if first else None))
