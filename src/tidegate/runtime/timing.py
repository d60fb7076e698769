"""When a task fires the timers of its operators: as soon as they are due, between two pieces of input and in turn with
them. Neither a flood of timers nor one of records makes the other wait, and barriers come with the records.

Time is the clock's, which is given; nothing here waits.
"""

from tidegate.clock import Clock
from tidegate.operators.timers import milliseconds
from tidegate.runtime.chain import Chain


class TimerTurns:
    """Of one task. `target`: seconds after which one turn ends, so that slow user code delays a barrier by no more."""

    def __init__(self, chain: Chain, clock: Clock, target: float) -> None:
        self._chain = chain
        self._clock = clock
        self._target = target
        self._was_last = False

    def take(self) -> bool:
        """Begin in the idle chain what is due, if anything is and timers did not have the last turn."""
        due = self._chain.next_timer
        if due is None:
            return False
        now = self._clock.now()
        self._was_last = not self._was_last and due <= milliseconds(now)
        if self._was_last:
            end = now.monotonic + self._target
            self._chain.fire_timers(milliseconds(now), lambda: self._clock.now().monotonic >= end)
        return self._was_last

    @property
    def wake_at(self) -> float | None:
        """When the next one is due, in monotonic seconds; None when there is none."""
        due = self._chain.next_timer
        if due is None:
            return None
        now = self._clock.now()
        # In whole milliseconds, as it is asked whether it is due: at that moment it is, however seconds are rounded.
        return now.monotonic + max(0, due - milliseconds(now)) / 1000
