"""Warnings about what passes by itself: few lines for many errors, and none that hides how many there were."""

import logging

from tidegate.clock import Clock

LOGGER = logging.getLogger("tidegate.kafka")

LOG_INTERVAL = 10.0
"""Seconds between two lines about errors that pass by themselves."""


class RareLog:
    """Warnings, at most one in `LOG_INTERVAL`; those left out are counted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._left_out = 0

    def warn(self, text: str) -> None:
        now = self._clock.now().monotonic
        if now < self._quiet_until:
            self._left_out += 1
            return
        more = f" (and {self._left_out} warnings more since the last one)" if self._left_out else ""
        LOGGER.warning("%s%s", text, more)
        self._quiet_until, self._left_out = now + LOG_INTERVAL, 0
