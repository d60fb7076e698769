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


class WindowIndex:
    """See the module. `set_current_key`: of the backend."""

    def __init__(self, set_current_key: Callable[[Any], object]) -> None:
        self._set_current_key = set_current_key
        self._waiting: dict[int, dict[Any, None]] = {}
        """Keys by time, each time's in the order in which they came."""
        self._times: list[int] = []
        """A heap of these times."""
        self._unsorted: Iterator[Any] | None = None
        """Of the first time, once it has come, keys that are not sorted yet."""
        self._runs: list[list[Any]] = []
        """Those that are, so many at a time."""
        self._order: Callable[[Any], bytes] | None = None
        self._due: Iterator[Any] | None = None
        """The runs together, when all keys are sorted, as far as they are not taken."""
        self._left = 0
        """How many of them are not."""

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
            self._sort_some(self._waiting[time])
            if self._due is None:
                return time, []
        keys = list(islice(self._due, most))
        self._left -= len(keys)
        if not self._left:
            self._due = None
            heapq.heappop(self._times)
            del self._waiting[time]
        return time, keys

    def _sort_some(self, waiting: dict[Any, None]) -> None:
        if self._unsorted is None:
            self._unsorted, self._left, self._order = iter(waiting), len(waiting), None
        run = list(islice(self._unsorted, _SORTED_AT_ONCE))
        if set(map(type, run)) != {str}:
            # Texts are in the order of their bytes: runs of such are sorted in any case.
            self._order = encode_key
        run.sort(key=self._order)
        self._runs.append(run)
        if len(self._runs) * _SORTED_AT_ONCE >= self._left:
            self._due = iter(run) if len(self._runs) == 1 else heapq.merge(*self._runs, key=self._order)
            self._unsorted, self._runs = None, []
