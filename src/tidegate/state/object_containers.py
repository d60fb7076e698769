"""The handles of the object backend for lists, and the choice of a handle for each kind of state.

What a capture gets of a list of immutable values is a copy: adding to it goes on meanwhile.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from tidegate.errors import InvalidError
from tidegate.state.descriptors import (
    AggregatingState,
    FoldedMapState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.increments import REMOVED
from tidegate.state.object_folding import FoldedMapHandle, MutableFoldedMapHandle
from tidegate.state.object_handles import (
    Cursor,
    FactoryValueHandle,
    MutableValueHandle,
    ObjectAggregatingHandle,
    ObjectHandle,
    ObjectReducingHandle,
    ObjectValueHandle,
)
from tidegate.state.object_maps import MutableMapHandle, ObjectMapHandle

T = TypeVar("T")


class ObjectListHandle(ObjectHandle, Generic[T]):
    """A list a key; see `ListHandle`."""

    __slots__ = ("_marks",)

    def __init__(self, descriptor: ListState[T], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._marks = not descriptor.immutable

    def get(self) -> list[T]:
        values = self._entries.get(self._cursor.key)
        if values is None:
            return []
        if self._marks:
            self._changes[self._cursor.key] = values
        return list(values)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        entries, key = self._entries, self._cursor.key
        if type(value) not in self._classes:
            value = self._admit(value)
        values = entries.get(key)
        if values is None:
            values = entries[key] = [value]
        else:
            values.append(value)
        self._changes[key] = values

    def extend(self, values: Iterable[T]) -> None:
        added = self._admitted(values)
        if added:
            key = self._cursor.key
            kept = self._entries.setdefault(key, [])
            kept.extend(added)
            self._changes[key] = kept

    def update(self, values: Iterable[T]) -> None:
        replaced = self._admitted(values)
        if replaced:
            key = self._cursor.key
            self._entries[key] = self._changes[key] = replaced
        else:
            self.clear()

    def _admitted(self, values: Iterable[T]) -> list[T]:
        classes, admit = self._classes, self._admit
        return [value if type(value) in classes else admit(value) for value in values]

    def _copied(self, changes: dict[Any, Any]) -> dict[Any, Any]:
        return {key: values if values is REMOVED else values.copy() for key, values in changes.items()}


def make_handle(descriptor: StateDescriptor[Any], cursor: Cursor, limit: int, where: str) -> ObjectHandle:
    """The handle of a declared state. Raises InvalidError for a kind that this backend does not have."""
    if isinstance(descriptor, ValueState):
        if descriptor.default_factory is not None:
            return FactoryValueHandle(descriptor, descriptor.default_factory, cursor, limit, where)
        value = ObjectValueHandle if descriptor.immutable else MutableValueHandle
        return value(descriptor, cursor, limit, where)
    if isinstance(descriptor, ReducingState):
        return ObjectReducingHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, AggregatingState):
        return ObjectAggregatingHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, ListState):
        return ObjectListHandle(descriptor, cursor, limit, where)
    if isinstance(descriptor, FoldedMapState):
        folded = FoldedMapHandle if descriptor.immutable else MutableFoldedMapHandle
        return folded(descriptor, cursor, limit, where)
    if isinstance(descriptor, MapState):
        entries = ObjectMapHandle if descriptor.immutable else MutableMapHandle
        return entries(descriptor, cursor, limit, where)
    raise InvalidError(f"state {descriptor.name} is of kind {descriptor.kind}, which this state backend does not have")
