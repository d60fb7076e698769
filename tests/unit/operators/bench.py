"""Operators opened as the engine opens them, and what comes out of them as plain lists."""

from collections.abc import Iterable
from typing import Any

from tidegate.clock import Clock, Now
from tidegate.elements import Batch
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.operator_state import OperatorStateBackend

Output = tuple[str | None, list[Any]]


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, milliseconds: int = 0) -> None:
        self.milliseconds = milliseconds

    def now(self) -> Now:
        return Now(self.milliseconds / 1000, self.milliseconds / 1000)


STILL = HandClock()


def context(
    batch_size: int = 100,
    state: KeyedStateBackend | None = None,
    unkeyed: OperatorStateBackend | None = None,
    clock: Clock | None = None,
) -> OperatorContext:
    name, subtask, parallelism = OperatorName("it"), SubtaskIndex(1), 2
    return OperatorContext(
        job=JobName("shop"),
        operator=name,
        subtask=subtask,
        parallelism=parallelism,
        attempt=Attempt(3),
        batch_size=batch_size,
        state=state,
        operator_state=OperatorStateBackend(name, subtask, parallelism) if unkeyed is None else unkeyed,
        clock=STILL if clock is None else clock,
    )


def run(operator: Operator, *batches: Batch, batch_size: int = 100) -> list[Batch]:
    """All that a fresh `operator` emits for `batches`."""
    operator.open(context(batch_size))
    return [output for batch in batches for output in operator.process(batch)]


def rows(batches: Iterable[Batch]) -> list[Output]:
    """Tag and values of each batch."""
    return [(batch.tag, batch.values) for batch in batches]
