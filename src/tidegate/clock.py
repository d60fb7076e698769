"""Time comes in from outside: the only module that may read a clock, and the type in which moments are handed round.

Protocol objects never hold a clock; they get `now` with each event. Shells hold a `Clock`, real or simulated.
"""

import time
from typing import NamedTuple, Protocol


class Now(NamedTuple):
    """One moment, read once per event."""

    monotonic: float
    """Seconds on a clock that never goes back; for durations and deadlines."""
    wall: float
    """Seconds since 1970, UTC; for what people read. Never compared with another machine's to decide anything."""


class Clock(Protocol):
    def now(self) -> Now: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Now:
        return Now(time.monotonic(), time.time())
