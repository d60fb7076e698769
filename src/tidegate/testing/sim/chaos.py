"""Who makes a world unsafe, and who starts the job again: mishaps drawn by the swarm, and a supervisor that keeps one
JobManager running, and sometimes by mistake two.
"""

from collections.abc import Callable

from tidegate.scheduling import protocol as p
from tidegate.testing.sim.gate import FaultRates
from tidegate.testing.sim.ground import Ground
from tidegate.testing.sim.job_manager import Command, SimJobManager


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
        }

    def plan(self) -> None:
        swarm = self._ground.swarm
        for _ in range(swarm.mishaps):
            kind = self._random.choice(swarm.kinds)
            at = self._random.uniform(0.0, swarm.safety_seconds)
            self._ground.scheduler.plan(at, f"mishap: {kind}", self._acts[kind])
        self._ground.scheduler.plan(swarm.safety_seconds, "faults stop", self._heal)

    def _heal(self) -> None:
        self._ground.swarm.heal()
        for process in self._ground.processes.values():
            process.resume()

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


def _back(rates: FaultRates) -> None:
    rates.is_out = False
