"""How many cores were busy while a rate was measured, and with whom: with the system, with the broker, in all. Where
the machine has no core left, that is what limits a rate.

Pure: samples of CPU seconds come in, and what lies between two of them is taken for even.
"""

from bisect import bisect_left
from typing import NamedTuple

import msgspec


class Sample(NamedTuple):
    """CPU seconds until a moment."""

    moment: float
    own: float
    """Of the system's processes."""
    broker: float
    machine: float
    """Of all processes."""


class Cores(msgspec.Struct, frozen=True):
    """On average."""

    own: float
    broker: float
    machine: float


class CpuUse:
    """Samples are added in order of time."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def between(self, begin: float, end: float) -> Cores | None:
        """None when there were no samples around that time, or too little of it."""
        before, after = self._at(begin), self._at(end)
        if before is None or after is None or end - begin < 0.1:
            return None
        spent = [(late - early) / (end - begin) for early, late in zip(before[1:], after[1:], strict=True)]
        return Cores(*spent)

    def _at(self, moment: float) -> Sample | None:
        at = bisect_left(self._samples, moment, key=lambda sample: sample.moment)
        if at in (0, len(self._samples)):
            return None
        early, late = self._samples[at - 1], self._samples[at]
        share = (moment - early.moment) / (late.moment - early.moment)
        return Sample(*(one + (other - one) * share for one, other in zip(early, late, strict=True)))
