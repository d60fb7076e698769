"""Beginning from a savepoint, whoever dies on the way; and stops that keep nothing."""

import msgspec
import pytest

from tests.unit.scheduling.phases import (
    SAVEPOINT,
    at,
    in_an_empty_log,
    kill_a_worker,
    stop,
    stopped_with_savepoint,
    to_the_end,
)
from tests.unit.scheduling.programs import WRITE
from tests.unit.scheduling.runs import calm, newest_body, run_until
from tests.unit.scheduling.test_random_runs import EXPECTED, check_output
from tests.unit.scheduling.world import World
from tidegate.checkpoint.log import CleanStop, Completed, Finished, Takeover
from tidegate.ids import Attempt, CheckpointId, LogInstance, SubtaskIndex, TransactionalId
from tidegate.scheduling.job import Phase


def newest(world: World) -> int:
    found = world.outside.newest
    return found.checkpoint if found else 0


# ---- beginning from a savepoint ------------------------------------------------------------------------------------


def test_a_job_begins_from_a_savepoint_and_logs_it_as_its_first_checkpoint() -> None:
    world = at(Phase.IMPORTING)
    before = newest_ever(world)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    view = world.outside.view
    assert view.origin is not None
    assert view.origin.path == SAVEPOINT
    [imported] = view.manifests
    assert (imported.checkpoint, imported.attempt) == (before + 1, world.manager._attempt)
    assert all(path.startswith(f"chk-{imported.attempt}-{imported.checkpoint}/") for path in imported.files)
    assert not any(record.pending for record in imported.operators)
    check_output(calm(world))


def newest_ever(world: World) -> int:
    bodies = [entry.body for entry in world.outside.entries.values()]
    return max(body.manifest.checkpoint for body in bodies if isinstance(body, Completed))


def test_the_same_command_again_goes_on_from_the_newest_checkpoint() -> None:
    world = at(Phase.IMPORTING)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    last = newest(world)
    run_until(world, lambda: newest(world) > last)
    world.crash()
    world.start(**world.command)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    assert newest(world) > last
    check_output(calm(world))


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(
    "phase",
    [Phase.READING_SAVEPOINT, Phase.SPAWNING, Phase.TAKING_OVER, Phase.RECOVERING, Phase.IMPORTING, Phase.DEPLOYING],
)
@pytest.mark.parametrize("again", [True, False])
def test_whoever_dies_on_the_way_is_followed_by_one_that_begins_from_it_too(
    phase: Phase, claimed: bool, again: bool
) -> None:
    world = World(seed=1, fault={})
    stopped_with_savepoint(world)
    world.command = {"from_savepoint": SAVEPOINT, "claim_savepoint": claimed}
    world.start(**world.command)
    run_until(world, lambda: world.manager.phase is phase)
    world.crash()
    if not again:
        world.command = {}
    check_output(calm(world))
    begun = phase not in {Phase.READING_SAVEPOINT, Phase.SPAWNING}
    if phase is not Phase.TAKING_OVER:  # that entry may still have landed
        assert (SAVEPOINT in world.outside.savepoints) is not (claimed and (again or begun))


def test_a_failed_import_is_tried_again_by_the_next_attempt() -> None:
    world = at(Phase.IMPORTING)
    world.fault = {"savepoints": 1.0}
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    world.fault = {}
    check_output(calm(world))


def test_a_savepoint_is_begun_from_in_an_empty_log() -> None:
    old = World(seed=1, fault={})
    stopped_with_savepoint(old)
    world = in_an_empty_log(old)
    calm(world)
    assert sorted(old.outside.output + world.outside.output) == EXPECTED


def test_C15_a_savepoint_restored_twice_gives_the_same() -> None:
    old = World(seed=1, fault={})
    stopped_with_savepoint(old)
    first, second = (calm(in_an_empty_log(old)) for _ in range(2))
    assert sorted(first.outside.output) == sorted(second.outside.output)


def test_open_transactions_of_another_log_stop_a_start_from_a_savepoint_with_exit_code_3() -> None:
    old = World(seed=1, fault={})
    stopped_with_savepoint(old)
    world = World(seed=2, fault={})
    world.outside.savepoints = old.outside.savepoints
    world.outside.open(TransactionalId("orders", LogInstance("elsewhere"), Attempt(9), WRITE, SubtaskIndex(0), 0))
    world.start(from_savepoint=SAVEPOINT)
    to_the_end(world)
    assert world.exit is not None
    assert world.exit.exit_code == 3


def test_a_savepoint_that_is_not_there_is_refused_with_the_log_as_it_was() -> None:
    world = World(seed=3, fault={}, stop=None)
    world.start()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    stop(world)
    before = dict(world.outside.entries)
    world.start(from_savepoint="/nowhere")
    to_the_end(world)
    assert world.exit is not None
    assert world.exit.exit_code == 2
    assert world.outside.entries == before


def test_a_program_that_does_not_fit_the_savepoint_is_refused_with_the_log_as_it_was() -> None:
    world = World(seed=1, fault={})
    stopped_with_savepoint(world)
    before = dict(world.outside.entries)
    stored = world.outside.savepoints[SAVEPOINT]
    world.outside.savepoints[SAVEPOINT] = msgspec.structs.replace(stored, max_parallelism=16)
    world.start(from_savepoint=SAVEPOINT)
    to_the_end(world)
    assert world.exit is not None
    assert (world.exit.exit_code, f"savepoint {SAVEPOINT} was written with" in world.exit.message) == (2, True)
    assert world.outside.entries == before


def test_another_savepoint_in_the_folder_of_the_one_that_was_begun_from_is_refused() -> None:
    world = at(Phase.IMPORTING)
    world.crash()
    stored = world.outside.savepoints[SAVEPOINT]
    world.outside.savepoints[SAVEPOINT] = msgspec.structs.replace(stored, checkpoint=CheckpointId(77))
    world.start()
    to_the_end(world)
    assert world.exit is not None
    assert world.exit.exit_code == 2
    assert "another savepoint" in world.exit.message


def test_a_claimed_savepoint_is_dropped_again_by_the_next_process_as_its_last_one_may_have_died() -> None:
    world = World(seed=1, fault={})
    stopped_with_savepoint(world)
    kept = world.outside.savepoints[SAVEPOINT]
    world.start(from_savepoint=SAVEPOINT, claim_savepoint=True)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    assert SAVEPOINT not in world.outside.savepoints
    world.outside.savepoints[SAVEPOINT] = kept
    world.crash()
    world.start()
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    assert SAVEPOINT not in world.outside.savepoints


def test_the_takeover_alone_says_what_is_begun_from() -> None:
    world = at(Phase.IMPORTING)
    takeovers = [entry.body for entry in world.outside.entries.values() if isinstance(entry.body, Takeover)]
    assert takeovers[-1].fresh
    assert takeovers[-1].options == {"from-savepoint": SAVEPOINT}
    assert takeovers[-1].savepoint is not None
    kill_a_worker(world)
    run_until(world, lambda: world.manager._attempt == 3 and world.manager.phase is Phase.RUNNING)
    takeovers = [entry.body for entry in world.outside.entries.values() if isinstance(entry.body, Takeover)]
    assert not takeovers[-1].fresh


# ---- keeping nothing -------------------------------------------------------------------------------------------------


def test_a_job_that_keeps_nothing_leaves_no_checkpoint_behind_a_stop_and_begins_anew() -> None:
    world = World(seed=3, fault={}, stop=None)
    world.start(keep_on_stop=False)
    run_until(world, lambda: newest(world) == 3)
    stop(world)
    run_until_cleaned(world)
    assert newest_body(world) == CleanStop(CheckpointId(3), keeps=False)
    assert world.outside.files == set()
    assert not any(isinstance(entry.body, Completed) for entry in world.outside.entries.values())
    world.outside.may_repeat = True
    world.start()
    run_until(world, lambda: newest(world) > 0)
    assert newest(world) == 4, "ids only grow"


def run_until_cleaned(world: World) -> None:
    while any(waiting for waiting in world.lanes.values()):
        world.step()


def test_a_savepoint_outlives_a_stop_that_keeps_nothing() -> None:
    world = World(seed=3, fault={}, stop=None)
    world.start(keep_on_stop=False)
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.ask(stops=True, path="/here")
    to_the_end(world)
    assert "/here" in world.outside.savepoints
    assert world.outside.newest is None


def test_checkpoints_stay_when_the_job_fails_or_finishes_or_is_stopped_while_it_waits_to_restart() -> None:
    world = World(seed=3, fault={})
    world.start(keep_on_stop=False)
    run_until(world, lambda: world.has_exited)
    assert isinstance(newest_body(world), Finished)
    assert world.outside.newest is not None
    world = World(seed=3, fault={}, stop=None)
    world.start(keep_on_stop=False)
    run_until(world, lambda: newest(world) == 2 and not world.manager._ledger.is_undecided)
    kill_a_worker(world)
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    stop(world)
    assert newest_body(world) == CleanStop(CheckpointId(newest(world)))
    assert world.outside.needed() <= world.outside.files
