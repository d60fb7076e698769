"""What a task does with its time, by Flink's meanings: it is back-pressured while it has work and nowhere to put what
comes of it, idle while it has no input, busy otherwise; and which part of the busy time is whose operator's.

Every moment since the task is ready counts as exactly one of the three, so they add up to the time. Of clocks only a
stopwatch is read, that somebody may have given, in few steps, for the shares of operators. Nothing here decides what a
task does.
"""

from collections.abc import Mapping
from enum import IntEnum

from tidegate.clock import Clock
from tidegate.ids import OperatorName, TaskId
from tidegate.runtime.chain import Chain
from tidegate.runtime.control import OperatorMetrics, TaskTimes

LOOK_EVERY = 32
"""Of so many steps the operators' times are taken in one: a clock that is read for every batch would cost a job of
small batches more than one part in a hundred."""
SHORTEST_SPAN = 0.05
"""Seconds over which a rate says something; for less, the one before is told again."""


class Condition(IntEnum):
    """What a task is between two steps."""

    BUSY = 0
    IDLE = 1
    BACK_PRESSURED = 2


class Busyness:
    """The time of one task with this chain. All moments are monotonic seconds. `stopwatch` is read for the operators'
    shares; without it they are not known."""

    def __init__(self, task: TaskId, chain: Chain, stopwatch: Clock | None) -> None:
        self._task = task
        self._chain = chain
        self._operators = _OperatorTimes(len(chain.counts), stopwatch)
        self._seconds = [0.0, 0.0, 0.0]
        self._since: float | None = None
        """Up to when time is accounted for; None before the first step."""
        self._condition: Condition | None = Condition.IDLE
        """Of the task since then; None: its turn was over, so what the next step finds is true of the wait, too."""
        self._reported = [0.0, 0.0, 0.0]
        """The sums at the last report, and what was said then."""
        self._rates = (0, 1000, 0)

    # -- the task's --

    def begins(self) -> None:
        """A step begins."""
        self._chain.watch = self._operators.passed if self._operators.is_due else None

    def goes_on(self, now: float) -> None:
        """Within it, a piece of work begins."""
        self._operators.at = now

    def stepped(self, began: float, ended: float, worked: bool, condition: Condition | None) -> None:
        """A step went from `began` to `ended` and left the task in `condition`; None when it had to stop for others."""
        if worked:
            self._operators.worked(ended - began)
        found = Condition.BUSY if worked or condition is None else condition
        if self._since is not None:
            self._seconds[found if self._condition is None else self._condition] += began - self._since
        self._seconds[found] += ended - began
        self._since, self._condition = ended, condition

    # -- for others --

    @property
    def at_work(self) -> OperatorName:
        """Which operator is at work, or was last: for somebody who looks from another thread."""
        return self._chain.at_work

    def times(self) -> TaskTimes:
        """The sums, and milliseconds a second since the call before."""
        spans = [now - then for now, then in zip(self._seconds, self._reported, strict=True)]
        if (span := sum(spans)) >= SHORTEST_SPAN:
            busy, held = (round(1000 * spans[which] / span) for which in (Condition.BUSY, Condition.BACK_PRESSURED))
            # The rest is what is left, so that they add up however they are rounded.
            held = min(held, 1000 - busy)
            self._rates, self._reported = (busy, 1000 - busy - held, held), list(self._seconds)
        return TaskTimes(self._task, *self._rates, *(round(seconds, 3) for seconds in self._seconds))

    def operators(self, skipped: Mapping[OperatorName, int]) -> list[OperatorMetrics]:
        """What each operator has done, and its share of the busy time since the call before. `skipped`: records."""
        return [
            OperatorMetrics(self._task, count.name, count.records_in, count.records_out, skipped[count.name], share)
            for count, share in zip(self._chain.counts, self._operators.shares(), strict=True)
        ]


class _OperatorTimes:
    """How long each operator of a chain is at work itself, in the steps that are looked at."""

    def __init__(self, operators: int, stopwatch: Clock | None) -> None:
        self._stopwatch = stopwatch
        self._seconds = [0.0] * operators
        self._shares = [0] * operators
        self._steps = 0
        self._of_steps = 0.0
        """Seconds that the steps took that were looked at."""
        self.at = 0.0
        """Up to when time is accounted for."""

    @property
    def is_due(self) -> bool:
        """Whether the step that begins is looked at, should anything be done in it."""
        return self._stopwatch is not None and self._steps % LOOK_EVERY == 0

    def worked(self, seconds: float) -> None:
        """In a step that took so long."""
        self._of_steps += seconds if self.is_due else 0.0
        self._steps += 1

    def passed(self, position: int) -> None:
        """Until now, the operator at this position was at work."""
        assert self._stopwatch is not None
        now = self._stopwatch.now().monotonic
        self._seconds[position] += now - self.at
        self.at = now

    def shares(self) -> list[int]:
        """In thousandths of the steps since the last call; those of before while there is too little."""
        if self._of_steps >= SHORTEST_SPAN / LOOK_EVERY:
            self._shares = [min(1000, round(1000 * seconds / self._of_steps)) for seconds in self._seconds]
            self._seconds, self._of_steps = [0.0] * len(self._seconds), 0.0
        return self._shares
