"""Watermarks: how far a stream has come in event time, and how those of several inputs become one.

A watermark of `t` says that no record with a timestamp of `t` or earlier is expected any more; one that comes all the
same is late. Watermarks never go back. An input that is *idle* is not waited for: it says nothing about time until its
next record. Times are whole milliseconds since 1970 (in Flink: Watermark, WatermarkStatus).
"""

from collections.abc import Sequence

from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Watermark
from tidegate.errors import InternalError


class WatermarkMerger:
    """The watermark of `inputs` inputs together: the smallest of those that are not idle.

    It never goes back, also when an input joins that is behind. While all are idle, so is the whole, and it is where
    the furthest of them is. An input that has ended is waited for no more: it has the largest watermark.
    """

    def __init__(self, inputs: int, start: int = MIN_WATERMARK) -> None:
        self._watermarks = [MIN_WATERMARK] * inputs
        self._idle = [False] * inputs
        self.merged = Watermark(start)
        """Of all together, as of now. At the beginning it is `start`: what was known before a restore."""

    def advance(self, position: int, watermark: Watermark) -> Watermark | None:
        """Input `position` says this. Returns what is new of the whole, None when nothing is."""
        if watermark.timestamp < self._watermarks[position]:
            raise InternalError(
                f"the watermark of input {position} went back from {self._watermarks[position]} to "
                f"{watermark.timestamp}"
            )
        self._watermarks[position] = watermark.timestamp
        self._idle[position] = watermark.is_idle
        return self._changed()

    def end(self, position: int) -> Watermark | None:
        """Input `position` has ended. As `advance`."""
        return self.advance(position, Watermark(MAX_WATERMARK))

    def _changed(self) -> Watermark | None:
        merged = merge(self._watermarks, self._idle, self.merged.timestamp)
        if merged == self.merged:
            return None
        self.merged = merged
        return merged


def merge(watermarks: Sequence[int], idle: Sequence[bool], least: int) -> Watermark:
    """The watermark of several inputs, which before was `least`."""
    active = [watermark for watermark, is_idle in zip(watermarks, idle, strict=True) if not is_idle]
    if active:
        return Watermark(max(least, min(active)), False)
    # As far as any of them had come: otherwise it would depend on which of them became idle last.
    return Watermark(max(least, *watermarks) if watermarks else least, True)
