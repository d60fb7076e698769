"""The handles of state without keys: what user code holds, and how it is frozen at a barrier and filled at a restore.

What is frozen is a cut: it refers to objects only where the declared type says that they cannot change, and holds all
others as bytes. No handle knows a key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.serializers import element_id, join_elements, join_entries, split_elements, split_entries
from tidegate.state.operator_descriptors import SPLIT, UNION, BroadcastState, OperatorListState

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class OperatorHandle(Protocol):
    """What a backend asks of its handles."""

    @property
    def info(self) -> StateInfo: ...

    def fill(self, wholes: Sequence[bytes | None], stored: str) -> None:
        """Take over what the subtasks kept, by old subtask, None where one kept nothing; `stored` is the id of the
        serializer that wrote it. Raises CorruptError, InvalidError."""
        ...

    def freeze(self) -> Callable[[], bytes] | None:
        """What makes the whole of it as it is now, on a side thread; None when there is nothing."""
        ...


class OperatorListHandle(Generic[T]):
    """The list of one subtask; see `ListHandle`."""

    def __init__(self, descriptor: OperatorListState[T], subtask: SubtaskIndex, parallelism: int) -> None:
        self._descriptor = descriptor
        self._subtask = subtask
        self._parallelism = parallelism
        self._elements: list[T] = []
        self._classes = descriptor.element.classes
        self._admit: Callable[[Any], T] = descriptor.element.admit

    def get(self) -> list[T]:
        return self._elements.copy()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        self._elements.append(value if type(value) in self._classes else self._admit(value))

    def extend(self, values: Iterable[T]) -> None:
        self._elements.extend(self._admitted(values))

    def update(self, values: Iterable[T]) -> None:
        self._elements = self._admitted(values)

    def clear(self) -> None:
        self._elements = []

    def _admitted(self, values: Iterable[T]) -> list[T]:
        return [value if type(value) in self._classes else self._admit(value) for value in values]

    @property
    def info(self) -> StateInfo:
        return self._descriptor.info

    def fill(self, wholes: Sequence[bytes | None], stored: str) -> None:
        lists = [[] if whole is None else split_elements(whole, stored) for whole in wholes]
        read = self._descriptor.element.reader(element_id(stored))
        self._elements = list(map(read, self._own(lists)))

    def _own(self, lists: list[list[bytes]]) -> list[bytes]:
        """What of the old subtasks' elements is this subtask's."""
        if self._descriptor.kind == SPLIT and len(lists) == self._parallelism:
            return lists[self._subtask]
        everything = list(chain.from_iterable(lists))
        if self._descriptor.kind == UNION:
            return everything
        begin, end = (len(everything) * index // self._parallelism for index in (self._subtask, self._subtask + 1))
        return everything[begin:end]

    def freeze(self) -> Callable[[], bytes] | None:
        if not self._elements:
            return None
        encode, whole_id = self._descriptor.element.encode, self._descriptor.stored.id
        if self._descriptor.immutable:
            kept = self._elements.copy()
            return lambda: join_elements(list(map(encode, kept)), whole_id)
        encoded = list(map(encode, self._elements))
        return lambda: join_elements(encoded, whole_id)


class BroadcastHandle(Generic[K, V]):
    """The map of one subtask; see `MapHandle`. Refuses writes while `is_writable` says no."""

    def __init__(
        self, descriptor: BroadcastState[K, V], subtask: SubtaskIndex, is_writable: Callable[[], bool]
    ) -> None:
        self._descriptor = descriptor
        self._subtask = subtask
        self._is_writable = is_writable
        self._entries: dict[K, V] = {}
        self._key, self._value = descriptor.key, descriptor.element

    def get(self, key: K, default: Any = None) -> Any:
        return self._entries.get(self._checked(key), default)

    def __contains__(self, key: K) -> bool:
        return self._checked(key) in self._entries

    def keys(self) -> list[K]:
        return list(self._entries)

    def values(self) -> list[V]:
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries.items())

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: K, value: V) -> None:
        self._check_writable()
        admitted = value if type(value) in self._value.classes else self._value.admit(value)
        self._entries[self._checked(key)] = admitted

    def remove(self, key: K) -> None:
        self._check_writable()
        self._entries.pop(self._checked(key), None)

    def clear(self) -> None:
        self._check_writable()
        self._entries.clear()

    def _checked(self, key: K) -> K:
        if type(key) in self._key.classes and self._key.conforms(key):
            return key
        admitted: K = self._key.admit(key)
        return admitted

    def _check_writable(self) -> None:
        if not self._is_writable():
            raise InvalidError(
                f"broadcast state {self._descriptor.name} is written outside process_broadcast_element",
                remedy="Write it there: only what is broadcast comes to all subtasks alike, and theirs must be equal.",
            )

    @property
    def info(self) -> StateInfo:
        return self._descriptor.info

    def fill(self, wholes: Sequence[bytes | None], stored: str) -> None:
        whole = wholes[self._subtask % len(wholes)]
        read_key, read = self._key.decode, self._value.reader(element_id(stored))
        entries = [] if whole is None else split_entries(whole, stored)
        self._entries = {read_key(key): read(value) for key, value in entries}

    def freeze(self) -> Callable[[], bytes] | None:
        if not self._entries:
            return None
        encode_key, encode, whole_id = self._key.encode, self._value.encode, self._descriptor.stored.id
        if self._descriptor.immutable:
            kept = list(self._entries.items())
            return lambda: join_entries([(encode_key(key), encode(value)) for key, value in kept], whole_id)
        encoded = [(encode_key(key), encode(value)) for key, value in self._entries.items()]
        return lambda: join_entries(encoded, whole_id)
