"""When a checkpoint is triggered, complete, given up: events in, commands out."""

import pytest

from tests.unit.checkpoint.records import INSTANCE, JOB
from tidegate.checkpoint import coordinator as c
from tidegate.checkpoint.coordinator import Coordinator, CoordinatorSettings
from tidegate.checkpoint.plan import CheckpointPlan, PlannedOperator
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CommitsReported,
    Decline,
    OperatorSnapshot,
    SplitState,
    StateHandle,
)
from tidegate.clock import Now
from tidegate.errors import ErrorKind
from tidegate.ids import Attempt, CheckpointId, OperatorName, SubtaskIndex, TaskId, VertexName

READ, TOTALS = OperatorName("read"), OperatorName("totals")
READER = TaskId(VertexName("read"), SubtaskIndex(0))
SINKS = tuple(TaskId(VertexName("totals"), SubtaskIndex(i)) for i in range(2))
TASKS = (READER, *SINKS)
ATTEMPT = Attempt(3)
LAST = 5
"""The highest id that was used before."""


class Held:
    """An enumerator with splits that wait."""

    def __init__(self, *ids: str) -> None:
        self.unassigned = tuple(SplitState(id, 0) for id in ids)


def make(
    tolerable: int = 1,
    min_pause: float = 0.0,
    held: Held | None = None,
    interval: float = 10.0,
    goes_on: bool = False,
) -> Coordinator:
    plan = CheckpointPlan(
        job=JOB,
        instance=INSTANCE,
        attempt=ATTEMPT,
        parallelism=2,
        max_parallelism=128,
        operators=(PlannedOperator(READ, 1), PlannedOperator(TOTALS, 2)),
        tasks=frozenset(TASKS),
    )
    settings = CoordinatorSettings(interval, 60.0, min_pause, tolerable)
    return Coordinator(settings, plan, {READ: held or Held()}, CheckpointId(LAST), goes_on=goes_on)


def at(seconds: float) -> Now:
    return Now(seconds, 1000.0 + seconds)


def handle(path: str) -> StateHandle:
    return StateHandle(0, 127, 1, "", path)


def acknowledge(
    task: TaskId, checkpoint: int, path: str | None = None, attempt: int = ATTEMPT, ended: bool = False
) -> Acknowledge:
    handles = () if path is None else (handle(path),)
    name = READ if task is READER else TOTALS
    snapshot = OperatorSnapshot(name, ended, handles=handles)
    return Acknowledge(Attempt(attempt), CheckpointId(checkpoint), task, (snapshot,))


def reported(task: TaskId, checkpoint: int, attempt: int = ATTEMPT) -> CommitsReported:
    return CommitsReported(Attempt(attempt), CheckpointId(checkpoint), task)


def triggered(found: Coordinator, now: float = 10.0) -> None:
    found.handle(c.TasksRunning(), at(now - 10.0))
    assert found.handle(c.Wake(), at(now))[0] == c.Trigger(CheckpointId(LAST + 1))


def appending(found: Coordinator, checkpoint: int, now: float) -> c.AppendManifest:
    commands: list[c.Command] = []
    for task in TASKS:
        assert commands == []
        commands = found.handle(acknowledge(task, checkpoint), at(now))
    [append] = commands
    assert isinstance(append, c.AppendManifest)
    return append


def completed(found: Coordinator, checkpoint: int, now: float) -> list[c.Command]:
    """Through to the last report of its commits."""
    appending(found, checkpoint, now)
    commands = found.handle(c.AppendWon(), at(now))
    for task in TASKS:
        commands += found.handle(reported(task, checkpoint), at(now))
    return commands


# ---- one after another ---------------------------------------------------------------------------------------------


def test_C05_the_first_checkpoint_comes_an_interval_after_all_tasks_run() -> None:
    found = make()
    assert found.handle(c.Wake(), at(50.0)) == []
    assert found.handle(c.TasksRunning(), at(100.0)) == [c.WakeAt(110.0)]
    assert found.handle(c.Wake(), at(109.9)) == [c.WakeAt(110.0)]
    assert found.handle(c.Wake(), at(110.0)) == [c.Trigger(CheckpointId(6)), c.WakeAt(170.0)]


def test_a_checkpoint_is_appended_only_when_every_task_has_acknowledged() -> None:
    found = make()
    triggered(found)
    assert found.handle(acknowledge(READER, 6), at(11.0)) == []
    assert found.handle(acknowledge(SINKS[1], 6), at(11.0)) == []
    [append] = found.handle(acknowledge(SINKS[0], 6), at(12.5))
    assert isinstance(append, c.AppendManifest)
    manifest = append.manifest
    assert (manifest.checkpoint, manifest.attempt, manifest.triggered_at, manifest.duration) == (6, 3, 1010.0, 2.5)
    assert [record.subtask for record in manifest.operators[1].subtasks] == [0, 1]


def test_C07_tasks_are_told_only_after_the_append_is_won() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    assert found.handle(c.AppendWon(), at(12.0)) == [c.NotifyCompleted(CheckpointId(6)), c.WakeAt(132.0)]


def test_C13_the_next_is_triggered_only_after_all_commits_of_the_last_are_reported() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(c.AppendWon(), at(12.0))
    found.handle(reported(READER, 6), at(12.0))
    assert found.handle(c.Wake(), at(30.0)) == []
    assert found.handle(c.TriggerNow(), at(30.0)) == []
    assert found.handle(reported(SINKS[0], 6), at(31.0)) == []
    assert found.handle(reported(SINKS[0], 6), at(31.0)) == [], "one task twice is not two"
    settled, trigger, _ = found.handle(reported(SINKS[1], 6), at(32.0))
    assert settled == c.CheckpointSettled(CheckpointId(6), ())
    assert trigger == c.Trigger(CheckpointId(7))


def test_reports_of_another_checkpoint_or_attempt_do_not_count_as_commits() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(c.AppendWon(), at(12.0))
    for task in SINKS:
        assert found.handle(reported(task, 5), at(13.0)) == []
        assert found.handle(reported(task, 6, attempt=2), at(13.0)) == []
    assert not found.is_settled


def test_a_task_without_a_sink_is_waited_for_as_well_so_that_it_bases_the_next_capture_on_this_one() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(c.AppendWon(), at(12.0))
    for task in SINKS:
        assert found.handle(reported(task, 6), at(13.0)) == []
    assert found.handle(reported(READER, 6), at(14.0))[0] == c.CheckpointSettled(CheckpointId(6), ())


def test_the_interval_counts_from_trigger_to_trigger_and_the_pause_from_the_end() -> None:
    found = make(min_pause=4.0)
    triggered(found, 10.0)
    assert completed(found, 6, 12.0)[-1] == c.WakeAt(20.0)
    assert found.handle(c.Wake(), at(20.0))[0] == c.Trigger(CheckpointId(7))
    assert completed(found, 7, 28.0)[-1] == c.WakeAt(32.0)


def test_a_checkpoint_asked_for_comes_at_once_and_when_one_runs_after_it() -> None:
    found = make()
    found.handle(c.TriggerNow(), at(0.0))
    assert found.handle(c.TasksRunning(), at(1.0))[0] == c.Trigger(CheckpointId(6))
    found.handle(c.TriggerNow(), at(2.0))
    assert completed(found, 6, 3.0)[-2] == c.Trigger(CheckpointId(7))
    assert completed(found, 7, 4.0)[-1] == c.WakeAt(13.0), "one wish is one checkpoint"


def test_splits_that_wait_at_the_trigger_are_in_the_checkpoint() -> None:
    held = Held("a", "b")
    found = make(held=held)
    triggered(found)
    held.unassigned = ()
    manifest = appending(found, 6, 11.0).manifest
    assert [split.id for split in manifest.operators[0].unassigned] == ["a", "b"]


# ---- acknowledgements that count for nothing -----------------------------------------------------------------------


def test_C04_a_doubled_acknowledgement_does_not_stand_for_another_task() -> None:
    found = make()
    triggered(found)
    for _ in range(3):
        assert found.handle(acknowledge(READER, 6), at(11.0)) == []


@pytest.mark.parametrize(("checkpoint", "attempt"), [(5, ATTEMPT), (7, ATTEMPT), (6, 2), (6, 4)])
def test_C04_an_acknowledgement_of_another_checkpoint_or_attempt_does_not_count(checkpoint: int, attempt: int) -> None:
    found = make()
    triggered(found)
    for task in TASKS:
        assert found.handle(acknowledge(task, checkpoint, attempt=attempt), at(11.0)) == []
    appending(found, 6, 12.0)


def test_an_acknowledgement_of_a_task_that_does_not_exist_does_not_count() -> None:
    found = make()
    triggered(found)
    stranger = TaskId(VertexName("else"), SubtaskIndex(0))
    for task in (READER, SINKS[0], stranger):
        assert found.handle(acknowledge(task, 6), at(11.0)) == []


def test_C04_files_of_an_abandoned_checkpoint_are_deleted_after_a_later_one_completed() -> None:
    found = make()
    triggered(found)
    found.handle(acknowledge(READER, 6, "early"), at(11.0))
    found.handle(c.Wake(), at(70.0))
    found.handle(acknowledge(SINKS[0], 6, "late"), at(71.0))
    assert completed(found, 7, 72.0)[-2:-1] == [c.CheckpointSettled(CheckpointId(7), ("early", "late"))]


def test_C04_files_that_come_between_giving_up_and_the_next_trigger_are_garbage_too() -> None:
    found = make()
    triggered(found)
    found.handle(Decline(ATTEMPT, CheckpointId(6), SINKS[1], "disk full"), at(11.0))
    assert found.handle(acknowledge(SINKS[0], 6, "late"), at(12.0)) == []
    found.handle(c.Wake(), at(20.0))
    assert c.CheckpointSettled(CheckpointId(7), ("late",)) in completed(found, 7, 21.0)


def test_a_doubled_acknowledgement_while_the_append_is_undecided_makes_no_garbage() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(acknowledge(READER, 6, "needed"), at(12.0))
    found.handle(c.AppendWon(), at(13.0))
    found.handle(acknowledge(READER, 6, "needed"), at(13.0))
    found.handle(reported(READER, 6), at(14.0))
    found.handle(reported(SINKS[0], 6), at(14.0))
    assert found.handle(reported(SINKS[1], 6), at(14.0))[0] == c.CheckpointSettled(CheckpointId(6), ())


# ---- failures ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_takes_too_long_is_abandoned_and_says_who_was_late() -> None:
    found = make()
    triggered(found)
    found.handle(acknowledge(READER, 6), at(11.0))
    assert found.handle(c.Wake(), at(69.9)) == [c.WakeAt(70.0)]
    abandoned, trigger, _ = found.handle(c.Wake(), at(70.0))
    assert abandoned == c.NotifyAbandoned(CheckpointId(6), "no acknowledgement from totals[0], totals[1] within 60 s")
    assert trigger == c.Trigger(CheckpointId(7)), "its interval is over as well"


def test_C05_a_decline_abandons_and_the_next_comes_in_its_turn() -> None:
    found = make()
    triggered(found)
    commands = found.handle(Decline(ATTEMPT, CheckpointId(6), SINKS[0], "disk full"), at(12.0))
    assert commands == [
        c.NotifyAbandoned(CheckpointId(6), "totals[0] could not store its state: disk full"),
        c.WakeAt(20.0),
    ]
    for attempt, checkpoint in ((ATTEMPT, 6), (2, 7)):
        assert found.handle(Decline(Attempt(attempt), CheckpointId(checkpoint), SINKS[1], "full"), at(13.0)) == []


@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_more_failures_in_a_row_than_tolerable_fail_the_attempt(tolerable: int) -> None:
    found = make(tolerable)
    triggered(found)
    for failure in range(tolerable):
        commands = found.handle(c.Wake(), at(70.0 + 60.0 * failure))
        assert [type(command) for command in commands] == [c.NotifyAbandoned, c.Trigger, c.WakeAt]
    abandoned, failed = found.handle(c.Wake(), at(70.0 + 60.0 * tolerable))
    assert isinstance(abandoned, c.NotifyAbandoned), "and nothing new is triggered"
    assert isinstance(failed, c.FailAttempt)
    assert failed.failure.kind is ErrorKind.UNAVAILABLE
    assert f"{tolerable + 1} checkpoints failed" in failed.failure.message


def test_a_success_in_between_forgives_earlier_failures() -> None:
    found = make(tolerable=1)
    triggered(found)
    found.handle(c.Wake(), at(70.0))
    completed(found, 7, 71.0)
    found.handle(c.Wake(), at(80.0))
    commands = found.handle(c.Wake(), at(140.0))
    assert not any(isinstance(command, c.FailAttempt) for command in commands)


def test_C08_nothing_is_told_given_up_or_triggered_while_the_append_is_undecided() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    events: list[c.Event] = [
        c.Wake(),
        c.TriggerNow(),
        c.StopTriggering(),
        c.AllTasksEnded(),
        Decline(ATTEMPT, CheckpointId(6), READER, "late"),
        acknowledge(READER, 6),
        reported(SINKS[0], 6),
    ]
    for event in events:
        assert found.handle(event, at(10_000.0)) == []
    assert not found.is_settled
    assert found.handle(c.AppendWon(), at(10_001.0))[0] == c.NotifyCompleted(CheckpointId(6))


# ---- stop ----------------------------------------------------------------------------------------------------------


def test_a_stop_gives_up_what_is_not_complete_and_begins_nothing() -> None:
    found = make()
    triggered(found)
    assert found.handle(c.StopTriggering(), at(11.0)) == [c.NotifyAbandoned(CheckpointId(6), "the job stops")]
    assert found.is_settled
    for event in (c.Wake(), c.TriggerNow(), c.AllTasksEnded()):
        assert found.handle(event, at(1000.0)) == []


def test_a_stop_finishes_what_is_complete() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(c.AppendWon(), at(12.0))
    assert found.handle(c.StopTriggering(), at(13.0)) == []
    found.handle(reported(READER, 6), at(14.0))
    found.handle(reported(SINKS[0], 6), at(14.0))
    assert found.handle(reported(SINKS[1], 6), at(100.0)) == [c.CheckpointSettled(CheckpointId(6), ())]


# ---- finite jobs ---------------------------------------------------------------------------------------------------


def test_C12_when_all_input_has_ended_one_more_checkpoint_is_taken_and_the_job_is_done() -> None:
    found = make()
    found.handle(c.TasksRunning(), at(0.0))
    assert found.handle(c.AllTasksEnded(), at(1.0))[0] == c.Trigger(CheckpointId(6))
    told = completed(found, 6, 2.0)
    assert told[0] == c.NotifyCompleted(CheckpointId(6))
    assert told[-1] == c.AllCommitted(CheckpointId(6), ())
    assert found.handle(c.Wake(), at(1000.0)) == []


def test_a_checkpoint_that_began_before_the_end_is_not_the_last() -> None:
    found = make()
    triggered(found)
    assert found.handle(c.AllTasksEnded(), at(11.0)) == []
    commands = completed(found, 6, 12.0)
    assert commands[-3:-1] == [c.CheckpointSettled(CheckpointId(6), ()), c.Trigger(CheckpointId(7))]
    assert completed(found, 7, 13.0)[-1] == c.AllCommitted(CheckpointId(7), ())


def test_the_last_checkpoint_is_tried_again_soon_when_it_fails_but_not_at_once() -> None:
    found = make(tolerable=1)
    found.handle(c.TasksRunning(), at(0.0))
    found.handle(c.AllTasksEnded(), at(1.0))
    commands = found.handle(Decline(ATTEMPT, CheckpointId(6), READER, "full"), at(2.0))
    assert commands[1:] == [c.WakeAt(3.0)]
    assert found.handle(c.Wake(), at(3.0))[0] == c.Trigger(CheckpointId(7))
    assert isinstance(found.handle(Decline(ATTEMPT, CheckpointId(7), READER, "full"), at(4.0))[-1], c.FailAttempt)


def test_input_that_ends_before_checkpoints_begin_still_gets_its_last_one() -> None:
    found = make()
    assert found.handle(c.AllTasksEnded(), at(0.0)) == []
    assert found.handle(c.TasksRunning(), at(5.0))[0] == c.Trigger(CheckpointId(6))
    assert completed(found, 6, 6.0)[-1] == c.AllCommitted(CheckpointId(6), ())


def test_an_operator_has_ended_only_when_all_its_subtasks_have_and_say_so() -> None:
    found = make()
    triggered(found)
    found.handle(acknowledge(READER, 6, ended=True), at(11.0))
    found.handle(acknowledge(SINKS[0], 6, ended=True), at(11.0))
    [append] = found.handle(acknowledge(SINKS[1], 6), at(11.0))
    assert isinstance(append, c.AppendManifest)
    assert [record.ended for record in append.manifest.operators] == [True, False]


def test_an_operator_of_which_nothing_was_reported_has_not_ended() -> None:
    found = make()
    triggered(found)
    commands: list[c.Command] = []
    for task in TASKS:
        commands = found.handle(Acknowledge(ATTEMPT, CheckpointId(6), task, ()), at(11.0))
    [append] = commands
    assert isinstance(append, c.AppendManifest)
    assert [record.ended for record in append.manifest.operators] == [False, False]
