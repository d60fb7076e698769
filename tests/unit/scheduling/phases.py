"""Worlds in which a JobManager has just come to some phase, and ways on from there."""

from tests.unit.scheduling.runs import run_until
from tests.unit.scheduling.world import RECORDS, World
from tidegate.checkpoint.log import Completed
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase

SAVEPOINT = "/savepoint"


def at(phase: Phase) -> World:
    """A world in which the JobManager has just come to `phase`."""
    world = World(seed=1, fault={}, stop=40 if phase is Phase.DISCARDING else RECORDS)
    if phase is Phase.DISCARDING:
        world.start()
        for count in (1, 2):
            run_until(world, lambda: world.manager.phase is Phase.RUNNING)
            world.deliver(p.CheckpointWanted())
            run_until(world, lambda: len(world.completed) == count)  # noqa: B023
        stop(world)
        world.start(from_checkpoint=1)
    elif phase in {Phase.READING_SAVEPOINT, Phase.IMPORTING}:
        stopped_with_savepoint(world)
        world.command = {"from_savepoint": SAVEPOINT}
        world.start(**world.command)
    else:
        world.start()
    if phase is Phase.ENDING_OLD:
        run_until(world, lambda: world.manager.phase is Phase.RUNNING)
        world.crash()
        world.start()
    if phase in {Phase.FAILING, Phase.WAITING}:
        run_until(world, lambda: world.manager.phase is Phase.RUNNING)
        kill_a_worker(world)
    if phase is Phase.DRAINING:
        run_until(world, lambda: world.undecided is not None and isinstance(world.undecided.body, Completed))
        world.deliver(p.StopWanted())
    if phase in {Phase.CLOSING, Phase.SETTLING, Phase.RECORDING_END}:
        run_until(world, lambda: world.manager.phase is Phase.RUNNING)
        world.deliver(p.StopWanted())
    if phase is Phase.EXPORTING:
        run_until(world, lambda: world.manager.phase is Phase.RUNNING)
        world.fault = {"savepoints late": 1.0}
        world.ask()
        run_until(world, lambda: world.manager._requests.is_exporting)
        world.deliver(p.StopWanted())
    run_until(world, lambda: world.manager.phase is phase)
    return world


def stopped_with_savepoint(world: World) -> None:
    """In the middle of its input."""
    world.start()
    run_until(world, lambda: len(world.completed) == 1)
    world.ask(stops=True, path=SAVEPOINT)
    to_the_end(world)


def stop(world: World) -> None:
    world.deliver(p.StopWanted())
    to_the_end(world)


def to_the_end(world: World) -> None:
    for _ in range(10_000):
        if world.has_exited:
            return
        world.step()
    raise AssertionError(f"stuck while {world.manager.phase.value}")


def kill_a_worker(world: World) -> None:
    victim = world.own_workers()[0]
    victim.is_alive = False
    world.died(victim)


def in_an_empty_log(other: World, **command: object) -> World:
    """A job that begins from the savepoints of `other` where no log is."""
    world = World(seed=2, fault={})
    world.outside.savepoints = other.outside.savepoints
    for path in sorted(file for manifest in world.outside.savepoints.values() for file in manifest.files):
        world.outside.files.add(path)
    world.command = {"from_savepoint": SAVEPOINT, **command}
    world.start(**world.command)
    return world
