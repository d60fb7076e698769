"""Timers on processing time: what user code registers for the current key, and how it is found when it is due.

A timer is state of its key: a checkpoint holds it, rescaling moves it with its key, and what was due while nothing ran
fires soon after the restore. Beside that state only an index is kept in memory, made anew at every start, so that the
next timer is known without looking through all keys. Time comes from the operator's clock and from nowhere else.

Timers on event time will have a state and an index of their own here, and fire when the watermark has passed them.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.clock import Clock, Now
from tidegate.errors import InvalidError
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState
from tidegate.state.keys import encode_key

PROCESSING_TIMERS: InternalMapState[int, bool] = InternalMapState(int, bool, name=".timers")
"""The times, in milliseconds since 1970, at which a key has a timer. The values mean nothing."""

Entry = tuple[int, bytes]
"""When, and the key as canonical bytes: so equal times fire in the same order in every attempt."""
_END_OF_TIME = 2**63
_MOST_STALE = 64
"""Entries of deleted timers that the heap may hold, beside as many as there are timers."""


class TimerService:
    """What `ctx.timer_service` is: the time of the machine's clock, and timers of the current key (in Flink:
    TimerService).

    Times are whole milliseconds since 1970. A key has at most one timer for each time: registering it again changes
    nothing. A timer fires once, not before its time, and as soon after it as the job is at it. Its `on_timer` is called
    between two records, with the timer's key. What is not due when the input ends does not fire.
    """

    def __init__(self, clock: Clock, queue: "TimerQueue | None", current_key: Callable[[], Any]) -> None:
        """For the engine."""
        self._clock = clock
        self._queue = queue
        self._current_key = current_key

    def current_processing_time(self) -> int:
        """Now, in milliseconds since 1970, by the clock of the machine that this subtask runs on."""
        return milliseconds(self._clock.now())

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer(timestamp, ctx)` for the current key when that time has come; at once when it is past.

        Raises InvalidError when the function has no `on_timer`, without a current key, and for what is no whole number.
        """
        self._timers("register", timestamp).register(timestamp, self._current_key())

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Do not call it. Nothing happens when the current key has no timer for that time. Raises as registering."""
        self._timers("delete", timestamp).delete(timestamp, self._current_key())

    def _timers(self, doing: str, timestamp: object) -> "TimerQueue":
        if self._queue is None:
            raise InvalidError(
                f"a function without on_timer wants to {doing} a timer",
                remedy="Define on_timer(self, timestamp, ctx): it is called when the time has come.",
            )
        if type(timestamp) is not int or not -_END_OF_TIME <= timestamp < _END_OF_TIME:
            raise InvalidError(
                f"a function wants to {doing} a timer for {timestamp!r}",
                remedy="Give whole milliseconds since 1970: int(seconds * 1000).",
            )
        return self._queue


class TimerQueue:
    """All timers on processing time of one operator of one subtask. `backend` is restored."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._state = backend.register(PROCESSING_TIMERS)
        self._timers: dict[Entry, Any] = {}
        """Every timer, with its key."""
        self._heap: list[Entry] = []
        """The same, and some that were deleted."""

    def load(self) -> None:
        """Index what was restored. Afterwards some key is the current one: call it when there need be none."""
        for key in list(self._backend.keys(PROCESSING_TIMERS.name)):
            self._backend.set_current_key(key)
            encoded, times = encode_key(key), self._state.keys()
            self._timers.update({(timestamp, encoded): key for timestamp in times})
        self._rebuild()

    @property
    def next(self) -> int | None:
        """When the earliest is due."""
        heap = self._heap
        while heap and heap[0] not in self._timers:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def register(self, timestamp: int, key: Any) -> None:
        """For `key`, which is the current one."""
        self._state.put(timestamp, True)
        entry = (timestamp, encode_key(key))
        if entry not in self._timers:
            self._timers[entry] = key
            heapq.heappush(self._heap, entry)

    def delete(self, timestamp: int, key: Any) -> None:
        """For `key`, which is the current one."""
        self._state.remove(timestamp)
        self._timers.pop((timestamp, encode_key(key)), None)
        if len(self._heap) > 2 * len(self._timers) + _MOST_STALE:
            self._rebuild()

    def take_due(self, now: int, most: int, must_stop: Callable[[], bool]) -> Iterator[tuple[int, Any, None]]:
        """Timers that are due at `now`, in order, at most `most`, until `must_stop`: each with its key, which is then
        the current one, and without a timestamp for its outputs. Whoever takes one fires it: it is gone."""
        for number in range(most):
            if number and must_stop():
                return
            timestamp = self.next
            if timestamp is None or timestamp > now:
                return
            key = self._timers.pop(heapq.heappop(self._heap))
            self._backend.set_current_key(key)
            self._state.remove(timestamp)
            yield timestamp, key, None

    def _rebuild(self) -> None:
        self._heap = list(self._timers)
        heapq.heapify(self._heap)


def milliseconds(now: Now) -> int:
    """Since 1970, whole: what timers on processing time are compared with."""
    return int(now.wall * 1000)
