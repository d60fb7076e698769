"""Operators with state by key: `process` behind `key_by`, `reduce`, and rolling aggregates.

All they keep between two batches is in their state backend. Before user code sees a record, the backend is told its
key.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, place
from tidegate.operators.context import Context, KeyedContext
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.process import ElementFunction, NoKey, ProcessOperator, UserFunction
from tidegate.operators.time_to_live import TimeToLive
from tidegate.operators.timers import TimeDomain, TimerQueue, Timers
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.state.backend import KeyCursor, KeyedStateBackend
from tidegate.state.descriptors import AggregatingState, StateDescriptor, ValueState
from tidegate.state.handles import NOTHING, Running, RunningHandle


def backend_of(context: OperatorContext) -> KeyedStateBackend:
    """The keyed state that the engine owes a keyed operator."""
    if context.state is None:
        raise InternalError("a keyed operator was opened without state", where=place(context.operator, context.subtask))
    return context.state


def keys_of(batch: Batch, context: OperatorContext) -> list[Any]:
    """The keys that the engine owes a keyed operator with each batch."""
    if batch.keys is None:
        raise InternalError("a keyed operator got records without keys", where=place(context.operator, context.subtask))
    return batch.keys


def cursor_over(keys: list[Any], context: OperatorContext) -> KeyCursor:
    """What makes each of these keys of a batch the current one."""
    try:
        return backend_of(context).cursor_over(keys)
    except InvalidError as error:
        raise_user_error(error, context, "on the keys of a batch")


class KeyedProcessOperator(ProcessOperator):
    """Runs a `KeyedProcessFunction`: its keyed states become handles that mean the current record's key. With `timers`
    it has an `on_timer`."""

    def __init__(self, function: UserFunction, tags: tuple[str, ...] = (), *, timers: bool = False) -> None:
        super().__init__(function, tags)
        self._has_timers = timers
        self._timers: Timers | None = None

    def open(self, context: OperatorContext) -> None:
        self._time_to_live = TimeToLive(backend_of(context), context.clock)
        super().open(context)
        self._functions = [self._time_to_live.telling(function) for function in self._functions]
        if self._timers is not None:
            self._timers.load()

    def _register(self, descriptor: StateDescriptor[Any], context: OperatorContext) -> Any:
        return (
            self._time_to_live.register(descriptor) if descriptor.is_keyed else super()._register(descriptor, context)
        )

    def _make_context(self, context: OperatorContext) -> Context:
        backend = backend_of(context)
        self._timers = Timers(backend, context.watermark) if self._has_timers else None
        self._keyed_context: KeyedContext[Any] = KeyedContext(
            context.operator, context.subtask, context.parallelism, context.clock, self._timers
        )
        return self._keyed_context

    def process(self, batch: Batch) -> Iterator[Batch]:
        cursor = cursor_over(keys_of(batch, self._operator), self._operator)
        return self._time_to_live.around(self._run_batch(batch, self._context, cursor), len(batch))

    @property
    def next_timer(self) -> int | None:
        return None if self._timers is None else self._timers.processing.next

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        if self._timers is None:
            return iter(())
        return self._fire(self._timers.processing, "processing", now, must_stop)

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        timers = self._timers
        if timers is None:
            return None
        timers.watermark = max(timers.watermark, watermark)
        if not timers.event.is_due(timers.watermark):
            return None
        return self._fire(timers.event, "event", timers.watermark, must_stop)

    def _fire(self, queue: TimerQueue, domain: TimeDomain, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        stamped = domain == "event"
        due = queue.take_due(now, self._operator.batch_size, must_stop, stamped=stamped)
        on_timer: ElementFunction = self._function.on_timer  # type: ignore[attr-defined]
        outputs = self._run(on_timer, self._context, due, stamped, NoKey(), "timer")
        return self._time_to_live.around(self._in_domain(domain, outputs), 0)

    def _in_domain(self, domain: TimeDomain, outputs: Iterator[Batch]) -> Iterator[Batch]:
        self._keyed_context.time_domain = domain
        yield from outputs
        self._keyed_context.time_domain = None


class ReduceOperator:
    """Rolling reduce: per key keeps `function` of all records so far in `descriptor` and emits it for every record."""

    def __init__(self, function: Callable[[Any, Any], Any], descriptor: ValueState[Any]) -> None:
        self._function = function
        self._descriptor = descriptor

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._backend = backend_of(context)
        self._handle = self._backend.register(self._descriptor)

    def process(self, batch: Batch) -> list[Batch]:
        keys = keys_of(batch, self._operator)
        function, cursor = self._function, cursor_over(keys, self._operator)
        read, update = self._handle.value, self._handle.update
        results: list[Any] = []
        value = None
        try:
            for cursor.key, value in zip(keys, batch.values, strict=True):
                so_far = read()
                reduced = value if so_far is None else function(so_far, value)
                if reduced is None:
                    raise TypeError("the reduce function returned None; it must return the new value")
                update(reduced)
                results.append(reduced)
        except Exception as error:
            raise_user_error(error, self._operator, f"on record {describe(value)}")
        return [Batch(results, None, batch.timestamps)] if results else []

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""


class ByValue(NamedTuple):
    """How a loop adds a record without calling what adds one: its value, unless that is None."""

    of: Callable[[Any], Any]
    """The value of a record."""
    add: Callable[[Any, Any], Any]
    """Accumulator and value to accumulator; may change the first."""


class AggregateOperator:
    """Rolling aggregate: per key keeps in `descriptor` the accumulator of all records so far and emits for every record
    what that stands for.

    emit(key, result): the output, None: the result. by_value: what adds a record, taken apart, where the accumulator
    depends on nothing else.
    """

    def __init__(
        self,
        descriptor: AggregatingState[Any, Any],
        emit: Callable[[Any, Any], Any] | None,
        by_value: ByValue | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._emit = emit
        self._of = None if by_value is None else by_value.of
        result = descriptor.result_function
        self._running = Running(
            descriptor.create,
            descriptor.add_function if by_value is None else by_value.add,
            NOTHING if by_value is None else None,
            None if result is itself else result,
            emit,
        )

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._handle = backend_of(context).register(self._descriptor)
        self._is_quick = isinstance(self._handle, RunningHandle)

    def process(self, batch: Batch) -> list[Batch]:
        keys, values = keys_of(batch, self._operator), batch.values
        cursor = cursor_over(keys, self._operator)
        results: list[Any] = []
        try:
            if not self._is_quick:
                self._run(cursor, keys, values, results)
            elif self._of is None:
                self._handle.run(self._running, keys, values, results)
            else:
                self._handle.run(self._running, keys, map(self._of, values), results)
                if len(results) < len(values):
                    # What `map` takes for its end was raised by the function.
                    raise StopIteration
        except Exception as error:
            raise_user_error(error, self._operator, f"on record {describe(values[len(results)])}")
        return [Batch(results, None, batch.timestamps)] if results else []

    def _run(self, cursor: KeyCursor, keys: list[Any], values: list[Any], results: list[Any]) -> None:
        add, read, emit = self._handle.add, self._handle.get, self._emit
        for key, value in zip(keys, values, strict=True):
            cursor.key = key
            add(value)
            result = read()
            results.append(result if emit is None else emit(key, result))

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""


def itself(accumulator: Any) -> Any:
    """The result of an aggregate whose accumulator is just that."""
    return accumulator
