"""Operators with state by key: `process` behind `key_by`, and `reduce`.

All they keep between two batches is in their state backend. Before user code sees a record, the backend is told its
key.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InternalError, place
from tidegate.operators.context import Context, KeyedContext
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.process import ProcessOperator
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import ValueState, collect_descriptors


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


class KeyedProcessOperator(ProcessOperator):
    """Runs a `KeyedProcessFunction`: its declared states become handles that mean the current record's key."""

    def open(self, context: OperatorContext) -> None:
        backend = backend_of(context)
        for name, descriptor in collect_descriptors(self._function).items():
            vars(self._function)[name] = backend.register(descriptor)
        self._set_current_key = backend.set_current_key
        super().open(context)

    def _make_context(self, context: OperatorContext) -> Context:
        return KeyedContext(context.operator, context.subtask, context.parallelism)

    def process(self, batch: Batch) -> Iterator[Batch]:
        keys_of(batch, self._operator)
        return super().process(batch)


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
        function, set_current_key = self._function, self._backend.set_current_key
        read, update = self._handle.value, self._handle.update
        results: list[Any] = []
        value = None
        try:
            for key, value in zip(keys_of(batch, self._operator), batch.values, strict=True):
                set_current_key(key)
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
