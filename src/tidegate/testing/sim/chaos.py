"""Who makes a world unsafe, and who starts the job again: mishaps drawn by the swarm, and a supervisor that keeps one
JobManager running, and sometimes by mistake two.
"""

from collections.abc import Callable, Sequence
from random import Random

from tidegate.scheduling import protocol as p
from tidegate.testing.sim.gate import FaultRates
from tidegate.testing.sim.ground import Ground
from tidegate.testing.sim.job_manager import Command, SimJobManager
from tidegate.testing.sim.scheduler import Process

SLOW_PACE = 50.0
"""How many times longer everything takes in a worker that is slow."""
BURST_SECONDS = 0.2
"""In this time come the troubles that come together."""


class Supervisor:
    """Starts a JobManager whenever none runs, until the job is finished. `judge` looks at each one that has exited;
    `command` is asked for the command line, with how many run."""

    def __init__(
        self,
        ground: Ground,
        is_finished: Callable[[], bool],
        judge: Callable[[SimJobManager], None],
        command: Callable[[int], Command],
        replied: Callable[[SimJobManager, p.Reply], None],
    ) -> None:
        self._ground = ground
        self._command = command
        self._replied = replied
        self._is_finished = is_finished
        self._judge = judge
        self._random = ground.scheduler.random("supervisor")
        self._started = 0
        self._starting = 0
        self.managers: list[SimJobManager] = []
        self.has_given_up = False
        """A JobManager stopped because data was lost: that is an operator's to decide."""

    @property
    def running(self) -> list[SimJobManager]:
        return [manager for manager in self.managers if manager.process.is_alive]

    @property
    def is_idle(self) -> bool:
        return not self.running and self._starting == 0

    def start(self) -> None:
        self._started += 1
        parallelism = self._random.choice(self._ground.swarm.parallelisms)
        command = self._command(len(self.running))
        name = f"jm{self._started}"
        manager = SimJobManager(self._ground, name, parallelism, command, self._over, self._replied)
        self.managers.append(manager)
        manager.process.plan(0.0, f"starts with parallelism {parallelism}, {command}", manager.start)

    def start_later(self, delay: float) -> None:
        self._starting += 1
        self._ground.scheduler.plan(delay, "the supervisor looks", self._start_if_needed)

    def _start_if_needed(self) -> None:
        self._starting -= 1
        if not self._is_finished() and not self.has_given_up and not any(not m.process.is_paused for m in self.running):
            self.start()

    def _over(self, manager: SimJobManager) -> None:
        if manager.exit_code is not None:
            self._judge(manager)
        if manager.exit_code == 3:
            self.has_given_up = True
        elif not self._is_finished():
            self.start_later(self._random.uniform(0.0, self._ground.swarm.supervisor_delay))


class Chaos:
    """The mishaps of one seed."""

    def __init__(self, ground: Ground, supervisor: Supervisor) -> None:
        self._ground = ground
        self._supervisor = supervisor
        self._random = ground.scheduler.random("chaos")
        self._acts: dict[str, Callable[[], None]] = {
            "kill worker": self._kill_worker,
            "kill job manager": self._kill_job_manager,
            "pause worker": lambda: self._pause_worker(0.5),
            "presume worker dead": self._presume_worker_dead,
            "second job manager": self._second_job_manager,
            "stop": self._stop,
            "want checkpoint": self._want_checkpoint,
            "storage out": self._storage_out,
            "log service out": self._log_service_out,
            "cut data wire": self._cut_data_wire,
            "slow network": self._slow_network,
            "slow worker": self._slow_worker,
            "slow storage": self._slow_storage,
            "frozen machine": self._freeze_machine,
            "set clock": self._set_clock,
            "burst": self._burst,
        }
        self._acts |= ground.service.mishaps()
        self._burst_kinds = [k for k in (*ground.swarm.kinds, *ground.swarm.hardship.kinds) if k != "burst"]

    def plan(self) -> None:
        swarm, hardship = self._ground.swarm, self._ground.swarm.hardship
        self._plan(swarm.mishaps, swarm.kinds, self._random)
        self._plan(hardship.mishaps, hardship.kinds, self._ground.scheduler.random("hard chaos"))
        self._plan_of_medium(self._ground.scheduler.random("medium chaos"))
        self._ground.scheduler.plan(swarm.safety_seconds, "faults stop", self._heal)

    def _plan_of_medium(self, random: Random) -> None:
        kinds = [kind for kind in self._ground.service.mishaps() if random.random() < 0.4]
        self._plan(random.randrange(0, 6) if kinds else 0, kinds, random)

    def _plan(self, count: int, kinds: Sequence[str], random: Random) -> None:
        for _ in range(count):
            kind = random.choice(kinds)
            self._happens(random.uniform(0.0, self._ground.swarm.safety_seconds), kind)

    def _happens(self, delay: float, kind: str) -> None:
        self._ground.scheduler.plan(delay, f"mishap: {kind}", self._acts[kind])

    def _heal(self) -> None:
        self._ground.swarm.heal()
        for process in self._ground.processes.values():
            process.pace = 1.0
            if not process.is_elsewhere:
                process.resume()

    def _burst(self) -> None:
        """Troubles seldom come alone: several kinds at almost the same time."""
        for _ in range(self._random.randrange(2, 7) if self._burst_kinds else 0):
            self._happens(self._random.uniform(0.0, BURST_SECONDS), self._random.choice(self._burst_kinds))

    # -- processes --

    def _manager(self) -> SimJobManager | None:
        running = self._supervisor.running
        return self._random.choice(running) if running else None

    def _kill_worker(self) -> None:
        manager = self._manager()
        if manager is not None and manager.cluster.workers:
            self._random.choice(manager.cluster.workers).process.kill("kill -9")

    def _kill_job_manager(self) -> None:
        manager = self._manager()
        if manager is not None:
            manager.process.kill("kill -9")

    def _pause_worker(self, longest: float) -> None:
        manager = self._manager()
        if manager is not None and manager.cluster.workers:
            self._random.choice(manager.cluster.workers).process.pause(self._random.uniform(0.0, longest))

    def _presume_worker_dead(self) -> None:
        manager = self._manager()
        if manager is not None and manager.cluster.workers:
            worker = self._random.choice(manager.cluster.workers)
            worker.process.pause(self._random.uniform(0.0, 4.0))
            manager.cluster.presume_dead(worker)

    def _second_job_manager(self) -> None:
        manager = self._manager()
        if manager is None:
            return
        if self._random.random() < 0.7:
            manager.process.pause(self._random.uniform(0.0, 3.0))
        self._supervisor.start()

    def _slow_worker(self) -> None:
        manager = self._manager()
        if manager is not None and manager.cluster.workers and not self._ground.swarm.is_healed:
            process = self._random.choice(manager.cluster.workers).process
            process.pace = SLOW_PACE
            self._ground.scheduler.plan(
                self._random.uniform(0.0, 4.0), f"{process.name} is as quick as ever", lambda: _hasten(process)
            )

    def _freeze_machine(self) -> None:
        """A JobManager and its workers sleep, for long and out of everybody's reach, and wake up together: perhaps when
        others have finished the job."""
        manager = self._manager()
        if manager is None:
            return
        seconds = self._random.choice((1.0, 5.0, 30.0)) * self._random.random()
        for process in (manager.process, *(worker.process for worker in manager.cluster.workers)):
            process.is_elsewhere = True
            process.pause(seconds)
        self._supervisor.start_later(self._random.uniform(0.0, self._ground.swarm.supervisor_delay))

    def _set_clock(self) -> None:
        manager = self._manager()
        if manager is not None:
            clock = self._random.choice([manager.clock, *(worker.clock for worker in manager.cluster.workers)])
            clock.set_wall(self._random.choice((1.0, -1.0)) * self._random.choice((0.1, 2.0, 3600.0)))

    def _stop(self) -> None:
        manager = self._manager()
        if manager is not None:
            manager.process.plan(0.0, "is asked to stop", lambda: manager.deliver(p.StopWanted()))

    def _want_checkpoint(self) -> None:
        manager = self._manager()
        if manager is not None:
            manager.process.plan(0.0, "is asked for a checkpoint", lambda: manager.deliver(p.CheckpointWanted()))

    # -- what is outside --

    def _storage_out(self) -> None:
        rates = self._ground.swarm.storage
        rates.is_out = True
        self._ground.scheduler.plan(self._random.uniform(0.0, 2.0), "storage is back", lambda: _back(rates))

    def _slow_storage(self) -> None:
        rates = self._ground.swarm.storage
        rates.is_slow = not self._ground.swarm.is_healed
        self._ground.scheduler.plan(self._random.uniform(0.0, 3.0), "storage is quick again", lambda: _quicken(rates))

    def _log_service_out(self) -> None:
        rates = self._ground.swarm.log_service
        rates.is_out = True
        self._ground.scheduler.plan(self._random.uniform(0.0, 2.0), "the log service is back", lambda: _back(rates))

    def _cut_data_wire(self) -> None:
        manager = self._manager()
        workers = manager.cluster.workers if manager is not None else []
        if manager is not None and len(workers) > 1:
            source, target = self._random.sample(workers, 2)
            if source.attempt == target.attempt:
                manager.cluster.cut_a_wire(source.attempt, source.index, target.index)

    def _slow_network(self) -> None:
        network = self._ground.swarm.network
        if not self._ground.swarm.is_healed:
            network.control_delay = 0.5
            network.data_delay = 0.2
            self._ground.scheduler.plan(self._random.uniform(0.0, 2.0), "the network is fast again", network.hasten)


def _hasten(process: Process) -> None:
    process.pace = 1.0


def _quicken(rates: FaultRates) -> None:
    rates.is_slow = False


def _back(rates: FaultRates) -> None:
    rates.is_out = False
