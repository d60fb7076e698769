"""Windows cut by processing time: the same as those of event time, with the clock for a watermark.

Records have the time at which they arrive for a timestamp, and none comes late. A window is complete when the clock has
come to its end. At the end of the input all of them are complete: what nothing more can come to has no reason to wait.
Results have no timestamps, because the time of the records is another one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Batch
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.timers import milliseconds
from tidegate.operators.windows.base import BaseWindowOperator


class OnProcessingTime(BaseWindowOperator):
    """See the module. The watermark is the last millisecond that has passed."""

    _timer_domain = "processing"

    def open(self, context: OperatorContext) -> None:
        self._event_time = context.watermark
        super().open(context)

    def _reached(self, context: OperatorContext) -> int:
        return MIN_WATERMARK

    def _reached_of(self, key: Any) -> int:
        return MIN_WATERMARK

    def _current_watermark(self) -> int:
        return self._event_time

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        self._reach(milliseconds(self._operator.clock.now()))
        return [self._watermark + 1] * len(batch)

    def _reach(self, now: int) -> None:
        """The clock may go back; the windows' time does not."""
        self._watermark = max(self._watermark, now - 1)

    def _buffer(self, timed: bool = False) -> OutputBuffer:
        return super()._buffer(timed=False)

    @property
    def next_timer(self) -> int | None:
        due = self._waiting.next
        return None if due is None else due + 1

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        self._reach(now)
        return self._fire(must_stop)

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._event_time = max(self._event_time, watermark)
        return super().advance_watermark(watermark, must_stop) if watermark == MAX_WATERMARK else None
