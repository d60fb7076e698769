"""The whole job in this process and this thread: for notebooks, debuggers and tests.

The same JobManager and the same workers as with processes, stepped in turn; wires are queues, blocking work runs
between two steps. A failure restarts the attempt as always; only the death of the process is not survived by it.
"""

import math
import select
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from tidegate.checkpoint.log import Takeover
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import Clock
from tidegate.deploy.calls import LoopAndThreads
from tidegate.deploy.executor import InlineExecutor, WakeUp
from tidegate.deploy.local import STATUS_SECONDS, stop_signals
from tidegate.deploy.processes import failure_of_exit, kill_recorded
from tidegate.deploy.requests import RequestServer
from tidegate.errors import ErrorKind, Failure, raise_failure
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime.control import TaskFailed, ToJobManager, ToWorker
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.scheduling import protocol as p
from tidegate.scheduling.performer import JobManagerPerformer


class InProcessCluster:
    """Workers as objects, of one attempt at a time. See `scheduling.performer.Cluster`.

    `host` is what takeovers record of this machine.
    """

    def __init__(self, graph: LogicalGraph, store: CheckpointStore, host: str, clock: Clock) -> None:
        self._graph = graph
        self._store = store
        self._host = host
        self._clock = clock
        self._workers: dict[WorkerIndex, Worker] = {}
        self._attempt = Attempt(0)
        self.wake: Callable[[], None] = lambda: None
        """Called from any thread when there is something to do; set by the loop that waits."""
        self._calls = self._new_calls()
        self._executor = InlineExecutor()
        """The attempt's, as the calls are: what it has not done when the attempt ends is not done any more, as with a
        process."""
        self._to_workers: deque[tuple[WorkerIndex, ToWorker]] = deque()
        self._frames: deque[tuple[WorkerIndex, bytes]] = deque()
        self.events: deque[p.Event] = deque()

    # -- the port --

    def spawn(self, attempt: Attempt, count: int) -> None:
        """No process is recorded: nobody who takes over may kill this one, which is also somebody's notebook."""
        self._drop_attempt()
        self._attempt = attempt
        self._workers = {WorkerIndex(i): self._worker(WorkerIndex(i)) for i in range(count)}
        self.events.append(p.WorkersSpawned(attempt, (), ""))
        for worker in self._workers.values():
            worker.start()

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        if attempt == self._attempt and worker in self._workers:
            self._to_workers.append((worker, message))

    def end(self, attempt: Attempt, grace: float) -> None:
        self._carry()
        self.close()
        self.events.append(p.WorkersGone(attempt))

    def end_recorded(self, takeover: Takeover) -> None:
        left = kill_recorded(takeover.workers) if takeover.host == self._host else []
        if left:
            text = f"workers of the last attempt could not be ended: {left}"
            self.events.append(p.StepFailed(Failure(ErrorKind.UNAVAILABLE, text)))
        else:
            self.events.append(p.OldWorkersEnded())

    # -- the loop's --

    def step(self) -> tuple[bool, float | None]:
        """One step of each worker; whether anything was done, and when there will be something to do."""
        try:
            return self._step()
        # In a process it would end that worker alone.
        except SystemExit as error:
            self._hear(self._attempt, WorkerIndex(0), TaskFailed(None, failure_of_exit(error)))
            return True, None

    def close(self) -> None:
        """End the workers, whatever they are at."""
        for worker in self._workers.values():
            worker.close()
        self._drop_attempt()

    def _step(self) -> tuple[bool, float | None]:
        worked = self._carry()
        wake_at: list[float] = []
        for worker in list(self._workers.values()):
            progress = worker.step()
            worked = worked or progress.worked
            if progress.wake_at is not None:
                wake_at.append(progress.wake_at)
        worked = self._calls.drain() or worked
        return self._executor.drain() or worked, min(wake_at, default=None)

    def _new_calls(self) -> LoopAndThreads:
        return LoopAndThreads(self._wake)

    def _wake(self) -> None:
        self.wake()

    def _drop_attempt(self) -> None:
        self._workers = {}
        self._calls.close()
        self._calls = self._new_calls()
        self._executor = InlineExecutor()
        self._to_workers.clear()
        self._frames.clear()

    def _carry(self) -> bool:
        """Give what is on the wires to whom it is for."""
        carried = bool(self._to_workers or self._frames)
        while self._to_workers:
            index, message = self._to_workers.popleft()
            self._workers[index].receive(message)
        while self._frames:
            index, frame = self._frames.popleft()
            self._workers[index].receive_frame(frame)
        return carried

    def _worker(self, index: WorkerIndex) -> Worker:
        ports = WorkerPorts(
            executor=self._executor,
            send_data=lambda target, frame: self._frames.append((target, frame)),
            send_control=partial(self._hear, self._attempt, index),
            open_store=lambda _, __: self._store,
            clock=self._clock,
            calls=self._calls,
            stopwatch=self._clock,
        )
        return Worker(index, self._attempt, self._graph, "", ports)

    def _hear(self, attempt: Attempt, index: WorkerIndex, message: ToJobManager) -> None:
        self.events.append(p.Received(attempt, index, message))


class InProcessLoop:
    """Steps the workers and the performer in turn until the JobManager ends. `executor` is the performer's. Without
    `requests`, nobody can ask anything of the job."""

    def __init__(
        self,
        performer: JobManagerPerformer,
        cluster: InProcessCluster,
        executor: InlineExecutor,
        requests: RequestServer | None = None,
    ) -> None:
        self._requests = requests
        self._performer = performer
        self._cluster = cluster
        self._executor = executor
        self._wake_up = WakeUp()
        cluster.wake = self._wake_up.set
        self._is_stop_wanted = False
        self._status_at = 0.0

    def run(self) -> None:
        """As `LocalLoop.run`. The second Ctrl-C also breaks into user code that does not return."""
        try:
            with stop_signals(self._stop, self._wake_up):
                self._performer.start()
                while not self._performer.is_done:
                    self._round()
            while self._performer.is_cleaning_up and self._executor.drain():
                pass
            self._performer.show_status()
        except SystemExit as error:
            raise_failure(failure_of_exit(error))
        finally:
            self._cluster.close()
            self._wake_up.close()

    def _stop(self) -> None:
        self._is_stop_wanted = True

    def _round(self) -> None:
        worked, wake_at = self._cluster.step()
        worked = self._executor.drain() or worked
        while self._cluster.events:
            worked = True
            self._performer.deliver(self._cluster.events.popleft())
        for request in self._requests.step() if self._requests is not None else ():
            worked = True
            self._performer.deliver(request)
        self._performer.wake()
        if self._is_stop_wanted:
            self._is_stop_wanted = False
            self._performer.deliver(p.StopWanted())
            worked = True
        if time.monotonic() >= self._status_at:
            self._status_at = time.monotonic() + STATUS_SECONDS
            self._performer.show_status()
        if not worked and not self._performer.is_done:
            self._wait(wake_at)

    def _wait(self, wake_at: float | None) -> None:
        """Until something is due; nothing comes from outside but signals and requests."""
        deadlines = [at for at in (wake_at, self._performer.wake_at, self._status_at) if at is not None]
        seconds = max(0.0, min(deadlines, default=math.inf) - time.monotonic())
        sources = (self._wake_up, self._requests)
        select.select([source.fileno() for source in sources if source is not None], [], [], seconds)
        self._wake_up.clear()
