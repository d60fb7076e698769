"""Triggers that are put together of others: on time with results before and behind, with a purge, with a timeout. Pure,
as `triggers` is.

The parts share the timers of the window: each is told of every timer and knows its own by its time and its state. None
deletes a timer, because another may wait for the same time: what is not needed any more is passed over when it comes.
"""

from datetime import timedelta
from types import GenericAlias
from typing import Any

from tidegate.errors import InvalidError
from tidegate.event_time.durations import milliseconds_of
from tidegate.event_time.triggers import (
    CONTINUE,
    FIRE,
    CountTrigger,
    NeverTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from tidegate.event_time.windows import Window, WindowDomain


class _Part:
    """The context of one part: its state is one place of the whole's."""

    __slots__ = ("_ctx", "_place")

    def __init__(self, ctx: TriggerContext, place: int) -> None:
        self._ctx = ctx
        self._place = place

    @property
    def state(self) -> Any:
        return self._ctx.state[self._place]

    @state.setter
    def state(self, state: Any) -> None:
        whole = self._ctx.state
        self._ctx.state = (*whole[: self._place], state, *whole[self._place + 1 :])

    @property
    def domain(self) -> WindowDomain:
        return self._ctx.domain

    def current_watermark(self) -> int:
        return self._ctx.current_watermark()

    def current_processing_time(self) -> int:
        return self._ctx.current_processing_time()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._ctx.register_event_time_timer(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._ctx.register_processing_time_timer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._ctx.delete_event_time_timer(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._ctx.delete_processing_time_timer(timestamp)


class EventTimeTrigger(Trigger):
    """When the watermark has passed the window's end. `early` says when there is a result before that, of what has come
    so far: none, if it is left out. `late` says when there is one behind that, within the allowed lateness: with each
    record, if it is left out. The result at the end comes in any case. Raises InvalidError."""

    needs_event_time = True
    _EARLY, _LATE = 1, 2
    """Their places in the state. The first is whether the end is waited for."""

    def __init__(self, *, early: Trigger | None = None, late: Trigger | None = None) -> None:
        self._given = [
            f"{when} {check_trigger(f'{when} of an EventTimeTrigger', part)}"
            for when, part in (("early", early), ("late", late))
            if part is not None
        ]
        self._early = early or NeverTrigger()
        self._late = late or CountTrigger(1)
        self.state_type = _tuple_of(bool, self._early.state_type, self._late.state_type)

    @property
    def is_plain(self) -> bool:
        """Whether it is what windows of event time have without a trigger."""
        return not self._given

    @property
    def can_merge(self) -> bool:
        return self._early.can_merge and self._late.can_merge

    def __str__(self) -> str:
        return " with ".join([type(self).__name__, *self._given])

    def create(self) -> tuple[bool, Any, Any]:
        return False, self._early.create(), self._late.create()

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= ctx.current_watermark():
            return self._late.on_element(value, timestamp, window, _Part(ctx, self._LATE))
        ctx.state = (True, *ctx.state[1:])
        ctx.register_event_time_timer(window.max_timestamp)
        return self._early.on_element(value, timestamp, window, _Part(ctx, self._EARLY))

    def on_event_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if timestamp < window.max_timestamp:
            return self._early.on_event_time(timestamp, window, _Part(ctx, self._EARLY))
        if timestamp > window.max_timestamp:
            return self._late.on_event_time(timestamp, window, _Part(ctx, self._LATE))
        is_waiting = ctx.state[0]
        self._early.clear(window, _Part(ctx, self._EARLY))
        ctx.state = (False, *ctx.state[1:])
        return FIRE if is_waiting else CONTINUE

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= ctx.current_watermark():
            return self._late.on_processing_time(timestamp, window, _Part(ctx, self._LATE))
        return self._early.on_processing_time(timestamp, window, _Part(ctx, self._EARLY))

    def merge(self, one: tuple[bool, Any, Any], other: tuple[bool, Any, Any]) -> tuple[bool, Any, Any]:
        is_waiting = one[0] or other[0]
        return is_waiting, self._early.merge(one[1], other[1]), self._late.merge(one[2], other[2])

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        if window.max_timestamp <= ctx.current_watermark():
            self._late.on_merge(window, _Part(ctx, self._LATE))
            return
        # What was late has become part of a window that is still to have its result.
        self._late.clear(window, _Part(ctx, self._LATE))
        if ctx.state[0]:
            ctx.register_event_time_timer(window.max_timestamp)
        self._early.on_merge(window, _Part(ctx, self._EARLY))

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._early.clear(window, _Part(ctx, self._EARLY))
        self._late.clear(window, _Part(ctx, self._LATE))
        ctx.state = (False, *ctx.state[1:])


class PurgingTrigger(Trigger):
    """When `trigger` fires; and then the window forgets its records. Raises InvalidError."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = check_trigger("a PurgingTrigger", trigger)
        self.state_type = trigger.state_type
        self.needs_event_time = trigger.needs_event_time

    @property
    def can_merge(self) -> bool:
        return self._trigger.can_merge

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self._trigger}"

    def create(self) -> Any:
        return self._trigger.create()

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _with_purge(self._trigger.on_element(value, timestamp, window, ctx))

    def on_event_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _with_purge(self._trigger.on_event_time(timestamp, window, ctx))

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _with_purge(self._trigger.on_processing_time(timestamp, window, ctx))

    def merge(self, one: Any, other: Any) -> Any:
        return self._trigger.merge(one, other)

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        self._trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._trigger.clear(window, ctx)


class ProcessingTimeoutTrigger(Trigger):
    """When `trigger` fires, and when it does not for `timeout` by the machine's clock: counted from the first record
    since the last result, or, with `reset_on_record`, from the last one. So a window has its result although nothing
    comes any more that would make event time go on. `trigger` begins anew then: an `EventTimeTrigger` fires at the end
    of the window only if another record has come. Raises InvalidError."""

    _NESTED = 2
    """Its place in the state: when to fire, for when there is a timer, and the state of `trigger`."""

    def __init__(self, trigger: Trigger, timeout: str | timedelta, *, reset_on_record: bool = False) -> None:
        self._trigger = check_trigger("a ProcessingTimeoutTrigger", trigger)
        self._timeout = milliseconds_of("timeout of a ProcessingTimeoutTrigger", timeout)
        self._resets = reset_on_record
        self.state_type = _tuple_of(int | None, int | None, trigger.state_type)
        self.needs_event_time = trigger.needs_event_time

    @property
    def can_merge(self) -> bool:
        return self._trigger.can_merge

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self._trigger}"

    def create(self) -> tuple[None, None, Any]:
        return None, None, self._trigger.create()

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        result = self._fired(self._trigger.on_element(value, timestamp, window, self._nested(ctx)), ctx)
        if not result.fires and (self._resets or ctx.state[0] is None):
            self._wait(ctx.current_processing_time() + self._timeout, ctx)
        return result

    def on_event_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._fired(self._trigger.on_event_time(timestamp, window, self._nested(ctx)), ctx)

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        due, timer, nested = ctx.state
        if timestamp == timer:
            ctx.state = due, None, nested
            if due is not None and due <= timestamp:
                self._trigger.clear(window, self._nested(ctx))
                return self._fired(FIRE, ctx)
            if due is not None:
                self._wait(due, ctx)
        return self._fired(self._trigger.on_processing_time(timestamp, window, self._nested(ctx)), ctx)

    def _nested(self, ctx: TriggerContext) -> TriggerContext:
        return _Part(ctx, self._NESTED)

    def _wait(self, due: int, ctx: TriggerContext) -> None:
        """Until `due`. One timer at a time: when it comes too early, there is another for the rest."""
        _, timer, nested = ctx.state
        if timer is None:
            ctx.register_processing_time_timer(due)
            timer = due
        ctx.state = due, timer, nested

    def _fired(self, result: TriggerResult, ctx: TriggerContext) -> TriggerResult:
        if result.fires:
            ctx.state = (None, *ctx.state[1:])
        return result

    def merge(self, one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> tuple[int | None, None, Any]:
        times = [due for due in (one[0], other[0]) if due is not None]
        nested = self._trigger.merge(one[self._NESTED], other[self._NESTED])
        return (max if self._resets else min)(times, default=None), None, nested

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        due, _, nested = ctx.state
        ctx.state = due, None, nested
        if due is not None:
            self._wait(due, ctx)
        self._trigger.on_merge(window, self._nested(ctx))

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.state = (None, *ctx.state[1:])
        self._trigger.clear(window, self._nested(ctx))


def check_trigger(what: str, trigger: object) -> Trigger:
    """`trigger`, if it is one. Raises InvalidError."""
    if isinstance(trigger, Trigger):
        return trigger
    if isinstance(trigger, type) and issubclass(trigger, Trigger):
        raise InvalidError(
            f"{what} was given the class {trigger.__name__}", remedy=f"Make one: {trigger.__name__}(...)."
        )
    raise InvalidError(
        f"{what} was given {type(trigger).__name__}", remedy="Give a trigger, as CountTrigger(100) is one."
    )


def _with_purge(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.fires else result


def _tuple_of(*types: Any) -> Any:
    """The type of a state that is put together."""
    return GenericAlias(tuple, types)
