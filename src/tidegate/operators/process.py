"""Runs process functions: any number of outputs per record, to the main output and to side outputs.

Outputs leave as they fill a batch, also in the middle of a record: a record that yields very much is never collected.
The function's state may be half changed when it raises, so there is no going on behind a failing record.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tidegate.elements import Batch
from tidegate.operators.context import Context, OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.user_code import NOT_RECORDS, as_refusal, describe, raise_user_error, refuse_outputs


class UserFunction(Protocol):
    """A process function, as its operator sees it."""

    def open(self, ctx: Any) -> None: ...

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None: ...

    def close(self) -> None: ...


class ProcessOperator:
    """Runs a `ProcessFunction` that may write to the side outputs `tags`."""

    def __init__(self, function: UserFunction, tags: tuple[str, ...] = ()) -> None:
        self._function = function
        self._tags = tags
        self._close: Callable[[], None] | None = None
        self._set_current_key: Callable[[Any], object] = _no_key

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._context = self._make_context(context)
        try:
            self._function.open(self._context)
        except Exception as error:
            raise_user_error(error, context, "in open")
        self._close = self._function.close

    def _make_context(self, context: OperatorContext) -> Context:
        return Context(context.operator, context.subtask, context.parallelism)

    def process(self, batch: Batch) -> Iterator[Batch]:
        context, size, set_current_key = self._context, self._operator.batch_size, self._set_current_key
        process_element = self._function.process_element
        waiting = OutputBuffer(self._tags, timed=batch.timestamps is not None)
        context._collect_into(waiting)
        records, value, nothing = waiting.main.values, None, [None] * len(batch)
        outputs: Iterable[Any] | None = None
        try:
            for value, key, stamp in zip(batch.values, batch.keys or nothing, batch.timestamps or nothing, strict=True):
                set_current_key(key)
                context._key = key
                context.timestamp = stamp
                outputs = process_element(value, context)
                if outputs is not None:
                    if outputs.__class__ in NOT_RECORDS:
                        refuse_outputs(outputs)
                    for output in outputs:
                        records.append(output)
                        if len(records) + waiting.side_records >= size:
                            yield from waiting.take(stamp)
                            records = waiting.main.values
                if stamp is not None:
                    waiting.stamp(stamp)
                if waiting.side_records >= size:
                    yield from waiting.take()
                    records = waiting.main.values
        except Exception as error:
            raise_user_error(as_refusal(error, outputs), self._operator, f"on record {describe(value)}")
        yield from waiting.take()

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            try:
                close()
            except Exception as error:
                raise_user_error(error, self._operator, "in close")


def _no_key(_: Any) -> None:
    """Without keyed state there is none to set."""
