"""What a program says of a state's time to live, and the two clocks that it may go by. Nothing here reads one.

(In Flink: StateTtlConfig, FLIP-25.)
"""

from datetime import timedelta
from typing import Literal

from tidegate.config.values import parse_positive_duration
from tidegate.errors import InvalidError
from tidegate.serializers.stamped import UNKNOWN_TIME


class Ttl:
    """How long a value of a state lives: `tg.ValueState(int, ttl=tg.Ttl("7d"))`.

    after: '30m', '7d' or a timedelta, from its last use.
    update: what counts as use, writing it, or reading it too. Of a list each element has a time of its own, of a map
    each entry.
    clock: the machine's, or 'event': the highest timestamp among the records that the subtask has seen.
    expired: whether a value that has expired and is met before it was cleaned away is hidden, or returned this once.

    Raises InvalidError.
    """

    __slots__ = ("after", "clock", "expired", "update")

    def __init__(
        self,
        after: str | timedelta,
        *,
        update: Literal["write", "read-and-write"] = "write",
        clock: Literal["wall", "event"] = "wall",
        expired: Literal["hidden", "visible"] = "hidden",
    ) -> None:
        self.after = round(parse_positive_duration(after) * 1000)
        """Milliseconds."""
        self.update = _one_of(update, "update", ("write", "read-and-write"))
        self.clock = _one_of(clock, "clock", ("wall", "event"))
        self.expired = _one_of(expired, "expired", ("hidden", "visible"))

    def __repr__(self) -> str:
        return f"Ttl({self.after} ms, update={self.update!r}, clock={self.clock!r}, expired={self.expired!r})"


def _one_of(value: str, argument: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidError(f"Ttl({argument}={value!r}) is not known", remedy=f"Use {' or '.join(map(repr, choices))}.")
    return value


class TtlTime:
    """What time it is, on both clocks, for the handles of one operator. Its owner sets it before user code runs."""

    __slots__ = ("event", "wall")

    def __init__(self) -> None:
        self.wall = UNKNOWN_TIME
        """Milliseconds since 1970."""
        self.event = UNKNOWN_TIME
        """The highest timestamp so far; nothing expires before the first."""
