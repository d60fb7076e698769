"""The interval join: each row with every row of the other stream whose timestamp is near enough to its own.

A row finds those that came before it, and is kept for those that come after it until the watermark says that none can.
Which rows match depends on their timestamps alone: of all rows of one time either each has a match or none, and one
mark for all of them says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidegate.operators.joins.base import JoinOperator, JoinSpec, Pair
from tidegate.operators.joins.rows import Place, TimedRows
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState

Rows = InternalMapState[Place, Any]
Matched = InternalMapState[int, bool]
"""Timestamps of rows that are kept and have had a match. The values mean nothing."""


class IntervalJoinOperator(JoinOperator):
    """A right row matches a left one when its timestamp is from `lower` to `upper` milliseconds after the left one's,
    both included. rows, matched: by input, its states; without `matched` where a row alone gives nothing."""

    def __init__(
        self, spec: JoinSpec, lower: int, upper: int, rows: Sequence[Rows], matched: Sequence[Matched | None]
    ) -> None:
        super().__init__(spec)
        self._reaches = (lower, upper), (-upper, -lower)
        self._rows = rows
        self._matched = matched

    def _register(self) -> None:
        states = zip(self._rows, self._matched, self._reaches, strict=True)
        self._sides = [_Side(self._backend, rows, matched, *reach) for rows, matched, reach in states]

    def _use(self, key: Any) -> None:
        for side in self._sides:
            side.rows.use(key)

    def _arrived(self, input: int, key: Any, timestamp: int, row: Any) -> Iterable[Pair] | None:
        if timestamp <= self._watermark:
            return None
        side, other = self._sides[input], self._sides[1 - input]
        found = other.rows.between(timestamp + side.first, timestamp + side.last)
        other.mark(place[0] for place in found)
        certain_at = timestamp + side.last
        if certain_at <= self._watermark:
            return self._pairs(input, timestamp, row, found, is_alone=not found and self._spec.keeps[input])
        side.rows.add(timestamp, row)
        self._timers.register(certain_at, key)
        if not found:
            return ()
        side.mark((timestamp,))
        return self._pairs(input, timestamp, row, found, is_alone=False)

    def _pairs(self, input: int, timestamp: int, row: Any, found: Sequence[Place], is_alone: bool) -> Iterator[Pair]:
        """Of a row that comes: with those that were there, or alone."""
        other = self._sides[1 - input].rows
        for place in found:
            yield _pair(input, row, other.get(place), max(timestamp, place[0]))
        if is_alone:
            yield _pair(input, row, None, timestamp)

    def _due(self, timestamp: int) -> Iterator[Pair]:
        for input, side in enumerate(self._sides):
            at = timestamp - side.last
            places = side.rows.between(at, at)
            if places and self._spec.keeps[input] and not side.is_matched(at):
                for place in places:
                    yield _pair(input, side.rows.get(place), None, max(at, timestamp))
            side.remove(at, places)


class _Side:
    """Rows of one input. Those of the other one that match them are from `first` to `last` milliseconds after them."""

    def __init__(self, backend: KeyedStateBackend, rows: Rows, matched: Matched | None, first: int, last: int) -> None:
        self.rows = TimedRows(backend, rows)
        self.first = first
        self.last = last
        self._matched = None if matched is None else backend.register(matched)

    def mark(self, timestamps: Iterable[int]) -> None:
        """Rows of these times have a match."""
        if self._matched is not None:
            for timestamp in timestamps:
                if timestamp not in self._matched:
                    self._matched.put(timestamp, True)

    def is_matched(self, timestamp: int) -> bool:
        return self._matched is not None and timestamp in self._matched

    def remove(self, timestamp: int, places: list[Place]) -> None:
        """The rows of one time, which are at `places`, and what is known of them."""
        self.rows.remove(places)
        if self._matched is not None:
            self._matched.remove(timestamp)


def _pair(input: int, row: Any, match: Any, timestamp: int) -> Pair:
    return (match, row, timestamp) if input else (row, match, timestamp)
