"""Windows with triggers as a short reference model: every window is a list of record numbers and a trigger that says
for which times it waits. Nothing is stored, merged or indexed cleverly here: what is due is looked for among all
windows, one record and one time after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK
from tidegate.event_time.windows import GlobalWindow, TimeWindow
from tidegate.state.keys import encode_key

FIRE, PURGE = "fire", "fire and purge"
Answer = str | None
Due = dict[str, int | None]
"""For which time a trigger waits, by 'event' and 'clock'."""


@dataclass
class Never:
    """What all others are like where nothing else is said. `at`: the record's time or the time that has come."""

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        return None

    def due(self, window: Any) -> Due:
        return {"event": None, "clock": None}

    def event(self, at: int, window: Any, model: "Model") -> Answer:
        return None

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        return None

    def absorb(self, other: Any, window: Any, model: "Model") -> None:
        """This window and another have become `window`."""

    def grown(self, window: Any, model: "Model") -> None:
        """The window has become `window`."""

    def reset(self) -> None:
        pass


@dataclass
class Count(Never):
    size: int
    count: int = 0

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        self.count += 1
        if self.count < self.size:
            return None
        self.count = 0
        return FIRE

    def absorb(self, other: "Count", window: Any, model: "Model") -> None:
        self.count += other.count

    def reset(self) -> None:
        self.count = 0


@dataclass
class OnClock(Never):
    waits: bool = False

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        self.waits = True
        return None

    def due(self, window: Any) -> Due:
        has_end = window.max_timestamp < MAX_WATERMARK
        return {"event": None, "clock": window.max_timestamp + 1 if self.waits and has_end else None}

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        self.waits = False
        return FIRE

    def absorb(self, other: "OnClock", window: Any, model: "Model") -> None:
        self.waits = self.waits or other.waits

    def reset(self) -> None:
        self.waits = False


@dataclass
class EveryEvent(Never):
    """At multiples of `interval` in event time, if something came; and at the end."""

    interval: int
    waits: int | None = None

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        if window.max_timestamp <= model.watermark:
            return FIRE
        come = model.watermark if at is None else max(at, model.watermark)
        due = (come // self.interval + 1) * self.interval
        self.waits = due if self.waits is None else min(due, self.waits)
        return None

    def due(self, window: Any) -> Due:
        return {"event": None if self.waits is None else min(self.waits, window.max_timestamp), "clock": None}

    def event(self, at: int, window: Any, model: "Model") -> Answer:
        self.waits = None
        return FIRE

    def absorb(self, other: "EveryEvent", window: Any, model: "Model") -> None:
        self.waits = min((w for w in (self.waits, other.waits) if w is not None), default=None)

    def reset(self) -> None:
        self.waits = None


@dataclass
class EveryClock(Never):
    interval: int
    waits: int | None = None

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        due = (model.now // self.interval + 1) * self.interval
        if model.domain == "processing":
            due = min(due, window.max_timestamp + 1)
        self.waits = due if self.waits is None else min(due, self.waits)
        return None

    def due(self, window: Any) -> Due:
        return {"event": None, "clock": self.waits}

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        self.waits = None
        return FIRE

    def absorb(self, other: "EveryClock", window: Any, model: "Model") -> None:
        self.waits = min((w for w in (self.waits, other.waits) if w is not None), default=None)

    def reset(self) -> None:
        self.waits = None


@dataclass
class OnTime(Never):
    """At the end of the window in event time, with others before and behind."""

    early: Any = field(default_factory=Never)
    late: Any = field(default_factory=lambda: Count(1))
    waits: bool = False

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        if window.max_timestamp <= model.watermark:
            return self.late.record(at, window, model)  # type: ignore[no-any-return]
        self.waits = True
        return self.early.record(at, window, model)  # type: ignore[no-any-return]

    def due(self, window: Any) -> Due:
        end = window.max_timestamp if self.waits else None
        early, late = self.early.due(window), self.late.due(window)
        return {"event": _first(end, early["event"]), "clock": _first(early["clock"], late["clock"])}

    def event(self, at: int, window: Any, model: "Model") -> Answer:
        if at < window.max_timestamp:
            return self.early.event(at, window, model)  # type: ignore[no-any-return]
        self.early.reset()
        answer = FIRE if self.waits else None
        self.waits = False
        return answer

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        is_late = window.max_timestamp <= model.watermark
        return (self.late if is_late else self.early).clock(at, window, model)  # type: ignore[no-any-return]

    def absorb(self, other: "OnTime", window: Any, model: "Model") -> None:
        self.early.absorb(other.early, window, model)
        self.late.absorb(other.late, window, model)
        self.waits = self.waits or other.waits

    def grown(self, window: Any, model: "Model") -> None:
        if window.max_timestamp > model.watermark:
            self.late.reset()
            self.early.grown(window, model)

    def reset(self) -> None:
        self.early.reset()
        self.late.reset()
        self.waits = False


@dataclass
class Timeout(Never):
    inner: Any
    after: int
    resets: bool
    waits: int | None = None

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        answer: Answer = self.inner.record(at, window, model)
        if answer:
            self.waits = None
        elif self.resets or self.waits is None:
            self.waits = model.now + self.after
        return answer

    def due(self, window: Any) -> Due:
        inner = self.inner.due(window)
        return {"event": inner["event"], "clock": _first(self.waits, inner["clock"])}

    def event(self, at: int, window: Any, model: "Model") -> Answer:
        return self._answered(self.inner.event(at, window, model))

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        if at == self.waits:
            self.inner.reset()
            return self._answered(FIRE)
        return self._answered(self.inner.clock(at, window, model))

    def _answered(self, answer: Answer) -> Answer:
        if answer:
            self.waits = None
        return answer

    def absorb(self, other: "Timeout", window: Any, model: "Model") -> None:
        both = [w for w in (self.waits, other.waits) if w is not None]
        self.waits = (max if self.resets else min)(both, default=None)
        self.inner.absorb(other.inner, window, model)

    def grown(self, window: Any, model: "Model") -> None:
        self.inner.grown(window, model)

    def reset(self) -> None:
        self.inner.reset()
        self.waits = None


@dataclass
class Purging(Never):
    inner: Any

    def record(self, at: int | None, window: Any, model: "Model") -> Answer:
        return PURGE if self.inner.record(at, window, model) else None

    def due(self, window: Any) -> Due:
        return self.inner.due(window)  # type: ignore[no-any-return]

    def event(self, at: int, window: Any, model: "Model") -> Answer:
        return PURGE if self.inner.event(at, window, model) else None

    def clock(self, at: int, window: Any, model: "Model") -> Answer:
        return PURGE if self.inner.clock(at, window, model) else None

    def absorb(self, other: "Purging", window: Any, model: "Model") -> None:
        self.inner.absorb(other.inner, window, model)

    def grown(self, window: Any, model: "Model") -> None:
        self.inner.grown(window, model)

    def reset(self) -> None:
        self.inner.reset()


def _first(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


class Result(NamedTuple):
    """What a window gives: its records by number, sorted."""

    key: str
    window: tuple[int, ...]
    numbers: tuple[int, ...]
    timestamp: int | None


@dataclass
class Open:
    numbers: list[int]
    trigger: Any


class Model:
    """Windows of `assigner` with the trigger that `make` makes, one record at a time."""

    def __init__(self, assigner: Any, make: Any, lateness: int) -> None:
        self._assigner = assigner
        self._make = make
        self._lateness = lateness
        self.domain = assigner.domain
        self.watermark = MIN_WATERMARK
        self.now = 0
        self.windows: dict[tuple[str, Any], Open] = {}
        self.too_late: list[int] = []

    def record(self, row: tuple[str, int | None], number: int) -> Iterator[Result]:
        key, stamp = row
        at = self.now if self.domain == "processing" else stamp
        windows = [window for window in self._windows_of(key, at) if not self._is_gone(window)]
        for window in windows:
            one = self.windows.setdefault((key, window), Open([], self._make()))
            one.numbers.append(number)
            yield from self._answered(key, window, one.trigger.record(at, window, self), at)
        if not windows:
            self.too_late.append(number)

    def _windows_of(self, key: str, at: int | None) -> list[Any]:
        if self.domain == "none":
            return [GlobalWindow()]
        assert at is not None
        if hasattr(self._assigner, "gap"):
            return [self._session(key, TimeWindow(at, at + self._assigner.gap))]
        size, slide = self._assigner.size, getattr(self._assigner, "slide", self._assigner.size)
        starts = range(at - size + 1, at + 1)
        return [TimeWindow(s, s + size) for s in starts if (s - self._assigner.offset) % slide == 0]

    def _session(self, key: str, window: TimeWindow) -> TimeWindow:
        met = [w for k, w in self.windows if k == key and w.start <= window.end and window.start <= w.end]
        whole = TimeWindow(min(w.start for w in (window, *met)), max(w.end for w in (window, *met)))
        if self._is_gone(whole) or not met:
            return whole
        parts = [self.windows.pop((key, w)) for w in sorted(met)]
        first = parts[0]
        for other in parts[1:]:
            first.numbers += other.numbers
            first.trigger.absorb(other.trigger, whole, self)
        first.trigger.grown(whole, self)
        self.windows[key, whole] = first
        return whole

    def _is_gone(self, window: Any) -> bool:
        return bool(self.domain == "event" and window.max_timestamp + self._lateness <= self.watermark)

    def _answered(self, key: str, window: Any, answer: Answer, at: int | None) -> Iterator[Result]:
        one = self.windows[key, window]
        if answer and one.numbers:
            stamp = {"event": window.max_timestamp, "processing": None, "none": at}[self.domain]
            yield Result(key, tuple(window), tuple(sorted(one.numbers)), stamp)
        if answer == PURGE:
            one.numbers = []

    def event_time(self, watermark: int) -> Iterator[Result]:
        self.watermark = max(self.watermark, watermark)
        yield from self._passed("event", self.watermark)

    def clock_time(self, now: int) -> Iterator[Result]:
        self.now = max(self.now, now)
        yield from self._passed("clock", self.now)

    def end(self) -> Iterator[Result]:
        yield from self.event_time(MAX_WATERMARK)
        yield from self._passed("clock", MAX_WATERMARK, timed=False)

    def _passed(self, time: str, until: int, timed: bool = True) -> Iterator[Result]:
        """All that is due, in the order of times and keys."""
        while due := self._due(time, until):
            at, _, key = due[0]
            for window in sorted(window for one, window in self.windows if one == key):
                trigger = self.windows[key, window].trigger
                if trigger.due(window)[time] == at:
                    answer = (trigger.event if time == "event" else trigger.clock)(at, window, self)
                    is_timed = time == "event" and at < MAX_WATERMARK
                    yield from self._answered(key, window, answer, at if is_timed else None)
                if self._cleanup(window) == (time, at):
                    del self.windows[key, window]

    def _due(self, time: str, until: int) -> list[tuple[int, bytes, str]]:
        found = set()
        for (key, window), one in self.windows.items():
            gone = self._cleanup(window)
            at = _first(one.trigger.due(window)[time], gone[1] if gone is not None and gone[0] == time else None)
            if at is not None and at <= until:
                found.add((at, encode_key(key), key))
        return sorted(found)

    def _cleanup(self, window: Any) -> tuple[str, int] | None:
        if self.domain == "event":
            return "event", window.max_timestamp + self._lateness
        return ("clock", window.max_timestamp + 1) if self.domain == "processing" else None
