"""What all window operators have in common: timers, accumulators, results, and what comes too late.

What an operator calls its watermark is how far the time has come by which its windows are cut. A window is complete
when the watermark has reached its `max_timestamp`. Nothing is kept here that is not in the state.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Protocol

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.context import FULL, OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of, keys_of
from tidegate.operators.stateless import pick
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS, Due, TimeDomain, TimerQueue
from tidegate.operators.user_code import as_refusal, describe, raise_user_error
from tidegate.operators.windows.spec import Add, WindowSpec
from tidegate.state.descriptors import InternalMapState


class Times(Protocol):
    """Which keys wait for which time: a `TimerQueue`, or what is made of the accumulators."""

    @property
    def next(self) -> int | None: ...

    def is_due(self, now: int) -> bool: ...

    def take_due(self, now: int, most: int, must_stop: Callable[[], bool]) -> Iterator[Due]: ...


class BaseWindowOperator:
    """See the module."""

    _timer_domain: ClassVar[TimeDomain] = "event"
    """What timers wait for, of windows that have any."""

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self._function = None if spec.function is None else spec.function()
        self._queues: dict[str, TimerQueue] = {}
        """By the name of their state."""
        self.records_skipped = 0
        """Records that were too late for every window, where they do not go to a side output."""

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._watermark = self._reached(context)
        self._backend = backend_of(context)
        self._accumulators = self._spec.accumulators(self._backend)
        self._register()
        if self._function is not None:
            self._function.open(context, self._current_watermark)
        # Last, because afterwards some key is the current one, and there is none while the function is opened.
        self._load()

    def _reached(self, context: OperatorContext) -> int:
        """How far the time had come that windows are cut by, before a restore: for all keys."""
        return context.watermark

    def _reached_of(self, key: Any) -> int:
        """For `key`, which may be further."""
        reached = self._operator.reached
        return self._watermark if reached is None else reached(key)

    def _register(self) -> None:
        """The rest of the state."""
        self._timers = self._queue(EVENT_TIMERS if self._timer_domain == "event" else PROCESSING_TIMERS)
        self._waiting: Times = self._timers

    def _load(self) -> None:
        """Index what was restored."""
        for queue in self._queues.values():
            queue.load()

    def _queue(self, descriptor: InternalMapState[int, bool]) -> TimerQueue:
        queue = self._queues[descriptor.name] = TimerQueue(self._backend, descriptor)
        return queue

    def _current_watermark(self) -> int:
        """How far event time has come."""
        return self._watermark

    def process(self, batch: Batch) -> Iterator[Batch]:
        outputs = self._process(batch, keys_of(batch, self._operator), self._stamps_of(batch))
        return outputs if self._function is None else self._function.around(outputs, len(batch))

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        """The time of each record by which it has its windows."""
        if batch.timestamps is None:
            raise InvalidError(
                f"records without timestamps came to the windows of operator {self._operator.operator}",
                remedy="Give their source, or the stream, a watermark strategy.",
            )
        return batch.timestamps

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        raise NotImplementedError

    def _close(self, due: Iterable[Due]) -> Iterator[tuple[Any, Any, Any]]:
        """Timers that are due, each taken when it is asked for, its key then being the current one: with their keys,
        the windows that are complete at these times, and their accumulators. What is not needed any more of a window is
        removed when the next is asked for."""
        raise NotImplementedError

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._watermark = max(self._watermark, watermark)
        return self._fire(must_stop) if self._waiting.is_due(self._watermark) else None

    def _fire(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        outputs = self._closed(must_stop)
        return outputs if self._function is None else self._function.around(outputs, 0)

    def _closed(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        waiting, size = self._buffer(), self._operator.batch_size
        due = self._waiting.take_due(self._watermark, size, must_stop)
        return waiting.batches_of(self._results(waiting, self._close(due)), size)

    def _results(self, waiting: OutputBuffer, windows: Iterable[tuple[Any, Any, Any]]) -> Iterator[Any]:
        """Those of windows of the current key, as `OutputBuffer.batches_of` wants them."""
        emit, size, stamps = self._emitter(), self._operator.batch_size, waiting.stamps
        for key, window, accumulator in windows:
            outputs, stamp = None, window.max_timestamp
            try:
                outputs = emit(key, window, accumulator, stamp)
                for output in outputs:
                    if stamps is not None:
                        stamps.append(stamp)
                    yield output
            except Exception as error:
                self._refuse_results(error, outputs, key, window)
            if waiting.side_records >= size:
                yield FULL

    def _emitter(self) -> Callable[[Any, Any, Any, int | None], Iterable[Any]]:
        """From key, window, accumulator and timestamp to results."""
        if self._function is not None:
            return self._function.emit
        emit = self._spec.emit
        return lambda key, window, accumulator, _: emit(key, window, accumulator)

    def _buffer(self, timed: bool = True) -> OutputBuffer:
        if self._function is None:
            return OutputBuffer((), timed)
        buffer = OutputBuffer(self._function.tags, timed)
        self._function.collect_into(buffer)
        return buffer

    def _emit(
        self, waiting: OutputBuffer, key: Any, window: Any, accumulator: Any, stamp: int | None
    ) -> Iterator[Batch]:
        """The results of a window of the current key."""
        size, outputs = self._operator.batch_size, None
        try:
            outputs = self._emitter()(key, window, accumulator, stamp)
            for value in outputs:
                waiting.main.values.append(value)
                if len(waiting.main) + waiting.side_records >= size:
                    yield from waiting.take(stamp)
            if stamp is not None:
                waiting.stamp(stamp)
            if waiting.side_records >= size:
                yield from waiting.take()
        except Exception as error:
            self._refuse_results(error, outputs, key, window)

    def _refuse_results(self, error: Exception, outputs: object, key: Any, window: Any) -> NoReturn:
        doing = f"on window {describe(window)} of key {describe(key)}"
        raise_user_error(as_refusal(error, outputs), self._operator, doing)

    def _removed(self, key: Any, window: Any) -> None:
        """A window of the current key is gone."""
        if self._function is not None:
            self._function.clear(key, window)

    def _added(self, add: Add, accumulator: Any, value: Any) -> Any:
        try:
            return add(accumulator, value)
        except Exception as error:
            raise_user_error(error, self._operator, f"on record {describe(value)}")

    def _merged(self, one: Any, other: Any) -> Any:
        try:
            return self._spec.merge(one, other)
        except Exception as error:
            raise_user_error(error, self._operator, f"when merging accumulator {describe(other)}")

    def _set_aside(self, batch: Batch, positions: Sequence[int]) -> list[Batch]:
        """Records that are too late."""
        if self._spec.late_tag is None:
            self.records_skipped += len(positions)
            return []
        return [pick(batch, positions, self._spec.late_tag)]

    def _is_too_late(self, window: Any) -> bool:
        return window.max_timestamp + self._spec.lateness <= self._watermark  # type: ignore[no-any-return]

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        if self._function is not None:
            self._function.close()
