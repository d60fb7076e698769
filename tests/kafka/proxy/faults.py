"""What is wrong with the network now: one `Line` for each direction, shared by all connections of a proxy.

It says what becomes of a frame and when how much may pass, and moves nothing itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

BURST = 0.02
"""Seconds of a slow line that may pass at once."""
SMALLEST = 512
"""Bytes that pass at once on the slowest line."""


@dataclass
class Rule:
    """A fault of the next `left` frames of some kinds; without `left` of all that come."""

    apis: frozenset[str]
    left: int | None

    def takes(self, api: str) -> bool:
        if api not in self.apis or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass
class Loss(Rule):
    """`resets`: the connection breaks with it, else it falls silent in this direction."""

    resets: bool


@dataclass
class Hold(Rule):
    """Frames stand, and what follows them on their connections, until it is released."""

    frames: int = 0
    is_released: bool = False


R = TypeVar("R", bound=Rule)


@dataclass
class Line:
    random: Random
    delay: float = 0.0
    jitter: float = 0.0
    """Seconds; each frame waits between `delay` and `delay + jitter`."""
    is_cut: bool = False
    rate: float | None = None
    """Bytes a second, of all connections together."""
    losses: list[Loss] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    _credit: float = 0.0
    _credited_at: float = 0.0

    def heal(self) -> None:
        """What is held stays held."""
        self.delay = self.jitter = 0.0
        self.is_cut = False
        self.rate = None
        self.losses.clear()

    def loss_of(self, api: str) -> Loss | None:
        return _first(self.losses, api)

    def hold_of(self, api: str) -> Hold | None:
        return _first(self.holds, api)

    def due(self, now: float) -> float:
        """When a frame that has come now is there."""
        return now + self.delay + self.jitter * self.random.random() if self.delay or self.jitter else now

    # ---- a slow line -----------------------------------------------------------------------------------------------

    def throttle(self, bytes_per_second: float | None) -> None:
        self.rate = bytes_per_second
        self._credit = 0.0

    def allowed(self, now: float, wanted: int) -> int:
        """How many of `wanted` bytes may pass now; nothing until it is worth it."""
        if self.rate is None:
            return wanted
        burst = max(self.rate * BURST, SMALLEST)
        self._credit = min(burst, self._credit + (now - self._credited_at) * self.rate)
        self._credited_at = now
        return min(wanted, int(self._credit)) if self._credit >= min(wanted, burst) else 0

    def spend(self, count: int) -> None:
        self._credit -= count

    def next_credit(self, now: float, wanted: int) -> float:
        """When something may pass again."""
        assert self.rate is not None
        missing = min(wanted, max(self.rate * BURST, SMALLEST)) - self._credit
        return now + max(missing, 1) / self.rate


def _first(rules: Iterable[R], api: str) -> R | None:
    return next((rule for rule in rules if rule.takes(api)), None)
