"""Event time of a task: of each split by its own records, of all by the slowest that is not idle, and over restores."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tidegate.elements import MIN_WATERMARK, Watermark
from tidegate.errors import InvalidError
from tidegate.event_time.progress import EventTimeProgress
from tidegate.event_time.strategies import WatermarkStrategy

FIVE_LATE = WatermarkStrategy.for_bounded_out_of_orderness("5ms")


def progress_of(*splits: str, strategy: WatermarkStrategy[Any] = FIVE_LATE) -> EventTimeProgress:
    progress = EventTimeProgress(strategy)
    progress.assigned(dict.fromkeys(splits))
    return progress


def came(progress: EventTimeProgress, split: str, *timestamps: int) -> None:
    progress.reading = split
    progress.observe([f"record at {at}" for at in timestamps], timestamps)


def test_the_watermark_is_behind_the_newest_by_the_bound_and_one() -> None:
    progress = progress_of("a")
    came(progress, "a", 100, 90)
    assert progress.advance() == Watermark(94)
    came(progress, "a", 99)
    assert progress.advance() is None
    came(progress, "a", 101)
    assert progress.advance() == Watermark(95)


def test_a_fast_split_does_not_make_a_slow_one_late() -> None:
    progress = progress_of("a", "b")
    came(progress, "a", 1000)
    assert progress.advance() is None
    came(progress, "b", 100)
    assert progress.advance() == Watermark(94)


def test_before_any_assignment_nothing_is_known_and_without_splits_the_task_is_idle() -> None:
    progress = EventTimeProgress(FIVE_LATE)
    assert progress.advance() is None
    progress.assigned({})
    assert progress.advance() == Watermark(MIN_WATERMARK, is_idle=True)


def test_an_idle_split_is_not_waited_for() -> None:
    progress = progress_of("a", "b", strategy=FIVE_LATE.with_idleness("10s"))
    came(progress, "b", 50)
    progress.able = 9.0
    came(progress, "a", 100)
    assert progress.advance() == Watermark(44)
    assert progress.seconds_to_look == pytest.approx(1.0)
    progress.able = 10.0
    assert progress.advance() == Watermark(94)
    came(progress, "b", 60)
    assert progress.advance() is None
    progress.able = 20.0
    assert progress.advance() == Watermark(94, is_idle=True)
    assert progress.seconds_to_look is None
    came(progress, "b", 200)
    assert progress.advance() == Watermark(194)


def test_an_ended_split_is_not_waited_for() -> None:
    progress = progress_of("a", "b")
    came(progress, "a", 100)
    progress.ended("b")
    assert progress.advance() == Watermark(94)
    progress.ended("a")
    assert progress.advance() == Watermark(94, is_idle=True)


def test_what_a_checkpoint_keeps_brings_every_split_back_to_where_it_was() -> None:
    before = progress_of("a", "b", "c")
    came(before, "a", 100)
    came(before, "b", 50)
    kept = {split: before.watermark_of(split) for split in "abc"}
    assert kept == {"a": 94, "b": 44, "c": None}
    after = EventTimeProgress(FIVE_LATE)
    after.assigned(kept)
    came(after, "c", 70)
    assert after.advance() == Watermark(44)
    came(after, "b", 49)
    assert after.advance() is None
    assert after.watermark_of("b") == 44


def test_a_generator_of_ones_own_decides_per_split() -> None:
    class Marked:
        """A record that says 'mark' is one."""

        watermark = MIN_WATERMARK

        def on_batch(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
            for value, timestamp in zip(values, timestamps, strict=True):
                if value == "mark":
                    self.watermark = timestamp

    progress = progress_of("a", strategy=WatermarkStrategy.for_generator(Marked))
    progress.reading = "a"
    progress.observe(["record", "record"], [10, 20])
    assert progress.advance() is None
    progress.observe(["mark", "record"], [15, 30])
    assert progress.advance() == Watermark(15)


def test_without_watermarks_time_stands_still() -> None:
    progress = progress_of("a", strategy=WatermarkStrategy.no_watermarks())
    came(progress, "a", 100)
    assert progress.advance() is None


def test_monotonous_timestamps_need_no_bound() -> None:
    progress = progress_of("a", strategy=WatermarkStrategy.for_monotonous_timestamps())
    came(progress, "a", 100)
    assert progress.advance() == Watermark(99)


def test_a_strategy_says_in_words_what_two_processes_compare() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5))
    assert str(strategy) == "bounded out-of-orderness 5s"
    timed: WatermarkStrategy[Any] = strategy.with_timestamp_assigner(len).with_idleness("1m")
    assert str(timed) == "bounded out-of-orderness 5s, own timestamps, idle after 1m"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness("5 s"), "for_bounded_out_of_orderness: '5 s'"),
        (lambda: WatermarkStrategy.for_monotonous_timestamps().with_idleness("0"), "with_idleness: '0'"),
        (lambda: WatermarkStrategy.for_generator(3), "for_generator was given 3"),  # type: ignore[arg-type]
        (lambda: FIVE_LATE.with_timestamp_assigner("ts"), "with_timestamp_assigner was given 'ts'"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_strategy_is_refused_where_it_is_written(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidError, match=named.replace("(", r"\(")):
        make()


def test_W01_a_split_that_was_not_looked_at_is_not_idle_however_long_that_took() -> None:
    progress = progress_of("a", "b", "c", strategy=FIVE_LATE.with_idleness("10s"))
    for split in "abc":
        came(progress, split, 100)
    for _ in range(3):
        progress.polls += 1
        came(progress, "a", 1000)
        progress.passed(600.0, found_nothing=False)
        assert progress.reached == Watermark(94), "the others may have had no turn yet"
    progress.polls += 1
    progress.passed(600.0, found_nothing=False)
    assert progress.reached == Watermark(994)


def test_W01_the_time_that_single_records_take_is_counted_when_the_input_is_asked_again() -> None:
    progress = progress_of("a", "b", strategy=FIVE_LATE.with_idleness("10s"))
    for _ in range(50):
        progress.passed(0.1, found_nothing=False)
    assert progress.able == 0.0
    progress.polls += 2
    progress.passed(0.1, found_nothing=False)
    assert progress.able == pytest.approx(5.1)


def test_W01_one_long_wait_makes_nothing_idle_but_several_do() -> None:
    progress = progress_of("a", strategy=FIVE_LATE.with_idleness("10s"))
    came(progress, "a", 100)
    for _ in range(3):
        progress.passed(3600.0, found_nothing=True)
        assert progress.reached == Watermark(94)
    progress.passed(3600.0, found_nothing=True)
    assert progress.reached == Watermark(94, is_idle=True)


# ---- alignment -----------------------------------------------------------------------------------------------------


def test_a_split_beyond_the_bound_is_paused_once_and_resumed_once() -> None:
    progress = progress_of("a", "b")
    came(progress, "a", 100)
    assert progress.pause_and_resume() == (["a"], [])
    assert progress.pause_and_resume() == ([], [])
    assert not progress.is_held
    came(progress, "b", 50)
    progress.align(60)
    assert progress.pause_and_resume() == ([], [])
    progress.align(94)
    progress.align(60)
    assert progress.pause_and_resume() == ([], ["a"])
    came(progress, "a", 101)
    came(progress, "b", 150)
    assert progress.pause_and_resume() == (["a", "b"], [])
    assert progress.is_held


def test_S23_a_split_that_has_ended_is_neither_paused_nor_resumed() -> None:
    progress = progress_of("a", "b")
    came(progress, "a", 100)
    came(progress, "b", 100)
    progress.ended("b")
    assert progress.pause_and_resume() == (["a"], [])
    progress.ended("a")
    progress.align(1000)
    assert progress.pause_and_resume() == ([], [])
    assert not progress.is_held


def test_restored_splits_wait_until_a_bound_is_told() -> None:
    progress = EventTimeProgress(FIVE_LATE)
    progress.assigned({"a": 94, "b": None})
    assert progress.pause_and_resume() == (["a"], [])
    progress.align(94)
    assert progress.pause_and_resume() == ([], ["a"])


def test_W01_idleness_is_not_counted_while_a_split_is_paused_and_begins_anew_behind_it() -> None:
    progress = progress_of("a", "b", strategy=FIVE_LATE.with_idleness("10s"))
    came(progress, "a", 1000)
    progress.pause_and_resume()
    for seconds in (4.0, 8.0, 12.0, 30.0):
        progress.able = seconds
        came(progress, "b", 50)
    assert progress.reached == Watermark(44)
    assert progress.seconds_to_look == pytest.approx(2.5)
    progress.align(2000)
    assert progress.pause_and_resume() == ([], ["a"])
    progress.able = 39.0
    assert progress.reached == Watermark(44)
    progress.able = 40.0
    assert progress.reached == Watermark(994, is_idle=True)


def test_what_is_reached_is_known_before_it_is_said() -> None:
    progress = progress_of("a")
    came(progress, "a", 100)
    assert (progress.reached, progress.merged) == (Watermark(94), Watermark(MIN_WATERMARK))
    assert progress.advance() == Watermark(94)
    assert EventTimeProgress(FIVE_LATE).reached is None


def test_an_aligned_strategy_says_so_in_words() -> None:
    assert str(FIVE_LATE.with_watermark_alignment("orders", "5m")) == (
        "bounded out-of-orderness 5ms, aligned in orders within 5m every 1s"
    )


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FIVE_LATE.with_watermark_alignment("", "5m"), "'' is no name for a group"),
        (lambda: FIVE_LATE.with_watermark_alignment(7, "5m"), "7 is no name for a group"),  # type: ignore[arg-type]
        (lambda: FIVE_LATE.with_watermark_alignment("g", "0s"), "with_watermark_alignment: '0s'"),
        (lambda: FIVE_LATE.with_watermark_alignment("g", "5m", "soon"), "with_watermark_alignment: 'soon'"),
        (lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", "5m"), "without watermarks"),
    ],
)
def test_what_cannot_be_aligned_is_refused_where_it_is_written(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidError, match=named):
        make()
