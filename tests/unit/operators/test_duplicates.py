"""What deduplication lets pass, record by record, and what it needs for that."""

import pytest

import tidegate as tg
from tests.unit.operators.bench import context as opened_with
from tests.unit.operators.bench import rows
from tests.unit.operators.rescaling import Subtasks
from tests.unit.operators.test_duplicates_model import subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.duplicates import EventTimeDeduplicateOperator
from tidegate.state.object_backend import ObjectStateBackend

MINUTE = 60_000


def test_the_first_that_comes_passes_also_out_of_order() -> None:
    real = subtasks(10)
    assert real.batch([("a", 20, "x"), ("a", 11, "y"), ("a", 29, "z")]) == [(None, 20, "x")]
    assert real.batch([("a", 10, "y"), ("a", 30, "z")]) == [(None, 10, "y"), (None, 30, "z")]


def test_a_duplicate_does_not_lengthen_the_time() -> None:
    real = subtasks(10)
    assert [row[2] for row in real.batch([("a", 0, "x"), ("a", 9, "y"), ("a", 18, "z")])] == ["x", "z"]


def test_a_record_that_is_late_is_counted_where_there_is_no_side_output() -> None:
    real = subtasks(10)
    real.watermark(50)
    assert real.batch([("a", 50, "x"), ("b", 51, "y"), ("c", 3, "z")]) == [(None, 51, "y")]
    assert real.skipped == 2


def test_what_was_late_before_a_checkpoint_is_late_behind_it() -> None:
    real = subtasks(10)
    real.batch([("a", 40, "x")])
    real.watermark(50)
    real.move(3)
    assert real.batch([("a", 50, "y"), ("a", 45, "z")]) == []
    assert real.skipped == 2


def test_records_without_timestamps_are_refused_in_event_time_and_taken_in_processing_time() -> None:
    with pytest.raises(InvalidError, match=r"(?s)without timestamps.*clock=.processing."):
        subtasks(10).batch([("a", None, "x")])
    assert subtasks(10, clock="processing").batch([("a", None, "x"), ("a", None, "y")]) == [(None, None, "x")]


def test_in_processing_time_what_is_over_during_an_outage_is_not_waited_for() -> None:
    real = subtasks(10, clock="processing")
    assert real.batch([("a", 1, "x")]) == [(None, 1, "x")]
    real.move(2)
    real.clock.milliseconds = 10
    assert real.batch([("a", 1, "y")]) == [(None, 1, "y")]
    assert real.time(10) == []
    assert real.batch([("a", 1, "z")]) == []


def test_a_changed_time_holds_for_what_comes_then() -> None:
    def node(within: str) -> object:
        job = tg.Job("shop")
        job.source(HandSource(), name="src").key_by(lambda record: record[0]).deduplicate(within, name="once")
        return job._builder.node(OperatorName("once"))

    real = Subtasks(node("10ms"))  # type: ignore[arg-type]
    assert len(real.batch([("a", 10, "x")])) == 1
    real._node = node("4ms")  # type: ignore[assignment]
    real.move()
    assert [row[1] for row in real.batch([("a", 13, "y"), ("a", 14, "z")])] == [14]
    real.end()
    assert real.left() == 0


def test_timestamps_at_the_end_of_time_leave_room() -> None:
    real = subtasks(10 * MINUTE)
    assert len(real.batch([("a", 2**62 - 1, "x")])) == 1
    assert real.watermark(MAX_WATERMARK) == []
    assert real.left() == 0


def test_it_puts_out_batches_of_the_engines_size() -> None:
    operator = EventTimeDeduplicateOperator(5, 0, "late")
    state = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)
    operator.open(opened_with(2, state))
    operator.advance_watermark(0, lambda: False)
    batch = Batch(list("abcdef"), list("abcdef"), [1, 2, 3, 0, -1, -2])
    assert rows(operator.process(batch)) == [
        (None, ["a", "b"]),
        (None, ["c"]),
        ("late", ["d", "e"]),
        ("late", ["f"]),
    ]
