"""Batches get as large as the step-time target allows, and a source that has nothing is asked less and less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.elements import Batch
from tidegate.errors import InternalError
from tidegate.runtime.pacing import (
    FIRST_LIMIT,
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    WATCHED_PAUSE,
    BatchPacer,
    Pieces,
    SourcePoll,
)

TARGET = 0.02


def pacer(most: int = 2048) -> BatchPacer:
    return BatchPacer(most, TARGET)


def pieces_of(batch: Batch, pacer: BatchPacer) -> list[Batch]:
    pieces = Pieces(pacer)
    pieces.put(batch)
    taken = []
    while pieces:
        taken.append(pieces.take())
    return taken


# ---- how many at once ------------------------------------------------------------------------------------------------


def test_the_first_batches_are_small() -> None:
    assert pacer().limit == FIRST_LIMIT
    assert pacer(most=10).limit == 10


def test_quick_full_batches_double_the_limit_up_to_the_most() -> None:
    it = pacer(most=300)
    limits = []
    for _ in range(4):
        it.observe(it.limit, TARGET / 10)
        limits.append(it.limit)
    assert limits == [128, 256, 300, 300]


def test_a_batch_that_was_not_full_says_nothing_about_larger_ones() -> None:
    it = pacer()
    it.observe(FIRST_LIMIT - 1, 0.0)
    assert it.limit == FIRST_LIMIT


def test_a_batch_that_took_about_the_target_leaves_the_limit() -> None:
    it = pacer()
    it.observe(FIRST_LIMIT, TARGET * 0.6)
    it.observe(FIRST_LIMIT, TARGET)
    assert it.limit == FIRST_LIMIT


def test_a_slow_batch_lowers_the_limit_to_what_fits() -> None:
    it = pacer()
    it.observe(64, TARGET * 4)
    assert it.limit == 16


def test_the_limit_never_falls_below_one_record() -> None:
    it = pacer()
    it.observe(64, 1000.0)
    assert it.limit == 1


def test_a_short_slow_batch_never_raises_the_limit() -> None:
    it = pacer()
    it.observe(64, TARGET * 16)
    it.observe(1_000_000, TARGET * 2)
    assert it.limit == 4


def test_after_one_slow_batch_the_limit_grows_again() -> None:
    it = pacer()
    it.observe(64, 1000.0)
    for _ in range(20):
        it.observe(it.limit, 0.0)
    assert it.limit == 2048


# ---- pieces ----------------------------------------------------------------------------------------------------------


def test_a_batch_within_the_limit_passes_as_it_is() -> None:
    batch = Batch([1, 2, 3])
    (piece,) = pieces_of(batch, pacer())
    assert piece is batch


@given(st.integers(1, 300), st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_the_pieces_are_the_batch_with_all_its_columns_whatever_the_limits(size: int, limits: list[int]) -> None:
    it = pacer()
    pieces = Pieces(it)
    pieces.put(Batch(list(range(size)), [f"k{i}" for i in range(size)], list(range(1000, 1000 + size))))
    taken: list[Batch] = []
    while pieces:
        it.limit = limits[len(taken) % len(limits)]
        taken.append(pieces.take())
        assert len(taken[-1]) <= it.limit
    assert [value for piece in taken for value in piece.values] == list(range(size))
    assert [key for piece in taken for key in piece.keys or []] == [f"k{i}" for i in range(size)]
    assert [stamp for piece in taken for stamp in piece.timestamps or []] == list(range(1000, 1000 + size))


def test_a_limit_that_falls_holds_for_the_rest_of_the_same_batch() -> None:
    it = pacer()
    pieces = Pieces(it)
    pieces.put(Batch(list(range(100))))
    assert len(pieces.take()) == FIRST_LIMIT
    it.observe(FIRST_LIMIT, TARGET * FIRST_LIMIT)
    assert len(pieces.take()) == 1


def test_no_batch_may_push_away_what_is_left_of_another() -> None:
    pieces = Pieces(pacer())
    pieces.put(Batch(list(range(100))))
    pieces.take()
    with pytest.raises(InternalError, match="before all of"):
        pieces.put(Batch([1]))


def test_nothing_can_be_taken_where_nothing_is_left() -> None:
    pieces = Pieces(pacer())
    pieces.put(Batch([1]))
    pieces.take()
    assert not pieces
    with pytest.raises(InternalError, match="nothing is left"):
        pieces.take()


# ---- asking a source -------------------------------------------------------------------------------------------------


def test_a_source_is_asked_at_once_first() -> None:
    poll = SourcePoll()
    assert poll.is_due(0.0)
    assert poll.next_at(5.0) == 5.0


def test_the_pause_of_a_source_that_has_nothing_doubles_up_to_the_longest() -> None:
    poll, now, pauses = SourcePoll(), 100.0, []
    for _ in range(8):
        poll.found_nothing(now)
        pauses.append(round(poll.next_at(now) - now, 6))
        assert not poll.is_due(now)
        now = poll.next_at(now)
        assert poll.is_due(now)
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.032, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_source_that_is_watched_is_asked_when_something_arrives_and_seldom_otherwise() -> None:
    poll = SourcePoll()
    poll.found_nothing(100.0, [7])
    assert (poll.watched(100.0), poll.patient_at(100.0)) == ((), 100.0 + SHORTEST_PAUSE)
    now = 100.0 + SHORTEST_PAUSE
    assert (poll.watched(now), poll.patient_at(now)) == ([7], 100.0 + WATCHED_PAUSE)
    assert poll.next_at(100.0) == 100.0 + SHORTEST_PAUSE, "whoever does not watch asks as before"
    poll.found_nothing(100.1, [7])
    assert not poll.is_due(100.101)
    poll.arrived()
    assert poll.is_due(100.101)
    assert poll.patient_at(100.101) == 100.101


def test_what_stays_readable_is_looked_at_no_more_often_than_in_the_shortest_pause() -> None:
    poll, now, asked = SourcePoll(), 100.0, 0
    while now < 101.0:
        if poll.is_due(now):
            asked += 1
            poll.found_nothing(now, [7])
        if poll.watched(now):
            poll.arrived()
            now += 1e-6
        else:
            now = max(now + 1e-6, poll.patient_at(now))
    assert asked <= 1.0 / SHORTEST_PAUSE + 1


def test_what_is_not_watched_is_not_waited_for_longer() -> None:
    poll = SourcePoll()
    for _ in range(8):
        poll.found_nothing(100.0)
    poll.arrived()
    assert (poll.watched(101.0), poll.patient_at(100.0)) == ((), 100.0 + LONGEST_PAUSE)
    poll.found_nothing(100.0, [7])
    poll.reset()
    assert (poll.watched(101.0), poll.patient_at(100.0)) == ((), 100.0)


def test_a_source_that_had_something_is_asked_again_at_once() -> None:
    poll = SourcePoll()
    for _ in range(6):
        poll.found_nothing(100.0)
    poll.reset()
    assert poll.is_due(100.0)
    poll.found_nothing(100.0)
    assert poll.next_at(100.0) == 100.0 + SHORTEST_PAUSE
