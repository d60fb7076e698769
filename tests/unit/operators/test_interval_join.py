"""The interval join gives what a short model gives that forgets nothing, and keeps only what is still needed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

import tidegate as tg
from tests.unit.operators.join_steps import (
    LATE,
    LEFT,
    RIGHT,
    SPOILED,
    Step,
    changed,
    compare,
    is_refuted,
    node_of,
    steps,
)
from tests.unit.operators.rescaling import Given, Subtasks
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import UserCodeError
from tidegate.operators.joins import rows
from tidegate.state.keys import encode_key


class Row(NamedTuple):
    key: str
    timestamp: int
    value: int


class Model:
    """All rows that ever came in time, by input."""

    def __init__(self, how: str, lower: int, upper: int) -> None:
        self._how = how
        self._lower = lower
        self._upper = upper
        self._rows: tuple[list[Row], list[Row]] = [], []
        self.watermark = MIN_WATERMARK

    def row(self, input: int, key: str, timestamp: int, value: int) -> list[Given]:
        if timestamp <= self.watermark:
            return [("late", timestamp, value)]
        row = Row(key, timestamp, value)
        self._rows[input].append(row)
        matches = sorted(self._matches(input, row), key=lambda match: match.timestamp)
        given = [_pair(input, row, match, max(timestamp, match.timestamp)) for match in matches]
        if not matches and self._is_outer(input) and self._certain_at(input, row) <= self.watermark:
            given.append(_pair(input, row, None, timestamp))
        return given

    def _matches(self, input: int, row: Row) -> list[Row]:
        others = [other for other in self._rows[1 - input] if other.key == row.key]
        if input == LEFT:
            return [other for other in others if self._lower <= other.timestamp - row.timestamp <= self._upper]
        return [other for other in others if self._lower <= row.timestamp - other.timestamp <= self._upper]

    def _is_outer(self, input: int) -> bool:
        return self._how == "full" or self._how == ("left", "right")[input]

    def _certain_at(self, input: int, row: Row) -> int:
        """When the watermark comes to it, no match is to come."""
        return row.timestamp + (self._upper if input == LEFT else -self._lower)

    def advance(self, watermark: int) -> list[Given]:
        due: list[tuple[int, bytes, int, Row]] = []
        for input in (LEFT, RIGHT):
            for row in self._rows[input]:
                at = self._certain_at(input, row)
                if self.watermark < at <= watermark and self._is_outer(input) and not self._matches(input, row):
                    due.append((at, encode_key(row.key), input, row))
        self.watermark = watermark
        due.sort(key=lambda one: one[:3])
        return [_pair(input, row, None, max(at, row.timestamp)) for at, _, input, row in due]

    def kept(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for input, side in enumerate(("left", "right")):
            suffix = f"{self._how}-{self._lower}-to-{self._upper}"
            rows = [row for row in self._rows[input] if self._certain_at(input, row) > self.watermark]
            counts[f".{side}-{suffix}"] = len(rows)
            if self._is_outer(input):
                matched = {(row.key, row.timestamp) for row in rows if self._matches(input, row)}
                counts[f".{side}-matched-{suffix}"] = len(matched)
        return {name: count for name, count in counts.items() if count}


def _pair(input: int, row: Row, match: Row | None, timestamp: int) -> Given:
    other = None if match is None else match.value
    return None, timestamp, (row.value, other) if input == LEFT else (other, row.value)


def joined(how: str, lower: int, upper: int, late: bool = True) -> Any:
    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        arguments: dict[str, Any] = {"how": how, "lower": _duration(lower), "upper": _duration(upper)}
        return left.interval_join(
            right, lambda a, b: (a, b), name="join", types=(int, int), late=LATE if late else None, **arguments
        )

    return node_of(join)


def _duration(milliseconds: int) -> str:
    return f"{milliseconds}ms"


KINDS = [
    ("inner", -5, 5),
    ("left", -4, 9),
    ("right", -4, 9),
    ("full", 0, 0),
    ("full", 2, 6),
    ("full", -6, -2),
]


@pytest.mark.parametrize(("how", "lower", "upper"), KINDS)
@given(steps=steps)
@settings(max_examples=60, deadline=None)
def test_each_row_is_joined_with_those_that_are_near_enough(
    how: str, lower: int, upper: int, steps: list[Step]
) -> None:
    compare(joined(how, lower, upper), Model(how, lower, upper), steps)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "lower", "upper"), KINDS)
@given(steps=steps)
@settings(max_examples=1000, deadline=None)
def test_each_row_of_many_streams_is_joined_with_those_that_are_near_enough(
    how: str, lower: int, upper: int, steps: list[Step]
) -> None:
    compare(joined(how, lower, upper), Model(how, lower, upper), steps)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_same_when_no_order_of_places_is_remembered(
    kind: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_PLACES", 0)

    @given(steps=steps)
    @settings(max_examples=20, deadline=None)
    def check(steps: list[Step]) -> None:
        compare(joined(*kind), Model(*kind), steps)

    check()


def _leaves_out_the_upper_bound(operator: Any) -> None:
    (lower, upper), right = operator._reaches
    operator._reaches = (lower, upper - 1), right


def _with_sides(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """What changes both sides when they are made."""

    def change_operator(operator: Any) -> None:
        register = operator._register

        def register_changed() -> None:
            register()
            for side in operator._sides:
                change(side)

        operator._register = register_changed

    return change_operator


def _marks_nothing(side: Any) -> None:
    side.mark = lambda timestamps: None


def _keeps_rows(side: Any) -> None:
    side.remove = lambda timestamp, places: None


def _keeps_marks(side: Any) -> None:
    side.remove = lambda timestamp, places: side.rows.remove(places)


WRONG = [*SPOILED.values(), _leaves_out_the_upper_bound, *map(_with_sides, (_marks_nothing, _keeps_rows, _keeps_marks))]


@pytest.mark.parametrize("change", WRONG)
def test_an_interval_join_that_does_something_else_is_found(change: Callable[[Any], None]) -> None:
    kind = ("full", -4, 9)
    assert is_refuted(changed(joined(*kind), change), lambda: Model(*kind))


def test_W07_a_row_that_was_late_before_a_checkpoint_is_late_after_it() -> None:
    subtasks = Subtasks(joined("left", -5, 5, late=False))
    subtasks.batch([("a", 12, 7)], RIGHT)
    subtasks.watermark(10)
    assert subtasks.batch([("a", 10, 0)], LEFT) == []
    subtasks.move(3)
    assert subtasks.batch([("a", 10, 1)], LEFT) == []
    assert subtasks.batch([("a", 11, 2)], LEFT) == [(None, 12, (2, 7))]
    assert (subtasks.end(), subtasks.skipped) == ([], 2)


@pytest.mark.parametrize(("lower", "upper"), [(-5, 5), (0, 0), (3, 8), (-8, -3)])
def test_W09_state_does_not_grow_and_nothing_outlives_the_input(lower: int, upper: int) -> None:
    subtasks = Subtasks(joined("full", lower, upper))
    counts = []
    for timestamp in range(60):
        subtasks.batch([("a", timestamp, timestamp), ("b", timestamp, timestamp)], RIGHT)
        subtasks.batch([("a", timestamp, timestamp), ("c", timestamp, timestamp)], LEFT)
        subtasks.watermark(timestamp - 3)
        counts.append(subtasks.left())
    assert len(set(counts[30:])) == 1
    subtasks.end()
    assert subtasks.left() == 0


def test_a_row_without_a_match_is_given_when_none_can_come_and_not_before() -> None:
    subtasks = Subtasks(joined("full", -5, 5))
    subtasks.batch([("a", 10, 1)], LEFT)
    subtasks.batch([("a", 16, 2)], RIGHT)
    assert subtasks.watermark(14) == []
    subtasks.move(2)
    assert subtasks.watermark(15) == [(None, 15, (1, None))]
    assert subtasks.watermark(30) == [(None, 21, (None, 2))]


def test_a_row_that_no_newer_one_can_match_is_not_kept() -> None:
    subtasks = Subtasks(joined("left", -8, -3))
    subtasks.watermark(10)
    assert subtasks.batch([("a", 12, 1)], LEFT) == [(None, 12, (1, None))]
    assert subtasks.left() == 0


def test_what_a_function_raises_names_the_pair() -> None:
    def refused(left: int, right: int) -> None:
        raise ValueError("no such pair")

    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        return left.interval_join(right, refused, name="join", types=(int, int), lower="0", upper="1s")

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", 1, 41)], RIGHT)
    with pytest.raises(UserCodeError, match="ValueError on 42 joined with 41: no such pair"):
        subtasks.batch([("a", 1, 42)], LEFT)


def test_rows_of_a_type_that_is_pickled_can_be_joined() -> None:
    def join(left: tg.KeyedStream[str, Any], right: tg.KeyedStream[str, Any]) -> tg.Stream[Any]:
        types = tg.pickled(set), tg.pickled(set)
        return left.interval_join(right, lambda a, b: a | b, name="join", types=types, lower="0", upper="0")

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", 1, {1})], LEFT)
    subtasks.move(2)
    assert subtasks.batch([("a", 1, {2})], RIGHT) == [(None, 1, {1, 2})]
