"""Workers as simulated processes, and the cluster through which a JobManager starts and ends them.

A worker normally dies when it is killed or its JobManager dies. With the swarm's `zombies` some live on for a while, as
those of another machine would: nobody counts on their death.
"""

from collections.abc import Callable

from tidegate.checkpoint.log import ProcessRecord, Takeover
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime import control
from tidegate.runtime.control import TaskFailed, ToJobManager, ToWorker
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.scheduling import protocol as p
from tidegate.testing.sim.clocks import ProcessClock
from tidegate.testing.sim.executor import SimCalls, SimExecutor
from tidegate.testing.sim.ground import Ground
from tidegate.testing.sim.scheduler import Process
from tidegate.testing.sim.swarm import Swarm
from tidegate.testing.sim.wires import ControlEnd, DataWires

ZOMBIE_SECONDS = 4.0
"""How long a worker outlives its end at most."""
Deliver = Callable[[p.Event], None]


class WorkerClock:
    """A clock that moves on a little with each look, so that a step takes time. It never goes back."""

    def __init__(self, process: Process, swarm: Swarm, shown: ProcessClock) -> None:
        self._process = process
        self._swarm = swarm
        self.shown = shown
        self.seconds = 0.0
        """By the scheduler."""

    def now(self) -> Now:
        cost = self._process.pace * self._swarm.step_cost
        self.seconds = max(self.seconds, self._process.scheduler.seconds) + cost
        return self.shown.at(self.seconds)


class SimWorker:
    """One worker process and its loop."""

    def __init__(self, ground: Ground, name: str, index: WorkerIndex, attempt: Attempt, wires: DataWires) -> None:
        self.pid, self.process = ground.new_process(name)
        self.index = index
        self.attempt = attempt
        self._ground = ground
        self._wires = wires
        self._random = ground.scheduler.random(f"{name}/steps")
        self._clock = WorkerClock(self.process, ground.swarm, ground.clock_of(self.process))
        self._step_at: float | None = None
        self._worker: Worker | None = None
        self.control = ControlEnd(self.process, attempt, ground.swarm.network, self._receive)

    @property
    def clock(self) -> ProcessClock:
        """What it shows."""
        return self._clock.shown

    @property
    def record(self) -> ProcessRecord:
        return ProcessRecord(self.pid, self.pid)

    def start(self) -> None:
        """The program is imported."""
        ports = WorkerPorts(
            executor=SimExecutor(self.process, self._ground.swarm, self.nudge),
            send_data=self._send_data,
            send_control=self._send_control,
            open_store=lambda _, __: self._ground.store_of(self.process),
            clock=self._clock,
            calls=SimCalls(self.process, self._ground.swarm, self.nudge),
        )
        graph = self._ground.graph_of(self.process)
        self._worker = Worker(self.index, self.attempt, graph, f"{self.process.name}:data", ports)
        self._wires.join(self.index, self.process, self._receive_frame, self.disconnected)
        self._worker.start()

    def nudge(self) -> None:
        """There may be something to do."""
        self._step_after(self._delay())

    def disconnected(self) -> None:
        """A data wire is cut: what was on it is lost."""
        failure = Failure(ErrorKind.UNAVAILABLE, f"the data wire to worker {self.index} is cut")
        self._send_control(TaskFailed(None, failure))

    def _step_after(self, delay: float) -> None:
        at = self._ground.scheduler.seconds + delay
        if self._step_at is None or at < self._step_at:
            self._step_at = at
            self.process.plan(delay, "steps", lambda: self._step(at))

    def _step(self, at: float) -> None:
        if self._step_at != at or self._worker is None:
            return
        self._step_at = None
        progress = self._worker.step()
        now = self._ground.scheduler.seconds
        if progress.worked:
            self._step_after(max(0.0, self._clock.seconds - now) + self._delay())
        elif progress.wake_at is not None:
            self._step_after(max(0.0, self.clock.seconds_at(progress.wake_at) - now))

    def _delay(self) -> float:
        return self.process.pace * self._random.uniform(0.0, self._ground.swarm.step_delay)

    def _send_data(self, target: WorkerIndex, frame: bytes) -> None:
        self._wires.send(self.index, target, frame, self._random.random())

    def _send_control(self, message: ToJobManager) -> None:
        if not isinstance(message, control.WorkerMetrics):
            self._ground.scheduler.note(f"{self.process.name} says {brief(message)}")
        self.control.send(control.encode(message))

    def _receive(self, data: bytes) -> None:
        if self._worker is None:
            return
        message = control.decode_to_worker(data)
        self._ground.scheduler.note(f"{self.process.name} is told {brief(message)}")
        self._worker.receive(message)
        if self._worker.is_stopped:
            self.process.kill("it exits as asked")
        else:
            self.nudge()

    def _receive_frame(self, frame: bytes) -> None:
        if self._worker is not None:
            self._worker.receive_frame(frame)
            self.nudge()


class SimCluster:
    """The workers of one JobManager process. `deliver` gives it events."""

    def __init__(self, ground: Ground, process: Process, deliver: Deliver) -> None:
        self._ground = ground
        self._process = process
        self._give = deliver
        self._random = ground.scheduler.random(f"{process.name}/cluster")
        self._workers: dict[Attempt, list[SimWorker]] = {}
        self._ends: dict[tuple[Attempt, WorkerIndex], ControlEnd] = {}
        self._wires: dict[Attempt, DataWires] = {}
        self._leaving: dict[Attempt, list[SimWorker]] = {}
        """Attempts that are being ended, and the workers whose death is waited for."""
        process.on_death(self._die_with_it)

    @property
    def workers(self) -> list[SimWorker]:
        """Those that live."""
        return [worker for workers in self._workers.values() for worker in workers if worker.process.is_alive]

    # -- what the JobManager asks for --

    def spawn(self, attempt: Attempt, count: int) -> None:
        self._process.plan(self._random.uniform(0.0, 0.05), "starts workers", lambda: self._spawn(attempt, count))

    def _spawn(self, attempt: Attempt, count: int) -> None:
        if attempt in self._leaving:
            return
        if self._random.random() < self._ground.swarm.spawn_failures:
            self._give(p.StepFailed(Failure(ErrorKind.UNAVAILABLE, "no worker could be started")))
            return
        wires = self._wires[attempt] = DataWires(self._ground.swarm.network)
        self._workers[attempt] = [self._start(attempt, WorkerIndex(index), wires) for index in range(count)]
        records = tuple(worker.record for worker in self._workers[attempt])
        self._give(p.WorkersSpawned(attempt, records, self._process.name))

    def _start(self, attempt: Attempt, index: WorkerIndex, wires: DataWires) -> SimWorker:
        worker = SimWorker(self._ground, f"{self._process.name}.{attempt}.w{index}", index, attempt, wires)
        end = ControlEnd(self._process, attempt, self._ground.swarm.network, lambda data: self._heard(worker, data))
        worker.control.peer, end.peer = end, worker.control
        self._ends[attempt, index] = end
        worker.process.on_death(lambda: self._died(worker))
        worker.process.plan(self._random.uniform(0.0, 0.1), "has imported the program", worker.start)
        return worker

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        self._ends[attempt, worker].send(control.encode(message))

    def end(self, attempt: Attempt, grace: float) -> None:
        workers = self._workers.get(attempt, [])
        doomed = [worker for worker in workers if worker.process.is_alive and not self._becomes_zombie(worker)]
        self._leaving[attempt] = doomed
        for worker in doomed:
            kill_later(self._ground, worker.process, grace + self._random.uniform(0.0, 0.02), "its attempt is ended")
        self._process.plan(0.0, "looks whether its workers are gone", lambda: self._look_if_gone(attempt))

    def end_recorded(self, takeover: Takeover) -> None:
        for record in takeover.workers:
            process = self._ground.processes[record.pid]
            is_reached = process.is_alive and self._random.random() >= self._ground.swarm.zombies
            if is_reached and not process.is_elsewhere:
                process.kill("another attempt takes over")
        self._process.plan(
            self._random.uniform(0.0, 0.02), "has ended old workers", lambda: self._give(p.OldWorkersEnded())
        )

    # -- what happens to workers --

    def cut_a_wire(self, attempt: Attempt, source: WorkerIndex, target: WorkerIndex) -> None:
        self._wires[attempt].cut(source, target)

    def presume_dead(self, worker: SimWorker) -> None:
        """The JobManager takes the worker for dead, though it may live."""
        self._tell_death(worker, "presumed dead")

    def _heard(self, worker: SimWorker, data: bytes) -> None:
        self._give(p.Received(worker.attempt, worker.index, control.decode_to_job_manager(data)))

    def _died(self, worker: SimWorker) -> None:
        if worker.attempt in self._leaving:
            attempt = worker.attempt
            self._process.plan(0.001, "learns of an exit", lambda: self._look_if_gone(attempt))
        else:
            self._tell_death(worker, "killed by SIGKILL")

    def _tell_death(self, worker: SimWorker, how: str) -> None:
        event = p.WorkerDied(worker.attempt, worker.index, how)
        self._process.plan(self._random.uniform(0.0, 0.05), "learns of a death", lambda: self._give(event))

    def _look_if_gone(self, attempt: Attempt) -> None:
        awaited = self._leaving.get(attempt)
        if awaited is None or any(worker.process.is_alive for worker in awaited):
            return
        self._leaving[attempt] = []
        for (of_attempt, _), end in self._ends.items():
            if of_attempt == attempt:
                end.close()
        self._give(p.WorkersGone(attempt))

    def _becomes_zombie(self, worker: SimWorker) -> bool:
        if self._random.random() >= self._ground.swarm.zombies:
            return False
        kill_later(self._ground, worker.process, self._random.uniform(0.0, ZOMBIE_SECONDS), "a zombie's end has come")
        return True

    def _die_with_it(self) -> None:
        for worker in self.workers:
            is_zombie = self._random.random() < self._ground.swarm.zombies
            delay = self._random.uniform(0.0, ZOMBIE_SECONDS if is_zombie else 0.02)
            kill_later(self._ground, worker.process, delay, "its JobManager is dead")


def kill_later(ground: Ground, process: Process, delay: float, why: str) -> None:
    """SIGKILL after `delay` seconds, from outside."""
    ground.scheduler.plan(delay, f"end of {process.name}", lambda: process.kill(why))


def brief(message: ToWorker | ToJobManager) -> str:
    """A control message in a line of the trace."""
    text = repr(message)
    return text if len(text) <= 160 else f"{text[:150]}…"
