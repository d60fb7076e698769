"""Which keys wait for which time: made of the accumulators that there are, and kept in memory alone.

Windows that are cut by time alone need no timers in the state: an accumulator says by the bounds of its pane what it
waits for. So all keys of a window are one time here, which costs each of them one entry of a dict, and nothing at a
checkpoint. Whoever registers a time says one that has not come yet: times that have come are only taken.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegate.operators.timers import Due
from tidegate.state.keys import encode_key


class WindowIndex:
    """See the module. `set_current_key`: of the backend."""

    def __init__(self, set_current_key: Callable[[Any], object]) -> None:
        self._set_current_key = set_current_key
        self._waiting: dict[int, dict[Any, None]] = {}
        """Keys by time, each time's in the order in which they came."""
        self._times: list[int] = []
        """A heap of these times."""
        self._due: list[Any] = []
        """Of the first time, once it has come, the keys that are left, the last one first."""

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
        left = most
        while left and self.is_due(now):
            if left < most and must_stop():
                return
            left -= 1
            time, (key,) = self.take(1)
            self._set_current_key(key)
            yield time, key, None

    def take(self, most: int) -> tuple[int, list[Any]]:
        """The next time, and the next of its keys, at most `most`, in the order of their canonical bytes. They wait for
        it no more."""
        time, due = self._times[0], self._due
        if not due:
            due += in_order(self._waiting[time])
            due.reverse()
        keys = due[: -most - 1 : -1]
        del due[-most:]
        if not due:
            heapq.heappop(self._times)
            del self._waiting[time]
        return time, keys


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Sorted by their canonical bytes. Those of texts are in the order of the texts."""
    there = list(keys)
    return sorted(there) if set(map(type, there)) == {str} else sorted(there, key=encode_key)
