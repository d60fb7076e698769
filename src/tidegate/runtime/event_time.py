"""Event time in a task: how far it has come, what that brings about in its chain, and what those behind it are told.

A watermark goes through the chain like a batch: what it brings about has left before it is passed on, and before any
barrier. Most tasks take the watermarks that come to them; those of a source, and others that make watermarks anew, have
`WatermarkTurns`. Time is handed in; nothing here waits.
"""

from collections.abc import Callable, Sequence

from tidegate.elements import MIN_WATERMARK, Watermark
from tidegate.event_time.alignment import WatermarkAlignment
from tidegate.event_time.progress import EventTimeProgress
from tidegate.runtime.chain import Chain
from tidegate.runtime.router import Output

MOST_REPORTS = 20
"""Of one task, in an `update_interval` of the alignment of watermarks."""


class WatermarkReports:
    """Of one task of an aligned source: `tell` says how far it has come, in every `update_interval`, whether that is
    new or not, and earlier when it has come much further."""

    def __init__(
        self, progress: EventTimeProgress, alignment: WatermarkAlignment, tell: Callable[[Watermark], None]
    ) -> None:
        self._progress = progress
        self._alignment = alignment
        self._tell = tell
        self._told = MIN_WATERMARK
        self._next_at = self._earliest_at = 0.0

    def stepped(self, now: float) -> None:
        """A step has ended at `now`."""
        reached = self._progress.reached if now >= self._earliest_at else None
        if reached is None:
            return
        interval = self._alignment.update_interval
        self._earliest_at = now + interval / MOST_REPORTS
        if now >= self._next_at or reached.timestamp >= self._told + self._alignment.worth_telling:
            self._next_at = now + interval
            self._told = reached.timestamp
            self._tell(reached)

    @property
    def wake_at(self) -> float | None:
        """When the next is due."""
        return self._next_at or None


class WatermarkTurns:
    """Of one task that makes watermarks. `interval`: seconds between two of them at least; watermarks cut batches
    short, so that one behind each record would cost much."""

    def __init__(self, progress: EventTimeProgress, interval: float, reports: WatermarkReports | None = None) -> None:
        self._progress = progress
        self._interval = interval
        self._reports = reports
        self._next_at = 0.0
        self._able_since: float | None = None

    def stepped(self, now: float, could_go_on: bool, found_nothing: bool) -> None:
        """A step has ended at `now`; `could_go_on`: with more input it could go on; `found_nothing`: it looked for
        more."""
        if self._able_since is not None:
            self._progress.passed(now - self._able_since, found_nothing)
        self._able_since = now if could_go_on else None
        if self._reports is not None:
            self._reports.stepped(now)

    def take(self, now: float) -> Watermark | None:
        """The next watermark; None when it is not time, or there is nothing new."""
        if now < self._next_at:
            return None
        self._next_at = now + self._interval
        return self._progress.advance()

    def wake_at(self, now: float) -> float | None:
        """When there may be a next one, or something to report, although no record comes."""
        report_at = None if self._reports is None else self._reports.wake_at
        return min((at for at in (self._advances_at(now), report_at) if at is not None), default=None)

    def _advances_at(self, now: float) -> float | None:
        if self._progress.may_advance:
            return self._next_at
        seconds = self._progress.seconds_to_look
        return None if seconds is None else max(now + seconds, self._next_at)


class TaskEventTime:
    """Of one task. watermark: what it had reached in the restored checkpoint. turns: of a task that makes watermarks;
    those that come to it are of no interest then. must_stop: whether its time is over."""

    def __init__(
        self,
        chain: Chain,
        outputs: Sequence[Output],
        watermark: int,
        turns: WatermarkTurns | None,
        must_stop: Callable[[], bool],
    ) -> None:
        self._chain = chain
        self._outputs = outputs
        self._watermark = watermark
        """The highest so far; not the end of event time, which no later start must remember."""
        self._turns = turns
        self._must_stop = must_stop
        # Those behind it may be new, or have forgotten: what it knew is said again.
        self._passing = Watermark(watermark) if watermark != MIN_WATERMARK else None

    @property
    def watermark(self) -> int | None:
        """What a checkpoint keeps; None when nothing is known."""
        return None if self._watermark == MIN_WATERMARK else self._watermark

    def pass_on(self) -> bool:
        """Tell those behind of the watermark with which the chain is done; only when that is idle. False when there is
        none."""
        if self._passing is None:
            return False
        for output in self._outputs:
            output.broadcast(self._passing)
        self._passing = None
        return True

    def came(self, watermark: Watermark) -> None:
        """This came through the gate; only when the chain is idle."""
        if self._turns is None:
            self._advance(watermark)

    def make(self, now: float) -> bool:
        """Make the next watermark, if it is time; only when the chain is idle. False when there is none."""
        watermark = self._turns.take(now) if self._turns is not None else None
        if watermark is None:
            return False
        self._advance(watermark)
        return True

    def stepped(self, now: float, could_go_on: bool, found_nothing: bool) -> None:
        """As `WatermarkTurns.stepped`."""
        if self._turns is not None:
            self._turns.stepped(now, could_go_on, found_nothing)

    def wake_at(self, now: float) -> float | None:
        """When there may be another watermark although nothing comes."""
        return None if self._turns is None else self._turns.wake_at(now)

    def _advance(self, watermark: Watermark) -> None:
        self._watermark = max(self._watermark, watermark.timestamp)
        self._passing = watermark
        self._chain.advance(watermark.timestamp, self._must_stop)
