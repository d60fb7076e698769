"""Waiting for something outside, told to the person who watches: after a few seconds, and then every ten. Pure; it
decides nothing, and whoever waits decides for how long."""

from tidegate.clock import Now
from tidegate.scheduling.protocol import Tell, WakeAt

TELL_AFTER = 3.0
"""Seconds of silence before it is told."""
TELL_EVERY = 10.0
"""Seconds between two tellings."""


class Wait:
    """For one answer. `what`: 'sink out: the list of its open transactions'."""

    def __init__(self, what: str, now: Now) -> None:
        self.what = what
        self._since = now.monotonic
        self._tell_at = now.monotonic + TELL_AFTER
        self._why = "no answer yet"

    @property
    def next(self) -> WakeAt:
        """When `told` has something to say."""
        return WakeAt(self._tell_at)

    def seconds(self, now: Now) -> float:
        """How long it has lasted."""
        return now.monotonic - self._since

    def failed(self, why: str) -> None:
        """It was answered, but not with what is waited for; it is asked for again."""
        self._why = why

    def told(self, now: Now) -> list[Tell | WakeAt]:
        """What is to be said at this moment, and when there will be more."""
        if now.monotonic < self._tell_at:
            return []
        self._tell_at = now.monotonic + TELL_EVERY
        return [Tell("warning", f"waiting for {self.seconds(now):.0f} s for {self.what}: {self._why}"), self.next]
