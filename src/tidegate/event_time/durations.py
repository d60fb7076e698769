"""Durations that a program gives to something of event time: an error says to what."""

from collections.abc import Callable

from tidegate.config.values import parse_duration, parse_positive_duration
from tidegate.errors import InvalidError


def seconds_of(what: str, value: object, parse: Callable[[object], float] = parse_duration) -> float:
    """Seconds of a duration, '5s' or a timedelta, which `what` was given. Raises InvalidError as `parse` does."""
    try:
        return parse(value)
    except InvalidError as error:
        raise InvalidError(f"{what}: {error.failure.message}", remedy=error.failure.remedy) from error


def milliseconds_of(what: str, value: object) -> int:
    """As `seconds_of`, whole milliseconds, at least one."""
    milliseconds = round(seconds_of(what, value, parse_positive_duration) * 1000)
    if milliseconds < 1:
        raise InvalidError(f"{what}: {value!r} is less than a millisecond", remedy="Give at least 1ms.")
    return milliseconds
