"""Timers on processing time and on event time: what user code registers for the current key, and how it is found when
it is due.

A timer is state of its key: a checkpoint holds it, rescaling moves it with its key, and what was due while nothing ran
fires soon after the restore. Beside that state only an index is kept in memory, made anew at every start, so that the
next timer is known without looking through all keys. Processing time comes from the operator's clock, event time from
the watermarks that come with the records; each has a state and an index of its own.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Literal

from tidegate.clock import Clock, Now
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import InvalidError
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState
from tidegate.state.keys import encode_key

PROCESSING_TIMERS: InternalMapState[int, bool] = InternalMapState(int, bool, name=".timers")
"""The times, in milliseconds since 1970, at which a key has a timer. The values mean nothing."""
EVENT_TIMERS: InternalMapState[int, bool] = InternalMapState(int, bool, name=".event-timers")
"""The same, of event time."""

TimeDomain = Literal["processing", "event"]
"""The two kinds of time (in Flink: TimeDomain)."""
Due = tuple[int, Any, int | None]
"""A timer that is taken: its time, its key, and the timestamp of what comes of it."""
_END_OF_TIME = 2**63
_MOST_STALE = 64
"""Times without a timer that the heap may hold, beside as many as have any."""


class Timers:
    """All timers of one operator of one subtask, and the watermark that it has come to."""

    def __init__(self, backend: KeyedStateBackend, watermark: int) -> None:
        self.processing = TimerQueue(backend, PROCESSING_TIMERS)
        self.event = TimerQueue(backend, EVENT_TIMERS)
        self.watermark = watermark

    def load(self) -> None:
        """Index what was restored. See `TimerQueue.load`."""
        self.processing.load()
        self.event.load()


class TimerService:
    """What `ctx.timer_service` is: the time of the machine's clock, event time, and timers of the current key (in
    Flink: TimerService).

    Times are whole milliseconds since 1970. A key has at most one timer for each time and kind of time: registering it
    again changes nothing. A timer fires once, not before its time, and as soon after it as the job is at it. Its
    `on_timer` is called between two records, with the timer's key. What is not due on processing time when the input
    ends does not fire; event time comes to its end with the input, and everything that waits for it fires.
    """

    def __init__(self, clock: Clock, timers: Timers | None, current_key: Callable[[], Any]) -> None:
        """For the engine."""
        self._clock = clock
        self._timers = timers
        self._current_key = current_key

    def current_processing_time(self) -> int:
        """Now, in milliseconds since 1970, by the clock of the machine that this subtask runs on."""
        return milliseconds(self._clock.now())

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer(timestamp, ctx)` for the current key when that time has come; at once when it is past.

        Raises InvalidError when the function has no `on_timer`, without a current key, and for what is no whole number.
        """
        self._checked("register", timestamp).processing.register(timestamp, self._current_key())

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Do not call it. Nothing happens when the current key has no timer for that time. Raises as registering."""
        self._checked("delete", timestamp).processing.delete(timestamp, self._current_key())

    def current_watermark(self) -> int:
        """How far event time has come, in milliseconds since 1970: records that are not newer are late. Very small
        before the first watermark, and always in a function without `on_timer`."""
        return MIN_WATERMARK if self._timers is None else self._timers.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer(timestamp, ctx)` for the current key when the watermark has come to that time; with the next
        watermark when it is past. Its outputs get the timestamp. Raises as `register_processing_time_timer`."""
        self._checked("register", timestamp).event.register(timestamp, self._current_key())

    def delete_event_time_timer(self, timestamp: int) -> None:
        """As `delete_processing_time_timer`."""
        self._checked("delete", timestamp).event.delete(timestamp, self._current_key())

    def _checked(self, doing: str, timestamp: object) -> Timers:
        if self._timers is None:
            raise InvalidError(
                f"a function without on_timer wants to {doing} a timer",
                remedy="Define on_timer(self, timestamp, ctx): it is called when the time has come.",
            )
        if type(timestamp) is not int or not -_END_OF_TIME <= timestamp < _END_OF_TIME:
            raise InvalidError(
                f"a function wants to {doing} a timer for {timestamp!r}",
                remedy="Give whole milliseconds since 1970: int(seconds * 1000).",
            )
        return self._timers


class TimerQueue:
    """All timers on one kind of time of one operator of one subtask, kept as `descriptor`. `backend` is restored.

    The index has the keys of each time together: a window that ends is one time for all of its keys. They are put in
    order when that time is due, by a heap, which can stop after any of them.
    """

    def __init__(self, backend: KeyedStateBackend, descriptor: InternalMapState[int, bool]) -> None:
        self._backend = backend
        self._name = descriptor.name
        self._state = backend.register(descriptor)
        self._timers: dict[int, dict[bytes, Any]] = {}
        """Every timer: by time and the key's canonical bytes the key. So equal times fire in the same order in every
        attempt."""
        self._times: list[int] = []
        """A heap of the times, and some that have no timer any more."""
        self._due: dict[int, list[bytes]] = {}
        """Of times at which some timers have fired, a heap of the others, and some that were deleted."""

    def load(self) -> None:
        """Index what was restored. Afterwards some key is the current one: call it when there need be none."""
        for key in list(self._backend.keys(self._name)):
            self._backend.set_current_key(key)
            encoded, times = encode_key(key), self._state.keys()
            for timestamp in times:
                self._timers.setdefault(timestamp, {})[encoded] = key
        self._rebuild()

    def clear(self) -> None:
        """Remove what was restored, instead of `load`, where nobody needs it any more."""
        for key in list(self._backend.keys(self._name)):
            self._backend.set_current_key(key)
            self._state.clear()

    @property
    def next(self) -> int | None:
        """When the earliest is due."""
        times = self._times
        while times and times[0] not in self._timers:
            heapq.heappop(times)
        return times[0] if times else None

    @property
    def last(self) -> int | None:
        """When the latest is due. Looks at all times."""
        return max(self._timers, default=None)

    def is_due(self, now: int) -> bool:
        """Whether there is one for that time or an earlier one."""
        due = self.next
        return due is not None and due <= now

    def register(self, timestamp: int, key: Any) -> None:
        """For `key`, which is the current one."""
        self._state.put(timestamp, True)
        encoded = encode_key(key)
        at_that_time = self._timers.get(timestamp)
        if at_that_time is None:
            self._timers[timestamp] = {encoded: key}
            heapq.heappush(self._times, timestamp)
        elif encoded not in at_that_time:
            at_that_time[encoded] = key
            if timestamp in self._due:
                heapq.heappush(self._due[timestamp], encoded)

    def delete(self, timestamp: int, key: Any) -> None:
        """For `key`, which is the current one."""
        self._state.remove(timestamp)
        at_that_time = self._timers.get(timestamp)
        if at_that_time is not None:
            at_that_time.pop(encode_key(key), None)
            if not at_that_time:
                self._forget(timestamp)
        if len(self._times) > 2 * len(self._timers) + _MOST_STALE:
            self._rebuild()

    def take_due(self, now: int, most: int, must_stop: Callable[[], bool], *, stamped: bool = False) -> Iterator[Due]:
        """Timers that are due at `now`, in order, at most `most`, until `must_stop`: each with its key, which is then
        the current one, and the timestamp of its outputs, which is its time when they are `stamped`. Whoever takes one
        fires it: it is gone."""
        set_current_key, remove, times = self._backend.set_current_key, self._state.remove, self._times
        left = most
        while left and (timestamp := self.next) is not None and timestamp <= now:
            at_that_time, due = self._timers[timestamp], self._due_at(timestamp)
            # Whoever gets a timer may register an earlier one, and delete others.
            while left and at_that_time and times[0] == timestamp:
                if left < most and must_stop():
                    return
                encoded = heapq.heappop(due)
                if encoded not in at_that_time:
                    continue
                left -= 1
                key = at_that_time.pop(encoded)
                if not at_that_time:
                    self._forget(timestamp)
                set_current_key(key)
                remove(timestamp)
                yield timestamp, key, timestamp if stamped else None

    def _due_at(self, timestamp: int) -> list[bytes]:
        due = self._due.get(timestamp)
        if due is None:
            due = self._due[timestamp] = list(self._timers[timestamp])
            heapq.heapify(due)
        return due

    def _forget(self, timestamp: int) -> None:
        """There is no timer for that time any more."""
        del self._timers[timestamp]
        self._due.pop(timestamp, None)

    def _rebuild(self) -> None:
        self._times[:] = self._timers
        heapq.heapify(self._times)


def milliseconds(now: Now) -> int:
    """Since 1970, whole: what timers on processing time are compared with."""
    return int(now.wall * 1000)
