"""Restart strategies: whether, and after how long, a failed attempt is followed by another. They look only at kinds and
times.

One incident counts once, however many tasks it takes down: whoever calls `on_failure` calls it once per attempt.
"""

from collections import deque
from collections.abc import Callable

from tidegate.config.restart import ExponentialDelay, FailureRate, FixedDelay, RestartNone, RestartStrategy


class RestartPolicy:
    """The memory of one strategy over the life of a JobManager. `random` gives numbers from 0 to 1, for the jitter."""

    def __init__(self, strategy: RestartStrategy, random: Callable[[], float]) -> None:
        self._strategy = strategy
        self._random = random
        self._failed_at: deque[float] = deque()
        self._count = 0
        self._delay = 0.0
        self._healthy_since: float | None = None

    def on_running(self, now: float) -> None:
        """All tasks of an attempt run: a time of health begins. Seconds."""
        self._healthy_since = now

    def on_failure(self, now: float) -> float | None:
        """Seconds to wait before the next attempt; None when there is to be none."""
        healthy = now - self._healthy_since if self._healthy_since is not None else 0.0
        self._healthy_since = None
        match self._strategy:
            case RestartNone():
                return None
            case FixedDelay(attempts, delay):
                self._count += 1
                return delay if self._count <= attempts else None
            case FailureRate(failures, per, delay):
                self._failed_at.append(now)
                while self._failed_at[0] <= now - per:
                    self._failed_at.popleft()
                return delay if len(self._failed_at) <= failures else None
            case ExponentialDelay():
                return self._grow(self._strategy, healthy)

    def _grow(self, strategy: ExponentialDelay, healthy: float) -> float:
        if self._delay == 0.0 or healthy >= strategy.reset_after:
            self._delay = strategy.initial
        else:
            self._delay = min(self._delay * strategy.multiplier, strategy.maximum)
        return self._delay * (1.0 + strategy.jitter * (2.0 * self._random() - 1.0))
