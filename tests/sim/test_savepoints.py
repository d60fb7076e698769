"""Savepoints in the simulated world, as scripts: who begins from one and dies, who races, who stops with one while the
outside is away. Random ones are in `test_seeds`."""

from collections.abc import Callable

import pytest

from tests.sim.mutations.recoveries import (
    counts_from_savepoint_twice,
    imports_without_logging,
    keeps_to_itself_what_it_begins_from,
)
from tests.sim.test_scenarios import LONG, calm_world, started, to_the_end, until
from tidegate.checkpoint.log import CleanStop, Takeover
from tidegate.checkpoint.store import attempt_of
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.testing.sim.job_manager import Command, SimJobManager
from tidegate.testing.sim.people import Wish
from tidegate.testing.sim.world import World, check_forks, fork

SAVEPOINT = Wish(0.0, stops=False, savepoint=True, drains=False, has_path=True)
STOP = Wish(0.0, stops=True, savepoint=True, drains=False, has_path=True)
DRAIN = Wish(0.0, stops=True, savepoint=True, drains=True, has_path=True)


def quiet_world() -> World:
    """Nobody wants anything but the script."""
    world = calm_world()
    world.people.wishes = []
    world.people.begins_from_savepoints = False
    world.swarm.transaction_timeout = 10_000.0
    return world


def stopped_with(world: World, wish: Wish) -> str:
    """Where the savepoint is with which the job stopped, in the middle of its input."""
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 1)
    world.supervisor.has_given_up = True  # nobody starts it again before the script does
    world.people.ask(wish, manager)
    until(world, lambda: manager.exit_code == 0)
    world.supervisor.has_given_up = False
    assert isinstance(world.log.entries[max(world.log.entries)].body, CleanStop)
    return next(iter(world.savepoints.kept))


def begun_from(world: World, path: str, *, is_claimed: bool = False) -> SimJobManager:
    world.people._command = Command(path, is_claimed)
    return started(world)


def imported(world: World) -> bool:
    """Whether the newest checkpoint is the first of its attempt's and of nobody's making."""
    newest = world.log.manifests[-1]
    return newest.files != frozenset() and all(path.startswith("chk-") for path in newest.files)


@pytest.mark.parametrize("wish", [STOP, DRAIN])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_on_from_the_savepoint_with_which_it_stopped(wish: Wish, parallelism: int) -> None:
    world = quiet_world()
    path = stopped_with(world, wish)
    world.swarm.parallelisms = (parallelism,)
    begun_from(world, path)
    to_the_end(world)
    assert world.scheduler.violation is None


@pytest.mark.parametrize("wish", [STOP, DRAIN])
def test_a_job_that_stopped_goes_on_from_its_log_as_well(wish: Wish) -> None:
    world = quiet_world()
    stopped_with(world, wish)
    started(world)
    to_the_end(world)
    assert world.scheduler.violation is None
    check_forks(world)
    assert world.scheduler.violation is None


@pytest.mark.parametrize("is_claimed", [False, True])
@pytest.mark.parametrize(
    "phase", [Phase.READING_SAVEPOINT, Phase.SPAWNING, Phase.TAKING_OVER, Phase.RECOVERING, Phase.IMPORTING]
)
def test_whoever_dies_while_it_begins_from_a_savepoint_is_followed_by_one_that_does(
    phase: Phase, is_claimed: bool
) -> None:
    world = quiet_world()
    path = stopped_with(world, STOP)
    first = begun_from(world, path, is_claimed=is_claimed)
    until(world, lambda: first.phase == phase.value)
    first.process.kill("the script wants it")
    to_the_end(world)
    assert world.scheduler.violation is None
    assert any(isinstance(e.body, Takeover) and e.body.savepoint for e in world.log.entries.values()) or imported_ever(
        world
    )


def imported_ever(world: World) -> bool:
    """The takeover is pruned by now; what it began with left its number in the files."""
    return len(world.supervisor.managers) >= 3


def test_the_command_line_counts_for_nothing_until_the_savepoint_is_imported() -> None:
    world = quiet_world()
    path = stopped_with(world, STOP)
    first = begun_from(world, path)
    until(world, lambda: first.phase == Phase.IMPORTING.value)
    first.process.kill("the script wants it")
    world.people._command = Command()
    to_the_end(world)
    assert world.scheduler.violation is None


@pytest.mark.parametrize("is_claimed", [False, True])
def test_of_two_that_begin_from_one_savepoint_one_does(is_claimed: bool) -> None:
    world = quiet_world()
    path = stopped_with(world, STOP)
    sleeper = begun_from(world, path, is_claimed=is_claimed)
    until(world, lambda: sleeper.phase == Phase.READING_SAVEPOINT.value)
    sleeper.process.pause(LONG)
    other = begun_from(world, path, is_claimed=is_claimed)
    until(world, lambda: world.log.owner == other.nonce and world.log.completed_at > world.log.taken_over_at)
    sleeper.process.resume()
    to_the_end(world)
    assert world.scheduler.violation is None
    assert sleeper.exit_code == 4


def test_one_that_sleeps_before_its_import_finds_the_claimed_savepoint_gone_and_is_fenced() -> None:
    world = quiet_world()
    path = stopped_with(world, STOP)
    sleeper = begun_from(world, path, is_claimed=True)
    until(world, lambda: sleeper.phase == Phase.RECOVERING.value)
    sleeper.process.pause(LONG)
    other = begun_from(world, path, is_claimed=True)
    until(world, lambda: world.log.owner == other.nonce and len(world.log.completed) > 1)
    sleeper.process.resume()
    to_the_end(world)
    assert world.scheduler.violation is None
    assert sleeper.exit_code == 4


def test_a_claimed_savepoint_is_removed_once_its_state_is_in_the_log_and_another_is_left() -> None:
    for is_claimed in (True, False):
        world = quiet_world()
        path = stopped_with(world, STOP)
        begun_from(world, path, is_claimed=is_claimed)
        to_the_end(world)
        assert world.scheduler.violation is None
        assert bool(world.ground.blobs.memory.list("elsewhere/")) is not is_claimed


def test_a_savepoint_of_a_running_job_leads_to_the_same_end_from_elsewhere_and_the_job_is_not_disturbed() -> None:
    world = quiet_world()
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.people.ask(SAVEPOINT, manager)
    to_the_end(world)
    check_forks(world)
    assert world.scheduler.violation is None
    assert len(world.supervisor.managers) == 1
    assert len(world.savepoints.kept) == 1


def test_a_savepoint_that_is_asked_for_and_a_job_that_dies_leave_nothing_undone() -> None:
    """Asked for, then killed: the request is lost with the process; the next process is asked again."""
    world = quiet_world()
    first = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.people.ask(SAVEPOINT, first)
    until(world, lambda: first.pid > 0 and first.phase == Phase.RUNNING.value)
    first.process.kill("the script wants it")
    until(world, lambda: len(world.supervisor.running) > 0)
    world.people.ask(SAVEPOINT, world.supervisor.managers[-1])
    to_the_end(world)
    assert world.scheduler.violation is None
    assert world.people.answered == 1


def test_a_stop_while_the_outside_is_away_waits_for_the_commits_and_then_stops() -> None:
    world = quiet_world()
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.people.ask(STOP, manager)
    before = len(world.log.completed)
    until(world, lambda: len(world.log.completed) > before)
    world.swarm.log_service.is_out = True
    seconds = world.scheduler.seconds
    until(world, lambda: world.scheduler.seconds > seconds + 3.0)
    assert world.people.answered == 0, "nothing is exported before everything is committed"
    world.swarm.log_service.is_out = False
    to_the_end(world)
    assert world.scheduler.violation is None
    assert world.people.answered == 1


def test_a_savepoint_is_exported_whole_though_its_checkpoint_is_thrown_away_meanwhile() -> None:
    world = quiet_world()
    world.swarm.savepoints.pause, world.swarm.savepoints.longest_pause = 1.0, 2.0
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.people.ask(SAVEPOINT, manager)
    to_the_end(world)
    assert world.scheduler.violation is None
    [kept] = world.savepoints.kept.values()
    assert kept.manifest.checkpoint < world.log.manifests[-1].checkpoint
    assert world.ground.store_outside().state_files() == sorted(
        path for path in world.log.manifests[-1].files if attempt_of(path)
    )


def test_a_savepoint_of_a_drained_job_lacks_nothing_from_elsewhere() -> None:
    world = quiet_world()
    path = stopped_with(world, DRAIN)
    kept = world.savepoints.kept[path]
    assert not any(record.ended for record in kept.manifest.operators)
    assert 0 < len(kept.before) < world.swarm.shape.records
    assert fork(world, kept, 2).scheduler.violation is None


def dies_before_its_first_own_checkpoint(world: World) -> None:
    path = stopped_with(world, STOP)
    first = begun_from(world, path, is_claimed=True)
    until(world, lambda: first.phase in (Phase.RUNNING.value, Phase.DONE.value) or world.is_over)
    first.process.kill("the script wants it")
    to_the_end(world)


def dies_while_it_imports(world: World) -> None:
    path = stopped_with(world, STOP)
    first = begun_from(world, path)
    until(world, lambda: first.phase == Phase.IMPORTING.value)
    first.process.kill("the script wants it")
    to_the_end(world)


def dies_when_it_has_gone_on(world: World) -> None:
    path = stopped_with(world, STOP)
    first = begun_from(world, path)
    stopped = world.log.manifests[-1].checkpoint
    until(world, lambda: world.log.manifests[-1].checkpoint > stopped + 2)
    first.process.kill("the script wants it")
    to_the_end(world)


@pytest.mark.parametrize(
    ("error", "script"),
    [
        (counts_from_savepoint_twice, dies_when_it_has_gone_on),
        (imports_without_logging, dies_before_its_first_own_checkpoint),
        (keeps_to_itself_what_it_begins_from, dies_while_it_imports),
    ],
)
def test_an_error_of_beginning_is_found(
    error: Callable[[pytest.MonkeyPatch], None], script: Callable[[World], None]
) -> None:
    right = quiet_world()
    script(right)
    assert right.scheduler.violation is None
    wrong = quiet_world()
    with pytest.MonkeyPatch.context() as patch:
        error(patch)
        script(wrong)
    assert wrong.scheduler.violation is not None


def test_a_savepoint_that_was_changed_is_found() -> None:
    world = quiet_world()
    path = stopped_with(world, STOP)
    folder = path.removeprefix("sim:/")
    state = next(blob for blob in world.ground.blobs.memory.list(f"{folder}/") if "/state/" in blob)
    data = world.ground.blobs.memory.read(state)
    world.ground.blobs.memory.write(state, data[:-1] + bytes([data[-1] ^ 1]))
    world.savepoints.check(path)
    assert "is not whole" in str(world.scheduler.violation)


def test_an_answer_that_nobody_waits_for_and_one_that_is_missing_are_found() -> None:
    world = quiet_world()
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.people.replied(manager, p.Reply("nobody's", text=""))
    assert "which is not open" in str(world.scheduler.violation)
    other = quiet_world()
    manager = started(other)
    other.people._asked[manager] = ["r1"]
    to_the_end(other)
    assert "without an answer" in str(other.scheduler.violation)
