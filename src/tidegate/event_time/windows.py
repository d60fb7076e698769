"""Windows: which pieces of time a record belongs to. Pure arithmetic over whole milliseconds since 1970.

A window is `start` up to but not including `end`. Assigners say to which *panes* a record belongs and which windows are
made of panes: a sliding window is put together of the pieces that all windows it overlaps share, so that a record is
kept once however many windows it is in (Li et al., 'No Pane, No Gain', SIGMOD Record 2005). For windows that do not
overlap, the pane is the window. Names are Flink's.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import gcd
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.config.values import format_duration, parse_positive_duration
from tidegate.errors import InvalidError
from tidegate.event_time.durations import seconds_of

DAY = 86_400_000
"""Milliseconds."""


class TimeWindow(NamedTuple):
    """Milliseconds since 1970: `start` belongs to it, `end` does not."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp that belongs to it: when the watermark has come to it, the window is complete."""
        return self.end - 1


class WindowAssigner(Protocol):
    """Windows whose bounds depend on nothing but a record's timestamp."""

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


class TumblingEventTimeWindows:
    """Windows of one `size` ('60s'), one behind the other. They begin at 1970-01-01 00:00 UTC plus `offset`; with a
    `zone` ('Europe/Berlin') at midnight there, also across changes of the clocks, for sizes of whole days and those
    that divide a day. Raises InvalidError."""

    def __init__(self, size: str | timedelta, *, offset: str | timedelta = "0", zone: str | None = None) -> None:
        self.size = _length("size", size)
        self.offset = _offset(offset) % self.size
        self.zone = None if zone is None else _zone(zone)
        self._calendar = None if self.zone is None else _Calendar(self.zone, self.size, self.offset)

    def __str__(self) -> str:
        text = f"tumbling windows of {format_duration(self.size / 1000)}"
        text += f", offset {format_duration(self.offset / 1000)}" if self.offset else ""
        return f"{text}, in {self.zone.key}" if self.zone is not None else text

    def pane_of(self, timestamp: int) -> TimeWindow:
        if self._calendar is not None:
            return self._calendar.window_of(timestamp)
        start = timestamp - (timestamp - self.offset) % self.size
        return TimeWindow(start, start + self.size)

    def windows_of(self, pane: TimeWindow) -> tuple[TimeWindow]:
        return (pane,)

    panes_of = windows_of

    def windows_ending(self, timestamp: int) -> Sequence[TimeWindow]:
        window = self.pane_of(timestamp)
        return (window,) if window.max_timestamp == timestamp else ()


class SlidingEventTimeWindows:
    """Windows of one `size` ('1h') that begin every `slide` ('5m'), and so overlap. Raises InvalidError."""

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

    def __str__(self) -> str:
        text = f"windows of {format_duration(self.size / 1000)} every {format_duration(self.slide / 1000)}"
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


class EventTimeSessionWindows:
    """Windows that last as long as no `gap` ('30m') between two records is reached. Two that come to touch become one,
    in whatever order their records arrive. Raises InvalidError."""

    def __init__(self, gap: str | timedelta) -> None:
        self.gap = _length("gap", gap)

    def __str__(self) -> str:
        return f"sessions with gaps of {format_duration(self.gap / 1000)}"

    def window_of(self, timestamp: int) -> TimeWindow:
        """What a record alone would be."""
        return TimeWindow(timestamp, timestamp + self.gap)


def cover(window: TimeWindow, others: Sequence[TimeWindow]) -> tuple[TimeWindow, list[TimeWindow]]:
    """The window that `window` becomes with those of `others`, which are apart from each other, that it overlaps or
    touches; and these."""
    met = [other for other in others if other.start <= window.end and window.start <= other.end]
    bounds = [window, *met]
    return TimeWindow(min(one.start for one in bounds), max(one.end for one in bounds)), met


class _Calendar:
    """Windows by the clock on the wall of one zone: whole days, or equal parts of a day. A day with a change of the
    clocks is longer or shorter, and so is the part of it in which the change is."""

    def __init__(self, zone: ZoneInfo, size: int, offset: int) -> None:
        if size % DAY and DAY % size:
            raise InvalidError(
                f"windows of {format_duration(size / 1000)} in a time zone do not fit into days",
                remedy="Give whole days, or what divides a day: 1h, 6h, 12h, 24h.",
            )
        self._zone = zone
        self._size = size
        self._offset = offset
        self._bounds: list[int] = []
        """Where windows begin, in order, around the timestamps of late: what was found is not asked for again."""

    def window_of(self, timestamp: int) -> TimeWindow:
        place = bisect_right(self._bounds, timestamp)
        if place == 0 or place == len(self._bounds):
            self._bounds = self._around(timestamp)
            place = bisect_right(self._bounds, timestamp)
        return TimeWindow(self._bounds[place - 1], self._bounds[place])

    def _around(self, timestamp: int) -> list[int]:
        """The beginnings of a few windows before `timestamp` and many behind it."""
        wall = datetime.fromtimestamp(timestamp // 1000, self._zone).replace(tzinfo=None)
        number = (_wall_milliseconds(wall) - self._offset) // self._size
        found = [self._instant(number + step) for step in range(-3, 65)]
        # Where the clocks go forward over a beginning, two of them are the same instant.
        return sorted(dict.fromkeys(found))

    def _instant(self, number: int) -> int:
        """When window `number`, counted from 1970 by the clock on the wall, begins."""
        wall = datetime(1970, 1, 1) + timedelta(milliseconds=number * self._size + self._offset)  # noqa: DTZ001 - the wall's
        return round(wall.replace(tzinfo=self._zone).timestamp() * 1000)


def _wall_milliseconds(wall: datetime) -> int:
    return round((wall.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidError(
            f"{name!r} is not a time zone that this machine knows",
            remedy="Give a name of the IANA database, Europe/Berlin; `pip install tzdata` where the system has none.",
        ) from error


def _length(what: str, value: object) -> int:
    """Milliseconds, at least one."""
    milliseconds = round(seconds_of(f"{what} of a window", value, parse_positive_duration) * 1000)
    if milliseconds < 1:
        raise InvalidError(f"{what} of a window: {value!r} is less than a millisecond", remedy="Give at least 1ms.")
    return milliseconds


def _offset(value: object) -> int:
    """Milliseconds."""
    return round(seconds_of("offset of a window", value) * 1000)
