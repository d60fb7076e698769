"""The event time of one task that makes watermarks: of each of its splits, and of all together.

A split is what has an order of its own: a partition, a file; a task in the middle of a job that makes watermarks of
what comes in has one. Idleness is measured in the seconds in which the task could have taken records and did look for
them: a task that is held back, that works on slow records, or that was stopped for a while, must not take for idle what
it has merely not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.elements import MIN_WATERMARK, Watermark
from tidegate.event_time.strategies import WatermarkGenerator, WatermarkStrategy
from tidegate.event_time.watermarks import merge

LONGEST_LOOK = 0.25
"""Of the timeout of idleness: what one look that finds nothing counts at most. So there must be several."""


@dataclass
class _Split:
    generator: WatermarkGenerator
    watermark: int
    """What was said of it, or restored: it never goes back."""
    seen_at: float
    """`able` at its last record."""
    has_ended: bool = False
    is_paused: bool = False
    """It waits for others: that it brings nothing says nothing."""

    def now(self) -> int:
        self.watermark = max(self.watermark, self.generator.watermark)
        return self.watermark


class EventTimeProgress:
    """`start`: the watermark of the whole that was restored. Before the first `assigned` nothing is known of how many
    splits there will be, and the whole waits."""

    def __init__(self, strategy: WatermarkStrategy[Any], start: int = MIN_WATERMARK) -> None:
        self.strategy = strategy
        self.able = 0.0
        """Seconds so far in which the task has looked for records of every split."""
        self.polls = 0
        """How often the input was asked for records since `able` was counted last. Splits take turns."""
        self._uncounted = 0.0
        self.reading = ""
        """The split whose records are being processed."""
        self.may_advance = False
        """Whether anything has come since the last `advance`."""
        self.merged = Watermark(start)
        """What `advance` has found last."""
        self._splits: dict[str, _Split] = {}
        self._unended_splits = 0
        self._is_assigned = False
        self._bound = MIN_WATERMARK
        self._paused: dict[str, None] = {}
        self._unchecked: dict[str, None] = {}
        """Splits that may be on the other side of the bound than when that was looked at last."""

    def passed(self, seconds: float, found_nothing: bool) -> None:
        """In so many more seconds it could have taken records; `found_nothing`: at their end there were none at all.

        What counts is limited by what was looked at. All of the time that counts may be one long call of user code, and
        then a split is only known to have brought nothing when its turn has come; or the process was stopped, and a
        connection takes a moment to bring what is there.
        """
        timeout = self.strategy.idle_after
        if timeout is None:
            return
        self._uncounted += seconds
        share = LONGEST_LOOK if found_nothing else self.polls / (self._unended_splits + 1)
        if share > 0.0:
            self.able += min(self._uncounted, timeout * share)
            self._uncounted, self.polls = 0.0, 0

    def assigned(self, restored: Mapping[str, int | None]) -> None:
        """These splits are read, too, with the watermarks that were kept of them; none when there are none for this
        task."""
        self._is_assigned = self.may_advance = True
        for split, watermark in restored.items():
            start = MIN_WATERMARK if watermark is None else watermark
            self._splits[split] = _Split(self.strategy.generator(), start, self.able)
            self._unended_splits += 1
            self._unchecked[split] = None

    def observe(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        """These records of the split `reading` came; at least one."""
        split = self._splits[self.reading]
        split.seen_at = self.able
        split.generator.on_batch(values, timestamps)
        self._unchecked[self.reading] = None
        self.may_advance = True

    def ended(self, split: str) -> None:
        """Nothing comes of it any more."""
        ended = self._splits[split]
        self._unended_splits -= not ended.has_ended
        ended.has_ended = self.may_advance = True
        ended.is_paused = False
        self._paused.pop(split, None)

    def watermark_of(self, split: str) -> int | None:
        """What a checkpoint keeps of it; None when it has said nothing yet."""
        watermark = self._splits[split].now()
        return None if watermark == MIN_WATERMARK else watermark

    def advance(self) -> Watermark | None:
        """What is new of the whole; None when nothing is."""
        merged = self.reached
        if merged is None:
            return None
        self.may_advance = False
        if merged == self.merged:
            return None
        self.merged = merged
        return merged

    @property
    def reached(self) -> Watermark | None:
        """How far the whole has come by now, whether that was said or not; None before the first `assigned`."""
        if not self._is_assigned:
            return None
        splits = self._unended
        return merge([split.now() for split in splits], list(map(self._is_idle, splits)), self.merged.timestamp)

    @property
    def seconds_to_look(self) -> float | None:
        """After how many more seconds it has to be looked whether a split is idle by then; None when none will be."""
        timeout = self.strategy.idle_after
        if timeout is None:
            return None
        left = (split.seen_at + timeout - self.able for split in self._unended if not split.is_paused)
        return min((min(seconds, timeout * LONGEST_LOOK) for seconds in left if seconds > 0), default=None)

    # -- alignment: a new one holds back every split whose watermark is known, until `align` is called --

    def align(self, bound: int) -> None:
        """A split beyond `bound` is not to be read. Bounds never go back: a lower one came late."""
        self._bound = max(self._bound, bound)
        self._unchecked.update(self._paused)

    def pause_and_resume(self) -> tuple[list[str], list[str]]:
        """The splits that are to be read no more for now, and those that are to be read again; none twice, and none
        that has ended. Idleness is not counted meanwhile, and from the beginning afterwards."""
        to_pause: list[str] = []
        to_resume: list[str] = []
        for id in self._unchecked:
            split = self._splits[id]
            is_ahead = not split.has_ended and split.now() > self._bound
            if is_ahead != split.is_paused:
                split.is_paused, split.seen_at = is_ahead, self.able
                (to_pause if is_ahead else to_resume).append(id)
        self._unchecked = {}
        self._paused.update(dict.fromkeys(to_pause))
        for id in to_resume:
            del self._paused[id]
        return to_pause, to_resume

    @property
    def is_held(self) -> bool:
        """Whether there are splits to read, and every one of them waits."""
        return 0 < self._unended_splits == len(self._paused)

    def _is_idle(self, split: _Split) -> bool:
        timeout = self.strategy.idle_after
        return timeout is not None and not split.is_paused and self.able - split.seen_at >= timeout

    @property
    def _unended(self) -> list[_Split]:
        return [split for split in self._splits.values() if not split.has_ended]
