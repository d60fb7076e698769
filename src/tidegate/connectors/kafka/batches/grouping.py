"""Records of one `send` by partition, in the order in which they were given. Pure."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tidegate.connectors.kafka.batches.building import Columns
from tidegate.connectors.kafka.batches.partitioning import Partitioner
from tidegate.connectors.kafka.client import Header


class Given(NamedTuple):
    """What `send` was given."""

    topic: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    partitions: Sequence[int] | None
    timestamps: Sequence[int] | None
    headers: Sequence[Sequence[Header] | None] | None


def grouped(given: Given, partitioner: Partitioner, wall: int) -> dict[int, Columns]:
    """`wall`: the time now, in milliseconds since 1970, of records that have none. Raises ValueError for columns of
    different lengths."""
    columns = Columns(given.values, given.keys, _times(given, wall), given.headers)
    for column in (columns.keys, columns.timestamps, columns.headers, given.partitions):
        if column is not None and len(column) != len(given.values):
            raise ValueError(f"a column of {len(column)} beside {len(given.values)} values")
    if given.partitions is not None:
        return _by_given(columns, given.partitions)
    if given.keys is None:
        return _by_ranges(columns, partitioner)
    if partitioner.count == 1:
        return {0: columns}
    return _by_partition(columns, partitioner.of(given.keys), partitioner.count)


def _times(given: Given, wall: int) -> Sequence[int]:
    if given.timestamps is None:
        return [wall] * len(given.values)
    return [time if time > 0 else wall for time in given.timestamps]


def _by_given(columns: Columns, partitions: Sequence[int]) -> dict[int, Columns]:
    if not partitions:
        return {}
    lowest, highest = min(partitions), max(partitions)
    if lowest < 0:
        raise ValueError(f"partition {lowest}")
    return {lowest: columns} if lowest == highest else _by_partition(columns, partitions, highest + 1)


def _by_ranges(columns: Columns, partitioner: Partitioner) -> dict[int, Columns]:
    found: dict[int, Columns] = {}
    begin = 0
    for number, length in partitioner.ranges(len(columns.values)):
        found[number] = _part(columns, slice(begin, begin + length))
        begin += length
    return found


def _part(columns: Columns, part: slice) -> Columns:
    cut: list[Any] = [None if column is None else column[part] for column in columns]
    return Columns(*cut)


def _by_partition(columns: Columns, partitions: Sequence[int], count: int) -> dict[int, Columns]:
    indexes: list[list[int]] = [[] for _ in range(count)]
    appends = [found.append for found in indexes]
    for index, number in enumerate(partitions):
        appends[number](index)
    return {number: _picked(columns, found) for number, found in enumerate(indexes) if found}


def _picked(columns: Columns, indexes: list[int]) -> Columns:
    if len(indexes) == 1:
        return _part(columns, slice(indexes[0], indexes[0] + 1))
    pick = itemgetter(*indexes)
    picked: list[Any] = [None if column is None else pick(column) for column in columns]
    return Columns(*picked)
