"""A JobManager process: the real JobManager and its performer over simulated ports, from its start to its exit code."""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.checkpoint.log import ProcessRecord
from tidegate.errors import ErrorKind, Failure
from tidegate.graph.physical import build_physical
from tidegate.ids import LogInstance
from tidegate.metrics import JobStatus, Level
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.performer import JobManagerPerformer
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings
from tidegate.testing.sim.cluster import SimCluster
from tidegate.testing.sim.executor import SimExecutor
from tidegate.testing.sim.ground import Ground

IMPOSSIBLE = (ErrorKind.INTERNAL.value, ErrorKind.INVALID.value, ErrorKind.CORRUPT.value, ErrorKind.USER_CODE.value)
"""Kinds of failure that nothing the simulation does can cause."""


@dataclass(frozen=True)
class Command:
    """What of a command line differs from start to start."""

    from_savepoint: str | None = None
    is_claimed: bool = False


class SimReporter:
    """Writes into the trace; an error of a kind that cannot be is a violation."""

    def __init__(self, ground: Ground, name: str) -> None:
        self._ground = ground
        self._name = name
        self.has_left_something = False
        """It was told that something could not be cleaned up."""

    def update(self, status: JobStatus) -> None:
        """Nobody watches."""

    def event(self, level: Level, text: str, **fields: object) -> None:
        self._ground.scheduler.note(f"{self._name} tells ({level}): {text}")
        self.has_left_something |= "could not be removed" in text or "could not be looked after" in text
        if fields.get("kind") in IMPOSSIBLE:
            self._ground.scheduler.violated(f"an attempt of {self._name} failed with '{fields['kind']}': {text}")

    def close(self) -> None:
        """Nothing to release."""


class SimJobManager:
    """`exited` is called when the process ends by itself, and when it is killed; `replied` for each answer to somebody
    who asked for something."""

    def __init__(
        self,
        ground: Ground,
        name: str,
        parallelism: int,
        command: Command,
        exited: Callable[["SimJobManager"], None],
        replied: Callable[["SimJobManager", p.Reply], None],
    ) -> None:
        self.pid, self.process = ground.new_process(name)
        self.nonce = f"nonce-{name}"
        self.parallelism = parallelism
        self.command = command
        self._replied = replied
        self.failure: Failure | None = None
        self.exit_code: int | None = None
        """None while it runs, and when it was killed."""
        self._ground = ground
        self._wake_at: float | None = None
        self.settling_since: float | None = None
        """When none of its workers was left but zombies, and it began to clean up before the end."""
        self.reporter = SimReporter(ground, name)
        self.clock = ground.clock_of(self.process)
        self.cluster = SimCluster(ground, self.process, self.deliver)
        self._executor = SimExecutor(self.process, ground.swarm, self._look_around)
        self._performer = self._make_performer(name)
        self.process.on_death(lambda: exited(self))

    def _make_performer(self, name: str) -> JobManagerPerformer:
        ground = self._ground
        graph = ground.graph_of(self.process)
        physical = build_physical(graph, self.parallelism, ground.swarm.max_parallelism)
        identity = JobManagerIdentity(
            self.nonce, LogInstance(f"log-of-{name}"), "host", ProcessRecord(self.pid, self.pid)
        )
        chance = ground.scheduler.random(f"{name}/jitter").random
        return JobManagerPerformer(
            JobManager(graph, physical, self._settings(), identity, chance),
            graph,
            self.cluster,
            ground.store_of(self.process),
            self._executor,
            self.clock,
            self.reporter,
            lambda reply: self._replied(self, reply),
            ground.places_of(self.process),
        )

    def _settings(self) -> JobSettings:
        swarm = self._ground.swarm
        return JobSettings(
            parallelism=self.parallelism,
            max_parallelism=swarm.max_parallelism,
            checkpoints=swarm.checkpoints,
            retained=swarm.retained,
            restart=swarm.restart,
            runtime=swarm.runtime,
            storage="sim:",
            needed_timeout=0.0,
            drain_timeout=3.0,
            stop_grace=0.5,
            stop_patience=20.0,
            from_savepoint=self.command.from_savepoint,
            claim_savepoint=self.command.is_claimed,
        )

    @property
    def is_done(self) -> bool:
        """Whether it has decided to exit, or is dead."""
        return self._performer.is_done or not self.process.is_alive

    @property
    def phase(self) -> str:
        return self._performer.manager.phase.value

    def start(self) -> None:
        self._performer.start()
        self._look_around()

    def deliver(self, event: p.Event) -> None:
        if not self._performer.is_done:
            self._performer.deliver(event)
            self._look_around()

    def _look_around(self) -> None:
        """Behind every event: is it over, and when is it to be woken."""
        if self.settling_since is None and self._performer.manager.phase is Phase.SETTLING:
            self.settling_since = self._ground.scheduler.seconds
        if self._performer.is_done:
            self._exit()
            return
        at = self._performer.wake_at
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at
            delay = max(0.0, self.clock.seconds_at(at) - self._ground.scheduler.seconds)
            self.process.plan(delay, "is woken", lambda: self._wake(at))

    def _wake(self, at: float) -> None:
        if self._wake_at == at:
            self._wake_at = None
            self._performer.wake()
            self._look_around()

    def _exit(self) -> None:
        if not self._executor.is_idle:
            # Side threads are joined before a process exits.
            return
        self.failure = self._performer.failure
        self.exit_code = self.failure.exit_code if self.failure is not None else 0
        why = f": {self.failure.kind.value}: {self.failure.message}" if self.failure is not None else ""
        self.process.kill(f"it exits with {self.exit_code}{why}")
