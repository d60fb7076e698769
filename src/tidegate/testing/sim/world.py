"""One seed from beginning to end: draws the swarm, sets the world up, lets faults happen, heals, and sees what comes.

The safety phase has faults; then they stop and the job must finish within `LIVENESS_SECONDS`, or it is not live.
Checkers look all the time; the run ends with the first thing that must not be.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidegate.testing.sim.chaos import Chaos, Supervisor
from tidegate.testing.sim.checkers import (
    CommitChecker,
    LogChecker,
    OutputChecker,
    UseChecker,
    check_exit,
    check_left_files,
)
from tidegate.testing.sim.connectors import LogMedium
from tidegate.testing.sim.cuts import CutChecker
from tidegate.testing.sim.ground import Ground
from tidegate.testing.sim.job import make_input
from tidegate.testing.sim.job_manager import SimJobManager
from tidegate.testing.sim.kafka.medium import KafkaMedium, draw_traits
from tidegate.testing.sim.outside import Medium
from tidegate.testing.sim.people import People, Wish
from tidegate.testing.sim.savepoints import KeptSavepoint, SavepointChecker, put_savepoint
from tidegate.testing.sim.scheduler import Scheduler
from tidegate.testing.sim.storage import Blobs
from tidegate.testing.sim.swarm import (
    Swarm,
    draw_hardship,
    draw_savepoint_rates,
    draw_swarm,
    leave_time_for_single_records,
)

MEDIUMS = ("log", "kafka")
LIVENESS_SECONDS = 400.0
"""Simulated seconds from the end of all faults to the end of the job."""
REST_SECONDS = 60.0
"""Simulated seconds after which at the latest nothing happens any more once the job is over."""
MOST_EVENTS = 400_000


@dataclass(frozen=True)
class Result:
    """Of one seed. `violation`: the first thing that must not be; None when all is well."""

    seed: int
    violation: str | None
    digest: str
    events: int
    seconds: float
    """Simulated."""
    job_managers: int
    checkpoints: int
    stopped_for_loss: bool
    answered: int
    """Requests of people that were done."""
    medium: str


def make_medium(medium: str, name: str, scheduler: Scheduler, swarm: Swarm) -> Medium:
    """'log' is a simple log service with a thin sink, 'kafka' a Kafka cluster behind the connector that is shipped."""
    if medium == "log":
        return LogMedium(name, lambda: scheduler.seconds, swarm)
    return KafkaMedium(name, scheduler, swarm, draw_traits(scheduler.random("kafka")))


class World:
    """Everything that one seed has. `medium`: one of `MEDIUMS`; without it the seed decides."""

    def __init__(self, seed: int, medium: str | None = None, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed, show)
        self.swarm: Swarm = draw_swarm(self.scheduler.random("swarm"))
        self.swarm.savepoints = draw_savepoint_rates(self.scheduler.random("savepoints"))
        self.swarm.hardship = draw_hardship(self.scheduler.random("hardship"))
        self.medium = medium or self.scheduler.random("medium").choice(MEDIUMS)
        if self.medium == "kafka" and self.swarm.runtime.batch_size == 1:
            leave_time_for_single_records(self.swarm)
        self.scheduler.note(f"seed {seed} on {self.medium}: {self.swarm}")
        service = make_medium(self.medium, f"sim-{seed}", self.scheduler, self.swarm)
        blobs = Blobs(lambda: self.scheduler.seconds)
        blobs.lists_in_pages = self.swarm.hardship.lists_in_pages
        self.ground = Ground(self.scheduler, self.swarm, blobs, service)
        self.input = make_input(self.swarm.shape, self.scheduler.random("input"))
        self._fill_topics()
        self.log = LogChecker(
            self.ground.store_outside(), self.swarm.retained, lambda: self.scheduler.seconds, self.scheduler.violated
        )
        self.output = self._make_output_checker()
        violated = self.scheduler.violated
        self.cuts = CutChecker(self.ground.store_outside(), service, self.swarm.shape, self.input, violated)
        self.savepoints = SavepointChecker(blobs, self.cuts, self._ids_out, violated)
        self.people = People(self.ground, self.log, self.savepoints)
        self.supervisor = Supervisor(
            self.ground, lambda: self.log.is_finished, self._judge, self.people.command, self.people.replied
        )
        self._completed = 0
        self._listen()

    def run(self) -> Result:
        Chaos(self.ground, self.supervisor).plan()
        for wish in self.people.wishes:
            self.scheduler.plan(wish.seconds, f"somebody wants {wish}", partial(self._ask, wish))
        self.supervisor.start()
        self.live()
        if self.scheduler.violation is None and not self.supervisor.has_given_up:
            self.check_end()
        if self.scheduler.violation is None:
            self._come_to_rest()
        if self.scheduler.violation is None:
            check_forks(self)
        return Result(
            self.seed,
            self.scheduler.violation,
            self.scheduler.digest,
            self.scheduler.happened,
            self.scheduler.seconds,
            len(self.supervisor.managers),
            self._completed,
            self.supervisor.has_given_up,
            self.people.answered,
            self.medium,
        )

    def live(self) -> None:
        """Until the job is finished, somebody is needed, or something is found."""
        until = self.swarm.safety_seconds + LIVENESS_SECONDS
        if not self.scheduler.run(lambda: self.is_over, until, MOST_EVENTS):
            phases = (
                ", ".join(f"{m.process.name} is {m.phase}" for m in self.supervisor.running) or "no JobManager runs"
            )
            self.scheduler.violated(f"not live: the job is not finished after {self.scheduler.seconds:.1f} s; {phases}")

    def _come_to_rest(self) -> None:
        """Zombies and requests that are on their way change nothing any more, and then nobody is left."""
        until = self.scheduler.seconds + REST_SECONDS
        self.scheduler.run(lambda: False, until, self.scheduler.happened + MOST_EVENTS)
        alive = [process.name for process in self.ground.processes.values() if process.is_alive]
        if alive:
            self.scheduler.violated(f"{', '.join(alive)} are still alive long after the end")
        elif self.scheduler.violation is None and not self.supervisor.has_given_up:
            self.check_end()

    def _ask(self, wish: Wish) -> None:
        if self.supervisor.running:
            self.people.ask(wish, self.supervisor.running[-1])

    def _ids_out(self) -> list[set[int]]:
        """Of each output: the events whose results are committed."""
        service = self.ground.service
        topics = self.swarm.shape.output_topics
        return [{total.id for part in service.committed(topic) for total in part} for topic in topics]

    @property
    def is_over(self) -> bool:
        return self.supervisor.is_idle and (self.log.is_finished or self.supervisor.has_given_up)

    def _fill_topics(self) -> None:
        service, shape = self.ground.service, self.swarm.shape
        for topic, partitions in self.input.items():
            service.create_topic(topic, shape.partitions)
            for number, events in enumerate(partitions):
                service.append(topic, number, events)
        for topic in shape.output_topics:
            service.create_topic(topic, shape.output_partitions)

    def _make_output_checker(self) -> OutputChecker:
        places = {
            event.id: (event, f"{topic}/{number}")
            for topic, partitions in self.input.items()
            for number, events in enumerate(partitions)
            for event in events
        }
        return OutputChecker(
            self.ground.service,
            self.swarm.shape,
            {id: event for id, (event, _) in places.items()},
            {id: place for id, (_, place) in places.items()},
            self.scheduler.violated,
        )

    def _listen(self) -> None:
        violated = self.scheduler.violated
        commits, uses = CommitChecker(self.log, violated), UseChecker(self.log, violated)
        self.ground.blobs.on_create += [self.log.created, self.savepoints.created]
        self.ground.blobs.on_replace.append(self.log.replaced)
        self.ground.blobs.on_delete.append(self.log.deleted)
        self.log.on_completed += [uses.completed, self.cuts.completed, lambda _: self._count()]
        self.ground.service.on_begin.append(uses.begun)
        self.ground.service.on_reuse.append(
            lambda id: violated(f"a producer of {id} goes on with the epoch of a transaction that has ended")
        )
        self.ground.service.on_commit += [
            commits.committed,
            lambda _: self.output.committed(),
        ]
        self.ground.service.on_visible.append(self.output.seen)

    def _count(self) -> None:
        self._completed += 1

    def _judge(self, manager: SimJobManager) -> None:
        may_lose = self.swarm.may_lose and self.ground.service.has_timed_out
        check_exit(self.log, may_lose, manager, self.scheduler.violated)
        check_left_files(self.log, self.ground.blobs.created_at, manager, self.scheduler.violated)
        self.people.left(manager)

    def check_end(self) -> None:
        """The job is finished: what must hold then."""
        self.output.check_complete()
        self.log.check_files(self._excused())
        for transaction in self.ground.service.ongoing():
            # What a zombie opens after the last look at open transactions, nobody aborts but the service's timeout.
            if transaction.start is not None and transaction.start <= self.log.completed_at:
                self.scheduler.violated(f"{transaction.id} is still open at the end")

    def _excused(self) -> list[str]:
        """Files that nobody could delete: the last attempt had faults, or a zombie wrote them after it began."""
        begun = self.log.taken_over_at if self.log.taken_over_at > self.swarm.safety_seconds else 0.0
        created = self.ground.blobs.created_at
        return [path for path, at in created.items() if begun == 0.0 or (at > begun and not self.log.is_of_last(path))]


def fork(world: World, kept: KeptSavepoint, parallelism: int) -> World:
    """A calm world, with the input of `world` and what it had put out for `kept`, in which the same job begins from the
    savepoint, in a folder where nothing is."""
    other = World(world.seed, world.medium)
    other.swarm.heal()
    other.swarm.parallelisms, other.swarm.input_seconds = (parallelism,), 0.0
    other.people.begin_from(kept.path)
    put_savepoint(other.ground.blobs.memory, kept)
    before = {event.id for event in kept.before}
    for topic in other.swarm.shape.output_topics:
        for number, totals in enumerate(world.ground.service.visible(topic)):
            other.ground.service.append(topic, number, [total for total in totals if total.id in before])
    other.supervisor.start()
    other.live()
    if other.scheduler.violation is None:
        other.check_end()
    return other


def check_forks(world: World) -> None:
    """Begun from elsewhere, twice and at any parallelism, the newest savepoint leads to the same end: what is missing,
    and nothing twice."""
    for kept in list(world.savepoints.kept.values())[-1:]:
        for parallelism in (1, max(world.swarm.parallelisms) + 1):
            violation = fork(world, kept, parallelism).scheduler.violation
            if violation is not None:
                text = f"begun elsewhere from savepoint {kept.path} with parallelism {parallelism}: {violation}"
                world.scheduler.violated(text)


def run_seed(seed: int, show: Callable[[str], None] | None = None, medium: str | None = None) -> Result:
    """Run one seed in a world of its own, on this medium or on that which it draws. `show` gets each line of its
    trace."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return World(seed, medium, show).run()
    finally:
        if was_collecting:
            gc.enable()
