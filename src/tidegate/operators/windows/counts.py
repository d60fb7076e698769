"""Windows of so many records of a key: accumulators by key and pane, put together when a window is full.

A record is added to one pane, however many windows that is part of. Results come in the order of the records that fill
their windows, with these records' timestamps. Beside the panes of windows that are not full there is one number for
each key: how many records it has had.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegate.elements import Batch
from tidegate.event_time.windows import CountWindow, CountWindows
from tidegate.operators.context import OutputBuffer
from tidegate.operators.windows.base import BaseWindowOperator
from tidegate.operators.windows.spec import WindowSpec
from tidegate.state.descriptors import InternalMapState

COUNTS: InternalMapState[int, int] = InternalMapState(int, int, name=".counts")
"""How many records a key has had, under `_ALL`."""
_ALL = 0


class _Filling:
    """Of one key: how many records it has had, and the pane that the next one goes into."""

    __slots__ = ("accumulator", "count", "pane")

    def __init__(self, count: int, pane: CountWindow, accumulator: Any) -> None:
        self.count = count
        self.pane = pane
        self.accumulator = accumulator
        """None while the pane is empty."""


class CountWindowOperator(BaseWindowOperator):
    """See the module."""

    def __init__(self, assigner: CountWindows, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner

    def _register(self) -> None:
        self._counts = self._backend.register(COUNTS)

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        return batch.timestamps or [None] * len(batch)

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        add, filling = self._spec.adds[batch.input], dict[Any, _Filling]()
        waiting = self._buffer(timed=batch.timestamps is not None)
        for key, stamp, value in zip(keys, stamps, batch.values, strict=True):
            one = filling.get(key)
            if one is None:
                one = filling[key] = self._read(key)
            accumulator = self._spec.create() if one.accumulator is None else one.accumulator
            one.accumulator = self._added(add, accumulator, value)
            one.count += 1
            if one.count == one.pane.end:
                yield from self._fill(waiting, key, one, stamp)
        yield from waiting.take()
        for key, one in filling.items():
            self._backend.set_current_key(key)
            self._counts.put(_ALL, one.count)
            if one.accumulator is not None:
                self._accumulators.put(one.pane, one.accumulator)

    def _read(self, key: Any) -> _Filling:
        self._backend.set_current_key(key)
        count = self._counts.get(_ALL, 0)
        pane = self._assigner.pane_at(count)
        return _Filling(count, pane, self._accumulators.get(pane))

    def _fill(self, waiting: OutputBuffer, key: Any, one: _Filling, stamp: int | None) -> Iterator[Batch]:
        """A pane is full, and with it perhaps a window. What no later window needs is removed."""
        self._backend.set_current_key(key)
        self._accumulators.put(one.pane, one.accumulator)
        window = self._assigner.window_ending(one.count)
        if window is not None:
            panes = self._assigner.panes_of(window)
            yield from self._emit(waiting, key, window, self._whole(panes), stamp)
            for pane in panes:
                if pane.start < window.start + self._assigner.slide:
                    self._accumulators.remove(pane)
            self._removed(key, window)
        one.pane, one.accumulator = self._assigner.pane_at(one.count), None

    def _whole(self, panes: Sequence[CountWindow]) -> Any:
        if len(panes) == 1:
            return self._accumulators.get(panes[0])
        whole = self._spec.create()
        for pane in panes:
            whole = self._merged(whole, self._accumulators.get(pane))
        return whole

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        """No time completes them."""
        self._watermark = max(self._watermark, watermark)
        return None
