"""Beginning without state: once for each value, also when the process that was asked to dies on the way."""

import pytest

from tests.unit.scheduling.programs import WRITE
from tests.unit.scheduling.runs import newest_body, run_until
from tests.unit.scheduling.world import World
from tidegate.checkpoint.log import Finished, Takeover
from tidegate.errors import ErrorKind
from tidegate.ids import Attempt, LogInstance, SubtaskIndex, TransactionalId
from tidegate.scheduling.job import Phase

FOREIGN = TransactionalId("orders", LogInstance("elsewhere"), Attempt(9), WRITE, SubtaskIndex(0), 0)


def with_a_checkpoint() -> World:
    """Killed after its first checkpoint; then another log's transaction appears under the same prefix."""
    world = World(seed=1, fault={})
    world.start()
    run_until(world, lambda: len(world.completed) == 1)
    world.crash()
    world.outside.open(FOREIGN)
    return world


def go(world: World, phase: Phase) -> None:
    for _ in range(10_000):
        if world.manager.phase is phase or world.has_exited:
            return
        world.step()
    raise AssertionError(f"stuck while {world.manager.phase.value}")


def test_what_another_log_left_open_stops_the_job_with_exit_code_3_and_its_workers_are_ended() -> None:
    world = with_a_checkpoint()
    world.start()
    go(world, Phase.DONE)
    assert world.exit is not None
    assert (world.exit.kind, world.exit.exit_code) == (ErrorKind.UNKNOWN_OUTCOME, 3)
    assert world.outside.transactions[FOREIGN].state == "open"
    assert world.own_workers() == []


def test_a_fresh_start_aborts_it_and_reads_everything_again() -> None:
    world = with_a_checkpoint()
    world.start(fresh="monday")
    go(world, Phase.RUNNING)
    assert world.outside.transactions[FOREIGN].state == "aborted"
    assert world.manager._ledger.restorable is None
    go(world, Phase.DONE)
    assert isinstance(newest_body(world), Finished)
    assert min(world.completed) == 1
    assert [e.body.fresh for e in world.outside.entries.values() if isinstance(e.body, Takeover)] == [True]


@pytest.mark.parametrize("phase", [Phase.RECOVERING, Phase.DEPLOYING, Phase.RUNNING])
def test_a_process_that_dies_before_its_first_fresh_checkpoint_is_followed_by_one_that_is_fresh_too(
    phase: Phase,
) -> None:
    world = with_a_checkpoint()
    world.start(fresh="monday")
    go(world, phase)
    world.crash()
    world.start(fresh="monday")
    go(world, Phase.RUNNING)
    assert world.manager._ledger.restorable is None
    assert world.outside.transactions[FOREIGN].state == "aborted"


def test_an_attempt_that_fails_before_its_takeover_does_not_use_up_the_fresh_start() -> None:
    world = with_a_checkpoint()
    world.fault = {"spawn": 1.0}
    world.start(fresh="monday")
    go(world, Phase.WAITING)
    world.fault = {}
    go(world, Phase.RUNNING)
    assert world.manager._ledger.restorable is None


def test_the_same_value_again_goes_on_from_the_checkpoint_that_completed_since() -> None:
    world = with_a_checkpoint()
    world.start(fresh="monday")
    before = len(world.completed)
    for _ in range(10_000):
        if len(world.completed) > before:
            break
        world.step()
    world.crash()
    world.start(fresh="monday")
    go(world, Phase.RUNNING)
    assert world.manager._ledger.restorable is not None
    assert world.manager._ledger.restorable.checkpoint == 2
    assert not world.manager._ledger.begins_fresh


def test_C14_ids_of_checkpoints_go_on_growing_after_a_fresh_start() -> None:
    world = with_a_checkpoint()
    world.start(fresh="monday")
    go(world, Phase.DONE)
    assert sorted(world.completed)[:2] == [1, 2]
