"""Triggers: when a window of a key gives its result, and whether it begins anew then. Pure: a trigger decides from what
its context says, and keeps what it must remember there.

What a trigger keeps is state of its key and window. It is in checkpoints, and so are its timers; both are gone with the
window. When two sessions become one, `merge` makes one state of theirs, the timers of both are forgotten, and
`on_merge` registers what the new window waits for. Names are Flink's.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Protocol

from tidegate.elements import MAX_WATERMARK
from tidegate.errors import InvalidError
from tidegate.event_time.windows import Window, WindowDomain


class TriggerResult(Enum):
    """What becomes of a window: nothing, it gives its result, it forgets its records, or both, in this order."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def fires(self) -> bool:
        return self.value[0]

    @property
    def purges(self) -> bool:
        return self.value[1]


CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE


class TriggerContext(Protocol):
    """What a trigger knows of a window of a key, and what it can ask for. Times are milliseconds since 1970."""

    state: Any
    """What the trigger keeps for this window, of its `state_type`; what is assigned here is kept."""

    @property
    def domain(self) -> WindowDomain:
        """What the windows are cut by: 'event' time, 'processing' time, or 'none' of them."""
        ...

    def current_watermark(self) -> int: ...

    def current_processing_time(self) -> int: ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_event_time(timestamp, ...)` for this window when the watermark has come to that time, unless the
        window is gone by then. Once, however often it is registered."""
        ...

    def register_processing_time_timer(self, timestamp: int) -> None:
        """As `register_event_time_timer`, when the machine's clock has come to that time."""
        ...

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Nothing happens when this window has no timer for that time."""
        ...

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """As `delete_event_time_timer`."""
        ...


class Trigger(ABC):
    """When windows give their results. One object serves all windows of a subtask: what it must remember of one is
    `ctx.state`, never an attribute. A trigger of one's own:

        class FirstAndLast(Trigger):
            state_type = bool

            def create(self):
                return False

            def on_element(self, value, timestamp, window, ctx):
                ctx.register_event_time_timer(window.max_timestamp)
                seen, ctx.state = ctx.state, True
                return TriggerResult.CONTINUE if seen else TriggerResult.FIRE

            def on_event_time(self, timestamp, window, ctx):
                return TriggerResult.FIRE
    """

    state_type: Any = None
    """The type of `ctx.state`, immutable; None when nothing is kept."""
    needs_event_time: bool = False
    """Whether it makes no sense with windows of processing time."""

    def create(self) -> Any:
        """The state of a new window."""
        return None

    @abstractmethod
    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """A record has been added to `window`. `timestamp`: the record's; with windows of processing time when it
        arrived; None when it has none."""

    def on_event_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """A timer on event time of this window: of another trigger, maybe, where several are put together."""
        return CONTINUE

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """As `on_event_time`, of processing time."""
        return CONTINUE

    def merge(self, one: Any, other: Any) -> Any:
        """The state of the window that two become. A trigger without this method has no place with sessions."""
        raise NotImplementedError

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:  # noqa: B027 - many triggers wait for nothing
        """Others have become `window`, which has no timers yet: register what it waits for. `on_element` follows, with
        the record that brought it about."""

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Begin anew with `window`, because another trigger around this one has fired. Timers are left alone, because
        others may wait for the same times. Not called when the window itself goes."""
        ctx.state = self.create()

    @property
    def can_merge(self) -> bool:
        """Whether it may be used with sessions."""
        return type(self).merge is not Trigger.merge

    def __str__(self) -> str:
        """Without numbers: state is found again when only they have changed."""
        return type(self).__name__


class NeverTrigger(Trigger):
    """No result at all: for a part of another trigger."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def merge(self, one: None, other: None) -> None:
        return None


class ProcessingTimeTrigger(Trigger):
    """When the machine's clock has passed the window's end: what windows of processing time have without a trigger.
    Global windows have no end."""

    state_type = bool
    """Whether it is waited for."""

    def create(self) -> bool:
        return False

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.state = True
        self.on_merge(window, ctx)
        return CONTINUE

    def on_processing_time(self, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if timestamp != window.max_timestamp + 1 or not ctx.state:
            return CONTINUE
        ctx.state = False
        return FIRE

    def merge(self, one: bool, other: bool) -> bool:
        return one or other

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        if ctx.state and window.max_timestamp < MAX_WATERMARK:
            ctx.register_processing_time_timer(window.max_timestamp + 1)


class CountTrigger(Trigger):
    """With every `count` records of the window. Raises InvalidError."""

    state_type = int

    def __init__(self, count: int) -> None:
        if type(count) is not int or count < 1:
            raise InvalidError(f"CountTrigger({count!r}) counts no records", remedy="Give a whole number from 1.")
        self._count = count

    def create(self) -> int:
        return 0

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.state += 1
        if ctx.state < self._count:
            return CONTINUE
        ctx.state = 0
        return FIRE

    def merge(self, one: int, other: int) -> int:
        return one + other
