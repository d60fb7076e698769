"""Key groups: the fixed number of buckets into which keys fall, and which subtask has which of them.

A key's group depends on its canonical bytes and on `max_parallelism` alone: on no seed, process or parallelism. Of
co-partitioned keys it depends on the number of partitions and on the partitioner as well, which their type names.
Changing anything here makes stored state unreachable; a test holds the groups of some keys for ever.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import xxhash

from tidegate.errors import CorruptError, InvalidError, place
from tidegate.ids import KeyGroup, SubtaskIndex
from tidegate.state.key_partitions import KeyPartitions, partition_function, partitioned_key_type
from tidegate.state.key_types import (
    ANY,
    KeyLayout,
    declared_layout,
    key_type_name,
    layout_of,
    parse_layout,
    scalar_class,
    shape_of,
    unify,
)
from tidegate.state.keys import SCALARS, encode_key

__all__ = [
    "DEFAULT_MAX_PARALLELISM",
    "KeyChecker",
    "KeyGrouping",
    "SubtaskCache",
    "group_of_bytes",
    "grouping_of",
    "groups_of",
    "key_group",
    "key_type_name",
    "merge_key_types",
    "subtask_of",
]

DEFAULT_MAX_PARALLELISM = 128


def key_group(key: Any, max_parallelism: int) -> KeyGroup:
    """The group of `key`, unless it is co-partitioned. Raises InvalidError for what cannot be a key."""
    return group_of_bytes(encode_key(key), max_parallelism)


def group_of_bytes(encoded: bytes, max_parallelism: int) -> KeyGroup:
    """The group of the key whose canonical bytes are `encoded`, unless it is co-partitioned: see `grouping_of`."""
    return KeyGroup(xxhash.xxh3_64_intdigest(encoded) % max_parallelism)


class KeyGrouping(Protocol):
    """The groups of the keys of one type. Two of them are equal when they give the same groups."""

    def group_of(self, encoded: bytes) -> KeyGroup:
        """The group of the key whose canonical bytes are `encoded`. Raises CorruptError for no such key."""
        ...


@lru_cache(maxsize=256)
def grouping_of(key_type: str, max_parallelism: int) -> KeyGrouping:
    """How keys of the stored or declared type `key_type` ('' is one without a key yet) are given to groups.

    Raises CorruptError for what is no type, and for more partitions than groups.
    """
    layout = parse_layout(key_type) if key_type else ANY
    if layout.partitions is None:
        return _ByHash(max_parallelism)
    return _by_partition(layout, layout.partitions, max_parallelism)


class _ByHash(NamedTuple):
    max_parallelism: int

    def group_of(self, encoded: bytes) -> KeyGroup:
        return group_of_bytes(encoded, self.max_parallelism)


class _ByPartition(NamedTuple):
    layout: KeyLayout
    tags: bytes
    """With which the canonical bytes of such keys begin."""
    partition_of: Callable[[bytes, int], int]
    groups: tuple[KeyGroup, ...]
    """Of each partition."""

    def group_of(self, encoded: bytes) -> KeyGroup:
        if not encoded or encoded[0] not in self.tags:
            raise CorruptError(f"a stored key is not of type {self.layout}: it begins with {encoded[:8]!r}")
        return self.groups[self.partition_of(encoded[1:], len(self.groups))]


def _by_partition(layout: KeyLayout, partitions: KeyPartitions, max_parallelism: int) -> _ByPartition:
    if partitions.count > max_parallelism:
        raise CorruptError(f"keys of type {layout} do not fit into max_parallelism {max_parallelism}")
    groups = tuple(partitions.group_of_partition(one, max_parallelism) for one in range(partitions.count))
    return _ByPartition(layout, SCALARS[scalar_class(layout)].tags, partition_function(partitions.partitioner), groups)


def groups_of(subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> range:
    """The groups of one subtask: contiguous, and over all subtasks each group once."""
    _check_parallelism(parallelism, max_parallelism)
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    return range(first, ((subtask + 1) * max_parallelism - 1) // parallelism + 1)


def subtask_of(group: KeyGroup, parallelism: int, max_parallelism: int) -> SubtaskIndex:
    """The subtask that has `group`."""
    _check_parallelism(parallelism, max_parallelism)
    return SubtaskIndex(group * parallelism // max_parallelism)


def _check_parallelism(parallelism: int, max_parallelism: int) -> None:
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidError(
            f"parallelism {parallelism} is not between 1 and max_parallelism {max_parallelism}",
            remedy="Lower it; max_parallelism itself is fixed once state is stored.",
        )


def merge_key_types(one: str, other: str) -> str | None:
    """The type that covers both stored key types ('' is one without a key yet), or None when they contradict."""
    if not one or not other:
        return one or other
    merged = unify(parse_layout(one), parse_layout(other))
    return None if merged is None else str(merged)


class KeyChecker:
    """Holds an operator's keys to one type: `declared`, or what `expect` was told, or that of the first key.

    None is a legal key beside every type, and so is None as a part of a tuple or record; but it is no co-partitioned
    key. partitions: that keys are co-partitioned, and how, where `declared` is str or bytes. Raises InvalidError when
    `declared` cannot be the type of a key.
    """

    __slots__ = ("_layout", "_operator", "_scalars", "_shapes")

    def __init__(self, operator: str = "", declared: Any = None, partitions: KeyPartitions | None = None) -> None:
        self._operator = operator
        layout = None if declared is None else declared_layout(declared)
        if partitions is not None:
            layout = parse_layout(partitioned_key_type("" if layout is None else str(layout), partitions))
        self._begin(layout)

    @classmethod
    def of_type(cls, operator: str, key_type: str) -> "KeyChecker":
        """For keys whose type is known as text; '' is one without a key yet. Raises CorruptError."""
        checker = cls(operator)
        checker._begin(parse_layout(key_type) if key_type else None)
        return checker

    def _begin(self, layout: KeyLayout | None) -> None:
        self._layout = layout
        self._scalars: set[Any] = {type(None)} if layout is None or layout.partitions is None else set()
        """Classes that were found right and need no look at a key's parts."""
        self._shapes: set[Any] = set()

    @property
    def key_type(self) -> str:
        """The type as it is stored; '' as long as there was no key and nothing was declared."""
        return "" if self._layout is None else str(self._layout)

    def expect(self, key_type: str) -> None:
        """From now on keys must be of this stored type. Raises InvalidError if it contradicts what was declared; that
        keys are co-partitioned must have been declared."""
        if key_type:
            self.expect_layout(parse_layout(key_type))

    def expect_layout(self, layout: KeyLayout) -> None:
        """As `expect`."""
        self._settle(layout, "stored keys")

    def check(self, keys: list[Any]) -> None:
        """Raises InvalidError when one of these cannot be a key or is of another type than those before."""
        if not set(map(type, keys)) <= self._scalars and not set(map(shape_of, keys)) <= self._shapes:
            for key in keys:
                self.admit(key)
        elif self._layout is None and keys:
            self._layout = ANY

    def admit(self, key: Any) -> bool:
        """As `check` for one key; True when every key of exactly its class is right, whatever its parts."""
        if type(key) is tuple and (tuple, *map(type, key)) in self._shapes:
            return False  # the quick way to see the shape of a tuple of scalars
        shape = shape_of(key)
        if shape not in self._shapes:
            self._settle(self._layout_of(key), "a key")
            self._shapes.add(shape)
            if isinstance(shape, type):
                self._scalars.add(shape)
        return isinstance(shape, type) and key is not None

    def _layout_of(self, key: Any) -> KeyLayout:
        """Nobody sees of a key that it is co-partitioned: one of the right class is."""
        own, found = self._layout, layout_of(key)
        return own if own is not None and own.partitions is not None and own.name == found.name else found

    def _settle(self, layout: KeyLayout, what: str) -> None:
        if self._layout is None and layout.partitions is None:
            self._layout = layout
            return
        merged = None if self._layout is None else unify(self._layout, layout)
        if merged is None:
            raise InvalidError(
                f"{what} of type {layout} where keys are of type {self._layout or 'any, and not co-partitioned'}",
                remedy=_remedy(self._layout, layout),
                where=place(self._operator),
            )
        self._layout = merged


def _remedy(declared: KeyLayout | None, found: KeyLayout) -> str:
    if found.partitions is not None:
        return f"Say partitions={found.partitions.count} in key_by, as before, or give the operator another name."
    if declared is not None and declared.partitions is not None:
        return f"Co-partitioned keys are a {declared.name} each, as in the topic; or leave partitions= out of key_by."
    return "All keys of an operator have one type, which never changes: convert them in key_by."


class SubtaskCache:
    """The subtasks that have the groups of keys, remembered. For keys of one type only (`KeyChecker`): a dict takes 1
    and True for one key. Co-partitioned keys go nowhere and need none."""

    __slots__ = ("_known",)

    def __init__(self, parallelism: int, max_parallelism: int, limit: int = 100_000) -> None:
        self._known = _Known(parallelism, max_parallelism, limit)

    def subtasks(self, keys: list[Any]) -> list[SubtaskIndex]:
        """The subtask of each key. Raises InvalidError for what cannot be a key."""
        return list(map(self._known.__getitem__, keys))

    def __len__(self) -> int:
        return len(self._known)


class _Known(dict[Any, SubtaskIndex]):
    """Starts anew when full: that computes each key once more, while evicting would cost something at each look."""

    __slots__ = ("_limit", "_max_parallelism", "_parallelism")

    def __init__(self, parallelism: int, max_parallelism: int, limit: int) -> None:
        super().__init__()
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._limit = limit

    def __missing__(self, key: Any) -> SubtaskIndex:
        found = subtask_of(key_group(key, self._max_parallelism), self._parallelism, self._max_parallelism)
        if len(self) >= self._limit:
            self.clear()
        self[key] = found
        return found
