"""Count windows give what a list of a key's records gives, cut into slices: whatever the order and the batches, over
checkpoints and at other parallelisms."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.rescaling import Given, Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.ids import OperatorName
from tidegate.operators.windows.counts import CountWindowOperator

records = st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 60))
steps_of_all_kinds = st.lists(
    st.one_of(
        st.lists(records, min_size=1, max_size=8),
        st.tuples(st.just("watermark"), st.integers(0, 70)),
        st.tuples(st.just("move"), st.integers(1, 3)),
    ),
    max_size=12,
)
SIZES = [(1, 1), (3, 3), (4, 2), (6, 4), (5, 3)]


def subtasks_of(size: int, slide: int) -> Subtasks:
    job = tg.Job("windows")
    stream = job.source(HandSource(), name="src").key_by(lambda record: record)
    stream.count_window(size, slide).process(rows_of, name="windows", type=int)
    return Subtasks(job._builder.node(OperatorName("windows")))


def rows_of(ctx: tg.WindowContext[str], numbers: list[int]) -> Iterator[tuple[Any, ...]]:
    yield ctx.key, ctx.window, numbers


class Model:
    def __init__(self, size: int, slide: int) -> None:
        self._size = size
        self._slide = slide
        self.records: dict[str, list[int]] = {}

    def record(self, row: tuple[str, int], number: int) -> Iterator[Given]:
        key, stamp = row
        numbers = self.records.setdefault(key, [])
        numbers.append(number)
        start = len(numbers) - self._size
        if start >= 0 and start % self._slide == 0:
            yield None, stamp, (key, tg.CountWindow(start, len(numbers)), numbers[start:])

    def panes_left(self, pane: int) -> int:
        """How many pieces hold records that a later window has."""
        left = 0
        for numbers in self.records.values():
            first = 0
            while first + self._size <= len(numbers):
                first += self._slide
            left += -(-(len(numbers) - first) // pane)
        return left


def check(subtasks: Subtasks, model: Model, steps: list[Any], pane: int) -> None:
    number = 0
    for step in steps:
        given: list[Given] = []
        expected: list[Given] = []
        match step:
            case ("move", int(parallelism)):
                subtasks.move(parallelism)
            case ("watermark", int(watermark)):
                given = subtasks.watermark(watermark)
            case list(rows):
                given = subtasks.batch([(key, stamp, number + place) for place, (key, stamp) in enumerate(rows)])
                expected = [r for place, row in enumerate(rows) for r in model.record(row, number + place)]
                number += len(rows)
        assert subtasks.parallelism > 1 or given == expected
        for key in model.records:
            assert [row for row in given if row[2][0] == key] == [row for row in expected if row[2][0] == key]
        left = subtasks.left_of()
        assert left.pop(".counts", 0) == len(model.records)
        assert sum(left.values()) == model.panes_left(pane)
    assert subtasks.end() == []


@pytest.mark.parametrize(("size", "slide"), SIZES)
@given(steps=steps_of_all_kinds)
@settings(max_examples=40)
def test_count_windows_are_what_the_model_says_and_keep_no_more_than_they_need(
    size: int, slide: int, steps: list[Any]
) -> None:
    check(subtasks_of(size, slide), Model(size, slide), steps, tg_pane(size, slide))


def tg_pane(size: int, slide: int) -> int:
    return next(pane for pane in range(slide, 0, -1) if size % pane == 0 and slide % pane == 0)


def test_the_comparison_finds_a_record_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [[("a", 1), ("a", 2)], ("move", 2), [("a", 3), ("a", 3)]]
    check(subtasks_of(4, 2), Model(4, 2), steps, 2)
    monkeypatch.setattr(CountWindowOperator, "_merged", lambda self, one, other: other)
    with pytest.raises(AssertionError):
        check(subtasks_of(4, 2), Model(4, 2), steps, 2)


def test_records_without_timestamps_are_counted_too() -> None:
    subtasks = subtasks_of(2, 2)
    assert subtasks.batch([("a", None, 1), ("a", None, 2)]) == [(None, None, ("a", tg.CountWindow(0, 2), [1, 2]))]
