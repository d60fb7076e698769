"""What a JobManager makes of a lost transaction, and of what else a sink or source says that a restart cannot mend."""

from typing import Any

import pytest

from tests.unit.scheduling.programs import READ, WRITE, identity, job_settings, physical, task
from tests.unit.scheduling.programs import graph as program
from tests.unit.scheduling.runs import run_until
from tests.unit.scheduling.world import World
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Entry, ProcessRecord, Takeover
from tidegate.checkpoint.loss import lost_transaction
from tidegate.checkpoint.protocol import Committable
from tidegate.clock import Now
from tidegate.config.restart import RestartNone
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, LogInstance, LogPosition, TransactionalId, WorkerIndex
from tidegate.runtime.control import TaskFailed
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager

AT_ZERO = Now(0.0, 0.0)
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "no answer")


class Watched(World):
    """What is told is kept, and transactions may be lost."""

    def __init__(self) -> None:
        super().__init__(seed=1, fault={"retry": 1.0})
        self.told: list[p.Tell] = []

    def perform(self, command: p.Command) -> None:
        if isinstance(command, p.Tell):
            self.told.append(command)
        super().perform(command)

    def check_message(self, attempt: Attempt, message: object) -> None:
        """The world's own check forbids to go on after a loss."""

    def lose_one(self) -> str:
        """A transaction of the newest checkpoint, before it is committed."""
        run_until(self, lambda: self.uncommitted() != [] and self.manager._ledger.restorable is not None)
        name = self.uncommitted()[0]
        id = TransactionalId.parse(name)
        assert id is not None
        self.outside.transactions[id].state = "aborted"
        return name

    def task_fails(self, failure: Failure) -> None:
        self.deliver(p.Received(self.manager._attempt, WorkerIndex(0), TaskFailed(task(WRITE, 0), failure)))

    def ends(self) -> Failure:
        while not self.has_exited:
            self.step()
        assert self.exit is not None
        return self.exit


def started(**settings: Any) -> Watched:
    world = Watched()
    world.start(**settings)
    return world


def said_by_a_task(name: str) -> Failure:
    return lost_transaction(ErrorKind.LOST, Committable(name), "it expired 10 s after its start")


def test_a_loss_that_a_task_finds_stops_the_job_and_names_everything() -> None:
    world = started()
    name = world.lose_one()
    world.task_fails(said_by_a_task(name))
    failure = world.ends()
    assert (failure.kind, failure.exit_code, failure.transaction) == (ErrorKind.LOST, 3, name)
    for part in (name, "it expired 10 s after its start", "checkpoint 1", f"source {READ}, split a: "):
        assert part in failure.message
    assert "--accept-lost-transactions" in failure.remedy


def test_the_next_start_stops_with_the_same_words() -> None:
    world = started()
    name = world.lose_one()
    world.task_fails(said_by_a_task(name))
    world.ends()
    world.fault = {}
    world.start()
    failure = world.ends()
    assert (failure.kind, failure.exit_code, failure.transaction) == (ErrorKind.LOST, 3, name)
    assert failure.message.count(f"source {READ}, split a: ") == 1
    assert failure.where == "checkpoint 1"


def test_a_later_start_that_accepts_the_loss_goes_on_and_tells_what_is_given_up() -> None:
    world = started()
    name = world.lose_one()
    world.task_fails(said_by_a_task(name))
    world.ends()
    world.fault = {}
    world.start(accept_lost=True)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    [told] = [told.text for told in world.told if "given up" in told.text]
    for part in (name, "belongs to checkpoint 1", f"source {READ}, split a: "):
        assert part in told


def test_a_loss_that_was_accepted_beforehand_is_given_up_by_the_next_attempt() -> None:
    world = started(accept_lost=True)
    name = world.lose_one()
    world.task_fails(said_by_a_task(name))
    world.fault = {}
    run_until(world, lambda: world.manager._attempt == 2 and world.manager.phase is Phase.RUNNING)
    assert any("given up" in told.text and name in told.text for told in world.told)


def test_accepting_lost_transactions_accepts_no_other_loss() -> None:
    """Such as input that was deleted before it was read."""
    world = started(accept_lost=True)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.task_fails(Failure(ErrorKind.LOST, "offset 7 was deleted"))
    assert world.ends().exit_code == 3


# ---- the other kinds -------------------------------------------------------------------------------------------------

INVALID = Failure(ErrorKind.INVALID, "no such topic")


def test_what_a_sinks_system_refuses_at_recovery_ends_the_job_as_invalid() -> None:
    world = started()
    run_until(world, lambda: world.manager.phase is Phase.RECOVERING)
    world.deliver(p.RecoveryAnswered(Attempt(1), 1, recovery.NoAnswer(INVALID)))
    assert world.ends().exit_code == 2


def test_what_a_source_refuses_at_discovery_ends_the_job_as_invalid() -> None:
    world = started()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.deliver(p.DiscoveryFailed(Attempt(1), READ, INVALID))
    failure = world.ends()
    assert (failure.exit_code, failure.where) == (2, f"operator {READ}, attempt 1")


def test_what_a_sink_refuses_while_it_writes_ends_the_job_as_invalid() -> None:
    world = started()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.task_fails(INVALID)
    assert world.ends().exit_code == 2


def usurp(world: World) -> None:
    body = Takeover("elsewhere", ProcessRecord(1, 1), options=world.outside.view.options)
    position = LogPosition(world.outside.highest + 1)
    world.outside.put(Entry(position, "stranger", LogInstance("i0"), Attempt(50), 0.0, body))


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_sink_that_is_fenced_ends_the_job_as_taken_over_when_the_log_says_so(taken_over: bool) -> None:
    world = started(restart=RestartNone())
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    if taken_over:
        usurp(world)
    world.task_fails(Failure(ErrorKind.SINK_FENCED, "another producer uses this id"))
    failure = world.ends()
    expected = (ErrorKind.FENCED, 4) if taken_over else (ErrorKind.SINK_FENCED, 1)
    assert (failure.kind, failure.exit_code) == expected


def test_a_sink_that_is_fenced_is_restarted_when_nobody_has_taken_over() -> None:
    world = started()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.task_fails(Failure(ErrorKind.SINK_FENCED, "another producer uses this id"))
    run_until(world, lambda: world.manager._attempt == 2 and world.manager.phase is Phase.RUNNING)


def test_a_broker_that_is_down_at_the_start_is_told_before_the_attempt_fails() -> None:
    world = Watched()
    world.fault = {"recover": 1.0}
    world.start()
    run_until(world, lambda: world.manager._attempt == 2)
    waits = [told.text for told in world.told if told.text.startswith("waiting for")]
    assert 5 <= len(waits) <= 7
    assert all("no answer" in text and "sink write" in text for text in waits)
    assert any(told.text.startswith("restart 1 in") for told in world.told)


def confirming() -> JobManager:
    """Its attempt has lost something while an append is undecided; its workers are gone."""
    graph = program()
    found = JobManager(graph, physical(graph), job_settings(), identity(), lambda: 0.5)
    found.handle(p.Start(), AT_ZERO)
    found.handle(p.LogRead(()), AT_ZERO)
    found.handle(p.AppendWon(LogPosition(0)), AT_ZERO)
    found.handle(p.WorkersSpawned(Attempt(1), (), "ipc"), AT_ZERO)
    lost = TaskFailed(None, Failure(ErrorKind.LOST, "gone"))
    assert p.EndWorkers(Attempt(1), 0.0) in found.handle(p.Received(Attempt(1), WorkerIndex(0), lost), AT_ZERO)
    return found


def test_a_log_that_does_not_answer_does_not_keep_a_process_that_was_fenced_meanwhile_from_its_end() -> None:
    found = confirming()
    assert found.handle(p.WorkersGone(Attempt(1)), AT_ZERO) == [p.ReadLog()]
    assert found.handle(p.AppendRefused(LogPosition(1), None), AT_ZERO) == []
    [exit] = found.handle(p.StepFailed(UNAVAILABLE), AT_ZERO)
    assert isinstance(exit, p.Exit)
    assert exit.failure is not None
    assert exit.failure.kind is ErrorKind.FENCED


def test_a_step_that_fails_while_workers_are_being_ended_does_not_lead_to_the_end_before_they_are_gone() -> None:
    found = confirming()
    found.handle(p.AppendWon(LogPosition(1)), AT_ZERO)
    assert found.handle(p.StepFailed(UNAVAILABLE), AT_ZERO) == []
    assert found.handle(p.Wake(), Now(60.0, 60.0)) == []
    assert found.handle(p.WorkersGone(Attempt(1)), Now(60.0, 60.0)) == [p.ReadLog()]
    assert found.handle(p.StepFailed(UNAVAILABLE), Now(60.0, 60.0)) == [p.WakeAt(60.5)]
    assert found.handle(p.Wake(), Now(60.5, 60.5)) == [p.ReadLog()]
