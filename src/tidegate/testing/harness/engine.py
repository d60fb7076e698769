"""The engine under a harness: the real JobManager and the real workers of one start of a job, stepped in one thread.

A crash is forgetting all of it; what outlives it is the storage, the sinks and the feed, which are handed in. Time is a
clock that stands still until it is moved. Nothing here decides; it carries what is on the wires to whom it is for.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.checkpoint.log import ProcessRecord, Takeover
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import Clock, Now
from tidegate.config.restart import RestartNone
from tidegate.errors import Failure, InternalError
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import build_physical
from tidegate.ids import Attempt, LogInstance, WorkerIndex
from tidegate.metrics import JobStatus, Level
from tidegate.runtime.control import AssignSplits, RuntimeOptions, ToJobManager, ToWorker
from tidegate.runtime.task import Progress
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.performer import JobManagerPerformer
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings
from tidegate.testing.harness.calls import HarnessCalls

NEVER = math.inf
ROUNDING = 1e-3
"""Milliseconds by which sums of seconds may be wrong."""
MOST_ROUNDS = 100_000
"""After so many a job that still finds something to do will never come to rest."""


class HarnessClock:
    """Processing time, in whole milliseconds since 1970. It never goes back."""

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds
        self._begun = milliseconds

    def now(self) -> Now:
        return Now((self.milliseconds - self._begun) / 1000, self.milliseconds / 1000)

    def milliseconds_at(self, monotonic: float) -> int:
        """When it shows that, or is past it: rounded up, but for what is an error of rounding itself."""
        exact = monotonic * 1000
        nearest = round(exact)
        return self._begun + (nearest if abs(exact - nearest) < ROUNDING else math.ceil(exact))


class HarnessExecutor:
    """Runs side work between two steps, in the order in which it was submitted."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._waiting.append((work, done))

    def drain(self) -> bool:
        """Do what waits now. False when there was nothing."""
        count = len(self._waiting)
        for _ in range(count):
            work, done = self._waiting.popleft()
            try:
                result = work()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)
        return count > 0


class HarnessCluster:
    """The workers of one start. See `scheduling.performer.Cluster`. `assigned` is told of each split that a source's
    task is given."""

    def __init__(
        self, graph: LogicalGraph, store: CheckpointStore, clock: Clock, assigned: Callable[[AssignSplits], None]
    ) -> None:
        self._graph = graph
        self._store = store
        self._clock = clock
        self._assigned = assigned
        self._executor = HarnessExecutor()
        self._calls = HarnessCalls(clock)
        self._workers: dict[WorkerIndex, Worker] = {}
        self._attempt = Attempt(0)
        self._frames: deque[tuple[WorkerIndex, bytes]] = deque()
        self.events: deque[p.Event] = deque()
        self.due_at: float | None = None
        """When the workers will have something to do although nothing comes, as of the last step."""

    def spawn(self, attempt: Attempt, count: int) -> None:
        self._attempt = attempt
        self._workers = {WorkerIndex(i): self._worker(WorkerIndex(i)) for i in range(count)}
        self.events.append(p.WorkersSpawned(attempt, (), ""))
        for worker in self._workers.values():
            worker.start()

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        if isinstance(message, AssignSplits):
            self._assigned(message)
        self.tell(worker, message)

    def tell(self, worker: WorkerIndex, message: ToWorker) -> None:
        self._workers[worker].receive(message)

    def end(self, attempt: Attempt, grace: float) -> None:
        for worker in self._workers.values():
            worker.close()
        self.drop()
        self.events.append(p.WorkersGone(attempt))

    def drop(self) -> None:
        """Nothing of the workers goes on."""
        self._workers = {}
        self._calls.close()

    def end_recorded(self, takeover: Takeover) -> None:
        self.events.append(p.OldWorkersEnded())

    def step(self) -> bool:
        """One step of each worker. False when nothing was done."""
        worked = bool(self._frames)
        while self._frames:
            index, frame = self._frames.popleft()
            self._workers[index].receive_frame(frame)
        steps: list[Progress] = [worker.step() for worker in self._workers.values()]
        worked = self._calls.step() or any(step.worked for step in steps) or worked
        due = [self._calls.due_at, *(step.due_at for step in steps)]
        self.due_at = min((at for at in due if at is not None), default=None)
        return self._executor.drain() or worked

    def _worker(self, index: WorkerIndex) -> Worker:
        ports = WorkerPorts(
            executor=self._executor,
            send_data=lambda target, frame: self._frames.append((target, frame)),
            send_control=partial(self._hear, self._attempt, index),
            open_store=lambda _, __: self._store,
            clock=self._clock,
            calls=self._calls,
        )
        return Worker(index, self._attempt, self._graph, "", ports)

    def _hear(self, attempt: Attempt, index: WorkerIndex, message: ToJobManager) -> None:
        self.events.append(p.Received(attempt, index, message))


class HarnessReporter:
    """Keeps the last warning, for errors that say why."""

    def __init__(self) -> None:
        self.warning = ""

    def update(self, status: JobStatus) -> None:
        """Nobody watches."""

    def event(self, level: Level, text: str, **fields: object) -> None:
        if level != "info":
            self.warning = text

    def close(self) -> None:
        """Nothing more will come."""


class Engine:
    """One start of a job, of which `number` tells it from others. It runs from `start` on until the job has ended, it
    has failed, or the engine is forgotten."""

    def __init__(
        self,
        graph: LogicalGraph,
        parallelism: int,
        max_parallelism: int,
        options: RuntimeOptions,
        store: CheckpointStore,
        clock: HarnessClock,
        number: int,
        assigned: Callable[[AssignSplits], None],
    ) -> None:
        self._clock = clock
        self._cluster = HarnessCluster(graph, store, clock, assigned)
        self._executor = HarnessExecutor()
        self._reporter = HarnessReporter()
        settings = JobSettings(
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            checkpoints=CoordinatorSettings(interval=NEVER, timeout=NEVER, min_pause=0.0, tolerable_failures=0),
            retained=2,
            restart=RestartNone(),
            runtime=options,
            storage=store.storage.location,
            allow_non_restored_state=options.allow_non_restored_state,
        )
        identity = JobManagerIdentity(
            f"start-{number}", LogInstance(f"log-{number}"), "harness", ProcessRecord(number, 0)
        )
        physical = build_physical(graph, parallelism, max_parallelism)
        self._sources = [
            (WorkerIndex(task.subtask), AssignSplits(vertex.operators[0], task, (), no_more=False))
            for vertex in physical.vertices
            if not physical.inputs(vertex.name)
            for task in vertex.tasks
        ]
        manager = JobManager(graph, physical, settings, identity, lambda: 0.0)
        self._performer = JobManagerPerformer(
            manager, graph, self._cluster, store, self._executor, clock, self._reporter
        )

    @property
    def is_running(self) -> bool:
        return self._performer.manager.phase is Phase.RUNNING

    @property
    def is_done(self) -> bool:
        """Whether the job has finished, or failed."""
        return self._performer.is_done

    @property
    def failure(self) -> Failure | None:
        return self._performer.failure

    @property
    def checkpoint(self) -> int:
        """The newest that this start has completed, 0 for none."""
        status = self._performer.manager.status(self._clock.now()).checkpoint
        return status.id if status is not None else 0

    @property
    def warning(self) -> str:
        """The last that was told."""
        return self._reporter.warning

    def start(self) -> None:
        self._performer.start()
        self.settle()

    def deliver(self, event: p.Event) -> None:
        self._performer.deliver(event)
        self.settle()

    def look_again(self) -> None:
        """There may be something to read."""
        for worker, message in self._sources:
            self._cluster.tell(worker, message)
        self.settle()

    def settle(self) -> None:
        """Until nothing happens any more without time. A step may only find out what the next one does."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            quiet = 0 if self._round() else quiet + 1
            if quiet == 2 or self.is_done:
                return
        raise InternalError(
            "the job does not come to rest although time stands still",
            remedy="Look for a timer that registers another one for the same moment.",
        )

    def advance(self, milliseconds: int) -> None:
        """Let the clock go on to this time; it stops whenever something is due."""
        while not self.is_done and (due := self._next_due()) is not None and due <= milliseconds:
            self._clock.milliseconds = due
            self.settle()
        self._clock.milliseconds = milliseconds
        self.settle()

    def _next_due(self) -> int | None:
        now = self._clock.milliseconds
        found = [at for at in (self._cluster.due_at, self._performer.wake_at) if at is not None and at != NEVER]
        return min((due for due in map(self._clock.milliseconds_at, found) if due > now), default=None)

    def _round(self) -> bool:
        worked = self._cluster.step()
        worked = self._executor.drain() or worked
        while self._cluster.events:
            worked = True
            self._performer.deliver(self._cluster.events.popleft())
        self._performer.wake()
        return worked

    def close(self) -> None:
        """Let go of everything, in good order."""
        self._cluster.end(Attempt(0), 0.0)
        self._performer.close()

    def kill(self) -> None:
        """Let go of everything as it is."""
        self._cluster.drop()
