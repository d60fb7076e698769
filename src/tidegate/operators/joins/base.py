"""What the joins of two keyed streams in event time have in common: two inputs, rows kept by key, timers that say when
something is certain, and functions that are called with pairs.

A join says which pairs a row that comes, or a time that has come, brings about. Rows are taken one by one, in the order
in which they come, so that nothing depends on how they were cut into batches. What is late is said by the join; it goes
to the side output, or is counted and dropped.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of, keys_of
from tidegate.operators.timers import EVENT_TIMERS, TimerQueue
from tidegate.operators.user_code import describe, raise_user_error

Pair = tuple[Any, Any, int]
"""A left row and a right one, None where there is none, and the timestamp of what comes of them."""


@dataclass(frozen=True)
class JoinSpec:
    """What is made of pairs, and of what comes too late."""

    function: Callable[[Any, Any], Any]
    """The two rows of a pair, of which one may be None, to an output record."""
    keeps: tuple[bool, bool]
    """By input: whether a row that has no match is a pair with None."""
    late_tag: str | None


class JoinOperator:
    """Runs a join whose state is registered in `_register`."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._tags = () if spec.late_tag is None else (spec.late_tag,)
        self.records_skipped = 0
        """Rows that were late, where they do not go to a side output."""

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._backend = backend_of(context)
        self._register()
        self._timers = TimerQueue(self._backend, EVENT_TIMERS)
        self._timers.load()
        self._watermark = context.watermark

    def _register(self) -> None:
        """The states, with the backend."""
        raise NotImplementedError

    def _use(self, key: Any) -> None:
        """Rows are now those of `key`."""
        raise NotImplementedError

    def _arrived(self, input: int, key: Any, timestamp: int, row: Any) -> Iterable[Pair] | None:
        """The pairs that this row, of the key in use, brings about at once; None when it is late."""
        raise NotImplementedError

    def _due(self, timestamp: int) -> Iterable[Pair]:
        """The pairs that are certain now that a timer of the key in use has fired. What is not needed any more is
        removed when the last was taken."""
        raise NotImplementedError

    def process(self, batch: Batch) -> Iterator[Batch]:
        stamps = batch.timestamps
        if stamps is None:
            raise InvalidError(
                f"records without timestamps came to join {self._operator.operator}",
                remedy="Give the sources of both streams, or the streams, a watermark strategy.",
            )
        return self._process(batch, keys_of(batch, self._operator), stamps)

    def _process(self, batch: Batch, keys: list[Any], stamps: list[int]) -> Iterator[Batch]:
        waiting = OutputBuffer(self._tags, timed=True)
        for key, timestamp, row in zip(keys, stamps, batch.values, strict=True):
            self._backend.set_current_key(key)
            self._use(key)
            pairs = self._arrived(batch.input, key, timestamp, row)
            if pairs is None:
                self._set_aside(waiting, timestamp, row)
            elif pairs:
                yield from self._emit(waiting, pairs)
        yield from waiting.take()

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._watermark = max(self._watermark, watermark)
        return self._fire(must_stop) if self._timers.is_due(self._watermark) else None

    def _fire(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        waiting = OutputBuffer(self._tags, timed=True)
        for timestamp, key, _ in self._timers.take_due(self._watermark, self._operator.batch_size, must_stop):
            self._use(key)
            yield from self._emit(waiting, self._due(timestamp))
        yield from waiting.take()

    def _emit(self, waiting: OutputBuffer, pairs: Iterable[Pair]) -> Iterator[Batch]:
        for left, right, timestamp in pairs:
            try:
                output = self._spec.function(left, right)
            except Exception as error:
                raise_user_error(error, self._operator, f"on {describe(left)} joined with {describe(right)}")
            waiting.main.values.append(output)
            waiting.stamp(timestamp)
            if len(waiting.main) + waiting.side_records >= self._operator.batch_size:
                yield from waiting.take()

    def _set_aside(self, waiting: OutputBuffer, timestamp: int, row: Any) -> None:
        """A row that is late."""
        if self._spec.late_tag is None:
            self.records_skipped += 1
        else:
            waiting.put_aside(self._spec.late_tag, row, timestamp)

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""
