"""The window join gives what a short model gives: the pairs of each window and key, when the window is complete and
once more for each row that comes late but not too late."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

import tidegate as tg
from tests.unit.operators.join_steps import LATE, LEFT, RIGHT, Step, changed, compare, is_refuted, node_of, steps
from tests.unit.operators.rescaling import Given, Subtasks
from tidegate.api.windowing import state_name
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import UserCodeError
from tidegate.event_time.windows import TimeWindow
from tidegate.state.keys import encode_key

Rows = tuple[list[int], list[int]]
SIZE, SLIDE, GAP = 10, 5, 4
ASSIGNERS: dict[str, Any] = {
    "tumbling": tg.TumblingEventTimeWindows(f"{SIZE}ms"),
    "sliding": tg.SlidingEventTimeWindows(f"{SIZE}ms", f"{SLIDE}ms"),
    "sessions": tg.EventTimeSessionWindows(f"{GAP}ms"),
}
ORDERED: dict[str, tuple[type, ...]] = {"tumbling": (int,), "sliding": (), "sessions": (int,)}
"""Of each, the kinds of steps whose results have one order: a batch of late rows is taken apart by window, and the rows
of windows that overlap come piece by piece."""


class Model:
    """Both lists of rows of every window that is not gone."""

    def __init__(self, windows: str, how: str, lateness: int) -> None:
        self._kind = windows
        self._how = how
        self._lateness = lateness
        self._windows: dict[tuple[str, TimeWindow], Rows] = {}
        self._pieces: set[tuple[int, str, int]] = set()
        """Input, key, and where a piece of sliding windows begins that has had rows."""
        self.watermark = MIN_WATERMARK

    def row(self, input: int, key: str, timestamp: int, value: int) -> list[Given]:
        windows = [window for window in self._of(key, timestamp) if not self._is_gone(window)]
        result: list[Given] = []
        if windows:
            self._pieces.add((input, key, timestamp - timestamp % SLIDE))
        for window in windows:
            rows = self._windows.setdefault((key, window), ([], []))
            rows[input].append(value)
            if window.max_timestamp <= self.watermark:
                result += self._pairs(window, rows)
        return result if windows else [("late", timestamp, value)]

    def _of(self, key: str, timestamp: int) -> list[TimeWindow]:
        if self._kind == "sessions":
            return [self._session(key, TimeWindow(timestamp, timestamp + GAP))]
        slide = SLIDE if self._kind == "sliding" else SIZE
        return [TimeWindow(s, s + SIZE) for s in range(-SIZE, 100, slide) if s <= timestamp < s + SIZE]

    def _session(self, key: str, window: TimeWindow) -> TimeWindow:
        met = [w for k, w in self._windows if k == key and w.start <= window.end and window.start <= w.end]
        whole = TimeWindow(min(w.start for w in (window, *met)), max(w.end for w in (window, *met)))
        if not self._is_gone(whole):
            taken = [self._windows.pop((key, w)) for w in sorted(met)]
            self._windows[key, whole] = [v for rows in taken for v in rows[0]], [v for rows in taken for v in rows[1]]
        return whole

    def _is_gone(self, window: TimeWindow) -> bool:
        return window.max_timestamp + self._lateness <= self.watermark

    def _pairs(self, window: TimeWindow, rows: Rows) -> list[Given]:
        left, right = rows
        pairs: list[Any] = [(one, other) for one in left for other in right]
        if not right and self._how in ("left", "full"):
            pairs = [(one, None) for one in left]
        if not left and self._how in ("right", "full"):
            pairs = [(None, other) for other in right]
        return [(None, window.max_timestamp, pair) for pair in pairs]

    def advance(self, watermark: int) -> list[Given]:
        due = [one for one in self._windows if self.watermark < one[1].max_timestamp <= watermark]
        due.sort(key=lambda one: (one[1].max_timestamp, encode_key(one[0])))
        result = [pair for one in due for pair in self._pairs(one[1], self._windows[one])]
        self.watermark = watermark
        self._windows = {one: rows for one, rows in self._windows.items() if not self._is_gone(one[1])}
        return result

    def kept(self) -> dict[str, int]:
        """By input, the windows that have rows; of those that overlap, pieces as long as the slide, whose last window
        begins with them."""
        counts = {}
        for input, side in enumerate(("left", "right")):
            kept = {one for one, rows in self._windows.items() if rows[input]}
            if self._kind == "sliding":
                pieces = [(key, TimeWindow(start, start + SIZE)) for of, key, start in self._pieces if of == input]
                kept = {(key, window) for key, window in pieces if not self._is_gone(window)}
            counts[f".{side}-{state_name(ASSIGNERS[self._kind])[1:]}"] = len(kept)
        return {name: count for name, count in counts.items() if count}


def joined(windows: str, how: str, lateness: int) -> Any:
    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        arguments: dict[str, Any] = {"how": how, "allowed_lateness": f"{lateness}ms", "late": LATE}
        return left.window_join(
            right, ASSIGNERS[windows], lambda one, other: (one, other), name="join", types=(int, int), **arguments
        )

    return node_of(join)


KINDS = [
    ("tumbling", "inner", 0),
    ("tumbling", "full", 6),
    ("sliding", "left", 0),
    ("sliding", "right", 6),
    ("sessions", "inner", 6),
    ("sessions", "full", 0),
]


@pytest.mark.parametrize(("windows", "how", "lateness"), KINDS)
@given(steps=steps)
@settings(max_examples=60, deadline=None)
def test_rows_of_a_window_are_joined_with_each_other(windows: str, how: str, lateness: int, steps: list[Step]) -> None:
    compare(joined(windows, how, lateness), Model(windows, how, lateness), steps, ordered=ORDERED[windows])


@pytest.mark.slow
@pytest.mark.parametrize(("windows", "how", "lateness"), KINDS)
@given(steps=steps)
@settings(max_examples=1000, deadline=None)
def test_rows_of_a_window_of_many_streams_are_joined(windows: str, how: str, lateness: int, steps: list[Step]) -> None:
    compare(joined(windows, how, lateness), Model(windows, how, lateness), steps, ordered=ORDERED[windows])


def _spoiled(spoil: Callable[[list[Any]], list[Any]]) -> Callable[[Any], None]:
    """What gives the pairs of each window in another way."""

    def change(operator: Any) -> None:
        emit = operator._spec.emit
        spoiled = replace(operator._spec, emit=lambda key, window, rows: spoil(list(emit(key, window, rows))))
        operator._spec = spoiled

    return change


def _with_rows(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """What changes the rows of both sides when they are opened."""

    def change_operator(operator: Any) -> None:
        open_operator = operator.open

        def open_changed(context: Any) -> None:
            open_operator(context)
            change(operator._accumulators)

        operator.open = open_changed

    return change_operator


def _keeps_right_rows(rows: Any) -> None:
    rows.remove = rows._handles[0].remove


def _does_not_keep_right_rows(rows: Any) -> None:
    rows.put = lambda window, of_both: rows._handles[0].put(window, of_both[0])


WRONG = [
    _spoiled(lambda pairs: pairs[:-1]),
    _spoiled(lambda pairs: [*pairs, *pairs[:1]]),
    _spoiled(lambda pairs: [(left, 7) for left, _ in pairs]),
    _with_rows(_keeps_right_rows),
    _with_rows(_does_not_keep_right_rows),
]


@pytest.mark.parametrize("change", WRONG)
def test_a_window_join_that_does_something_else_is_found(change: Callable[[Any], None]) -> None:
    kind = ("tumbling", "full", 6)
    assert is_refuted(changed(joined(*kind), change), lambda: Model(*kind), ordered=ORDERED[kind[0]])


def test_a_row_that_comes_late_gives_all_pairs_of_its_window_anew() -> None:
    subtasks = Subtasks(joined("tumbling", "left", 6))
    subtasks.batch([("a", 1, 0), ("a", 2, 1)], LEFT)
    assert subtasks.watermark(10) == [(None, 9, (0, None)), (None, 9, (1, None))]
    subtasks.move(3)
    assert subtasks.batch([("a", 3, 2)], RIGHT) == [(None, 9, (0, 2)), (None, 9, (1, 2))]
    subtasks.watermark(15)
    assert subtasks.batch([("a", 3, 3)], RIGHT) == [("late", 3, 3)]
    assert subtasks.left() == 0


def test_W07_a_row_that_was_too_late_before_a_checkpoint_is_too_late_after_it() -> None:
    subtasks = Subtasks(joined("tumbling", "inner", 0))
    subtasks.batch([("a", 12, 1)], RIGHT)
    subtasks.watermark(9)
    assert subtasks.batch([("a", 9, 2)], LEFT) == [("late", 9, 2)]
    subtasks.move(2)
    assert subtasks.batch([("a", 9, 3), ("a", 10, 4)], LEFT) == [("late", 9, 3)]
    assert subtasks.end() == [(None, 19, (4, 1))]


@pytest.mark.parametrize("windows", ASSIGNERS)
def test_W09_state_of_windows_that_gave_nothing_is_gone(windows: str) -> None:
    subtasks = Subtasks(joined(windows, "inner", 6))
    counts = []
    for timestamp in range(0, 400, 5):
        subtasks.batch([("a", timestamp, timestamp)], LEFT)
        subtasks.batch([("b", timestamp, timestamp)], RIGHT)
        assert subtasks.watermark(timestamp - 5) == []
        counts.append(subtasks.left())
    assert counts[20:40] == counts[40:60] == counts[60:]
    subtasks.end()
    assert subtasks.left() == 0


def test_rows_of_types_that_are_stored_in_other_ways_can_be_joined() -> None:
    def join(left: tg.KeyedStream[str, Any], right: tg.KeyedStream[str, Any]) -> tg.Stream[Any]:
        return left.window_join(
            right, ASSIGNERS["sliding"], lambda a, b: (sorted(a), b), name="join", types=(tg.pickled(set), int)
        )

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", 1, {2, 1}), ("a", 2, {3})], LEFT)
    subtasks.batch([("a", 4, 5)], RIGHT)
    subtasks.move(2)
    pairs = [([1, 2], 5), ([3], 5)]
    assert subtasks.end() == [(None, end, pair) for end in (4, 9) for pair in pairs]


def test_windows_of_processing_time_join_what_comes_within_them() -> None:
    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        windows = tg.TumblingProcessingTimeWindows("10ms")
        return left.window_join(right, windows, lambda a, b: (a, b), name="join", types=(int, int), how="left")

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", None, 1)], LEFT)
    subtasks.time(7)
    subtasks.batch([("a", None, 2)], RIGHT)
    subtasks.move(2)
    assert [value for _, _, value in subtasks.time(10)] == [(1, 2)]
    subtasks.batch([("a", None, 3)], LEFT)
    assert [value for _, _, value in subtasks.time(20)] == [(3, None)]
    assert subtasks.left() == 0


def test_what_a_function_raises_names_the_window() -> None:
    def refused(left: int, right: int) -> None:
        raise ValueError("no such pair")

    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        return left.window_join(right, ASSIGNERS["tumbling"], refused, name="join", types=(int, int))

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", 1, 41)], LEFT)
    subtasks.batch([("a", 1, 42)], RIGHT)
    with pytest.raises(UserCodeError, match=r"on window TimeWindow\(start=0, end=10\) of key 'a': no such pair"):
        subtasks.end()
