"""Operators opened as the engine opens them, and what comes out of them as plain lists."""

from collections.abc import Iterable
from typing import Any

from tidegate.elements import Batch
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.state.backend import KeyedStateBackend

Output = tuple[str | None, list[Any]]


def context(batch_size: int = 100, state: KeyedStateBackend | None = None) -> OperatorContext:
    return OperatorContext(JobName("shop"), OperatorName("it"), SubtaskIndex(1), 2, Attempt(3), batch_size, state)


def run(operator: Operator, *batches: Batch, batch_size: int = 100) -> list[Batch]:
    """All that a fresh `operator` emits for `batches`."""
    operator.open(context(batch_size))
    return [output for batch in batches for output in operator.process(batch)]


def rows(batches: Iterable[Batch]) -> list[Output]:
    """Tag and values of each batch."""
    return [(batch.tag, batch.values) for batch in batches]
