"""Deduplication by key: the first record of a key passes, and those of the same key within a time of it do not.

In event time a record passes when no record that passed before it has a timestamp less than `within` away, on either
side. The timestamps of what passed are kept as long as that can be asked of a record that is not late. Of one that is
late nobody could say whether it is a duplicate: it is put aside, or counted and dropped. In processing time what
passed is kept until `within` is over on the clock, and no timestamps are needed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of, keys_of
from tidegate.operators.stateless import pick
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, milliseconds
from tidegate.state.descriptors import InternalMapState

PASSED: InternalMapState[int, int] = InternalMapState(int, int, name=".passed")
"""Of each key when records passed, and until when each of them is remembered. In milliseconds since 1970, of event time
or of processing time."""


class _DeduplicateOperator:
    """What both kinds have in common: what passed, and the timers that forget it."""

    def __init__(self, within: int, timers: InternalMapState[int, bool]) -> None:
        self._within = within
        """Milliseconds."""
        self._timer_state = timers

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._backend = backend_of(context)
        self._passed = self._backend.register(PASSED)
        self._timers = TimerQueue(self._backend, self._timer_state)
        self._timers.load()

    def _remember(self, key: Any, time: int, until: int) -> None:
        """That a record of the current `key` passed."""
        self._passed.put(time, until)
        self._timers.register(until, key)

    def _forget(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        for timestamp, _, _ in self._timers.take_due(now, self._operator.batch_size, must_stop):
            for time, until in self._passed.items():
                if until <= timestamp:
                    self._passed.remove(time)
        return iter(())

    def _picked(self, batch: Batch, positions: list[int], tag: str | None = None) -> list[Batch]:
        """The records at these positions, in batches with `tag`."""
        size = self._operator.batch_size
        pieces = [positions[start : start + size] for start in range(0, len(positions), size)]
        return [pick(batch, piece, tag) for piece in pieces]

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""


class EventTimeDeduplicateOperator(_DeduplicateOperator):
    """By timestamps. A record is late when the watermark was `lateness` milliseconds beyond it, or just there."""

    def __init__(self, within: int, lateness: int, late_tag: str | None) -> None:
        super().__init__(within, EVENT_TIMERS)
        self._lateness = lateness
        self._late_tag = late_tag
        self.records_skipped = 0
        """Late records, where they do not go to a side output."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._watermark = context.watermark

    def process(self, batch: Batch) -> list[Batch]:
        stamps = batch.timestamps
        if stamps is None:
            raise InvalidError(
                f"records without timestamps came to operator {self._operator.operator}, which deduplicates by them",
                remedy='Give their source, or the stream, a watermark strategy; or say clock="processing".',
            )
        kept: list[int] = []
        late: list[int] = []
        for position, (key, stamp) in enumerate(zip(keys_of(batch, self._operator), stamps, strict=True)):
            if stamp + self._lateness <= self._watermark:
                late.append(position)
                continue
            self._backend.set_current_key(key)
            if all(abs(stamp - time) >= self._within for time, _ in self._passed.items()):
                self._remember(key, stamp, stamp + self._within - 1 + self._lateness)
                kept.append(position)
        if self._late_tag is None:
            self.records_skipped += len(late)
            late = []
        return self._picked(batch, kept) + self._picked(batch, late, self._late_tag)

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._watermark = max(self._watermark, watermark)
        return self._forget(self._watermark, must_stop) if self._timers.is_due(self._watermark) else None


class ProcessingTimeDeduplicateOperator(_DeduplicateOperator):
    """By the clock, which is read once for each batch."""

    def __init__(self, within: int) -> None:
        super().__init__(within, PROCESSING_TIMERS)

    def process(self, batch: Batch) -> list[Batch]:
        now = milliseconds(self._operator.clock.now())
        kept: list[int] = []
        for position, key in enumerate(keys_of(batch, self._operator)):
            self._backend.set_current_key(key)
            if all(until <= now for until in self._passed.values()):
                self._remember(key, now, now + self._within)
                kept.append(position)
        return self._picked(batch, kept)

    @property
    def next_timer(self) -> int | None:
        return self._timers.next

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        return self._forget(now, must_stop)
