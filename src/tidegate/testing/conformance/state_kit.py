"""What the conformance suites of keyed state build on: the backend under test, restores through bytes, keys and values.

`state_handles` asks for the promises to user code, `state_backend` for those to the engine and runs both.
"""

import datetime as dt
from abc import ABC, abstractmethod
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from tidegate.ids import SubtaskIndex
from tidegate.state.backend import Capture, KeyedStateBackend
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.key_groups import key_group, subtask_of

MAX_PARALLELISM = 32
USERS = [f"user-{number}" for number in range(60)]


class Colour(Enum):
    """A key of a kind of its own."""

    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True):
    """A key of several parts."""

    x: int
    y: str | None


class Total(msgspec.Struct, frozen=True):
    """An immutable value."""

    user: str
    amount: int


class Basket(msgspec.Struct):
    """A mutable value, with a mutable part."""

    items: list[str] = []


KEYS: list[list[Any]] = [
    ["", "a", "ä\u0000", "\ud800"],
    [b"", b"a", b"\xff"],
    [0, 1, -1, 2**63, -(2**200)],
    [True, False],
    [None],
    [None, "a"],
    [("a", 1), ("a", 2), ("b", 1), ("a", None)],
    [()],
    [(("a",), b"b"), (("b",), b"a")],
    [Point(1, "a"), Point(1, "b"), Point(2, None)],
    [Colour.RED, Colour.BLUE],
    [dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)],
    [dt.date(2024, 2, 29), dt.date(1, 1, 1)],
    [Decimal("1.50"), Decimal(0), Decimal("-1E+40")],
]
"""Keys of every type, each list of one type."""


class StateBackendKit(ABC):
    """To be overridden: `backend`."""

    @abstractmethod
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        """An empty backend."""

    def one(self) -> KeyedStateBackend:
        """The backend of the only subtask."""
        return self.backend(SubtaskIndex(0), 1, MAX_PARALLELISM)

    def restored(self, *captures: Capture, subtask: int = 0, parallelism: int = 1) -> KeyedStateBackend:
        """A backend that was given what `captures` hold, as bytes."""
        pieces = [piece.data for capture in captures for piece in capture.encode()]
        backend = self.backend(SubtaskIndex(subtask), parallelism, MAX_PARALLELISM)
        key_type = next((capture.key_type for capture in captures if capture.key_type), "")
        backend.restore(key_type, captures[0].states, pieces)
        return backend

    def filled(self, descriptor: StateDescriptor[Any], parallelism: int = 1) -> list[KeyedStateBackend]:
        """Backends of all subtasks; each of `USERS` has its number in the value state `descriptor`."""
        backends = [self.backend(SubtaskIndex(i), parallelism, MAX_PARALLELISM) for i in range(parallelism)]
        handles = [backend.register(descriptor) for backend in backends]
        for number, user in enumerate(USERS):
            owner = subtask_of(key_group(user, MAX_PARALLELISM), parallelism, MAX_PARALLELISM)
            backends[owner].set_current_key(user)
            handles[owner].update(number)
        return backends
