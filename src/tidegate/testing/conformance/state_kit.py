"""What the conformance suites of keyed state build on: the backend under test, restores through bytes, keys and values.

`state_handles` asks for the promises to user code, `state_backend` for those to the engine and runs both.
"""

import datetime as dt
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.checkpoint.store import checksum
from tidegate.errors import CorruptError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.backend import PIECE, Capture, KeyedStateBackend
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.key_groups import grouping_of, groups_of, subtask_of
from tidegate.state.keys import encode_key

OPERATOR = OperatorName("under-test")
MAX_PARALLELISM = 32
NO_CHECKPOINT = CheckpointId(0)
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


class KeptFiles:
    """`SnapshotFiles` in this process's memory. `contents`: by path, to be looked at and damaged by tests."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.sizes: list[int] = []
        """Of every file that was ever written, in order."""

    def write(self, part: str, data: bytes, groups: range, *, form: str = PIECE, name: str = "") -> StateHandle:
        path = f"{len(self.sizes)}/{part}"
        self.sizes.append(len(data))
        self.contents[path] = data
        return StateHandle(groups.start, groups.stop - 1, len(data), checksum(data), path, form=form, name=name)

    def read_state(self, handle: StateHandle) -> bytes:
        data = self.contents.get(str(handle.path))
        if data is None:
            raise CorruptError(f"{handle.path} is gone")
        if checksum(data) != handle.checksum:
            raise CorruptError(f"{handle.path} is not what it was")
        return data

    def delete(self, paths: Iterable[str | None]) -> None:
        """As the owner of stored files does with those that no checkpoint needs any more."""
        for path in list(paths):
            self.contents.pop(str(path), None)


class Taken:
    """A capture, and what comes of it when it is stored, which happens at the first look: after everything that the
    test does in between."""

    def __init__(self, capture: Capture, files: KeptFiles, checkpoint: CheckpointId = NO_CHECKPOINT) -> None:
        self.capture = capture
        self.checkpoint = checkpoint
        self._files = files

    @property
    def key_type(self) -> str:
        return self.capture.key_type

    @property
    def states(self) -> tuple[StateInfo, ...]:
        return self.capture.states

    @cached_property
    def handles(self) -> tuple[StateHandle, ...]:
        return self.capture.store(self._files)

    @property
    def paths(self) -> set[str]:
        """The files that it names."""
        return {str(handle.path) for handle in self.handles}

    @property
    def contents(self) -> list[bytes]:
        """What the handles stand for, in order."""
        return [self._files.read_state(handle) for handle in self.handles]

    def snapshot(self, groups: range = range(MAX_PARALLELISM)) -> OperatorSnapshot:
        """What a checkpoint holds of it, as far as it concerns a subtask that has `groups`."""
        clipped = [
            msgspec.structs.replace(
                handle, first_group=max(handle.first_group, groups[0]), last_group=min(handle.last_group, groups[-1])
            )
            for handle in self.handles
        ]
        kept = tuple(handle for handle in clipped if handle.first_group <= handle.last_group)
        return OperatorSnapshot(OPERATOR, key_type=self.capture.key_type, states=self.capture.states, handles=kept)


class StateBackendKit(ABC):
    """To be overridden: `backend`, `limited`."""

    key_type = ""
    """That its backends are told of their keys; '' is nothing."""

    @abstractmethod
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        """An empty backend."""

    def limited(self, max_value_bytes: int) -> KeyedStateBackend:
        """An empty backend of the only subtask in which one key may have so many bytes in one state."""
        raise NotImplementedError(f"{type(self).__name__}.limited: the backend's guard against large values")

    def one(self) -> KeyedStateBackend:
        """The backend of the only subtask."""
        return self.backend(SubtaskIndex(0), 1, MAX_PARALLELISM)

    def owner_of(self, key: Any, parallelism: int) -> SubtaskIndex:
        """The subtask of so many that has `key`."""
        group = grouping_of(self.key_type, MAX_PARALLELISM).group_of(encode_key(key))
        return subtask_of(group, parallelism, MAX_PARALLELISM)

    @cached_property
    def files(self) -> KeptFiles:
        """Of one test, for all its backends."""
        return KeptFiles()

    @cached_property
    def _checkpoints(self) -> Iterator[int]:
        return itertools.count(1)

    def take(self, backend: KeyedStateBackend) -> Taken:
        """A capture at the next checkpoint."""
        checkpoint = CheckpointId(next(self._checkpoints))
        return Taken(backend.capture(checkpoint), self.files, checkpoint)

    def complete(self, backend: KeyedStateBackend, *, merge: bool = True) -> Taken:
        """A checkpoint of one subtask that completes, is heard of at once, and is followed by what it makes due."""
        taken = self.take(backend)
        _ = taken.handles
        backend.completed(taken.checkpoint)
        work = backend.maintenance() if merge else None
        if work is not None:
            work.run(self.files)
            work.finish(None)
        return taken

    def abandon(self, backend: KeyedStateBackend, needed: Taken) -> Taken:
        """A checkpoint that is given up after it was stored; its files are deleted, but for those that `needed`
        names."""
        taken = self.take(backend)
        self.files.delete(taken.paths - needed.paths)
        backend.abandoned(taken.checkpoint)
        return taken

    def restored(self, *taken: Taken, subtask: int = 0, parallelism: int = 1) -> KeyedStateBackend:
        """A backend that was given what these hold."""
        backend = self.backend(SubtaskIndex(subtask), parallelism, MAX_PARALLELISM)
        groups = groups_of(SubtaskIndex(subtask), parallelism, MAX_PARALLELISM)
        snapshots = [one.snapshot(groups) for one in taken]
        backend.restore([snapshot for snapshot in snapshots if snapshot.handles], self.files)
        return backend

    def filled(self, descriptor: StateDescriptor[Any], parallelism: int = 1) -> list[KeyedStateBackend]:
        """Backends of all subtasks; each of `USERS` has its number in the value state `descriptor`."""
        backends = [self.backend(SubtaskIndex(i), parallelism, MAX_PARALLELISM) for i in range(parallelism)]
        handles = [backend.register(descriptor) for backend in backends]
        for number, user in enumerate(USERS):
            owner = self.owner_of(user, parallelism)
            backends[owner].set_current_key(user)
            handles[owner].update(number)
        return backends
