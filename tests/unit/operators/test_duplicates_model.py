"""Deduplication lets pass what a short model lets pass that forgets nothing, and remembers only what is still needed:
records out of order and late, cut into batches anyhow, over checkpoints and restores at another parallelism."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.rescaling import Given, Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.elements import MIN_WATERMARK

Step = list[tuple[str, int]] | int | str
"""Records as key and timestamp; a watermark, or how far the clock goes on; 'move' and the parallelism to go on at."""
Tamper = Callable[[list[Given]], list[Given]]

LATE = tg.SideOutput[Any]("late")
keys = st.sampled_from(["a", "b", ""])
moves = st.sampled_from(["move 1", "move 2", "move 3"])
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.lists(st.tuples(keys, st.integers(0, 50)), min_size=1, max_size=6),
        st.integers(-5, 60),
        moves,
    ),
    max_size=14,
)


class EventTimeModel:
    """Knows all that ever passed."""

    def __init__(self, within: int, lateness: int) -> None:
        self._within = within
        self._lateness = lateness
        self._passed: list[tuple[str, int]] = []
        self.watermark = MIN_WATERMARK

    def record(self, key: str, timestamp: int, value: Any) -> list[Given]:
        if timestamp + self._lateness <= self.watermark:
            return [("late", timestamp, value)]
        if any(other == key and abs(timestamp - time) < self._within for other, time in self._passed):
            return []
        self._passed.append((key, timestamp))
        return [(None, timestamp, value)]

    @property
    def needed(self) -> int:
        """Of how many that passed a duplicate may still come that is not too late."""
        return sum(time + self._within - 1 > self.watermark - self._lateness for _, time in self._passed)


class ProcessingTimeModel:
    """Knows when each key passed last."""

    def __init__(self, within: int) -> None:
        self._within = within
        self._passed: dict[str, int] = {}
        self.now = 0

    def record(self, key: str, timestamp: int, value: Any) -> list[Given]:
        if key in self._passed and self.now < self._passed[key] + self._within:
            return []
        self._passed[key] = self.now
        return [(None, timestamp, value)]

    @property
    def needed(self) -> int:
        return sum(self.now < time + self._within for time in self._passed.values())


def subtasks(within: int, **arguments: Any) -> Subtasks:
    job = tg.Job("shop")
    stream = job.source(HandSource(), name="src").key_by(lambda record: record[0])
    stream.deduplicate(f"{within}ms", name="once", **arguments)
    return Subtasks(job._builder.node("once"))  # type: ignore[index]


def values_of(step: list[tuple[str, int]], number: int) -> list[tuple[str, int, tuple[str, int]]]:
    return [(key, stamp, (key, number + i)) for i, (key, stamp) in enumerate(step)]


def check_rows(given: list[Given], expected: list[Given]) -> None:
    """The same, those of a key in the same order."""
    assert sorted(given, key=str) == sorted(expected, key=str)
    for key in ("a", "b", ""):
        for tag in (None, "late"):
            assert [row for row in given if row[2][0] == key and row[0] == tag] == [
                row for row in expected if row[2][0] == key and row[0] == tag
            ]


def check_event_time(within: int, lateness: int, steps: list[Step], tamper: Tamper = lambda rows: rows) -> None:
    real = subtasks(within, allowed_lateness=f"{lateness}ms", late=LATE)
    model, number = EventTimeModel(within, lateness), 0
    for step in steps:
        if isinstance(step, str):
            real.move(int(step[-1]))
        elif isinstance(step, int):
            model.watermark = max(model.watermark, step)
            assert real.watermark(model.watermark) == []
        else:
            rows = values_of(step, number)
            number += len(rows)
            check_rows(tamper(real.batch(rows)), [given for row in rows for given in model.record(*row)])
        assert real.left_of() == ({".passed": model.needed, ".event-timers": model.needed} if model.needed else {})
    assert real.end() == []
    assert real.left() == 0


def check_processing_time(within: int, steps: list[Step]) -> None:
    real = subtasks(within, clock="processing")
    model, number = ProcessingTimeModel(within), 0
    for step in steps:
        if isinstance(step, str):
            real.move(int(step[-1]))
        elif isinstance(step, int):
            model.now += max(step, 0) // 4
            assert real.time(model.now) == []
            assert real.left() == 2 * model.needed
        else:
            rows = values_of(step, number)
            number += len(rows)
            check_rows(real.batch(rows), [given for row in rows for given in model.record(*row)])


@pytest.mark.parametrize("lateness", [0, 7])
@given(within=st.integers(1, 12), steps=steps)
@settings(max_examples=150, deadline=None)
def test_in_event_time_it_is_what_the_model_says_and_remembers_only_what_is_needed(
    lateness: int, within: int, steps: list[Step]
) -> None:
    check_event_time(within, lateness, steps)


@given(within=st.integers(1, 12), steps=steps)
@settings(max_examples=150, deadline=None)
def test_in_processing_time_it_is_what_the_model_says(within: int, steps: list[Step]) -> None:
    check_processing_time(within, steps)


@pytest.mark.slow
@pytest.mark.parametrize("lateness", [0, 7])
@given(within=st.integers(1, 12), steps=steps)
@settings(max_examples=3000, deadline=None)
def test_in_event_time_it_is_what_the_model_says_in_many_examples(
    lateness: int, within: int, steps: list[Step]
) -> None:
    check_event_time(within, lateness, steps)


@pytest.mark.slow
@given(within=st.integers(1, 12), steps=steps)
@settings(max_examples=3000, deadline=None)
def test_in_processing_time_it_is_what_the_model_says_in_many_examples(within: int, steps: list[Step]) -> None:
    check_processing_time(within, steps)


LATE_BEFORE_AND_AFTER: list[Step] = [
    [("a", 10), ("a", 12), ("b", 10)],
    12,
    [("a", 12), ("a", 13)],
    "move 3",
    [("a", 12), ("a", 14), ("b", 31)],
]


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda rows: rows[:-1], id="a record lost"),
        pytest.param(lambda rows: [*rows, *rows[-1:]], id="a record doubled"),
        pytest.param(lambda rows: [(tag, stamp + 1, value) for tag, stamp, value in rows], id="a timestamp changed"),
        pytest.param(lambda rows: [("late", stamp, value) for _, stamp, value in rows], id="a record taken for late"),
        pytest.param(lambda rows: [(tag, stamp, ("b", 0)) for tag, stamp, _ in rows], id="a value changed"),
    ],
)
def test_the_comparison_finds_what_is_wrong(tamper: Tamper) -> None:
    check_event_time(10, 0, LATE_BEFORE_AND_AFTER)
    with pytest.raises(AssertionError):
        check_event_time(10, 0, LATE_BEFORE_AND_AFTER, tamper)


@pytest.mark.parametrize("error", [-1, 1])
def test_the_comparison_finds_an_operator_that_forgets_too_early_or_too_late(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.operators.duplicates import EventTimeDeduplicateOperator as Operator

    remember = Operator._remember
    monkeypatch.setattr(Operator, "_remember", lambda self, key, time, until: remember(self, key, time, until + error))
    with pytest.raises(AssertionError):
        check_event_time(10, 0, [[("a", 10)], 18, [("a", 19)], 19])
