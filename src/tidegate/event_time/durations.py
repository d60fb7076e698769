"""Durations that a program gives to something of event time: an error says to what."""

from collections.abc import Callable

from tidegate.config.values import parse_duration
from tidegate.errors import InvalidError


def seconds_of(what: str, value: object, parse: Callable[[object], float] = parse_duration) -> float:
    """Seconds of a duration, '5s' or a timedelta, which `what` was given. Raises InvalidError as `parse` does."""
    try:
        return parse(value)
    except InvalidError as error:
        raise InvalidError(f"{what}: {error.failure.message}", remedy=error.failure.remedy) from error
