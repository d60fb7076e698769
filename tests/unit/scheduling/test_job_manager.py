"""What a JobManager does in each phase when something happens: exact commands, and the table of phase and event."""

from collections.abc import Callable

import pytest

from tests.unit.scheduling.phases import at, in_an_empty_log, kill_a_worker, stop, to_the_end
from tests.unit.scheduling.programs import WRITE, identity, job_settings, physical
from tests.unit.scheduling.programs import graph as program
from tests.unit.scheduling.runs import (
    calm,
    happen,
    newest_body,
    run_until,
    stop_after_a_failure_with_an_undecided_append,
    stop_while_sinks_are_silent,
)
from tests.unit.scheduling.world import World
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import CleanStop, Completed, Created, Discarded, Entry, Finished, ProcessRecord, Takeover
from tidegate.clock import Now
from tidegate.config.restart import RestartNone
from tidegate.errors import EXIT_CODES, ErrorKind, Failure
from tidegate.ids import Attempt, LogInstance, LogPosition, SubtaskIndex, TransactionalId, WorkerIndex
from tidegate.scheduling import protocol as p
from tidegate.scheduling.deployment import sink_targets
from tidegate.scheduling.job import MOVES, WITH_WORKERS, Phase
from tidegate.scheduling.job_manager import JobManager

AT_ZERO = Now(0.0, 0.0)
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "no answer")
LOST = Failure(ErrorKind.LOST, "gone")


def worker_dies(world: World) -> None:
    for victim in world.own_workers()[:1]:
        victim.is_alive = False
    world.deliver(p.WorkerDied(world.manager._attempt, WorkerIndex(0), "killed by SIGKILL"))


def append_is_refused(world: World) -> None:
    position = world.outside.highest + 1
    body = Takeover("elsewhere", ProcessRecord(1, 1), options=world.outside.view.options)
    world.outside.put(Entry(LogPosition(position), "stranger", LogInstance("i0"), Attempt(50), 0.0, body))


def append_is_unanswered(world: World) -> None:
    world.fault = {"append unanswered": 1.0}
    for _ in range(10):
        happen(world)


def stop_twice(world: World) -> None:
    for _ in range(2):
        world.deliver(p.StopWanted())


THINGS: dict[str, Callable[[World], object]] = {
    "stop wanted while sinks are silent": stop_while_sinks_are_silent,
    "stop wanted after a failure with an undecided append": stop_after_a_failure_with_an_undecided_append,
    "worker dies": worker_dies,
    "stop wanted": lambda world: world.deliver(p.StopWanted()),
    "stop wanted twice": stop_twice,
    "append refused": append_is_refused,
    "append unanswered": append_is_unanswered,
    "step failed": lambda world: world.deliver(p.StepFailed(UNAVAILABLE)),
    "wake": lambda world: world.deliver(p.Wake()),
    "savepoint wanted": lambda world: world.ask(),
    "stop with savepoint wanted": lambda world: world.ask(stops=True),
    "drain wanted": lambda world: world.ask(stops=True, savepoint=False, drain=True),
    "checkpoint wanted": lambda world: world.deliver(p.CheckpointWanted()),
    "killed": World.crash,
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DONE])
def test_nothing_that_happens_in_any_phase_breaks_or_stops_the_job(phase: Phase, thing: str) -> None:
    world = at(phase)
    THINGS[thing](world)
    calm(world)
    assert set(world.outside.output) >= {(split, position) for split in "abc" for position in range(6)}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DONE])
def test_a_stop_ends_the_workers_and_exits_with_success_in_every_phase(phase: Phase) -> None:
    world = at(phase)
    stop(world)
    assert world.exit is None
    assert world.own_workers() == []


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase in WITH_WORKERS - {Phase.DRAINING}])
def test_a_workers_death_is_followed_by_another_attempt(phase: Phase) -> None:
    world = at(phase)
    attempt = world.manager._attempt
    world.deliver(p.WorkerDied(attempt, WorkerIndex(1), "killed by SIGKILL"))
    assert world.manager.phase is Phase.FAILING
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    assert world.manager._attempt == attempt + 1


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase in WITH_WORKERS])
def test_what_an_operator_must_decide_ends_the_workers_and_the_job(phase: Phase) -> None:
    world = at(phase)
    world.deliver(p.StepFailed(LOST))
    assert world.manager.phase is Phase.CLOSING
    to_the_end(world)
    assert world.exit is not None
    assert (world.exit.kind, world.exit.exit_code) == (ErrorKind.LOST, 3)


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.RUNNING, Phase.DRAINING, Phase.FAILING, Phase.WAITING])
def test_a_conflict_in_the_log_means_fenced_and_exit_code_4(phase: Phase) -> None:
    world = at(Phase.RUNNING if phase in {Phase.FAILING, Phase.WAITING} else phase)
    if phase in {Phase.RUNNING, Phase.FAILING, Phase.WAITING}:
        run_until(world, lambda: world.undecided is not None)
    if phase in {Phase.FAILING, Phase.WAITING}:
        kill_a_worker(world)
        world.fault = {"append unanswered": 1.0}
        run_until(world, lambda: world.manager.phase is phase)
    world.deliver(p.AppendRefused(LogPosition(9), None))
    world.fault = {}
    to_the_end(world)
    assert world.exit is not None
    assert (world.exit.kind, EXIT_CODES[world.exit.kind]) == (ErrorKind.FENCED, 4)
    assert world.own_workers() == []


# ---- exact commands ------------------------------------------------------------------------------------------------


def manager(restart: RestartNone | None = None) -> JobManager:
    graph = program()
    return JobManager(graph, physical(graph), job_settings(restart=restart), identity(), lambda: 0.5)


def started(found: JobManager) -> list[p.Command]:
    """Up to the takeover that is under way."""
    found.handle(p.Start(), AT_ZERO)
    found.handle(p.LogRead(()), AT_ZERO)
    found.handle(p.AppendWon(LogPosition(0)), AT_ZERO)
    return found.handle(p.WorkersSpawned(Attempt(1), (ProcessRecord(7, 1),), "ipc"), AT_ZERO)


def test_an_empty_log_is_created_before_workers_start_and_taken_over_after() -> None:
    found = manager()
    assert found.handle(p.Start(), AT_ZERO) == [p.ReadLog()]
    created = Entry(LogPosition(0), "nonce-0", LogInstance("i0"), Attempt(0), 0.0, Created())
    assert found.handle(p.LogRead(()), AT_ZERO) == [p.Append(created)]
    assert found.handle(p.AppendWon(LogPosition(0)), AT_ZERO) == [p.SpawnWorkers(Attempt(1), 2)]
    sinks = sink_targets(program())
    takeover = Takeover("host", ProcessRecord(100, 1), (ProcessRecord(7, 1),), "ipc", sinks=sinks)
    entry = Entry(LogPosition(1), "nonce-0", LogInstance("i0"), Attempt(1), 0.0, takeover, "nonce-0")
    spawned = p.WorkersSpawned(Attempt(1), (ProcessRecord(7, 1),), "ipc")
    assert found.handle(spawned, AT_ZERO) == [p.Append(entry)]


def test_C08_an_unanswered_append_is_repeated_with_the_same_bytes_until_it_is_decided() -> None:
    found = manager()
    [append] = started(found)
    assert isinstance(append, p.Append)
    for tries in range(1, 4):
        now = Now(tries * 1.0, 99.0)
        *told, wake = found.handle(p.AppendUnanswered(LogPosition(1), "no answer"), now)
        assert [type(command) for command in told] == ([p.Tell] if tries == 1 else [])
        assert wake == p.WakeAt(now.monotonic + 0.5)
        assert found.handle(p.Wake(), Now(now.monotonic + 0.4, 99.0)) == []
        assert found.handle(p.Wake(), Now(now.monotonic + 0.5, 99.0)) == [p.Append(append.entry, is_repeat=True)]
        assert found.handle(p.Wake(), Now(now.monotonic + 0.6, 99.0)) == []


def test_recovery_begins_only_when_the_takeover_is_won() -> None:
    found = manager()
    started(found)
    first, waits = found.handle(p.AppendWon(LogPosition(1)), AT_ZERO)
    assert waits == p.WakeAt(3.0)
    assert isinstance(first, p.Recover)
    assert isinstance(first.step, recovery.ListOpen)
    assert found.phase is Phase.RECOVERING


def test_a_failure_that_came_from_an_earlier_attempt_counts_for_nothing() -> None:
    found = manager()
    started(found)
    assert found.handle(p.WorkerDied(Attempt(0), WorkerIndex(0), "killed"), AT_ZERO) == []
    assert found.phase is Phase.TAKING_OVER


def test_C18_several_deaths_are_one_incident_and_one_restart() -> None:
    found = manager()
    started(found)
    first = found.handle(p.WorkerDied(Attempt(1), WorkerIndex(0), "killed"), AT_ZERO)
    assert p.EndWorkers(Attempt(1), 0.0) in first
    assert found.handle(p.WorkerDied(Attempt(1), WorkerIndex(1), "killed"), AT_ZERO) == []
    assert found.status(AT_ZERO).restarts == 1


def test_an_attempt_that_failed_while_its_takeover_is_undecided_waits_for_the_log() -> None:
    found = manager()
    started(found)
    found.handle(p.WorkerDied(Attempt(1), WorkerIndex(0), "killed"), AT_ZERO)
    found.handle(p.WorkersGone(Attempt(1)), AT_ZERO)
    assert found.phase is Phase.WAITING
    assert found.handle(p.Wake(), Now(5.0, 5.0)) == []
    assert found.handle(p.AppendWon(LogPosition(1)), Now(6.0, 6.0)) == [p.SpawnWorkers(Attempt(2), 2)]


def test_without_restarts_the_first_failure_ends_the_job_with_it() -> None:
    found = manager(RestartNone())
    started(found)
    assert found.handle(p.WorkerDied(Attempt(1), WorkerIndex(0), "killed"), AT_ZERO) == [p.EndWorkers(Attempt(1), 0.0)]
    [exit] = found.handle(p.WorkersGone(Attempt(1)), AT_ZERO)
    assert isinstance(exit, p.Exit)
    assert exit.failure is not None
    assert (exit.failure.exit_code, exit.failure.where) == (1, "attempt 1")


def test_C07_an_append_that_is_refused_outright_ends_the_workers_first() -> None:
    found = manager()
    started(found)
    failure = Failure(ErrorKind.INTERNAL, "the log cannot be written")
    assert found.handle(p.StepFailed(failure), AT_ZERO) == [p.EndWorkers(Attempt(1), 0.0)]
    assert found.handle(p.WorkersGone(Attempt(1)), AT_ZERO) == [p.Exit(failure)]


def test_a_start_of_workers_that_fails_late_does_not_end_the_job_whose_attempt_is_over() -> None:
    found = manager()
    found.handle(p.Start(), AT_ZERO)
    found.handle(p.LogRead(()), AT_ZERO)
    found.handle(p.AppendWon(LogPosition(0)), AT_ZERO)
    found.handle(p.WorkerDied(Attempt(1), WorkerIndex(0), "exited with 1"), AT_ZERO)
    assert found.handle(p.StepFailed(UNAVAILABLE), AT_ZERO) == []
    assert found.phase is Phase.FAILING


def test_old_workers_are_ended_again_when_the_attempt_fails_while_they_are_being_ended() -> None:
    world = at(Phase.ENDING_OLD)
    old = world.manager._beginning.old_takeover
    kill_a_worker(world)
    world.deliver(p.WorkerDied(world.manager._attempt, WorkerIndex(0), "killed"))
    assert world.manager._beginning.old_takeover is old
    world.deliver(p.OldWorkersEnded())
    assert world.manager._beginning.old_takeover is None


def test_C17_a_checkpoint_that_is_won_after_its_attempt_failed_is_what_the_next_restores() -> None:
    world = at(Phase.RUNNING)
    run_until(world, lambda: world.undecided is not None)
    world.fault = {"append unanswered": 1.0}
    kill_a_worker(world)
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    world.fault = {}
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    assert world.manager._ledger.restorable is not None
    assert (world.manager._ledger.restorable.checkpoint, world.manager._attempt) == (1, 2)
    calm(world)


def test_the_late_answer_of_a_dropped_sweep_is_not_taken_for_one_to_the_last_clean_up() -> None:
    world = at(Phase.WAITING)
    run_until(world, lambda: world.manager._recovery.is_under_way and world.manager.phase is Phase.RUNNING)
    sweep = world.manager._recovery._run
    world.deliver(p.StopWanted())
    run_until(world, lambda: world.manager.phase is Phase.SETTLING)
    assert world.manager._recovery._run == sweep + 1
    [target] = sink_targets(world.graph)
    late = p.RecoveryAnswered(world.manager._attempt, sweep, recovery.Listed(target, ()))
    assert world.manager.handle(late, world.now) == []
    present = p.RecoveryAnswered(world.manager._attempt, sweep + 1, recovery.Listed(target, ()))
    assert world.manager.handle(present, world.now) != []


def test_a_stop_while_an_append_is_undecided_waits_for_it_and_for_its_commits() -> None:
    world = at(Phase.DRAINING)
    undecided = world.undecided
    run_until(world, lambda: world.has_exited)
    assert undecided is not None
    assert isinstance(undecided.body, Completed)
    assert newest_body(world) == CleanStop(undecided.body.manifest.checkpoint)
    assert world.uncommitted() == []


def test_a_stop_while_the_last_checkpoint_commits_finishes_the_job() -> None:
    world = World(seed=1, fault={"retry": 0.5})
    world.start()
    run_until(world, lambda: world.uncommitted() != [] and commits_the_last(world))
    stop(world)
    assert newest_body(world) == Finished(max(world.completed))
    assert world.uncommitted() == []


def commits_the_last(world: World) -> bool:
    deployment = world.manager._deployment
    return deployment is not None and deployment._coordinator is not None and deployment._coordinator._is_final


def test_commits_that_take_too_long_do_not_hold_up_a_stop_for_ever() -> None:
    world = World(seed=1, fault={"retry": 1.0})
    world.start()
    run_until(world, lambda: world.uncommitted() != [])
    begun = world.now.monotonic
    stop(world)
    assert world.exit is None
    assert world.now.monotonic <= begun + 31.0
    assert world.uncommitted() != []
    calm(world)


def test_a_finished_job_says_so_and_starts_nothing() -> None:
    world = World(seed=1, fault={})
    world.start()
    calm(world)
    before = dict(world.outside.entries)
    world.start()
    run_until(world, lambda: world.has_exited)
    assert world.exit is None
    assert world.outside.entries == before


def test_a_zombies_transaction_that_appears_while_the_job_runs_is_aborted_after_the_next_checkpoint() -> None:
    world = World(seed=1, fault={}, stop=None)
    world.start()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    kill_a_worker(world)
    run_until(world, lambda: world.manager._attempt == 2 and world.manager.phase is Phase.RUNNING)
    late = TransactionalId("orders", LogInstance("i0"), Attempt(1), WRITE, SubtaskIndex(5), 0)
    world.outside.open(late)
    run_until(world, lambda: world.outside.transactions[late].state == "aborted")
    assert world.manager.phase is Phase.RUNNING


# ---- the table of moves --------------------------------------------------------------------------------------------


def test_every_move_of_the_table_is_made_and_no_other() -> None:
    made: set[tuple[Phase, Phase]] = set()
    for phase in Phase:
        for happens in THINGS.values():
            if phase is not Phase.DONE:
                world = at(phase)
                happens(world)
                made |= calm(world).moves
    made |= calm(in_an_empty_log(at(Phase.READING_SAVEPOINT))).moves
    assert made == {(source, target) for source, targets in MOVES.items() for target in targets}


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="READING_LOG"):
        manager()._move(Phase.RUNNING)


def test_discarded_entries_are_in_the_log_before_workers_start() -> None:
    world = at(Phase.DISCARDING)
    assert world.undecided is not None
    assert isinstance(world.undecided.body, Discarded)
    assert world.own_workers() == []
