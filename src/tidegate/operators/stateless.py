"""Operators that keep nothing between two batches: map, filter, flat_map, key_by, union.

One tight loop per batch each. A function that raises costs time only where it raises (`user_code.call_each`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.user_code import NOT_RECORDS, OnError, call_each, describe, raise_user_error, refuse_outputs

FAIL = OnError()


class StatelessOperator:
    """What they have in common: nothing to open, to close or to say at the end of input."""

    def __init__(self) -> None:
        self._opened: OperatorContext | None = None

    @property
    def _context(self) -> OperatorContext:
        if self._opened is None:
            raise InternalError(f"a {type(self).__name__} was used before it was opened")
        return self._opened

    def open(self, context: OperatorContext) -> None:
        self._opened = context

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        pass


class FunctionOperator(StatelessOperator):
    """Calls one function per record, with `on_error=`."""

    def __init__(self, function: Callable[[Any], Any], on_error: OnError = FAIL) -> None:
        super().__init__()
        self._function = function
        self._on_error = on_error
        self.records_skipped = 0
        """Records that were left out because the function raised and `on_error="skip"`."""

    def _failed(self, value: Any, error: Exception) -> None:
        """Raise, or return to leave `value` out. Being out of memory says nothing about the record: that always
        raises."""
        if self._on_error.fails or isinstance(error, MemoryError):
            raise_user_error(error, self._context, f"on record {describe(value)}")
        if self._on_error.skip:
            self.records_skipped += 1

    def _call_each(self, batch: Batch) -> tuple[list[Any], Batch, list[Batch]]:
        """Results, the records that they belong to, and what goes to the side output for failing records."""
        results, left_out = call_each(self._function, batch.values, self._failed)
        if not left_out:
            return results, batch, []
        failing = set(left_out)
        kept = select(batch, [position not in failing for position in range(len(batch))])
        return results, kept, self._rejected(pick(batch, left_out))

    def _rejected(self, records: Batch) -> list[Batch]:
        tag = self._on_error.tag
        return [Batch(records.values, None, records.timestamps, tag)] if tag is not None and records.values else []


class MapOperator(FunctionOperator):
    """Emits `function(record)`."""

    def process(self, batch: Batch) -> list[Batch]:
        results, kept, rejected = self._call_each(batch)
        return _non_empty(Batch(results, None, kept.timestamps)) + rejected


class FilterOperator(FunctionOperator):
    """Emits the records for which `function` returns something true."""

    def process(self, batch: Batch) -> list[Batch]:
        results, kept, rejected = self._call_each(batch)
        try:
            selected = select(kept, results)
        except Exception as error:
            raise_user_error(error, self._context, "when asking what filter's function returned whether it is true")
        return _non_empty(selected) + rejected


class KeyByOperator(FunctionOperator):
    """Emits the records with their keys; `check_keys` raises InvalidError when one cannot be a key. So does that of the
    context when one is a key of another subtask, whatever `on_error` says: it is not the record that is wrong."""

    def __init__(
        self, function: Callable[[Any], Any], check_keys: Callable[[list[Any]], object], on_error: OnError = FAIL
    ) -> None:
        super().__init__(function, on_error)
        self._check_keys = check_keys

    def process(self, batch: Batch) -> list[Batch]:
        keys, kept, rejected = self._call_each(batch)
        check_own = self._context.check_keys
        try:
            self._check_keys(keys)
            if check_own is not None:
                check_own(keys)
        except InvalidError as error:
            raise_user_error(error, self._context, "in key_by")
        return _non_empty(Batch(kept.values, keys, kept.timestamps)) + rejected


class FlatMapOperator(FunctionOperator):
    """Emits what iterating `function(record)` gives.

    With `on_error=` other than fail, the outputs of one record are held until it is done: a record goes either to the
    output or to the side output, never in part to both. Otherwise they leave as they fill a batch.
    """

    def process(self, batch: Batch) -> Iterator[Batch]:
        waiting = OutputBuffer((), batch.timestamps is not None)
        rejected: list[int] = []
        yield from waiting.batches_of(self._outputs(batch, waiting.stamps, rejected), self._context.batch_size)
        yield from self._rejected(pick(batch, rejected))

    def _outputs(self, batch: Batch, stamps: list[int] | None, rejected: list[int]) -> Iterator[Any]:
        """As `OutputBuffer.batches_of` wants them; the positions of failing records go to `rejected`."""
        function, held = self._function, not self._on_error.fails
        times = batch.timestamps or [0] * len(batch)
        for position, (value, stamp) in enumerate(zip(batch.values, times, strict=True)):
            try:
                outputs = function(value)
                if outputs.__class__ in NOT_RECORDS:
                    refuse_outputs(outputs)
                for output in list(outputs) if held else outputs:
                    if stamps is not None:
                        stamps.append(stamp)
                    yield output
            except Exception as error:
                self._failed(value, error)
                rejected.append(position)


class UnionOperator(StatelessOperator):
    """Emits what it gets; records that came as a side output become main output."""

    def process(self, batch: Batch) -> list[Batch]:
        return [Batch(batch.values, None, batch.timestamps)]


def pick(batch: Batch, positions: Sequence[int], tag: str | None = None) -> Batch:
    """The records at these positions, without keys, for the side output `tag`."""
    stamps = batch.timestamps
    picked = None if stamps is None else [stamps[position] for position in positions]
    return Batch([batch.values[position] for position in positions], None, picked, tag)


def select(batch: Batch, mask: Sequence[Any]) -> Batch:
    """The records where `mask` is true, without keys."""
    stamps = batch.timestamps
    return Batch(list(compress(batch.values, mask)), None, None if stamps is None else list(compress(stamps, mask)))


def _non_empty(batch: Batch) -> list[Batch]:
    return [batch] if batch.values else []
