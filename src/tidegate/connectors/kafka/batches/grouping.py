"""Records of one `send` by partition, in the order in which they were given. Pure."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tidegate.connectors.kafka.batches.partitioning import Partitioner
from tidegate.connectors.kafka.batches.writers import Columns
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
    columns = _Untimed(given.values, given.keys, _times(given.timestamps, wall), given.headers)
    for column in (*columns[1:], given.partitions):
        if column is not None and len(column) != len(given.values):
            raise ValueError(f"a column of {len(column)} beside {len(given.values)} values")
    return {number: _timed(part, wall) for number, part in _parts(given, columns, partitioner).items()}


class _Untimed(NamedTuple):
    """As `Columns`; without timestamps, all records have the time now."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps: Sequence[int] | None
    headers: Sequence[Sequence[Header] | None] | None


def _times(timestamps: Sequence[int] | None, wall: int) -> Sequence[int] | None:
    if not timestamps or min(timestamps) > 0:
        return timestamps
    return [time if time > 0 else wall for time in timestamps]


def _timed(part: _Untimed, wall: int) -> Columns:
    times = [wall] * len(part.values) if part.timestamps is None else part.timestamps
    return Columns(part.values, part.keys, times, part.headers)


def _parts(given: Given, columns: _Untimed, partitioner: Partitioner) -> dict[int, _Untimed]:
    if given.partitions is not None:
        return _by_given(columns, given.partitions)
    if given.keys is None:
        return _by_ranges(columns, partitioner)
    if partitioner.count == 1:
        return {0: columns}
    return _by_partition(columns, partitioner.of(given.keys), partitioner.count)


def _by_given(columns: _Untimed, partitions: Sequence[int]) -> dict[int, _Untimed]:
    if not partitions:
        return {}
    lowest, highest = min(partitions), max(partitions)
    if lowest < 0:
        raise ValueError(f"partition {lowest}")
    return _by_partition(columns, partitions, highest + 1)


def _by_ranges(columns: _Untimed, partitioner: Partitioner) -> dict[int, _Untimed]:
    found: dict[int, _Untimed] = {}
    begin = 0
    for number, length in partitioner.ranges(len(columns.values)):
        found[number] = _part(columns, slice(begin, begin + length))
        begin += length
    return found


def _part(columns: _Untimed, part: slice) -> _Untimed:
    cut: list[Any] = [None if column is None else column[part] for column in columns]
    return _Untimed(*cut)


def _by_partition(columns: _Untimed, partitions: Sequence[int], count: int) -> dict[int, _Untimed]:
    """All in one is what a job brings that keeps the keys of its input: then nothing is taken apart."""
    if partitions and partitions.count(partitions[0]) == len(partitions):
        return {partitions[0]: columns}
    indexes: list[list[int]] = [[] for _ in range(count)]
    for index, number in enumerate(partitions):
        indexes[number].append(index)
    return {number: _picked(columns, found) for number, found in enumerate(indexes) if found}


def _picked(columns: _Untimed, indexes: list[int]) -> _Untimed:
    if len(indexes) == 1:
        return _part(columns, slice(indexes[0], indexes[0] + 1))
    pick = itemgetter(*indexes)
    picked: list[Any] = [None if column is None else pick(column) for column in columns]
    return _Untimed(*picked)
