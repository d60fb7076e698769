"""The windows of one key that have a trigger, as they are while records of a batch are added: read from the state once,
and written back when the batch is done.

A window is there from its first record to its clean-up, whether it has an accumulator or not: a purge must not make a
session forget its bounds. The timers of a key are those of all its windows together.
"""

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from tidegate.event_time.triggers import Trigger
from tidegate.operators.timers import TimeDomain, TimerQueue
from tidegate.operators.windows.spec import Accumulators
from tidegate.state.descriptors import InternalMapState
from tidegate.state.handles import MapHandle


def trigger_state(window_type: type, trigger: Trigger, name: str) -> InternalMapState[Any, Any]:
    """What is kept of each window beside its accumulator: the trigger's state and both kinds of timers."""
    times = tuple[int, ...]
    return InternalMapState(window_type, GenericAlias(tuple, (trigger.state_type, times, times)), name=name)


class OpenWindow:
    """One of them, and what of it is to be written."""

    __slots__ = ("accumulator", "has_changed", "has_other_timers", "state", "timers")

    def __init__(self, accumulator: Any, state: Any, timers: dict[TimeDomain, tuple[int, ...]], is_new: bool) -> None:
        self.accumulator = accumulator
        """None when the window has no records, or has forgotten them."""
        self.state = state
        self.timers = timers
        self.has_changed = is_new
        self.has_other_timers = is_new

    def add_timer(self, domain: TimeDomain, timestamp: int) -> None:
        if timestamp not in self.timers[domain]:
            self._set_timers(domain, (*self.timers[domain], timestamp))

    def remove_timer(self, domain: TimeDomain, timestamp: int) -> bool:
        """False when there is none for that time."""
        there = timestamp in self.timers[domain]
        if there:
            self._set_timers(domain, tuple(time for time in self.timers[domain] if time != timestamp))
        return there

    def _set_timers(self, domain: TimeDomain, times: tuple[int, ...]) -> None:
        self.timers[domain] = times
        self.has_changed = self.has_other_timers = True


class KeyWindows:
    """See the module. Read of the current key. cleanup(window): when a window goes, by which kind of time; None when no
    time makes it go."""

    __slots__ = ("_accumulators", "_cleanup", "_kept", "_stored", "_taken", "open")

    def __init__(
        self,
        accumulators: Accumulators,
        kept: MapHandle[Any, Any],
        cleanup: Callable[[Any], tuple[TimeDomain, int] | None],
    ) -> None:
        self._accumulators = accumulators
        self._kept = kept
        self._cleanup = cleanup
        self._stored = dict(kept.items())
        self._taken: tuple[TimeDomain, int] | None = None
        there = dict(accumulators.items())
        self.open: dict[Any, OpenWindow] = {
            window: OpenWindow(there.get(window), state, {"event": event, "processing": processing}, is_new=False)
            for window, (state, event, processing) in self._stored.items()
        }

    def taken(self, domain: TimeDomain, timestamp: int) -> None:
        """This timer of the key is not registered any more."""
        self._taken = domain, timestamp

    def store(self, key: Any, queues: dict[TimeDomain, TimerQueue]) -> None:
        """Write what has changed. The key is the current one."""
        gone = [window for window in self._stored if window not in self.open]
        for window in gone:
            self._kept.remove(window)
            self._accumulators.remove(window)
        for window, one in self.open.items():
            if one.has_changed:
                self._write(window, one)
        if gone or self._taken is not None or any(one.has_other_timers for one in self.open.values()):
            for place, (domain, queue) in enumerate(queues.items(), start=1):
                registered = self._times(domain, {window: kept[place] for window, kept in self._stored.items()})
                if self._taken is not None and self._taken[0] == domain:
                    registered.pop(self._taken[1], None)
                needed = self._times(domain, {window: one.timers[domain] for window, one in self.open.items()})
                self._set(queue, key, registered, needed)

    def _write(self, window: Any, one: OpenWindow) -> None:
        self._kept.put(window, (one.state, one.timers["event"], one.timers["processing"]))
        if one.accumulator is None:
            self._accumulators.remove(window)
        else:
            self._accumulators.put(window, one.accumulator)

    @staticmethod
    def _set(queue: TimerQueue, key: Any, registered: dict[int, None], needed: dict[int, None]) -> None:
        for timestamp in registered:
            if timestamp not in needed:
                queue.delete(timestamp, key)
        for timestamp in needed:
            if timestamp not in registered:
                queue.register(timestamp, key)

    def _times(self, domain: TimeDomain, timers: dict[Any, tuple[int, ...]]) -> dict[int, None]:
        """The timers of all windows together. A dict for its order."""
        times = dict.fromkeys(timestamp for found in timers.values() for timestamp in found)
        for window in timers:
            cleanup = self._cleanup(window)
            if cleanup is not None and cleanup[0] == domain:
                times[cleanup[1]] = None
        return times
