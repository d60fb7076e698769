"""What simulated processes take for the time: clocks that start anywhere, run too fast or too slow, and are set while
they run. The monotonic part never goes back; nobody may rely on anything else.

A clock only translates: the one time by which events happen is the scheduler's.
"""

from dataclasses import dataclass
from random import Random

from tidegate.clock import Now
from tidegate.testing.sim.scheduler import WALL_ORIGIN, Scheduler

_ROUNDING = 1e-9
"""Seconds by which a sleeper wakes too late, so that it never wakes too early."""


@dataclass
class ClockErrors:
    """How wrong the clocks of one world are at most. `offset`: seconds of the wall clock; `drift`: a part of one."""

    offset: float = 0.0
    drift: float = 0.0

    def clock(self, scheduler: Scheduler, random: Random) -> "ProcessClock":
        """That of one more process."""
        if self.offset == 0.0 and self.drift == 0.0:
            return ProcessClock(scheduler)
        rate = 1.0 + random.uniform(-self.drift, self.drift)
        return ProcessClock(scheduler, random.uniform(0.0, 1e6), rate, random.uniform(-self.offset, self.offset))


class ProcessClock:
    """The clock of one process. `origin`: what its monotonic clock showed when the world began; `rate`: its seconds in
    one second."""

    def __init__(self, scheduler: Scheduler, origin: float = 0.0, rate: float = 1.0, offset: float = 0.0) -> None:
        self._scheduler = scheduler
        self._origin = origin
        self._rate = rate
        self._offset = offset

    def now(self) -> Now:
        return self.at(self._scheduler.seconds)

    def at(self, seconds: float) -> Now:
        """What it shows at this time of the scheduler."""
        passed = seconds if self._rate == 1.0 else self._rate * seconds
        return Now(self._origin + passed, WALL_ORIGIN + passed + self._offset)

    def seconds_at(self, monotonic: float) -> float:
        """When, by the scheduler, it shows at least this much."""
        if self._origin == 0.0 and self._rate == 1.0:
            return monotonic
        return (monotonic - self._origin) / self._rate + _ROUNDING

    def set_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock forward or, below 0, back by so much."""
        self._offset += seconds
