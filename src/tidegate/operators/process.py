"""Runs process functions: any number of outputs per record, to the main output and to side outputs.

Outputs leave as they fill a batch, also in the middle of a record: a record that yields very much is never collected.
The function's state may be half changed when it raises, so there is no going on behind a failing record.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tidegate.elements import Batch
from tidegate.errors import InternalError, place
from tidegate.operators.context import Context, OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.user_code import NOT_RECORDS, as_refusal, describe, raise_user_error, refuse_outputs
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
        self._set_current_key: Callable[[Any], object] = no_key

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
        return self._run_batch(batch, self._context, self._set_current_key)

    def _run_batch(self, batch: Batch, context: Context, set_current_key: Callable[[Any], object]) -> Iterator[Batch]:
        nothing = [None] * len(batch)
        records = zip(batch.values, batch.keys or nothing, batch.timestamps or nothing, strict=True)
        timed = batch.timestamps is not None
        return self._run(self._functions[batch.input], context, records, timed, set_current_key)

    def _run(
        self,
        function: ElementFunction,
        context: Context,
        records: Iterable[tuple[Any, Any, int | None]],
        timed: bool,
        set_current_key: Callable[[Any], object],
        kind: str = "record",
    ) -> Iterator[Batch]:
        """What `function` makes of each of the `records` (value, key, timestamp), `timed` when they have timestamps.
        `kind` says in errors what the values are."""
        size = self._operator.batch_size
        waiting = OutputBuffer(self._tags, timed)
        context._collect_into(waiting)
        main, value = waiting.main.values, None
        outputs: Iterable[Any] | None = None
        try:
            for value, key, stamp in records:
                set_current_key(key)
                context._key = key
                context.timestamp = stamp
                outputs = function(value, context)
                if outputs is not None:
                    if outputs.__class__ in NOT_RECORDS:
                        refuse_outputs(outputs)
                    for output in outputs:
                        main.append(output)
                        if len(main) + waiting.side_records >= size:
                            yield from waiting.take(stamp)
                            main = waiting.main.values
                if stamp is not None:
                    waiting.stamp(stamp)
                if waiting.side_records >= size:
                    yield from waiting.take()
                    main = waiting.main.values
        except Exception as error:
            raise_user_error(as_refusal(error, outputs), self._operator, f"on {kind} {describe(value)}")
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


def no_key(_: Any) -> None:
    """Without keyed state there is none to set."""
