"""How soon checkpoints come where an attempt goes on behind a failure."""

import pytest

from tests.unit.checkpoint.test_coordinator import LAST, at, completed, make
from tidegate.checkpoint import coordinator as c
from tidegate.ids import CheckpointId


def test_behind_a_failure_the_first_checkpoints_come_soon_and_then_less_and_less_often() -> None:
    found = make(goes_on=True, interval=0.5)
    assert found.handle(c.TasksRunning(), at(10.0)) == [c.WakeAt(10.1)]
    due = 10.1
    for checkpoint, interval in enumerate((0.2, 0.4, 0.5, 0.5), start=LAST + 1):
        assert found.handle(c.Wake(), at(due))[0] == c.Trigger(CheckpointId(checkpoint))
        waits = completed(found, checkpoint, due + 0.01)[-1]
        assert waits == c.WakeAt(pytest.approx(due + interval))
        assert isinstance(waits, c.WakeAt)
        due = waits.at


def test_behind_a_failure_intervals_are_never_longer_than_the_usual_one_and_pauses_never_shorter() -> None:
    found = make(goes_on=True, interval=0.05)
    assert found.handle(c.TasksRunning(), at(10.0)) == [c.WakeAt(10.05)]
    found = make(goes_on=True, min_pause=4.0)
    found.handle(c.TasksRunning(), at(10.0))
    found.handle(c.Wake(), at(10.1))
    assert completed(found, LAST + 1, 10.2)[-1] == c.WakeAt(14.2)
