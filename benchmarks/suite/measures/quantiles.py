"""Quantiles of times, kept as a histogram: as many times as there are records, in the memory of a few thousand numbers.

Pure. What is asked of nothing is an error, never a zero.
"""

import math
from collections import Counter
from typing import NamedTuple

STEP = 0.0001
"""Seconds, the resolution. Times are rounded up, so that none is told shorter than it was."""


class NoMeasure(Exception):
    """What was measured does not count, with the reason."""


class Quantiles(NamedTuple):
    """In seconds."""

    times: int
    """How many were taken."""
    p50: float
    p99: float
    p999: float
    longest: float


class Histogram:
    """Of times in seconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, seconds: float, times: int = 1) -> None:
        """Raises NoMeasure for a time below zero, which nothing takes."""
        if seconds < 0:
            raise NoMeasure(f"something took {seconds:.4f} s: two clocks, or what came was not what was sent")
        # Half a millionth of a step is the error of floating point, not a time.
        self._counts[math.ceil(seconds / STEP - 5e-7)] += times

    def quantile(self, share: float) -> float:
        """The smallest time that at least this share of all did not exceed. Raises NoMeasure when there is none."""
        if not self._counts:
            raise NoMeasure("nothing was measured")
        needed = max(1, math.ceil(share * len(self) - 1e-9))
        for step in sorted(self._counts):
            needed -= self._counts[step]
            if needed <= 0:
                return step * STEP
        raise AssertionError("a share above 1")

    def summary(self) -> Quantiles:
        """Raises NoMeasure when there is nothing."""
        return Quantiles(len(self), *(self.quantile(share) for share in (0.5, 0.99, 0.999, 1.0)))
