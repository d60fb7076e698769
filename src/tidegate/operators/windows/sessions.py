"""Sessions that give their result when they are complete: windows that grow with their records and become one when they
meet. Accumulators by key and window; what is kept of a session is gone when it takes no more records.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidegate.elements import Batch
from tidegate.event_time.windows import SessionWindows, TimeWindow, ending_at, meet
from tidegate.operators.context import OutputBuffer
from tidegate.operators.timers import Due
from tidegate.operators.windows.base import BaseWindowOperator
from tidegate.operators.windows.processing import OnProcessingTime
from tidegate.operators.windows.spec import WindowSpec


class SessionWindowOperator(BaseWindowOperator):
    """See the module."""

    def __init__(self, assigner: SessionWindows, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        """The state is asked once for all records of a key."""
        groups: dict[Any, list[int]] = {}
        for position, key in enumerate(keys):
            groups.setdefault(key, []).append(position)
        too_late: list[int] = []
        waiting = self._buffer()
        for key, positions in groups.items():
            yield from self._add(batch, waiting, key, positions, stamps, too_late)
        yield from waiting.take()
        if too_late:
            yield from self._set_aside(batch, sorted(too_late))

    def _add(
        self,
        batch: Batch,
        waiting: OutputBuffer,
        key: Any,
        positions: Sequence[int],
        stamps: Sequence[Any],
        too_late: list[int],
    ) -> Iterator[Batch]:
        """The records of one key at these `positions`."""
        self._backend.set_current_key(key)
        add, sessions = self._spec.adds[batch.input], sorted(self._accumulators.keys())
        before, gone, grown = frozenset(sessions), dict[TimeWindow, None](), dict[TimeWindow, Any]()
        for position in positions:
            window, met = meet(self._assigner.window_of(stamps[position]), sessions)
            if self._is_too_late(window):
                too_late.append(position)
                continue
            accumulator = None
            for one in sessions[met]:
                part = grown.pop(one) if one in grown else self._accumulators.get(one)
                accumulator = part if accumulator is None else self._merged(accumulator, part)
                if one != window:
                    gone[one] = None
            sessions[met] = [window]
            accumulator = self._spec.create() if accumulator is None else accumulator
            grown[window] = self._added(add, accumulator, batch.values[position])
            if window.max_timestamp <= self._watermark:
                yield from self._emit(waiting, key, window, grown[window], window.max_timestamp)
        self._replace(key, gone, [window for window in grown if window not in before], sessions)
        for window, accumulator in grown.items():
            self._accumulators.put(window, accumulator)

    def _replace(
        self, key: Any, gone: Iterable[TimeWindow], new: Iterable[TimeWindow], there: list[TimeWindow]
    ) -> None:
        """Sessions that are `new` have taken the place of those that are `gone`; `there`: all that there are now."""
        needed = [time for window in new for time in self._times(window)]
        for window in gone:
            self._accumulators.remove(window)
            for time in self._times(window):
                if time not in needed and not self._is_waited_for(time, there):
                    self._timers.delete(time, key)
        for time in needed:
            self._timers.register(time, key)

    def _is_waited_for(self, time: int, there: list[TimeWindow]) -> bool:
        """Whether a session that has not changed waits for that time of another: no two of them end alike."""
        return bool(self._spec.lateness) and any(time in self._times(one) for one in self._ending(time, there))

    def _times(self, window: TimeWindow) -> list[int]:
        """For which it waits: until it is complete, and until it is not needed any more."""
        until = window.max_timestamp + self._spec.lateness
        is_complete = window.max_timestamp <= self._watermark
        return [until] if is_complete or not self._spec.lateness else [window.max_timestamp, until]

    def _ending(self, time: int, sessions: list[TimeWindow]) -> list[TimeWindow]:
        """Those that are complete at that time or not needed any more, in order."""
        ends = dict.fromkeys((time + 1 - self._spec.lateness, time + 1))
        return [window for end in ends if (window := ending_at(end, sessions)) is not None]

    def _close(self, due: Iterable[Due]) -> Iterator[tuple[Any, TimeWindow, Any]]:
        for timestamp, key, _ in due:
            for window in self._ending(timestamp, sorted(self._accumulators.keys())):
                if window.max_timestamp == timestamp:
                    yield key, window, self._accumulators.get(window)
                if window.max_timestamp + self._spec.lateness == timestamp:
                    self._accumulators.remove(window)
                    self._removed(key, window)


class ProcessingTimeSessionWindowOperator(OnProcessingTime, SessionWindowOperator):
    """By the time at which records arrive."""
