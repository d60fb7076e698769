"""Windows with a trigger: an accumulator for each window and key, and what the trigger keeps of it.

Windows that overlap share nothing here, because each may forget its records at another time: a record is added to each
of them. A window goes at its clean-up time, whether it has ever given a result or not: when the time by which it is cut
has passed its end and the allowed lateness. A global window has no such time, and goes when nothing is left in it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import InternalError, InvalidError
from tidegate.event_time.triggers import TriggerResult
from tidegate.event_time.windows import SessionWindows, WindowAssigner, WindowDomain, domain_of, meet
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimeDomain, TimerQueue, milliseconds
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.operators.windows.base import BaseWindowOperator
from tidegate.operators.windows.open_windows import KeyWindows, OpenWindow
from tidegate.operators.windows.spec import Add, WindowSpec


class _TriggerContext:
    """Of one operator; means one window at a time. See `TriggerContext`."""

    __slots__ = ("_operator", "domain", "window")

    def __init__(self, operator: "TriggeredWindowOperator", domain: WindowDomain) -> None:
        self._operator = operator
        self.domain = domain
        self.window: OpenWindow

    @property
    def state(self) -> Any:
        return self.window.state

    @state.setter
    def state(self, state: Any) -> None:
        self.window.state = state
        self.window.has_changed = True

    def current_watermark(self) -> int:
        return self._operator.watermark

    def current_processing_time(self) -> int:
        return self._operator.now

    def register_event_time_timer(self, timestamp: int) -> None:
        self._register("event", timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._register("processing", timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._delete("event", timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._delete("processing", timestamp)

    def _register(self, domain: TimeDomain, timestamp: int) -> None:
        if type(timestamp) is not int or abs(timestamp) > MAX_WATERMARK:
            raise InvalidError(
                f"a trigger wants to register a timer for {timestamp!r}",
                remedy="Give whole milliseconds since 1970: int(seconds * 1000).",
            )
        self.window.add_timer(domain, timestamp)

    def _delete(self, domain: TimeDomain, timestamp: int) -> None:
        self.window.remove_timer(domain, timestamp)


class TriggeredWindowOperator(BaseWindowOperator):
    """See the module."""

    def __init__(self, assigner: WindowAssigner | SessionWindows, spec: WindowSpec) -> None:
        super().__init__(spec)
        if spec.trigger is None:
            raise InternalError("windows with a trigger were made without one")
        self._assigner = assigner
        self._domain = domain_of(assigner)
        self._trigger = spec.trigger.create()
        self._trigger_state = spec.trigger.state
        self._context = _TriggerContext(self, self._domain)
        self.now = 0
        """Processing time at the last call. It never goes back, though the clock may."""
        self._last_at_end: int | None = None
        """The latest timer on processing time when the input had ended."""

    @property
    def watermark(self) -> int:
        """How far event time has come."""
        return self._watermark

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._read_clock()

    def _register(self) -> None:
        self._kept = self._backend.register(self._trigger_state)
        self._timers = self._queue(EVENT_TIMERS)
        self._on_clock = self._queue(PROCESSING_TIMERS)
        self._by_domain: dict[TimeDomain, TimerQueue] = {"event": self._timers, "processing": self._on_clock}

    def _read_clock(self) -> None:
        self.now = max(self.now, milliseconds(self._operator.clock.now()))

    # ---- records -----------------------------------------------------------------------------------------------------

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        self._read_clock()
        if self._domain == "processing":
            return [self.now] * len(batch)
        if self._domain == "none":
            return batch.timestamps or [None] * len(batch)
        return super()._stamps_of(batch)

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        add, too_late = self._spec.adds[batch.input], list[int]()
        touched: dict[Any, KeyWindows] = {}
        waiting = self._buffer(timed=self._domain != "processing" and batch.timestamps is not None)
        for position, (key, stamp, value) in enumerate(zip(keys, stamps, batch.values, strict=True)):
            windows = touched.get(key)
            if windows is None:
                windows = touched[key] = self._read(key)
            assigned = self._assigned(windows, stamp)
            if not assigned:
                too_late.append(position)
            for window in assigned:
                yield from self._add(waiting, add, key, windows, window, stamp, value)
        yield from waiting.take()
        for key, windows in touched.items():
            self._backend.set_current_key(key)
            windows.store(key, self._by_domain)
        if too_late:
            yield from self._set_aside(batch, too_late)

    def _read(self, key: Any) -> KeyWindows:
        self._backend.set_current_key(key)
        return KeyWindows(self._accumulators, self._kept, self._cleanup)

    def _assigned(self, windows: KeyWindows, stamp: Any) -> Sequence[Any]:
        """The windows of a record that it is not too late for."""
        if isinstance(self._assigner, SessionWindows):
            sessions = sorted(windows.open)
            window, met = meet(self._assigner.window_of(stamp), sessions)
            if self._has_gone(window):
                return ()
            if sessions[met] != [window]:
                self._merge(windows, sessions[met], window)
            return (window,)
        assigned = self._assigner.windows_of(self._assigner.pane_of(stamp))
        return [window for window in assigned if not self._has_gone(window)]

    def _has_gone(self, window: Any) -> bool:
        return self._domain == "event" and self._is_too_late(window)

    def _add(
        self, waiting: OutputBuffer, add: Add, key: Any, windows: KeyWindows, window: Any, stamp: Any, value: Any
    ) -> Iterator[Batch]:
        one = windows.open.get(window)
        if one is None:
            one = windows.open[window] = self._new()
        accumulator = self._spec.create() if one.accumulator is None else one.accumulator
        one.accumulator, one.has_changed = self._added(add, accumulator, value), True
        result = self._ask(self._trigger.on_element, one, key, window, value, stamp)
        yield from self._act(result, waiting, key, windows, window, stamp)

    def _new(self) -> OpenWindow:
        return OpenWindow(None, self._trigger.create(), {"event": (), "processing": ()}, is_new=True)

    def _merge(self, windows: KeyWindows, met: Sequence[Any], window: Any) -> None:
        """`window` takes the place of the sessions that it has `met`."""
        parts = [windows.open.pop(one) for one in met]
        whole = windows.open[window] = self._new()
        if not parts:
            return
        filled = [one.accumulator for one in parts if one.accumulator is not None]
        whole.accumulator = reduce(self._merged, filled) if filled else None
        self._context.window = whole
        try:
            whole.state = reduce(self._trigger.merge, [one.state for one in parts])
            self._trigger.on_merge(window, self._context)
        except Exception as error:
            raise_user_error(error, self._operator, f"when {self._trigger} merged windows to {describe(window)}")

    # ---- timers ------------------------------------------------------------------------------------------------------

    @property
    def next_timer(self) -> int | None:
        return self._on_clock.next

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        self.now = max(self.now, now)
        return self._fired("processing", self.now, must_stop, timed=self._domain == "event")

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._watermark = max(self._watermark, watermark)
        self._read_clock()
        due = self._timers.next
        if due is not None and due <= self._watermark:
            # The end of event time is no time that a result could have.
            until, timed = (MAX_WATERMARK, False) if due == MAX_WATERMARK else (MAX_WATERMARK - 1, True)
            until = min(until, self._watermark)
            return self._fired("event", until, must_stop, timed=timed and self._domain != "processing")
        return self._at_end(must_stop) if watermark == MAX_WATERMARK else None

    def _at_end(self, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        """What waits for the clock has no reason to wait any longer. What that makes triggers wait for is left."""
        if self._last_at_end is None:
            self._last_at_end = self._on_clock.last
        due, last = self._on_clock.next, self._last_at_end
        if due is None or last is None or due > last:
            return None
        return self._fired("processing", last, must_stop, timed=False)

    def _fired(self, domain: TimeDomain, until: int, must_stop: Callable[[], bool], *, timed: bool) -> Iterator[Batch]:
        outputs = self._handled(domain, until, must_stop, timed)
        return outputs if self._function is None else self._function.around(outputs, 0)

    def _handled(self, domain: TimeDomain, until: int, must_stop: Callable[[], bool], timed: bool) -> Iterator[Batch]:
        waiting = self._buffer(timed)
        queue = self._by_domain[domain]
        on_time = self._trigger.on_event_time if domain == "event" else self._trigger.on_processing_time
        for timestamp, key, _ in queue.take_due(until, self._operator.batch_size, must_stop):
            windows = self._read(key)
            windows.taken(domain, timestamp)
            for window in sorted(windows.open):
                one = windows.open[window]
                if one.remove_timer(domain, timestamp):
                    result = self._ask(on_time, one, key, window, timestamp)
                    yield from self._act(result, waiting, key, windows, window, timestamp if timed else None)
                if self._cleanup(window) == (domain, timestamp):
                    del windows.open[window]
                    self._removed(key, window)
            windows.store(key, self._by_domain)
        yield from waiting.take()

    # ---- windows -----------------------------------------------------------------------------------------------------

    def _ask(
        self, on: Callable[..., TriggerResult], one: OpenWindow, key: Any, window: Any, *what: Any
    ) -> TriggerResult:
        """What the trigger says of a record or a time."""
        self._context.window = one
        try:
            result = on(*what, window, self._context)
            if result.__class__ is not TriggerResult:
                raise TypeError(f"the trigger returned {result!r}; it must return a TriggerResult")
        except Exception as error:
            doing = f"in {self._trigger} on window {describe(window)} of key {describe(key)}"
            raise_user_error(error, self._operator, doing)
        return result

    def _act(
        self, result: TriggerResult, waiting: OutputBuffer, key: Any, windows: KeyWindows, window: Any, at: int | None
    ) -> Iterator[Batch]:
        """What the trigger says is done. `at`: the time that brought it about."""
        one = windows.open[window]
        if result.fires and one.accumulator is not None:
            self._backend.set_current_key(key)
            yield from self._emit(waiting, key, window, one.accumulator, self._stamp(window, at))
        if result.purges:
            one.accumulator, one.has_changed = None, True
        if self._domain == "none" and one.accumulator is None and self._is_empty(one):
            del windows.open[window]

    def _is_empty(self, one: OpenWindow) -> bool:
        """Whether a new window would be the same."""
        return not any(one.timers.values()) and bool(one.state == self._trigger.create())

    def _stamp(self, window: Any, at: int | None) -> int | None:
        """The timestamp of its results: the newest that could be in it, or, where there are no such, that of what made
        it fire."""
        if self._domain == "event":
            stamp: int = window.max_timestamp
            return stamp
        return at if self._domain == "none" else None

    def _cleanup(self, window: Any) -> tuple[TimeDomain, int] | None:
        """When it goes."""
        if self._domain == "event":
            return "event", window.max_timestamp + self._spec.lateness
        return ("processing", window.max_timestamp + 1) if self._domain == "processing" else None
