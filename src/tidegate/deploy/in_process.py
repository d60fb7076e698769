"""The whole job in this process and this thread: for notebooks, debuggers and tests.

The same JobManager and the same workers as with processes, stepped in turn; wires are queues, blocking work runs between
two steps. A failure restarts the attempt as always; only a death of the process cannot be survived by the process.
"""

import time
from collections import deque

from tidegate.checkpoint.log import ProcessRecord, Takeover
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import Clock
from tidegate.deploy.executor import InlineExecutor
from tidegate.deploy.local import stop_signals
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime.control import ToJobManager, ToWorker
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.scheduling import protocol as p
from tidegate.scheduling.performer import JobManagerPerformer

LONGEST_WAIT = 0.05
"""Seconds."""


class InProcessCluster:
    """Workers as objects. See `scheduling.performer.Cluster`."""

    def __init__(self, graph: LogicalGraph, store: CheckpointStore, executor: InlineExecutor, clock: Clock) -> None:
        self._graph = graph
        self._store = store
        self._executor = executor
        self._clock = clock
        self._workers: dict[WorkerIndex, Worker] = {}
        self._attempt = Attempt(0)
        self._to_workers: deque[tuple[Attempt, WorkerIndex, ToWorker]] = deque()
        self._frames: deque[tuple[Attempt, WorkerIndex, bytes]] = deque()
        self.events: deque[p.Event] = deque()

    def spawn(self, attempt: Attempt, count: int) -> None:
        self._attempt = attempt
        self._workers = {WorkerIndex(i): self._worker(attempt, WorkerIndex(i)) for i in range(count)}
        self.events.append(p.WorkersSpawned(attempt, tuple(ProcessRecord(0, 0) for _ in range(count)), ""))
        for worker in self._workers.values():
            worker.start()

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        self._to_workers.append((attempt, worker, message))

    def end(self, attempt: Attempt, grace: float) -> None:
        self._carry()
        for worker in self._workers.values():
            worker.close()
        self._workers = {}
        self.events.append(p.WorkersGone(attempt))

    def end_recorded(self, takeover: Takeover) -> None:
        """There are none: they were objects of a process that is gone."""
        self.events.append(p.OldWorkersEnded())

    def step(self) -> tuple[bool, float | None]:
        """One step of each worker; whether anything was done, and when there will be something to do."""
        worked = self._carry()
        wake_at: list[float] = []
        for worker in list(self._workers.values()):
            progress = worker.step()
            worked = worked or progress.worked
            if progress.wake_at is not None:
                wake_at.append(progress.wake_at)
        return worked, min(wake_at, default=None)

    def _carry(self) -> bool:
        carried = bool(self._to_workers or self._frames)
        while self._to_workers:
            attempt, index, message = self._to_workers.popleft()
            if attempt == self._attempt and index in self._workers:
                self._workers[index].receive(message)
        while self._frames:
            attempt, index, frame = self._frames.popleft()
            if attempt == self._attempt and index in self._workers:
                self._workers[index].receive_frame(frame)
        return carried

    def _worker(self, attempt: Attempt, index: WorkerIndex) -> Worker:
        def to_job_manager(message: ToJobManager) -> None:
            self.events.append(p.Received(attempt, index, message))

        ports = WorkerPorts(
            executor=self._executor,
            send_data=lambda target, frame: self._frames.append((attempt, target, frame)),
            send_control=to_job_manager,
            open_store=lambda _, __: self._store,
            clock=self._clock,
        )
        return Worker(index, attempt, self._graph, "", ports)


def run_in_process(performer: JobManagerPerformer, cluster: InProcessCluster, executor: InlineExecutor) -> None:
    """Until the JobManager ends. Ctrl-C stops cleanly."""
    stops: list[bool] = []
    with stop_signals(lambda: stops.append(True)):
        performer.start()
        while not performer.is_done:
            worked, wake_at = cluster.step()
            worked = executor.drain() or worked
            worked = bool(cluster.events) or worked
            while cluster.events:
                performer.deliver(cluster.events.popleft())
            performer.wake()
            if len(stops) > 1:
                raise KeyboardInterrupt
            if stops:
                performer.deliver(p.StopWanted())
                stops.clear()
            if not worked and not performer.is_done:
                _wait(wake_at, performer.wake_at)


def _wait(*deadlines: float | None) -> None:
    seconds = min((at for at in deadlines if at is not None), default=time.monotonic() + LONGEST_WAIT) - time.monotonic()
    time.sleep(min(max(seconds, 0.0005), LONGEST_WAIT))
