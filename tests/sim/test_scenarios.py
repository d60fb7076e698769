"""What random seeds found and seldom find again, as scripts: JobManagers that sleep at one place while others go on."""

from collections.abc import Callable

import msgspec
import pytest

from tests.sim.mutations.recoveries import says_lost_without_asking_the_log, wins_a_position_that_was_pruned
from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.config.restart import FixedDelay
from tidegate.errors import ErrorKind
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.testing.sim.job_manager import SimJobManager
from tidegate.testing.sim.world import World

LONG = 1e6
"""Seconds that nobody waits for."""


def calm_world() -> World:
    """Without any fault but those of the script; many checkpoints, of which one is retained, and state is in files."""
    world = World(58)
    swarm = world.swarm
    swarm.heal()
    swarm.retained = world.log.retained = 1
    swarm.restart = FixedDelay(1000, 0.05)
    swarm.checkpoints = CoordinatorSettings(interval=0.1, timeout=5.0, min_pause=0.0, tolerable_failures=1)
    swarm.input_seconds = 3.0
    swarm.runtime = msgspec.structs.replace(swarm.runtime, inline_limit=0, state_in_job_manager=False)
    return world


def until(world: World, reached: Callable[[], bool]) -> None:
    assert world.scheduler.run(reached, world.scheduler.seconds + 100.0, 1_000_000), "it never came to that"


def started(world: World) -> SimJobManager:
    world.supervisor.start()
    return world.supervisor.managers[-1]


def to_the_end(world: World) -> None:
    until(world, lambda: world.is_over)
    if world.scheduler.violation is None:
        world.check_end()


def sleeps_before_its_first_takeover(world: World) -> SimJobManager:
    """It has created the log, so what lies below its next entry is its own and stays for ever."""
    sleeper = started(world)
    until(world, lambda: 0 in world.log.entries)
    sleeper.process.pause(LONG)
    return sleeper


def sleeps_between_takeover_and_deployment(world: World) -> SimJobManager:
    first = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    first.process.kill("the script wants it")
    until(world, lambda: len(world.supervisor.running) > 0)
    sleeper = world.supervisor.managers[-1]
    until(world, lambda: sleeper.phase == Phase.RECOVERING.value)
    sleeper.process.pause(LONG)
    world.swarm.zombies = 1.0  # its workers, on another machine, live on
    return sleeper


def others_finish_the_job(world: World) -> None:
    """Two, one after another, so that the first one's takeover is pruned, too."""
    first = started(world)
    until(world, lambda: world.log.owner == first.nonce and world.log.completed_at > world.log.taken_over_at)
    first.process.kill("the script wants it")
    until(world, lambda: world.log.is_finished)


SLEEPERS = [sleeps_before_its_first_takeover, sleeps_between_takeover_and_deployment]


@pytest.mark.parametrize("fall_asleep", SLEEPERS)
def test_a_job_manager_that_wakes_up_when_the_job_is_finished_is_fenced(
    fall_asleep: Callable[[World], SimJobManager],
) -> None:
    world = calm_world()
    sleeper = fall_asleep(world)
    others_finish_the_job(world)
    sleeper.process.resume()
    to_the_end(world)
    assert world.scheduler.violation is None
    assert sleeper.exit_code == 4


@pytest.mark.parametrize(
    ("fall_asleep", "error"),
    list(zip(SLEEPERS, [wins_a_position_that_was_pruned, says_lost_without_asking_the_log], strict=True)),
)
def test_the_error_that_it_was_is_found(
    fall_asleep: Callable[[World], SimJobManager], error: Callable[[pytest.MonkeyPatch], None]
) -> None:
    world = calm_world()
    with pytest.MonkeyPatch.context() as patch:
        error(patch)
        sleeper = fall_asleep(world)
        others_finish_the_job(world)
        sleeper.process.resume()
        to_the_end(world)
    assert world.scheduler.violation is not None


def test_a_job_manager_that_never_took_over_records_nothing_when_it_is_stopped() -> None:
    world = calm_world()
    owner = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.swarm.spawn_failures = 1.0
    second = started(world)
    until(world, lambda: second.phase == Phase.WAITING.value)
    world.swarm.spawn_failures = 0.0
    second.deliver(p.StopWanted())
    to_the_end(world)
    assert world.scheduler.violation is None
    assert (owner.exit_code, second.exit_code) == (0, 0)
    assert len(world.supervisor.managers) == 2, "the one that runs the job was disturbed"


def test_a_job_manager_that_was_taken_over_while_its_workers_live_on_is_fenced() -> None:
    world = calm_world()
    sleeper = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    world.swarm.zombies = 1.0
    sleeper.process.pause(0.5)
    started(world)
    to_the_end(world)
    assert world.scheduler.violation is None
    assert sleeper.failure is not None
    assert sleeper.failure.kind is ErrorKind.FENCED
