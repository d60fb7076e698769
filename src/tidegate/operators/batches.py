"""Batch functions: the user's function gets many records at once, as a list or as an Arrow table, for models and
vectorised code.

The batches are those that the engine has, cut where they are larger than asked for. Nothing waits for more records, and
nothing is kept between two batches: so what a function makes of a record should not depend on those beside it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tidegate.elements import Batch
from tidegate.operators.context import Context, OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.stateless import StatelessOperator
from tidegate.operators.timestamps import checked_timestamp
from tidegate.operators.user_code import NOT_RECORDS, raise_user_error, refuse_outputs


class BatchForm(Protocol):
    """What a function gets and gives."""

    def given(self, records: list[Any]) -> Any:
        """The records as the function gets them."""
        ...

    def taken(self, outputs: Any) -> Iterable[Any]:
        """What the function returned, as records. Raises TypeError and ValueError where it cannot be."""
        ...


class Lists:
    """Lists of records."""

    def given(self, records: list[Any]) -> Any:
        return records

    def taken(self, outputs: Any) -> Iterable[Any]:
        if outputs.__class__ in NOT_RECORDS:
            refuse_outputs(outputs)
        if not hasattr(outputs, "__iter__"):
            raise TypeError(f"the function returned {type(outputs).__name__} and not a list of records")
        records: Iterable[Any] = outputs
        return records


class _BatchOperator(StatelessOperator):
    """What both kinds have in common. `size`: how many records the function gets at most; None: all of a batch."""

    def __init__(self, function: Callable[[Any], Any], size: int | None, form: BatchForm) -> None:
        super().__init__()
        self._function = function
        self._size = size
        self._form = form
        self._close: Callable[[], None] | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if (opening := getattr(self._function, "open", None)) is not None:
            try:
                opening(Context(context.operator, context.subtask, context.parallelism))
            except Exception as error:
                raise_user_error(error, context, "in open")
        self._close = getattr(self._function, "close", None)

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        size = self._size or len(batch)
        return (batch.slice(start, start + size) for start in range(0, len(batch), size))

    def _called(self, piece: Batch) -> Iterable[Any]:
        return self._form.taken(self._function(self._form.given(piece.values)))

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            try:
                close()
            except Exception as error:
                raise_user_error(error, self._context, "in close")


class MapBatchOperator(_BatchOperator):
    """As many records as there were, in their places, with their timestamps."""

    def process(self, batch: Batch) -> Iterator[Batch]:
        for piece in self._pieces(batch):
            yield Batch(self._mapped(piece), None, piece.timestamps)

    def _mapped(self, piece: Batch) -> list[Any]:
        number = len(piece)  # of the list that the function may change
        try:
            results = list(self._called(piece))
            if len(results) != number:
                raise ValueError(f"the function returned {len(results)} results; process_batch takes any number")
        except Exception as error:
            raise_user_error(error, self._context, f"on a batch of {number} records")
        return results


class ProcessBatchOperator(_BatchOperator):
    """Any number of records for each batch, in batches of their own; with the timestamps that `timestamp_of` takes from
    them, or without."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        size: int | None,
        form: BatchForm,
        timestamp_of: Callable[[Any], int] | None,
    ) -> None:
        super().__init__(function, size, form)
        self._timestamp_of = timestamp_of

    def process(self, batch: Batch) -> Iterator[Batch]:
        for piece in self._pieces(batch):
            number = len(piece)
            try:
                yield from self._outputs(piece)
            except Exception as error:
                raise_user_error(error, self._context, f"on a batch of {number} records")

    def _outputs(self, piece: Batch) -> Iterator[Batch]:
        size = self._context.batch_size
        waiting = OutputBuffer((), timed=self._timestamp_of is not None)
        for output in self._called(piece):
            waiting.main.values.append(output)
            if self._timestamp_of is not None:
                waiting.stamp(checked_timestamp(self._timestamp_of(output)))
            if len(waiting.main) >= size:
                yield from waiting.take()
        yield from waiting.take()
