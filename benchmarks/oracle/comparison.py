"""Rows of two systems beside each other, as multisets: in which order they came says nothing, how often each does."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Row = tuple[Any, ...]
PAIR = "pair"
"""What the row of a join begins with; then come name and time of the flight, time and airport of the report."""


class Difference(NamedTuple):
    """What one has and the other has not, with how often; both empty when they are the same."""

    only_flink: Counter[Row]
    only_tidegate: Counter[Row]

    def __bool__(self) -> bool:
        return bool(self.only_flink or self.only_tidegate)

    @property
    def rows(self) -> int:
        return self.only_flink.total() + self.only_tidegate.total()

    def told(self, most: int = 5) -> list[str]:
        """The first few of each, a line each."""
        return [
            f"only {who}{f', {times} times' if times > 1 else ''}: {msgspec.json.encode(row).decode()}"
            for who, rows in (("Flink", self.only_flink), ("Tidegate", self.only_tidegate))
            for row, times in sorted(rows.items(), key=repr)[:most]
        ]


def compare(flink: Iterable[Row], tidegate: Iterable[Row]) -> Difference:
    """Numbers are equal when they are the same double."""
    expected, found = Counter(flink), Counter(tidegate)
    return Difference(expected - found, found - expected)


def without_explained(difference: Difference, kind: str) -> Difference:
    """What is left of `difference` when Tidegate's rows that begin with `kind` explain it: they are of records that
    Tidegate takes for late and Flink joins. So Flink's pairs with such a record are explained, and Tidegate's of the
    same flights. Nothing is when `kind` is empty."""
    late = {row[1:] for row in difference.only_tidegate if kind and row[0] == kind}
    pairs = [pair for pair in difference.only_flink if _flight(pair) in late or _report(pair) in late]
    flights = {_flight(pair) for pair in pairs}
    others = [
        row for row in difference.only_tidegate if row[1:] in late or (row[0] == PAIR and _flight(row) in flights)
    ]
    return Difference(
        Counter({row: times for row, times in difference.only_flink.items() if row not in set(pairs)}),
        Counter({row: times for row, times in difference.only_tidegate.items() if row not in set(others)}),
    )


def _flight(pair: Row) -> Row:
    """Name and time."""
    return pair[1:3]


def _report(pair: Row) -> Row:
    """Airport and time."""
    return (pair[4], pair[3]) if pair[0] == PAIR else ()


def read_rows(path: Path) -> list[Row]:
    """Of a file with an array of JSON in each line."""
    return [row_of(line) for line in path.read_bytes().splitlines()]


def row_of(line: bytes) -> Row:
    return msgspec.json.decode(line, type=tuple)
