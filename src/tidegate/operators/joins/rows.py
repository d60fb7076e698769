"""The rows of one side of a join, in the order of their timestamps, as state of their key.

Every row is an entry of a map: a row more or less is one small write, and rows are never rewritten for each other's
sake. The maps of a state backend have no order, so the places of a key's rows are sorted in memory. That order is only
an index over the state: it is made from it when a key is used, and it may be forgotten between any two keys. Nothing
here knows watermarks or decides what is kept.
"""

from bisect import bisect_left
from typing import Any

from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState

Place = tuple[int, int]
"""Of a row: its timestamp in milliseconds since 1970, and its number among those of the same time, in the order in
which they came."""
MOST_PLACES = 100_000
"""How many places a side keeps in memory, over all keys, beside those of the key in use."""


class TimedRows:
    """Rows of one subtask, kept as `descriptor`. All calls mean the key that `use` was last called with."""

    def __init__(self, backend: KeyedStateBackend, descriptor: InternalMapState[Place, Any]) -> None:
        self._state = backend.register(descriptor)
        self._orders: dict[Any, list[Place]] = {}
        """Places by key, sorted; the key that was used last is the last."""
        self._held = 0
        """How many places these are, with one more for each key."""
        self._order: list[Place] = []

    def use(self, key: Any) -> None:
        """From now on `key`, which is the current one of the backend, too."""
        order = self._orders.pop(key, None)
        if order is None:
            order = sorted(self._state.keys())
            self._held += len(order) + 1
            self._forget()
        self._orders[key] = self._order = order

    def _forget(self) -> None:
        """The orders of keys that were not used for longest, as far as there are too many."""
        while self._held > MOST_PLACES and self._orders:
            self._held -= len(self._orders.pop(next(iter(self._orders)))) + 1

    def add(self, timestamp: int, row: Any) -> None:
        """One more row, behind those of the same time."""
        position = self._position(timestamp + 1)
        before = self._order[position - 1] if position else None
        number = before[1] + 1 if before is not None and before[0] == timestamp else 0
        self._insert(position, (timestamp, number), row)

    def replace(self, timestamp: int, row: Any) -> None:
        """The only row of its time."""
        place, position = (timestamp, 0), self._position(timestamp)
        if position < len(self._order) and self._order[position] == place:
            self._state.put(place, row)
        else:
            self._insert(position, place, row)

    def _insert(self, position: int, place: Place, row: Any) -> None:
        self._state.put(place, row)
        self._order.insert(position, place)
        self._held += 1

    def between(self, first: int, last: int) -> list[Place]:
        """Of the rows with timestamps from `first` to `last`, both included, in order."""
        return self._order[self._position(first) : self._position(last + 1)]

    def until(self, last: int) -> list[Place]:
        """Of the rows with timestamps up to `last`, included, in order."""
        return self._order[: self._position(last + 1)]

    def newest(self, last: int) -> Place | None:
        """Of the row with the highest timestamp up to `last`, included."""
        position = self._position(last + 1)
        return self._order[position - 1] if position else None

    def get(self, place: Place) -> Any:
        """The row there, which is there."""
        return self._state.get(place)

    def remove(self, places: list[Place]) -> None:
        """These, which follow each other and are there."""
        if places:
            position = bisect_left(self._order, places[0])
            del self._order[position : position + len(places)]
            self._held -= len(places)
            for place in places:
                self._state.remove(place)

    def _position(self, timestamp: int) -> int:
        """Where in the order the rows from `timestamp` on begin."""
        return bisect_left(self._order, (timestamp, 0))
