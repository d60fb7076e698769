"""The event time of one task that makes watermarks: of each of its splits, and of all together.

A split is what has an order of its own: a partition, a file; a task in the middle of a job that makes watermarks of
what comes in has one. Idleness is measured in the seconds in which the task could have taken records, so that a task
that is held back does not take its splits for idle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.elements import MIN_WATERMARK, Watermark
from tidegate.event_time.strategies import WatermarkGenerator, WatermarkStrategy
from tidegate.event_time.watermarks import merge


@dataclass
class _Split:
    generator: WatermarkGenerator
    watermark: int
    """What was said of it, or restored: it never goes back."""
    seen_at: float
    """`able` at its last record."""
    has_ended: bool = False

    def now(self) -> int:
        self.watermark = max(self.watermark, self.generator.watermark)
        return self.watermark


class EventTimeProgress:
    """`start`: the watermark of the whole that was restored. Before the first `assigned` nothing is known of how many
    splits there will be, and the whole waits."""

    def __init__(self, strategy: WatermarkStrategy[Any], start: int = MIN_WATERMARK) -> None:
        self.strategy = strategy
        self.able = 0.0
        """Seconds so far in which the task could have taken records; its owner counts them."""
        self.reading = ""
        """The split whose records are being processed."""
        self.may_advance = False
        """Whether anything has come since the last `advance`."""
        self.merged = Watermark(start)
        """What `advance` has found last."""
        self._splits: dict[str, _Split] = {}
        self._is_assigned = False

    def assigned(self, restored: Mapping[str, int | None]) -> None:
        """These splits are read, too, with the watermarks that were kept of them; none when there are none for this
        task."""
        self._is_assigned = self.may_advance = True
        for split, watermark in restored.items():
            start = MIN_WATERMARK if watermark is None else watermark
            self._splits[split] = _Split(self.strategy.generator(), start, self.able)

    def observe(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        """These records of the split `reading` came; at least one."""
        split = self._splits[self.reading]
        split.seen_at = self.able
        split.generator.on_batch(values, timestamps)
        self.may_advance = True

    def ended(self, split: str) -> None:
        """Nothing comes of it any more."""
        self._splits[split].has_ended = self.may_advance = True

    def watermark_of(self, split: str) -> int | None:
        """What a checkpoint keeps of it; None when it has said nothing yet."""
        watermark = self._splits[split].now()
        return None if watermark == MIN_WATERMARK else watermark

    def advance(self) -> Watermark | None:
        """What is new of the whole; None when nothing is."""
        if not self._is_assigned:
            return None
        self.may_advance = False
        timeout = self.strategy.idle_after
        splits = self._unended
        idle = [timeout is not None and self.able - split.seen_at >= timeout for split in splits]
        merged = merge([split.now() for split in splits], idle, self.merged.timestamp)
        if merged == self.merged:
            return None
        self.merged = merged
        return merged

    @property
    def seconds_to_idleness(self) -> float | None:
        """After how many more seconds in which the task can take records the next split becomes idle; None when none
        will."""
        timeout = self.strategy.idle_after
        if timeout is None:
            return None
        left = (split.seen_at + timeout - self.able for split in self._unended)
        return min((seconds for seconds in left if seconds > 0), default=None)

    @property
    def _unended(self) -> list[_Split]:
        return [split for split in self._splits.values() if not split.has_ended]
