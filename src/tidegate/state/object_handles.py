"""The handles of the object backend: dicts from key to object, reached through one shared cursor.

A call per record passes here, so each is a few look-ups: no property, no call that could be saved. Beside the dict of
all keys stands one of the keys that changed since the last barrier: a write is one more dict store, and a barrier looks
at nothing else. Where values can change, reading one counts as changing it.

What a capture gets shares nothing that can still change: immutable values themselves, copies of containers of such,
bytes of all else.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NoReturn, TypeVar

from tidegate.errors import InvalidError
from tidegate.state.descriptors import (
    AggregatingState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.handles import Running
from tidegate.state.increments import REMOVED
from tidegate.state.object_capture import CapturedState, check_size

A = TypeVar("A")
T = TypeVar("T")

MOST_AHEAD = 16_384
"""Keys. What is ahead is caught up with at a barrier, when no record is processed: 0.05 to 0.2 µs for each of them."""


class Cursor:
    """The key that handles mean now."""

    __slots__ = ("key",)
    key: Any

    def __getattr__(self, name: str) -> NoReturn:
        """Reached only while `key` was never set."""
        if name != "key":
            raise AttributeError(name)
        raise InvalidError(
            "state was used without a current key",
            remedy="Use state in process_element (and what it calls), not in open() or close().",
        )


class ObjectHandle:
    """What the handles of all kinds share. Containers that are empty are never kept.

    limit: how many bytes one key may have here. where: operator and subtask, for errors.
    """

    __slots__ = (
        "_admit", "_changes", "_classes", "_cursor", "_entries", "_limit", "_round", "_where", "_write", "descriptor"
    )  # fmt: skip

    def __init__(self, descriptor: StateDescriptor[Any], cursor: Cursor, limit: int, where: str) -> None:
        self.descriptor = descriptor
        self._cursor = cursor
        self._limit = limit
        self._where = where
        self._entries: dict[Any, Any] = {}
        self._changes: dict[Any, Any] = {}
        """Of each key that changed since the last barrier, what `_entries` has, or `REMOVED`."""
        self._round: Iterator[Any] = iter(())
        """Keys that are still to come in this round of `sweep`."""
        self._write: Callable[[Any], bytes] = descriptor.stored.encode
        """From what is kept of a key to what is stored. Raises InvalidError for a value of another type."""
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], Any] = descriptor.element.admit

    def clear(self) -> None:
        key = self._cursor.key
        if self._entries.pop(key, REMOVED) is not REMOVED:
            self._changes[key] = REMOVED

    def peek(self) -> Any:
        """What the current key has here, None where nothing; not to be changed by whoever asks."""
        return self._entries.get(self._cursor.key)

    @property
    def kept(self) -> Mapping[Any, Any]:
        """All that is here, by key."""
        return self._entries

    @property
    def changed_keys(self) -> Collection[Any]:
        """Those that the next capture takes."""
        return self._changes.keys()

    @property
    def keys_with_state(self) -> Collection[Any]:
        """Every key that has something here."""
        return self._entries.keys()

    def sweep(self, limit: int) -> list[Any]:
        """The next keys that have something here, going round for ever."""
        entries = self._entries
        found = [key for key in islice(self._round, limit) if key in entries]
        if not found:
            self._round = iter(list(entries))
            found = list(islice(self._round, limit))
        return found

    # ---- captures ------------------------------------------------------------------------------------------------

    @property
    def captured(self) -> CapturedState:
        """How what `take_changes` gives becomes bytes."""
        return CapturedState(self.descriptor.info, self.encode if self.descriptor.immutable else _ready)

    def take_changes(self) -> dict[Any, Any]:
        """What changed since the last barrier, which is now. Raises InvalidError for a value of another type."""
        changes, self._changes = self._changes, {}
        if self.descriptor.immutable:
            return self._copied(changes)
        write, limit = self._write, self._limit
        taken: dict[Any, Any] = {}
        for key, value in changes.items():
            if value is not REMOVED:
                value = write(value)  # noqa: PLW2901
                if len(value) > limit:
                    check_size(value, limit, self.descriptor.name, key, self._where)
            taken[key] = value
        return taken

    def take_all(self) -> dict[Any, Any]:
        """As `take_changes`, of every key that has something here."""
        self._changes = self._entries.copy()
        return self.take_changes()

    def encode(self, key: Any, value: Any) -> bytes:
        """Raises InvalidError for a value of another type, or one that is too large."""
        return check_size(self._write(value), self._limit, self.descriptor.name, key, self._where)

    def fill(self, entries: dict[Any, bytes], read: Callable[[bytes], Any]) -> None:
        """Take over what was stored. Raises CorruptError when some of it is no value of the declared type."""
        self._entries = {key: read(data) for key, data in entries.items()}

    def _copied(self, changes: dict[Any, Any]) -> dict[Any, Any]:
        """Of values that cannot change, the dict itself: nobody writes to it any more."""
        return changes


def _ready(key: Any, data: bytes) -> bytes:
    """Of values that can change, captures have the bytes."""
    return data


class ObjectValueHandle(ObjectHandle, Generic[T]):
    """A value a key, of a type whose values cannot change; see `ValueHandle`."""

    __slots__ = ("_default",)

    def __init__(self, descriptor: ValueState[T], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._default: T = descriptor.default

    def value(self) -> T:
        value: T = self._entries.get(self._cursor.key, self._default)
        return value

    def update(self, value: T) -> None:
        if type(value) not in self._classes:
            value = self._admit(value)
        key = self._cursor.key
        self._entries[key] = value
        self._changes[key] = value


class MutableValueHandle(ObjectValueHandle[T]):
    """A value a key that may be changed by whoever reads it."""

    __slots__ = ()

    def value(self) -> T:
        key = self._cursor.key
        value = self._entries.get(key, REMOVED)
        if value is REMOVED:
            return self._default
        self._changes[key] = value
        read: T = value
        return read


class FactoryValueHandle(ObjectValueHandle[T]):
    """A value a key, made by the `default_factory` and stored when it is first read; it may be one that can change."""

    __slots__ = ("_factory",)

    def __init__(
        self, descriptor: ValueState[T], factory: Callable[[], T], cursor: Cursor, limit: int, where: str
    ) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._factory = factory

    def value(self) -> T:
        entries, key = self._entries, self._cursor.key
        value = entries.get(key, REMOVED)
        if value is REMOVED:
            value = self._factory()
            if type(value) not in self._classes:
                value = self._admit(value)
            entries[key] = value
        self._changes[key] = value
        read: T = value
        return read


class ObjectReducingHandle(ObjectHandle, Generic[T]):
    """A reduced value a key; see `ReducingHandle`."""

    __slots__ = ("_marks", "_reduce")

    def __init__(self, descriptor: ReducingState[T], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._reduce = descriptor.reduce_function
        self._marks = not descriptor.immutable

    def get(self) -> T | None:
        value = self._entries.get(self._cursor.key)
        if self._marks and value is not None:
            self._changes[self._cursor.key] = value
        return value

    def add(self, value: T) -> None:
        entries, key = self._entries, self._cursor.key
        if type(value) not in self._classes:
            value = self._admit(value)
        if key in entries:
            value = self._reduce(entries[key], value)
            if type(value) not in self._classes:
                value = self._admit(value)
        entries[key] = value
        self._changes[key] = value

    def replace(self, kept: T) -> None:
        """Put this in place of what is kept."""
        key = self._cursor.key
        self._entries[key] = kept
        self._changes[key] = kept


class ObjectAggregatingHandle(ObjectHandle, Generic[T, A]):
    """An accumulator a key; see `AggregatingHandle` and `RunningHandle`.

    `run` writes to `_changes` alone, which is half of the work where the same keys come again, and is then ahead of
    `_entries`: whoever asks for these gets them when they have caught up.
    """

    __slots__ = ("_add", "_create", "_is_ahead", "_marks", "_result", "_settled")

    def __init__(self, descriptor: AggregatingState[T, A], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._create = descriptor.create
        self._add = descriptor.add_function
        self._result = descriptor.result_function
        self._marks = not descriptor.immutable

    @property
    def _entries(self) -> dict[Any, Any]:
        if self._is_ahead:
            self._catch_up()
        return self._settled

    @_entries.setter
    def _entries(self, entries: dict[Any, Any]) -> None:
        self._settled: dict[Any, Any] = entries
        self._is_ahead = False

    def _catch_up(self) -> None:
        self._is_ahead, entries = False, self._settled
        for key, accumulator in self._changes.items():
            if accumulator is not REMOVED:
                entries[key] = accumulator

    def take_changes(self) -> dict[Any, Any]:
        if self._is_ahead:
            self._catch_up()
        return super().take_changes()

    def get(self) -> A | None:
        if self._is_ahead:
            self._catch_up()
        accumulator = self._settled.get(self._cursor.key, REMOVED)
        if accumulator is REMOVED:
            return None
        if self._marks:
            self._changes[self._cursor.key] = accumulator
        return self._result(accumulator)

    def add(self, value: T) -> None:
        if self._is_ahead:
            self._catch_up()
        entries, key = self._settled, self._cursor.key
        accumulator = entries.get(key, REMOVED)
        accumulator = self._add(self._create() if accumulator is REMOVED else accumulator, value)
        if type(accumulator) not in self._classes:
            accumulator = self._admit(accumulator)
        entries[key] = accumulator
        self._changes[key] = accumulator

    def replace(self, kept: Any) -> None:
        """Put this accumulator in place of the one that is kept."""
        key = self._cursor.key
        self._entries[key] = kept
        self._changes[key] = kept

    def run(self, how: Running, owners: Iterable[Any], values: Iterable[Any], outputs: list[Any]) -> None:
        """See `RunningHandle`."""
        create, add, left_out, result, emit = how
        changes, classes, put_out = self._changes, self._classes, outputs.append
        is_ahead = len(changes) <= MOST_AHEAD
        newest, rest = (changes, self._settled) if is_ahead else (self._entries, {})
        self._is_ahead = is_ahead
        for owner, value in zip(owners, values):  # noqa: B905 - see `AggregateOperator.process`
            accumulator = newest[owner] if owner in newest else rest.get(owner, REMOVED)
            if accumulator is REMOVED:
                accumulator = create()
            if value is not left_out:
                accumulator = add(accumulator, value)
            if type(accumulator) not in classes:
                accumulator = self._admit(accumulator)
            newest[owner] = accumulator
            if not is_ahead:
                changes[owner] = accumulator
            output = accumulator if result is None else result(accumulator)
            put_out(output if emit is None else emit(owner, output))
