"""How the calls of one process reach what is outside of it: at once, later, not at all, or without an answer.

Whoever calls learns only that no answer came; whether the call had its effect, will have it, or never will, is drawn. A
call never has an effect twice: a caller that repeats it does that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from tidegate.errors import UnavailableError
from tidegate.testing.sim.scheduler import Process

T = TypeVar("T")
SLOW_SECONDS = 2.0


@dataclass
class FaultRates:
    """Of one outside system: chances per call. All are zero once the world heals."""

    refused: float = 0.0
    """No answer, and nothing happened."""
    answer_lost: float = 0.0
    """No answer, but it happened."""
    lands_later: float = 0.0
    """No answer, and it will happen, later."""
    pause: float = 0.0
    """A blocking call stands still before and behind its effect while everything else goes on."""
    longest_pause: float = 0.05
    """Seconds."""
    latest_landing: float = 2.0
    """Seconds."""
    is_out: bool = False
    """Nothing gets through."""
    is_slow: bool = False
    """Each call stands still, for up to `SLOW_SECONDS`."""

    def heal(self) -> None:
        self.is_slow = False
        self.refused = self.answer_lost = self.lands_later = 0.0
        self.longest_pause = min(self.longest_pause, 0.01)
        self.is_out = False


class Gate(Protocol):
    def call(
        self,
        what: str,
        effect: Callable[[], T],
        error: type[UnavailableError] = UnavailableError,
        *,
        can_land_later: bool = False,
    ) -> T:
        """Do `effect`, with its result or its exception; or raise `error`, whatever became of it."""
        ...

    def chance(self) -> float:
        """A number from 0 to 1."""
        ...


class OpenGate:
    """Every call has its effect and is answered."""

    def call(
        self,
        what: str,
        effect: Callable[[], T],
        error: type[UnavailableError] = UnavailableError,
        *,
        can_land_later: bool = False,
    ) -> T:
        return effect()

    def chance(self) -> float:
        return 0.0


class _Fate(Enum):
    ANSWERED = "answered"
    REFUSED = "refused"
    ANSWER_LOST = "answer lost"
    LANDS_LATER = "lands later"


class FaultyGate:
    """The gate of `process` to the system `to`."""

    def __init__(self, process: Process, to: str, rates: FaultRates) -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._rates = rates
        self._random = process.scheduler.random(f"{process.name}/gate/{to}")

    def call(
        self,
        what: str,
        effect: Callable[[], T],
        error: type[UnavailableError] = UnavailableError,
        *,
        can_land_later: bool = False,
    ) -> T:
        self._pause()
        fate = self._draw(can_land_later)
        self._scheduler.note(f"{self._process.name} {what}: {fate.value}")
        if fate is _Fate.LANDS_LATER:
            delay = self._random.uniform(0.0, self._rates.latest_landing)
            self._scheduler.plan(delay, f"{what} of {self._process.name} lands", lambda: _land(effect))
        if fate in (_Fate.LANDS_LATER, _Fate.REFUSED):
            raise error(f"{what}: no answer")
        result = effect()
        self._pause()
        if fate is _Fate.ANSWER_LOST:
            raise error(f"{what}: no answer")
        return result

    def chance(self) -> float:
        return self._random.random()

    def _pause(self) -> None:
        if self._rates.is_slow and self._scheduler.may_block:
            self._scheduler.block(self._random.uniform(0.0, SLOW_SECONDS))
        if self._scheduler.may_block and self._random.random() < self._rates.pause:
            self._scheduler.block(self._random.uniform(0.0, self._rates.longest_pause))

    def _draw(self, can_land_later: bool) -> _Fate:
        rates, drawn = self._rates, self._random.random()
        if rates.is_out or drawn < rates.refused:
            return _Fate.REFUSED
        if drawn < rates.refused + rates.answer_lost:
            return _Fate.ANSWER_LOST
        if can_land_later and drawn < rates.refused + rates.answer_lost + rates.lands_later:
            return _Fate.LANDS_LATER
        return _Fate.ANSWERED


def _land(effect: Callable[[], object]) -> None:
    try:
        effect()
    except Exception:
        # Nobody waits for the answer any more.
        return
