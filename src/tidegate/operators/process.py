"""Runs process functions: any number of outputs per record, to the main output and to side outputs.

Outputs leave as they fill a batch, also in the middle of a record: a record that yields very much is never collected.
The function's state may be half changed when it raises, so there is no going on behind a failing record.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tidegate.elements import Batch
from tidegate.errors import InternalError, place
from tidegate.operators.context import FULL, Context, OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.user_code import NOT_RECORDS, as_refusal, describe, raise_user_error, refuse_outputs
from tidegate.state.backend import KeyCursor
from tidegate.state.descriptors import StateDescriptor, collect_descriptors

ElementFunction = Callable[[Any, Any], Iterable[Any] | None]
"""What user code makes of one value, with its context."""


class UserFunction(Protocol):
    """A process function, as its operator sees it; besides, it has a method for the records of each input."""

    def open(self, ctx: Any) -> None: ...

    def close(self) -> None: ...


class ProcessOperator:
    """Runs a `ProcessFunction` that may write to the side outputs `tags`."""

    methods: tuple[str, ...] = ("process_element",)
    """Of the function, by input: what gets the records that come through it."""

    def __init__(self, function: UserFunction, tags: tuple[str, ...] = ()) -> None:
        self._function = function
        self._tags = tags
        self._close: Callable[[], None] | None = None

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        for attribute, descriptor in collect_descriptors(self._function).items():
            vars(self._function)[attribute] = self._register(descriptor, context)
        self._functions: list[ElementFunction] = [getattr(self._function, method) for method in self.methods]
        self._context = self._make_context(context)
        try:
            self._function.open(self._context)
        except Exception as error:
            raise_user_error(error, context, "in open")
        self._close = self._function.close

    def _register(self, descriptor: StateDescriptor[Any], context: OperatorContext) -> Any:
        """The handle of a declared state."""
        if descriptor.is_keyed:
            raise InternalError(f"{descriptor} is declared where there is no key", where=place(context.operator))
        return context.operator_state.register(descriptor)

    def _make_context(self, context: OperatorContext) -> Context:
        return Context(context.operator, context.subtask, context.parallelism)

    def process(self, batch: Batch) -> Iterator[Batch]:
        return self._run_batch(batch, self._context, NoKey())

    def _run_batch(self, batch: Batch, context: Context, cursor: KeyCursor) -> Iterator[Batch]:
        nothing = [None] * len(batch)
        records = zip(batch.values, batch.keys or nothing, batch.timestamps or nothing, strict=True)
        timed = batch.timestamps is not None
        return self._run(self._functions[batch.input], context, records, timed, cursor)

    def _run(
        self,
        function: ElementFunction,
        context: Context,
        records: Iterable[tuple[Any, Any, int | None]],
        timed: bool,
        cursor: KeyCursor,
        kind: str = "record",
    ) -> Iterator[Batch]:
        """What `function` makes of each of the `records` (value, key, timestamp), `timed` when they have timestamps.
        `kind` says in errors what the values are."""
        waiting = OutputBuffer(self._tags, timed)
        context._collect_into(waiting)
        outputs = self._outputs(function, context, records, cursor, kind)
        return waiting.batches_of(outputs, self._operator.batch_size)

    def _outputs(
        self,
        function: ElementFunction,
        context: Context,
        records: Iterable[tuple[Any, Any, int | None]],
        cursor: KeyCursor,
        kind: str,
    ) -> Iterator[Any]:
        """Every output, each when it is asked for, as `OutputBuffer.batches_of` wants them. All user code that sees
        records runs in this loop, so it does nothing else."""
        waiting, size = context._buffer, self._operator.batch_size
        stamps, has_sides = waiting.stamps, bool(self._tags)
        value = outputs = None
        try:
            for value, key, stamp in records:
                cursor.key = context._key = key
                context.timestamp = stamp
                outputs = function(value, context)
                if outputs is not None:
                    if outputs.__class__ in NOT_RECORDS:
                        refuse_outputs(outputs)
                    for output in outputs:
                        if stamps is not None:
                            stamps.append(stamp)  # type: ignore[arg-type]
                        yield output
                if has_sides and waiting.side_records >= size:
                    yield FULL
        except Exception as error:
            raise_user_error(as_refusal(error, outputs), self._operator, f"on {kind} {describe(value)}")

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            try:
                close()
            except Exception as error:
                raise_user_error(error, self._operator, "in close")


class NoKey:
    """The cursor where there is no keyed state, or where somebody else sets the key."""

    __slots__ = ("key",)
    key: Any
