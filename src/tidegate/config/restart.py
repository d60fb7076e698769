"""Restart strategies as data, and their text form. When to restart is decided by who runs the job, never here."""

import msgspec

from tidegate.config.values import format_duration, parse_duration, parse_whole, shown
from tidegate.errors import InvalidError


class RestartNone(msgspec.Struct, frozen=True, tag="none"):
    """The first failure ends the job."""

    def __str__(self) -> str:
        return "none"


class FixedDelay(msgspec.Struct, frozen=True, tag="fixed-delay"):
    """At most `attempts` restarts in all, each `delay` seconds after the failure."""

    attempts: int
    delay: float

    def __post_init__(self) -> None:
        _demand(self.attempts >= 1 and self.delay >= 0, "fixed-delay needs at least 1 attempt and no negative delay")

    def __str__(self) -> str:
        return f"fixed-delay:{self.attempts}:{format_duration(self.delay)}"


class FailureRate(msgspec.Struct, frozen=True, tag="failure-rate"):
    """Restart `delay` seconds after each failure, until more than `failures` came within `per` seconds."""

    failures: int
    per: float
    delay: float

    def __post_init__(self) -> None:
        _demand(
            self.failures >= 1 and self.per > 0, "failure-rate needs at least 1 failure and a time to count them in"
        )
        _demand(self.delay >= 0, "failure-rate cannot have a negative delay")

    def __str__(self) -> str:
        return f"failure-rate:{self.failures}:{format_duration(self.per)}:{format_duration(self.delay)}"


class ExponentialDelay(msgspec.Struct, frozen=True, tag="exponential-delay"):
    """Restart for ever, after a delay that grows.

    `initial` seconds after the first failure, `multiplier` times longer after each further one, at most `maximum`; each
    delay is changed at random by at most the share `jitter`; after `reset_after` seconds of health it begins anew.
    """

    initial: float = 1.0
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after: float = 300.0

    def __post_init__(self) -> None:
        _demand(
            0 < self.initial <= self.maximum,
            "exponential-delay needs delays above 0 and an initial one within the maximum",
        )
        _demand(self.multiplier >= 1, "exponential-delay needs a multiplier of at least 1")
        _demand(0 <= self.jitter < 1, "exponential-delay needs a jitter from 0 to below 1")
        _demand(self.reset_after > 0, "exponential-delay needs a time of health to reset after")

    def __str__(self) -> str:
        times = ":".join(format_duration(seconds) for seconds in (self.initial, self.maximum, self.reset_after))
        usual = (self.multiplier, self.jitter) == (2.0, 0.1)
        return f"exponential-delay:{times}" + (
            "" if usual else f" (multiplier {self.multiplier}, jitter {self.jitter})"
        )


RestartStrategy = RestartNone | FixedDelay | FailureRate | ExponentialDelay
_REMEDY = (
    "Write none, fixed-delay:N:DELAY, failure-rate:N:PER:DELAY, exponential-delay or "
    "exponential-delay:INITIAL:MAX[:RESET]."
)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidError(otherwise, remedy=_REMEDY)


def parse_restart(value: object) -> RestartStrategy:
    """A restart strategy from its text; one that is data already is returned as it is. Raises InvalidError."""
    if isinstance(value, RestartStrategy):
        return value
    match value.split(":") if isinstance(value, str) else []:
        case ["none"]:
            return RestartNone()
        case ["fixed-delay", attempts, delay]:
            return FixedDelay(parse_whole(attempts, 1), parse_duration(delay))
        case ["failure-rate", failures, per, delay]:
            return FailureRate(parse_whole(failures, 1), parse_duration(per), parse_duration(delay))
        case ["exponential-delay"]:
            return ExponentialDelay()
        case ["exponential-delay", initial, maximum]:
            return ExponentialDelay(parse_duration(initial), parse_duration(maximum))
        case ["exponential-delay", initial, maximum, reset]:
            return ExponentialDelay(parse_duration(initial), parse_duration(maximum), reset_after=parse_duration(reset))
    raise InvalidError(f"{shown(value)} is not a restart strategy", remedy=_REMEDY)
