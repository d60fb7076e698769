"""Watermarks of several inputs become one that never goes back, waits for the slowest, and not for what is idle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Watermark
from tidegate.errors import InternalError
from tidegate.event_time.watermarks import WatermarkMerger


def test_the_slowest_input_decides() -> None:
    merger = WatermarkMerger(2)
    assert merger.advance(0, Watermark(50)) is None
    assert merger.advance(1, Watermark(30)) == Watermark(30)
    assert merger.advance(0, Watermark(60)) is None
    assert merger.advance(1, Watermark(70)) == Watermark(60)


def test_an_idle_input_is_not_waited_for_until_it_comes_back() -> None:
    merger = WatermarkMerger(2)
    merger.advance(0, Watermark(50))
    assert merger.advance(1, Watermark(MIN_WATERMARK, is_idle=True)) == Watermark(50)
    assert merger.advance(0, Watermark(80)) == Watermark(80)
    assert merger.advance(1, Watermark(10)) is None
    assert merger.advance(0, Watermark(90)) is None
    assert merger.advance(1, Watermark(85)) == Watermark(85)


@pytest.mark.parametrize("last", [0, 1])
def test_when_all_are_idle_time_is_where_the_furthest_is_whichever_became_idle_last(last: int) -> None:
    merger = WatermarkMerger(2)
    merger.advance(0, Watermark(50))
    merger.advance(1, Watermark(70))
    merger.advance(1 - last, Watermark(70 if last == 0 else 50, is_idle=True))
    merger.advance(last, Watermark(50 if last == 0 else 70, is_idle=True))
    assert merger.merged == Watermark(70, is_idle=True)
    assert merger.advance(0, Watermark(60, is_idle=True)) is None
    assert merger.advance(0, Watermark(60)) == Watermark(70)


def test_what_has_ended_is_not_waited_for() -> None:
    merger = WatermarkMerger(2)
    merger.advance(0, Watermark(50))
    assert merger.end(1) == Watermark(50)
    assert merger.end(0) == Watermark(MAX_WATERMARK)


def test_what_was_known_before_a_restore_is_the_least() -> None:
    merger = WatermarkMerger(2, start=40)
    assert merger.advance(0, Watermark(90)) is None
    assert merger.advance(1, Watermark(20)) is None
    assert merger.advance(1, Watermark(41)) == Watermark(41)


def test_an_input_that_goes_back_is_a_broken_promise() -> None:
    merger = WatermarkMerger(1)
    merger.advance(0, Watermark(50))
    with pytest.raises(InternalError, match="went back from 50 to 49"):
        merger.advance(0, Watermark(49))


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.booleans()), max_size=40),
)
def test_it_is_the_smallest_of_the_active_ones_and_never_goes_back(
    inputs: int, steps: list[tuple[int, int, bool]]
) -> None:
    merger, reached, active, highest = WatermarkMerger(inputs), [MIN_WATERMARK] * inputs, [True] * inputs, MIN_WATERMARK
    for number, forward, is_idle in steps:
        position = number % inputs
        reached[position] = max(0, reached[position]) + forward
        active[position] = not is_idle
        before = merger.merged
        told = merger.advance(position, Watermark(reached[position], is_idle))
        waited_for = [reached[i] for i in range(inputs) if active[i]]
        highest = max(highest, min(waited_for) if waited_for else max(reached))
        assert merger.merged == Watermark(highest, not waited_for)
        assert told == (None if merger.merged == before else merger.merged)
