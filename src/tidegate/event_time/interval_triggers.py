"""Triggers that fire at regular times: early results of windows that last long. Pure, as `triggers` is.

A time at which nothing new has come since the last is passed over. So a window of which nothing is heard costs nothing,
and the end of event time does not call for every interval until then.
"""

from abc import abstractmethod
from datetime import timedelta
from typing import Any

from tidegate.elements import MAX_WATERMARK
from tidegate.event_time.durations import milliseconds_of
from tidegate.event_time.triggers import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from tidegate.event_time.windows import Window


class _IntervalTrigger(Trigger):
    """Keeps the time for which a timer is registered; None when nothing is to be told."""

    state_type = int | None

    def __init__(self, interval: str | timedelta) -> None:
        self._interval = milliseconds_of(f"interval of a {type(self).__name__}", interval)

    def _after(self, timestamp: int) -> int:
        """The first of the regular times behind `timestamp`."""
        return min(timestamp - timestamp % self._interval + self._interval, MAX_WATERMARK)

    def _wait(self, due: int, ctx: TriggerContext) -> None:
        if ctx.state is None or due < ctx.state:
            ctx.state = due
            self._register(due, ctx)

    @abstractmethod
    def _register(self, due: int, ctx: TriggerContext) -> None: ...

    def _fired(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        # What waited for a later time before has left its timer behind, which means nothing any more.
        if timestamp != ctx.state:
            return CONTINUE
        ctx.state = None
        return FIRE

    def merge(self, one: int | None, other: int | None) -> int | None:
        times = [time for time in (one, other) if time is not None]
        return min(times, default=None)

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        if ctx.state is not None:
            self._register(ctx.state, ctx)


class ContinuousEventTimeTrigger(_IntervalTrigger):
    """When the watermark passes a multiple of `interval`, or the window's end, and records came since the last result;
    and with each record behind the end. Raises InvalidError."""

    needs_event_time = True

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        watermark, end = ctx.current_watermark(), window.max_timestamp
        if end <= watermark:
            return FIRE
        ctx.register_event_time_timer(end)
        self._wait(self._after(watermark if timestamp is None else max(timestamp, watermark)), ctx)
        return CONTINUE

    def _register(self, due: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(due)

    def on_event_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if timestamp == window.max_timestamp and ctx.state is not None:
            ctx.state = None
            return FIRE
        return self._fired(timestamp, ctx)

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        super().on_merge(window, ctx)
        if ctx.state is not None:
            ctx.register_event_time_timer(window.max_timestamp)


class ContinuousProcessingTimeTrigger(_IntervalTrigger):
    """When the machine's clock passes a multiple of `interval`, or the end of a window of processing time, and records
    came since the last result. With windows of event time it gives no result at their end: there it belongs into
    `EventTimeTrigger(early=...)`. Raises InvalidError."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        due = self._after(ctx.current_processing_time())
        self._wait(min(due, window.max_timestamp + 1) if ctx.domain == "processing" else due, ctx)
        return CONTINUE

    def _register(self, due: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(due)

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._fired(timestamp, ctx)
