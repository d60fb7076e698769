"""The end of a chain gives batches to whoever writes them, and says whose failure it was."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.unit.operators.bench import run
from tidegate.elements import Batch
from tidegate.errors import SinkFencedError, UserCodeError
from tidegate.operators.sink import SinkOperator

Refuse = Callable[[Exception], NoReturn]


def fenced(batch: Batch, refuse: Refuse) -> None:
    refuse(SinkFencedError("taken over"))


def unwritable(batch: Batch, refuse: Refuse) -> None:
    try:
        raise TypeError(f"cannot write {batch.values[0]!r}")
    except TypeError as error:
        refuse(error)


def test_each_batch_is_written_as_it_is_and_nothing_is_emitted() -> None:
    written: list[Batch] = []
    batches = [Batch([1, 2], ["k", "l"], [10, 20]), Batch([3])]
    assert run(SinkOperator(lambda batch, refuse: written.append(batch)), *batches) == []
    assert written == batches


def test_nothing_is_said_at_the_end_of_input() -> None:
    assert list(SinkOperator(lambda batch, refuse: None).end_of_input()) == []


def test_a_record_that_cannot_be_written_is_the_programs_failure_with_its_traceback() -> None:
    with pytest.raises(UserCodeError) as failed:
        run(SinkOperator(unwritable), Batch([object]))
    failure = failed.value.failure
    assert "TypeError when a batch was given to the sink: cannot write" in failure.message
    assert failure.where == "operator it, subtask 1, attempt 3"
    assert "in unwritable" in failure.traceback


def test_a_failure_of_the_sink_keeps_its_kind_and_gets_a_place() -> None:
    with pytest.raises(SinkFencedError) as failed:
        run(SinkOperator(fenced), Batch([1]))
    assert failed.value.failure.where == "operator it, subtask 1, attempt 3"
