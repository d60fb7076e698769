"""Windows in event time: accumulators by key and pane, put together and emitted when the watermark has passed a window.

A record is added to one pane, however many windows that is part of. What a window emits is made when it is complete,
and once more for each record that comes late but within the allowed lateness. Then its panes are removed: the state
holds windows that may still get records, and nothing else. Records that are too late go to a side output, or are
counted and dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.event_time.windows import EventTimeSessionWindows, TimeWindow, WindowAssigner, cover
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of, keys_of
from tidegate.operators.timers import EVENT_TIMERS, TimerQueue
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.state.descriptors import InternalMapState

Emit = Callable[[Any, TimeWindow, Any], Iterable[Any]]
"""Key, window and accumulator to output records. It must not change the accumulator."""


@dataclass(frozen=True)
class WindowSpec:
    """What a window operator does with the records of a window."""

    state: InternalMapState[TimeWindow, Any]
    """Accumulators by the bounds of their pane."""
    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    """Accumulator and record to accumulator; may change the first."""
    merge: Callable[[Any, Any], Any]
    """Two accumulators to one; may change the first."""
    emit: Emit
    lateness: int
    """Milliseconds for which a window that has been emitted still takes records."""
    late_tag: str | None


class _WindowOperator:
    """What both kinds have in common."""

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self.records_skipped = 0
        """Records that were too late for every window, where they do not go to a side output."""

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._backend = backend_of(context)
        self._panes = self._backend.register(self._spec.state)
        self._timers = TimerQueue(self._backend, EVENT_TIMERS)
        self._timers.load()
        self._watermark = context.watermark

    def process(self, batch: Batch) -> Iterator[Batch]:
        stamps = batch.timestamps
        if stamps is None:
            raise InvalidError(
                f"records without timestamps came to the windows of operator {self._operator.operator}",
                remedy="Give their source, or the stream, a watermark strategy.",
            )
        return self._process(batch, keys_of(batch, self._operator), stamps)

    def _process(self, batch: Batch, keys: list[Any], stamps: list[int]) -> Iterator[Batch]:
        raise NotImplementedError

    def _close(self, key: Any, timestamp: int) -> Iterable[tuple[TimeWindow, Any]]:
        """A timer of the current key: the windows that are complete at this time, with accumulators. What is not needed
        any more is removed when the last was taken."""
        raise NotImplementedError

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._watermark = max(self._watermark, watermark)
        due = self._timers.next
        return None if due is None or due > self._watermark else self._fire(must_stop)

    def _fire(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        waiting = OutputBuffer((), timed=True)
        for timestamp, key, _ in self._timers.take_due(self._watermark, self._operator.batch_size, must_stop):
            for window, accumulator in self._close(key, timestamp):
                yield from self._emit(waiting, key, window, accumulator)
        yield from waiting.take()

    def _emit(self, waiting: OutputBuffer, key: Any, window: TimeWindow, accumulator: Any) -> Iterator[Batch]:
        try:
            for value in self._spec.emit(key, window, accumulator):
                waiting.main.values.append(value)
                waiting.stamp(window.max_timestamp)
                if len(waiting.main) >= self._operator.batch_size:
                    yield from waiting.take()
        except Exception as error:
            raise_user_error(error, self._operator, f"on window {describe(window)} of key {describe(key)}")

    def _added(self, accumulator: Any, value: Any) -> Any:
        try:
            return self._spec.add(accumulator, value)
        except Exception as error:
            raise_user_error(error, self._operator, f"on record {describe(value)}")

    def _merged(self, one: Any, other: Any) -> Any:
        try:
            return self._spec.merge(one, other)
        except Exception as error:
            raise_user_error(error, self._operator, f"when merging accumulator {describe(other)}")

    def _set_aside(self, batch: Batch, positions: Sequence[int]) -> list[Batch]:
        """Records that are too late."""
        if self._spec.late_tag is None:
            self.records_skipped += len(positions)
            return []
        assert batch.timestamps is not None
        values, stamps = batch.values, batch.timestamps
        picked = [values[i] for i in positions], [stamps[i] for i in positions]
        return [Batch(picked[0], None, picked[1], self._spec.late_tag)]

    def _wait_for(self, window: TimeWindow, key: Any) -> None:
        """Until it is complete, and until it is not needed any more."""
        if window.max_timestamp > self._watermark:
            self._timers.register(window.max_timestamp, key)
        if self._spec.lateness:
            self._timers.register(window.max_timestamp + self._spec.lateness, key)

    def _is_too_late(self, window: TimeWindow) -> bool:
        return window.max_timestamp + self._spec.lateness <= self._watermark

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""


class WindowOperator(_WindowOperator):
    """Windows whose bounds depend on timestamps alone."""

    def __init__(self, assigner: WindowAssigner, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner

    def _process(self, batch: Batch, keys: list[Any], stamps: list[int]) -> Iterator[Batch]:
        """Records of one key and pane are added together: the state is asked once for all of them."""
        groups: dict[tuple[Any, TimeWindow], list[int]] = {}
        for position, (key, pane) in enumerate(zip(keys, map(self._assigner.pane_of, stamps), strict=True)):
            groups.setdefault((key, pane), []).append(position)
        too_late: list[int] = []
        waiting = OutputBuffer((), timed=True)
        for (key, pane), positions in groups.items():
            windows = self._assigner.windows_of(pane)
            if self._is_too_late(windows[-1]):
                too_late += positions
            else:
                yield from self._add(waiting, key, pane, windows, [batch.values[i] for i in positions])
        yield from waiting.take()
        if too_late:
            yield from self._set_aside(batch, sorted(too_late))

    def _add(
        self, waiting: OutputBuffer, key: Any, pane: TimeWindow, windows: Sequence[TimeWindow], values: list[Any]
    ) -> Iterator[Batch]:
        self._backend.set_current_key(key)
        accumulator = self._panes.get(pane)
        if accumulator is None:
            accumulator = self._spec.create()
            for window in windows:
                if not self._is_too_late(window):
                    self._wait_for(window, key)
        complete = [w for w in windows if w.max_timestamp <= self._watermark and not self._is_too_late(w)]
        for value in values:
            accumulator = self._added(accumulator, value)
            if complete:
                self._panes.put(pane, accumulator)
                for window in complete:
                    yield from self._emit(waiting, key, window, self._whole(window))
        self._panes.put(pane, accumulator)

    def _whole(self, window: TimeWindow) -> Any:
        """The accumulator of a window of the current key; None when it has no records."""
        panes = self._assigner.panes_of(window)
        found = [accumulator for pane in panes if (accumulator := self._panes.get(pane)) is not None]
        if len(panes) == 1 or not found:
            return found[0] if found else None
        whole = self._spec.create()
        for accumulator in found:
            whole = self._merged(whole, accumulator)
        return whole

    def _close(self, key: Any, timestamp: int) -> Iterator[tuple[TimeWindow, Any]]:
        for window in self._assigner.windows_ending(timestamp):
            if (whole := self._whole(window)) is not None:
                yield window, whole
        for window in self._assigner.windows_ending(timestamp - self._spec.lateness):
            for pane in self._assigner.panes_of(window):
                if self._assigner.windows_of(pane)[-1] == window:
                    self._panes.remove(pane)


class SessionWindowOperator(_WindowOperator):
    """Windows that grow with their records and become one when they meet."""

    def __init__(self, assigner: EventTimeSessionWindows, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner

    def _process(self, batch: Batch, keys: list[Any], stamps: list[int]) -> Iterator[Batch]:
        too_late: list[int] = []
        waiting = OutputBuffer((), timed=True)
        for position, (key, stamp, value) in enumerate(zip(keys, stamps, batch.values, strict=True)):
            self._backend.set_current_key(key)
            there = list(self._panes.keys())
            window, met = cover(self._assigner.window_of(stamp), there)
            if self._is_too_late(window):
                too_late.append(position)
                continue
            accumulator = self._added(self._joined(sorted(met)), value)
            if window not in met:
                self._replace(met, window, key, [other for other in there if other not in met])
            self._panes.put(window, accumulator)
            if window.max_timestamp <= self._watermark:
                yield from self._emit(waiting, key, window, accumulator)
        yield from waiting.take()
        if too_late:
            yield from self._set_aside(batch, too_late)

    def _joined(self, met: Sequence[TimeWindow]) -> Any:
        """The accumulator of all these together."""
        if not met:
            return self._spec.create()
        whole, *others = [self._panes.get(one) for one in met]
        for accumulator in others:
            whole = self._merged(whole, accumulator)
        return whole

    def _replace(self, gone: Sequence[TimeWindow], window: TimeWindow, key: Any, left: Sequence[TimeWindow]) -> None:
        """`window` takes the place of those that are `gone`. Those that are `left` may wait for the same times."""
        needed = {time for other in left for time in self._times(other)}
        for one in gone:
            self._panes.remove(one)
            for time in self._times(one):
                if time not in needed:
                    self._timers.delete(time, key)
        self._wait_for(window, key)

    def _times(self, window: TimeWindow) -> tuple[int, int]:
        return window.max_timestamp, window.max_timestamp + self._spec.lateness

    def _close(self, key: Any, timestamp: int) -> Iterator[tuple[TimeWindow, Any]]:
        for window, accumulator in list(self._panes.items()):
            if window.max_timestamp == timestamp:
                yield window, accumulator
            if window.max_timestamp + self._spec.lateness == timestamp:
                self._panes.remove(window)
