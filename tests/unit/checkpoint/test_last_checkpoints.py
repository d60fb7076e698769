"""Checkpoints that somebody waits for: now, to stop with, behind the end of a drained input."""

from tests.unit.checkpoint.test_coordinator import (
    ATTEMPT,
    SINKS,
    TASKS,
    acknowledge,
    appending,
    at,
    completed,
    make,
    reported,
    triggered,
)
from tidegate.checkpoint import coordinator as c
from tidegate.checkpoint.coordinator import Coordinator
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import Decline
from tidegate.ids import CheckpointId


def declined(found: Coordinator, checkpoint: int, now: float) -> list[c.Command]:
    return found.handle(Decline(ATTEMPT, CheckpointId(checkpoint), SINKS[0], "disk full"), at(now))


def trigger(checkpoint: int) -> c.Trigger:
    return c.Trigger(CheckpointId(checkpoint))


def settled(checkpoint: int, *, is_last: bool) -> c.CheckpointSettled:
    return c.CheckpointSettled(CheckpointId(checkpoint), (), is_last)


def test_a_checkpoint_that_somebody_waits_for_is_tried_again_soon_and_not_at_the_next_interval() -> None:
    found = make(tolerable=5)
    found.handle(c.TasksRunning(), at(0.0))
    assert found.handle(c.TriggerNow(), at(1.0))[0] == trigger(6)
    assert declined(found, 6, 2.0)[-1] == c.WakeAt(2.0 + c.SOON)
    assert found.handle(c.Wake(), at(2.0 + c.SOON))[0] == trigger(7)
    assert declined(found, 7, 4.0)[-1] == c.WakeAt(4.0 + c.SOON), "nobody has to ask again"
    found.handle(c.Wake(), at(5.0))
    assert completed(found, 8, 6.0)[-1] == c.WakeAt(15.0), "then the interval counts again"


def test_soon_is_never_later_than_the_interval() -> None:
    found = make(interval=0.25)
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.TriggerNow(), at(0.0))
    assert declined(found, 6, 1.0)[-1] == c.WakeAt(1.25)


def test_the_checkpoint_to_stop_with_comes_at_once_and_none_follows_it() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    assert found.handle(c.TakeLast(), at(1.0))[0] == trigger(6)
    assert completed(found, 6, 2.0)[-1] == settled(6, is_last=True)
    assert found.handle(c.Wake(), at(50.0)) == []
    assert found.handle(c.TriggerNow(), at(50.0)) == []
    assert found.is_settled


def test_a_checkpoint_that_runs_already_is_not_the_one_to_stop_with() -> None:
    found = make()
    triggered(found)
    assert found.handle(c.TakeLast(), at(10.5)) == []
    first = completed(found, 6, 11.0)
    assert settled(6, is_last=False) in first
    assert trigger(7) in first
    assert completed(found, 7, 12.0)[-1] == settled(7, is_last=True)


def test_the_checkpoint_to_stop_with_is_tried_again_when_it_is_given_up() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.TakeLast(), at(1.0))
    declined(found, 6, 2.0)
    found.handle(c.Wake(), at(3.0))
    assert completed(found, 7, 4.0)[-1] == settled(7, is_last=True)


def test_a_job_that_does_not_stop_after_all_goes_on_taking_checkpoints() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.TakeLast(), at(1.0))
    completed(found, 6, 2.0)
    assert found.handle(c.GoOn(), at(3.0)) == [c.WakeAt(11.0)]
    assert found.handle(c.Wake(), at(11.0))[0] == trigger(7)
    assert settled(7, is_last=False) in completed(found, 7, 12.0)


def test_going_on_before_the_checkpoint_to_stop_with_has_settled_makes_it_one_like_others() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.TakeLast(), at(1.0))
    appending(found, 6, 2.0)
    assert found.handle(c.GoOn(), at(3.0)) == []
    found.handle(c.AppendWon(), at(4.0))
    commands = [command for task in TASKS for command in found.handle(reported(task, 6), at(5.0))]
    assert commands == [settled(6, is_last=False), c.WakeAt(11.0)]


# ---- drained --------------------------------------------------------------------------------------------------------


def ended(found: Coordinator, checkpoint: int, now: float) -> Manifest:
    """Acknowledged by tasks that say that they have ended."""
    commands: list[c.Command] = []
    for task in TASKS:
        commands = found.handle(acknowledge(task, checkpoint, ended=True), at(now))
    [append] = commands
    assert isinstance(append, c.AppendManifest)
    return append.manifest


def test_in_a_drained_job_nothing_has_ended_for_ever_and_its_last_checkpoint_is_not_the_jobs_end() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    assert found.handle(c.Drained(), at(1.0)) == []
    assert found.handle(c.AllTasksEnded(), at(2.0))[0] == trigger(6)
    manifest = ended(found, 6, 3.0)
    assert not any(record.ended for record in manifest.operators)
    assert not any(snapshot.ended for record in manifest.operators for snapshot in record.snapshots)
    found.handle(c.AppendWon(), at(4.0))
    assert [out for task in TASKS for out in found.handle(reported(task, 6), at(5.0))] == [settled(6, is_last=True)]
    assert found.handle(c.Wake(), at(99.0)) == []


def test_a_checkpoint_on_the_way_to_a_drained_end_is_not_the_last_and_says_of_nothing_that_it_has_ended() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.Drained(), at(1.0))
    assert found.handle(c.Wake(), at(10.0))[0] == trigger(6)
    assert not any(record.ended for record in ended(found, 6, 11.0).operators)
    found.handle(c.AllTasksEnded(), at(11.5))
    found.handle(c.AppendWon(), at(12.0))
    outs = [out for task in TASKS for out in found.handle(reported(task, 6), at(13.0))]
    assert settled(6, is_last=False) in outs
    assert trigger(7) in outs


def test_a_checkpoint_that_was_triggered_before_the_drain_says_what_has_ended() -> None:
    found = make()
    triggered(found)
    found.handle(c.Drained(), at(10.5))
    assert all(record.ended for record in ended(found, 6, 11.0).operators)


def test_a_job_whose_input_has_ended_by_itself_cannot_be_drained_any_more() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.AllTasksEnded(), at(1.0))
    found.handle(c.Drained(), at(1.5))
    assert all(record.ended for record in ended(found, 6, 2.0).operators)
    found.handle(c.AppendWon(), at(3.0))
    outs = [out for task in TASKS for out in found.handle(reported(task, 6), at(4.0))]
    assert outs == [c.AllCommitted(CheckpointId(6), ())]
