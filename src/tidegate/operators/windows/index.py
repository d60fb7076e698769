"""Which keys wait for which time: made of the accumulators that there are, and kept in memory alone.

Windows that are cut by time alone need no timers in the state: an accumulator says by the bounds of its pane what it
waits for. So all keys of a window are one time here, which costs each of them one entry of a dict, and nothing at a
checkpoint. Whoever registers a time says one that has not come yet: times that have come are only taken.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tidegate.operators.timers import Due
from tidegate.state.keys import encode_key

_SORTED_AT_ONCE = 16_384
"""Keys that are put in order before somebody is asked whether to stop: some milliseconds."""


class _InOrder:
    """The keys of a time that has come, in the order of their canonical bytes."""

    __slots__ = ("_keys", "_order", "_runs", "_unsorted", "is_sorted", "left")

    def __init__(self, keys: dict[Any, None]) -> None:
        self.left = len(keys)
        """How many are not taken."""
        self.is_sorted = False
        self._unsorted: Iterator[Any] = iter(keys)
        self._runs: list[list[Any]] = []
        self._order: Callable[[Any], bytes] | None = None
        self._keys: Iterator[Any] = iter(())

    def sort_some(self) -> bool:
        """Sort some more. Whether all of them are sorted then."""
        run = list(islice(self._unsorted, _SORTED_AT_ONCE))
        if set(map(type, run)) != {str}:
            # Texts are in the order of their bytes: runs of such are sorted in any case.
            self._order = encode_key
        run.sort(key=self._order)
        self._runs.append(run)
        self.is_sorted = len(self._runs) * _SORTED_AT_ONCE >= self.left
        if self.is_sorted:
            self._keys = iter(run) if len(self._runs) == 1 else heapq.merge(*self._runs, key=self._order)
        return self.is_sorted

    def take(self, most: int) -> list[Any]:
        """The next, when all are sorted."""
        taken = list(islice(self._keys, most))
        self.left -= len(taken)
        return taken


class WindowIndex:
    """See the module. `set_current_key`: of the backend."""

    def __init__(self, set_current_key: Callable[[Any], object]) -> None:
        self._set_current_key = set_current_key
        self._waiting: dict[int, dict[Any, None]] = {}
        """Keys by time, each time's in the order in which they came."""
        self._times: list[int] = []
        """A heap of these times."""
        self._due: _InOrder | None = None
        """The keys of the first time, once it has come."""

    @property
    def next(self) -> int | None:
        """The earliest time that a key waits for."""
        return self._times[0] if self._times else None

    def is_due(self, now: int) -> bool:
        """Whether there is one for that time or an earlier one."""
        return bool(self._times) and self._times[0] <= now

    def waiting_at(self, time: int) -> dict[Any, None]:
        """The keys that wait for `time`, to be added to at once: no time is without a key."""
        waiting = self._waiting.get(time)
        if waiting is None:
            waiting = self._waiting[time] = {}
            heapq.heappush(self._times, time)
        return waiting

    def take_due(self, now: int, most: int, must_stop: Callable[[], bool]) -> Iterator[Due]:
        """As `TimerQueue.take_due`."""
        left, is_first = most, True
        while left and self.is_due(now) and (is_first or not must_stop()):
            is_first = False
            time, keys = self.take(1)
            for key in keys:
                left -= 1
                self._set_current_key(key)
                yield time, key, None

    def take(self, most: int) -> tuple[int, list[Any]]:
        """The next time, and the next of its keys, at most `most`, in the order of their canonical bytes. They wait for
        it no more. Where there are very many it takes several calls to sort them, which give none."""
        time = self._times[0]
        if self._due is None:
            self._due = _InOrder(self._waiting[time])
        if not self._due.is_sorted and not self._due.sort_some():
            return time, []
        keys = self._due.take(most)
        if not self._due.left:
            self._due = None
            heapq.heappop(self._times)
            del self._waiting[time]
        return time, keys
