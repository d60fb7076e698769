"""Windows: which pieces of time a record belongs to. Pure arithmetic over whole milliseconds since 1970.

A window is `start` up to but not including `end`. Assigners say to which *panes* a record belongs and which windows are
made of panes: a sliding window is put together of the pieces that all windows it overlaps share, so that a record is
kept once however many windows it is in (Li et al., 'No Pane, No Gain', SIGMOD Record 2005). For windows that do not
overlap, the pane is the window. Windows of processing time are cut like those of event time, by the clock at a record's
arrival; global and count windows by no time at all. Names are Flink's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import timedelta
from math import gcd
from operator import attrgetter
from typing import ClassVar, Literal, NamedTuple, Protocol

from tidegate.config.values import format_duration
from tidegate.elements import MAX_WATERMARK
from tidegate.errors import InvalidError
from tidegate.event_time.calendar import Calendar, zone_named
from tidegate.event_time.durations import milliseconds_of, seconds_of

WindowDomain = Literal["event", "processing", "none"]
"""What windows are cut by."""


class TimeWindow(NamedTuple):
    """Milliseconds since 1970: `start` belongs to it, `end` does not."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp that belongs to it: when the watermark has come to it, the window is complete."""
        return self.end - 1


class GlobalWindow(NamedTuple):
    """The one window that holds all records of a key. It has no bounds."""

    @property
    def max_timestamp(self) -> int:
        """The end of event time."""
        return MAX_WATERMARK


class CountWindow(NamedTuple):
    """Some records of a key, one behind the other: from number `start` to before number `end`, counted from 0."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The end of event time: no time completes it."""
        return MAX_WATERMARK


Window = TimeWindow | GlobalWindow | CountWindow


class WindowAssigner(Protocol):
    """Windows whose bounds depend on nothing but a record's timestamp. A class attribute `domain = "processing"` makes
    that the clock's time at its arrival; without one it is event time."""

    def pane_of(self, timestamp: int) -> TimeWindow:
        """The pane that a record belongs to."""
        ...

    def windows_of(self, pane: TimeWindow) -> Sequence[TimeWindow]:
        """The windows that a pane is part of, the earliest first."""
        ...

    def panes_of(self, window: TimeWindow) -> Sequence[TimeWindow]:
        """The panes that a window is made of, in order."""
        ...

    def windows_ending(self, timestamp: int) -> Sequence[TimeWindow]:
        """The windows whose `max_timestamp` it is."""
        ...


class _TumblingWindows:
    domain: ClassVar[WindowDomain]

    def __init__(self, size: str | timedelta, *, offset: str | timedelta = "0", zone: str | None = None) -> None:
        self.size = _length("size", size)
        self.offset = _offset(offset) % self.size
        self.zone = None if zone is None else zone_named(zone)
        self._calendar = None if self.zone is None else Calendar(self.zone, self.size, self.offset)

    def __str__(self) -> str:
        text = f"tumbling windows of {format_duration(self.size / 1000)}{_of(self.domain)}"
        text += f", offset {format_duration(self.offset / 1000)}" if self.offset else ""
        return f"{text}, in {self.zone.key}" if self.zone is not None else text

    def pane_of(self, timestamp: int) -> TimeWindow:
        if self._calendar is not None:
            return TimeWindow(*self._calendar.bounds_of(timestamp))
        start = timestamp - (timestamp - self.offset) % self.size
        return TimeWindow(start, start + self.size)

    def windows_of(self, pane: TimeWindow) -> tuple[TimeWindow]:
        return (pane,)

    panes_of = windows_of

    def windows_ending(self, timestamp: int) -> Sequence[TimeWindow]:
        window = self.pane_of(timestamp)
        return (window,) if window.max_timestamp == timestamp else ()


class TumblingEventTimeWindows(_TumblingWindows):
    """Windows of one `size` ('60s'), one behind the other. They begin at 1970-01-01 00:00 UTC plus `offset`; with a
    `zone` ('Europe/Berlin') at midnight there, also across changes of the clocks, for sizes of whole days and those
    that divide a day. Raises InvalidError."""

    domain = "event"


class TumblingProcessingTimeWindows(_TumblingWindows):
    """As `TumblingEventTimeWindows`, by the time at which a record arrives. Raises InvalidError."""

    domain = "processing"


class _SlidingWindows:
    domain: ClassVar[WindowDomain]

    def __init__(self, size: str | timedelta, slide: str | timedelta, *, offset: str | timedelta = "0") -> None:
        self.size = _length("size", size)
        self.slide = _length("slide", slide)
        self.offset = _offset(offset) % self.slide
        if self.slide > self.size:
            raise InvalidError(
                f"windows of {format_duration(self.size / 1000)} every {format_duration(self.slide / 1000)} leave gaps",
                remedy="Give a slide that is at most the size.",
            )
        self._pane = gcd(self.size, self.slide)
        self.panes_a_window = self.size // self._pane
        """May be very many, where size and slide have little in common: whoever sees that asks for none of them."""

    def __str__(self) -> str:
        text = f"windows of {format_duration(self.size / 1000)} every {format_duration(self.slide / 1000)}"
        text += _of(self.domain)
        return f"{text}, offset {format_duration(self.offset / 1000)}" if self.offset else text

    def pane_of(self, timestamp: int) -> TimeWindow:
        start = timestamp - (timestamp - self.offset) % self._pane
        return TimeWindow(start, start + self._pane)

    def windows_of(self, pane: TimeWindow) -> list[TimeWindow]:
        last = pane.start - (pane.start - self.offset) % self.slide
        first = last - (self.size - (pane.end - last)) // self.slide * self.slide
        return [TimeWindow(start, start + self.size) for start in range(first, last + 1, self.slide)]

    def panes_of(self, window: TimeWindow) -> list[TimeWindow]:
        return [TimeWindow(start, start + self._pane) for start in range(window.start, window.end, self._pane)]

    def windows_ending(self, timestamp: int) -> list[TimeWindow]:
        start = timestamp + 1 - self.size
        return [TimeWindow(start, timestamp + 1)] if (start - self.offset) % self.slide == 0 else []


class SlidingEventTimeWindows(_SlidingWindows):
    """Windows of one `size` ('1h') that begin every `slide` ('5m'), and so overlap. Raises InvalidError."""

    domain = "event"


class SlidingProcessingTimeWindows(_SlidingWindows):
    """As `SlidingEventTimeWindows`, by the time at which a record arrives. Raises InvalidError."""

    domain = "processing"


class SessionWindows:
    """What both kinds of sessions are."""

    domain: ClassVar[WindowDomain]

    def __init__(self, gap: str | timedelta) -> None:
        self.gap = _length("gap", gap)

    def __str__(self) -> str:
        return f"sessions with gaps of {format_duration(self.gap / 1000)}{_of(self.domain)}"

    def window_of(self, timestamp: int) -> TimeWindow:
        """What a record alone would be."""
        return TimeWindow(timestamp, timestamp + self.gap)


class EventTimeSessionWindows(SessionWindows):
    """Windows that last as long as no `gap` ('30m') between two records is reached. Two that come to touch become one,
    in whatever order their records arrive. Raises InvalidError."""

    domain = "event"


class ProcessingTimeSessionWindows(SessionWindows):
    """Windows that last as long as no `gap` ('30s') passes in which no record arrives. Raises InvalidError."""

    domain = "processing"


class GlobalWindows:
    """One window for each key, with all of its records. It ends with the input; a trigger makes it give results
    before."""

    domain: ClassVar[WindowDomain] = "none"
    _ALL = (GlobalWindow(),)

    def __str__(self) -> str:
        return "global windows"

    def pane_of(self, timestamp: int) -> GlobalWindow:
        return self._ALL[0]

    def windows_of(self, pane: GlobalWindow) -> tuple[GlobalWindow]:
        return self._ALL

    panes_of = windows_of

    def windows_ending(self, timestamp: int) -> Sequence[GlobalWindow]:
        return self._ALL if timestamp == MAX_WATERMARK else ()


class CountWindows:
    """Windows of `size` records of a key that begin every `slide` records; see `KeyedStream.count_window`. Raises
    InvalidError."""

    domain: ClassVar[WindowDomain] = "none"

    def __init__(self, size: int, slide: int) -> None:
        self.size = _count("size", size)
        self.slide = _count("slide", slide)
        if slide > size:
            raise InvalidError(
                f"windows of {size} records every {slide} leave some out",
                remedy="Give a slide that is at most the size.",
            )
        self.pane = gcd(size, slide)
        """Records in each of the pieces that windows share."""

    def __str__(self) -> str:
        return f"windows of {self.size} records every {self.slide}"

    def pane_at(self, number: int) -> CountWindow:
        """The pane that record `number` of a key belongs to."""
        start = number - number % self.pane
        return CountWindow(start, start + self.pane)

    def window_ending(self, end: int) -> CountWindow | None:
        """The window that is full when a key has had `end` records."""
        start = end - self.size
        return CountWindow(start, end) if start >= 0 and start % self.slide == 0 else None

    def panes_of(self, window: CountWindow) -> list[CountWindow]:
        return [self.pane_at(number) for number in range(window.start, window.end, self.pane)]


def domain_of(assigner: object) -> WindowDomain:
    """What the windows of `assigner` are cut by."""
    domain: WindowDomain = getattr(assigner, "domain", "event")
    return domain


def keeps_apart(assigner: object) -> bool:
    """Whether no two of its windows have records in common, so that each is its only pane: of those that are known."""
    return isinstance(assigner, _TumblingWindows | GlobalWindows)


def window_type(assigner: object) -> type[Window]:
    """The class of the windows of `assigner`."""
    if isinstance(assigner, CountWindows):
        return CountWindow
    return GlobalWindow if isinstance(assigner, GlobalWindows) else TimeWindow


def meet(window: TimeWindow, sessions: Sequence[TimeWindow]) -> tuple[TimeWindow, slice]:
    """The window that `window` becomes with those of `sessions`, which are in order and apart from each other, that it
    overlaps or touches; and where these are."""
    first = bisect_left(sessions, window.start, key=_end_of)
    behind = bisect_right(sessions, window.end, key=_start_of)
    if first == behind:
        return window, slice(first, behind)
    start, end = sessions[first].start, sessions[behind - 1].end
    return TimeWindow(min(window.start, start), max(window.end, end)), slice(first, behind)


def ending_at(end: int, sessions: Sequence[TimeWindow]) -> TimeWindow | None:
    """The one of `sessions`, as for `meet`, that ends there."""
    place = bisect_left(sessions, end, key=_end_of)
    return sessions[place] if place < len(sessions) and sessions[place].end == end else None


_start_of, _end_of = attrgetter("start"), attrgetter("end")


def _length(what: str, value: object) -> int:
    return milliseconds_of(f"{what} of a window", value)


def _offset(value: object) -> int:
    """Milliseconds."""
    return round(seconds_of("offset of a window", value) * 1000)


def _count(what: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise InvalidError(
            f"{what} of a count window: {value!r} is no number of records", remedy="Give a whole number from 1."
        )
    return value


def _of(domain: WindowDomain) -> str:
    """Said of windows whose time is not that of the records."""
    return " of processing time" if domain == "processing" else ""
