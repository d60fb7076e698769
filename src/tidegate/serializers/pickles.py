"""Values through pickle: for classes that msgspec does not know, only where a program asks for it with `pickled(T)`.

Pickle runs code of whoever wrote the bytes and breaks when a class moves; it is never chosen on its own.
"""

import pickle
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, TypeVar, cast, get_origin

from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers.containers import element_id
from tidegate.serializers.port import PICKLE, OfOneClass, check_id
from tidegate.serializers.stamped import unstamped, without_stamp
from tidegate.serializers.types import PICKLED, type_name

T = TypeVar("T")

PROTOCOL = 5
"""Fixed, so that the form of stored bytes does not change with the interpreter."""


class Pickled(Generic[T]):
    """A declared type whose values are pickled."""

    __slots__ = ("type",)

    def __init__(self, type: Any) -> None:
        self.type = type


def pickled(type: type[T]) -> Pickled[T]:
    """Declare that values of class `type` (or of a subclass) are pickled: `tg.ValueState(pickled(Model))`.

    Such state is written at the barrier and cannot change its class later; the class must stay importable where it is.
    """
    return Pickled(type)


def pickle_warning(what: str, serializer: str) -> str | None:
    """What a start says once of a state whose values are pickled, None of any other.

    what: the state, as a reader knows it: 'state model of operator totals'. serializer: the id that it is stored with.
    """
    while (inner := unstamped(element_id(serializer))) != serializer:
        serializer = inner
    if serializer != PICKLE:
        return None
    return (
        f"{what} is pickled: its class can never change or move, reading it back runs code of whoever can write the "
        "checkpoints, and it takes more bytes and several times as long to read as a msgspec type. Declare a "
        "msgspec.Struct or a dataclass, or bring a serializer along: tg.serialized(...)."
    )


class PickleSerializer(OfOneClass[T]):
    """Values of one class, or of its subclasses. `label` says in errors what the values are."""

    id = PICKLE
    immutable = False
    classes: frozenset[type] = frozenset()
    __slots__ = ()

    def __init__(self, declared: Any, label: str = "") -> None:
        cls = get_origin(declared) or declared
        if not isinstance(cls, type) or cls is UnionType:
            raise InvalidError(f"pickled({type_name(declared)}) does not name a class", remedy="Give it a class.")
        self._class = cls
        self.label = label or "a value"
        self.type_spelling = f"{PICKLED}{cls.__module__}.{cls.__qualname__})"

    def encode(self, value: T) -> bytes:
        self.admit(value)
        # Classes of the program take part in pickling and may raise anything.
        try:
            return pickle.dumps(value, protocol=PROTOCOL)
        except Exception as error:
            raise InvalidError(f"{self.label}: a {type(value).__name__} cannot be pickled: {error}") from error

    def decode(self, data: bytes) -> T:
        try:
            value = pickle.loads(data)
        except Exception as error:
            raise CorruptError(f"{self.label}: stored bytes cannot be unpickled: {error}") from error
        if not isinstance(value, self._class):
            raise CorruptError(f"{self.label}: stored is a {type(value).__name__}, not {self.type_spelling}")
        return cast(T, value)

    def reader(self, stored: str) -> Callable[[bytes], T]:
        plain = unstamped(stored)
        check_id(plain, self.id, self.label)
        return self.decode if plain == stored else lambda data: self.decode(without_stamp(data))
