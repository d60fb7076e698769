"""Windows whose bounds depend on time alone, and that give their result when they are complete: accumulators by key and
pane, put together when the time has passed a window.

A record is added to one pane, however many windows that is part of. What a window emits is made when it is complete,
and once more for each record that comes late but within the allowed lateness. Then its panes are removed: the state
holds windows that may still get records, and nothing else.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.elements import Batch
from tidegate.event_time.windows import GlobalWindows, TimeWindow, WindowAssigner
from tidegate.operators.context import OutputBuffer
from tidegate.operators.windows.base import BaseWindowOperator
from tidegate.operators.windows.processing import OnProcessingTime
from tidegate.operators.windows.spec import Add, WindowSpec

MANY_PANES = 1024
"""Of a window of which so many are possible, those that are there are looked for and not asked for one by one."""


class WindowOperator(BaseWindowOperator):
    """See the module."""

    def __init__(self, assigner: WindowAssigner, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner
        self._has_many_panes = getattr(assigner, "panes_a_window", 1) > MANY_PANES

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        """Records of one key and pane are added together: the state is asked once for all of them."""
        groups: dict[tuple[Any, TimeWindow], list[int]] = {}
        for position, (key, pane) in enumerate(zip(keys, map(self._assigner.pane_of, stamps), strict=True)):
            groups.setdefault((key, pane), []).append(position)
        add, too_late = self._spec.adds[batch.input], list[int]()
        waiting, gone = self._buffer(), self._watermark - self._spec.lateness
        for (key, pane), positions in groups.items():
            windows = self._assigner.windows_of(pane)
            if windows[-1].max_timestamp <= gone:
                too_late += positions
            else:
                yield from self._add(add, waiting, key, pane, windows, [batch.values[i] for i in positions])
        yield from waiting.take()
        if too_late:
            yield from self._set_aside(batch, sorted(too_late))

    def _add(
        self,
        add: Add,
        waiting: OutputBuffer,
        key: Any,
        pane: TimeWindow,
        windows: Sequence[TimeWindow],
        values: list[Any],
    ) -> Iterator[Batch]:
        self._backend.set_current_key(key)
        accumulator = self._accumulators.get(pane)
        if accumulator is None:
            accumulator = self._spec.create()
            for window in windows:
                if not self._is_too_late(window):
                    self._wait_for(window, key)
        complete = [w for w in windows if w.max_timestamp <= self._watermark and not self._is_too_late(w)]
        for value in values:
            accumulator = self._added(add, accumulator, value)
            if complete:
                self._accumulators.put(pane, accumulator)
                for window in complete:
                    yield from self._emit(waiting, key, window, self._whole(window), window.max_timestamp)
        self._accumulators.put(pane, accumulator)

    def _wait_for(self, window: TimeWindow, key: Any) -> None:
        """Until it is complete, and until it is not needed any more."""
        if window.max_timestamp > self._watermark:
            self._timers.register(window.max_timestamp, key)
        if self._spec.lateness:
            self._timers.register(window.max_timestamp + self._spec.lateness, key)

    def _whole(self, window: TimeWindow) -> Any:
        """The accumulator of a window of the current key; None when it has no records."""
        panes = self._panes_of(window)
        found = [accumulator for pane in panes if (accumulator := self._accumulators.get(pane)) is not None]
        if not found or panes[0] == window:
            return found[0] if found else None
        whole = self._spec.create()
        for accumulator in found:
            whole = self._merged(whole, accumulator)
        return whole

    def _panes_of(self, window: TimeWindow) -> Sequence[TimeWindow]:
        """In order, of the current key at least those that have records."""
        if not self._has_many_panes:
            return self._assigner.panes_of(window)
        there = sorted(self._accumulators.keys())
        return [pane for pane in there if window.start <= pane.start and pane.end <= window.end]

    def _close(self, key: Any, timestamp: int) -> Iterator[tuple[TimeWindow, Any]]:
        if self._spec.lateness:
            for window in self._assigner.windows_ending(timestamp - self._spec.lateness):
                self._remove(key, window)
        for window in self._assigner.windows_ending(timestamp):
            if (whole := self._whole(window)) is not None:
                yield window, whole
            if not self._spec.lateness:
                self._remove(key, window)

    def _remove(self, key: Any, window: TimeWindow) -> None:
        panes = self._panes_of(window)
        # The timer may be that of a later window, which is just complete: this one had no records, then.
        if self._function is not None and any(self._accumulators.get(pane) is not None for pane in panes):
            self._removed(key, window)
        for pane in panes:
            if self._assigner.windows_of(pane)[-1] == window:
                self._accumulators.remove(pane)


class ProcessingTimeWindowOperator(OnProcessingTime, WindowOperator):
    """By the time at which records arrive."""


class GlobalWindowOperator(WindowOperator):
    """One window a key, complete when event time ends. Records need no timestamps, and results have none: there is no
    time that could be theirs."""

    def __init__(self, assigner: GlobalWindows, spec: WindowSpec) -> None:
        # One window that is its own pane.
        super().__init__(assigner, spec)  # type: ignore[arg-type]

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        return [0] * len(batch)

    def _buffer(self, timed: bool = False) -> OutputBuffer:
        return super()._buffer(timed=False)
