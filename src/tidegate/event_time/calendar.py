"""Windows by the clock on the wall of a time zone. Pure: what a zone's rules say, and nothing of what time it is."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.config.values import format_duration
from tidegate.errors import InvalidError

DAY = 86_400_000
"""Milliseconds."""


class Calendar:
    """Windows by the clock on the wall of one zone: whole days, or equal parts of a day. A day with a change of the
    clocks is longer or shorter, and so is the part of it in which the change is."""

    def __init__(self, zone: ZoneInfo, size: int, offset: int) -> None:
        if size % DAY and DAY % size:
            raise InvalidError(
                f"windows of {format_duration(size / 1000)} in a time zone do not fit into days",
                remedy="Give whole days, or what divides a day: 1h, 6h, 12h, 24h.",
            )
        self._zone = zone
        self._size = size
        self._offset = offset
        self._bounds: list[int] = []
        """Where windows begin, in order, around the timestamps of late: what was found is not asked for again."""

    def bounds_of(self, timestamp: int) -> tuple[int, int]:
        """Where the window that `timestamp` is in begins and where it ends."""
        place = bisect_right(self._bounds, timestamp)
        if place == 0 or place == len(self._bounds):
            self._bounds = self._around(timestamp)
            place = bisect_right(self._bounds, timestamp)
        return self._bounds[place - 1], self._bounds[place]

    def _around(self, timestamp: int) -> list[int]:
        """The beginnings of a few windows before `timestamp` and many behind it."""
        wall = datetime.fromtimestamp(timestamp // 1000, self._zone).replace(tzinfo=None)
        number = (_wall_milliseconds(wall) - self._offset) // self._size
        found = [self._instant(number + step) for step in range(-3, 65)]
        # Where the clocks go forward over a beginning, two of them are the same instant.
        return sorted(dict.fromkeys(found))

    def _instant(self, number: int) -> int:
        """When window `number`, counted from 1970 by the clock on the wall, begins."""
        wall = datetime(1970, 1, 1) + timedelta(milliseconds=number * self._size + self._offset)  # noqa: DTZ001 - the wall's
        return round(wall.replace(tzinfo=self._zone).timestamp() * 1000)


def _wall_milliseconds(wall: datetime) -> int:
    return round((wall.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidError(
            f"{name!r} is not a time zone that this machine knows",
            remedy="Give a name of the IANA database, Europe/Berlin; `pip install tzdata` where the system has none.",
        ) from error
