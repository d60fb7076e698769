"""Runs of the simulated world: a storm of failures from a seed, or one thing in one phase, and then calm."""

import random
from collections.abc import Callable

from tests.unit.scheduling.world import World
from tidegate.checkpoint.log import Finished
from tidegate.errors import ErrorKind
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase

RARE = {
    "ask": 0.02,
    "ask to stop": 0.005,
    "crash": 0.01,
    "stop": 0.005,
    "usurper": 0.03,
    "worker death": 0.01,
    "spawn": 0.1,
    "read": 0.1,
}
KINDS = (
    "append unanswered",
    "decline",
    "discovery",
    "recover",
    "retry",
    "savepoints",
    "savepoints late",
    "time",
    "wanted",
    "zombies",
    *RARE,
)
STEPS = 400
STEPS_CALM = 20_000


def faults(seed: int) -> dict[str, float]:
    """Each kind of failure is off in half of the runs, so that long stretches without it are seen as well."""
    chooser = random.Random(seed)
    return {kind: chooser.choice((0.0, RARE.get(kind, 0.15) * chooser.random())) for kind in KINDS}


def run(seed: int) -> World:
    """A storm of failures, and then the way to the end without any."""
    world = World(seed, faults(seed))
    world.start()
    for _ in range(STEPS):
        happen(world)
    return calm(world)


def calm(world: World) -> World:
    """Nothing fails any more: the job has to finish, through however many processes."""
    world.fault = {}
    run_until(world, lambda: world.has_exited and isinstance(newest_body(world), Finished))
    return world


def run_until(world: World, reached: Callable[[], bool]) -> None:
    for _ in range(STEPS_CALM):
        if reached():
            return
        happen(world)
    raise AssertionError(f"stuck while {world.manager.phase.value}")


def newest_body(world: World) -> object:
    positions = world.outside.entries
    return positions[max(positions)].body if positions else None


def happen(world: World) -> None:
    """One step; a process that ended is followed by another."""
    if world.has_exited:
        take_the_savepoint(world)
        world.start(**world.command)
    if world.chance("crash"):
        world.crash()
    elif world.chance("stop"):
        world.deliver(p.StopWanted())
    elif world.chance("wanted"):
        world.deliver(p.CheckpointWanted())
    elif world.chance("ask"):
        world.ask(path=world.random.choice((None, f"here-{world.requests}")))
    elif world.chance("ask to stop"):
        savepoint, drain = world.random.choice(((True, False), (True, True), (False, False), (False, True)))
        world.ask(stops=True, savepoint=savepoint, drain=drain)
    world.step()
    if world.has_exited and world.exit is not None:
        assert world.exit.kind in {ErrorKind.UNAVAILABLE, ErrorKind.FENCED}, world.exit


def take_the_savepoint(world: World) -> None:
    """The supervisor's command names the newest savepoint from now on, now and then, where nothing was put out since:
    what the job stopped with."""
    found = world.outside.savepoints.items()
    newest = world.outside.newest
    at_the_end = [path for path, manifest in found if newest is not None and manifest.checkpoint == newest.checkpoint]
    if (
        world.fault.get("ask")
        and at_the_end
        and world.random.random() < 0.5
        and not world.uncommitted()
        and not world.writes_on()
    ):
        world.command = {"from_savepoint": at_the_end[-1], "claim_savepoint": world.random.random() < 0.5}


def stop_while_sinks_are_silent(world: World) -> None:
    world.fault = {"recover": 1.0}
    world.deliver(p.StopWanted())
    for _ in range(500):
        happen(world)


def stop_after_a_failure_with_an_undecided_append(world: World) -> None:
    if world.manager.phase is Phase.RUNNING:
        world.fault = {"append unanswered": 1.0}
        run_until(world, lambda: world.undecided is not None)
        worker = world.own_workers()[0]
        worker.is_alive = False
        world.died(worker)
        run_until(world, lambda: world.manager.phase is Phase.WAITING)
    world.deliver(p.StopWanted())
