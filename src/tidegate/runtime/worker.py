"""A worker without its loop: makes the tasks that it is told to, steps them, and carries control messages to them.

Whoever owns the loop (a process, one thread for all workers, the simulated world) gives it messages and frames, steps
it, and waits when a step did nothing. It holds no thread, no clock and no socket of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.protocol import CheckpointAbandoned, CheckpointCompleted, TriggerCheckpoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import Clock
from tidegate.errors import InternalError, InvalidError, failure_of, place
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import build_physical, worker_of
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, TaskId, WorkerIndex
from tidegate.runtime.building import Channels, TaskBuilder, TaskPorts
from tidegate.runtime.channels import Exchange
from tidegate.runtime.control import (
    AlignWatermarks,
    AssignSplits,
    Deploy,
    Drain,
    StopWorker,
    TaskFailed,
    ToJobManager,
    ToWorker,
    WorkerMetrics,
    WorkerReady,
)
from tidegate.runtime.local_copies import LocalCopies, local_copies
from tidegate.runtime.pacing import earliest
from tidegate.runtime.ports import AsyncCalls, Executor
from tidegate.runtime.state_backends import state_backends
from tidegate.runtime.task import Progress, Task

METRICS_INTERVAL = 0.5
"""Seconds between two reports of record counts."""


@dataclass(frozen=True)
class WorkerPorts:
    """What a worker needs from outside."""

    executor: Executor
    send_data: Callable[[WorkerIndex, bytes], None]
    """A frame to a peer worker of the same attempt: in order and without loss, or the attempt must fail."""
    send_control: Callable[[ToJobManager], None]
    """To the JobManager, once and in order."""
    open_store: Callable[[str, JobName], CheckpointStore]
    clock: Clock
    calls: AsyncCalls | None = None
    """Who makes the calls of asynchronous operators; needed by programs that have some."""
    stopwatch: Clock | None = None
    """By which operators are timed. None where nobody wants to know what tasks do with their time: in a simulated world
    each look at a clock, and each report, takes time itself."""


class Worker:
    """Worker `index` of one attempt."""

    def __init__(
        self, index: WorkerIndex, attempt: Attempt, graph: LogicalGraph, data_address: str, ports: WorkerPorts
    ) -> None:
        self._index = index
        self._attempt = attempt
        self._graph = graph
        self._data_address = data_address
        self._ports = ports
        self._tasks: dict[TaskId, Task] = {}
        self._exchange: Exchange | None = None
        self._tidy: Callable[[], None] | None = None
        """Removes what earlier attempts left on this machine; None when there is nothing to be done any more."""
        self._copies: LocalCopies | None = None
        self.is_open = False
        """All tasks are restored and open, and may step."""
        self._metrics_at = 0.0
        self._last_metrics: WorkerMetrics | None = None
        self.is_stopped = False
        """`StopWorker` was carried out: the process may exit."""

    def start(self) -> None:
        """The program is imported."""
        fingerprint = self._graph.fingerprint()
        self._ports.send_control(WorkerReady(self._index, self._attempt, fingerprint, self._data_address))

    def receive(self, message: ToWorker) -> None:
        """A control message. A task that cannot carry it out fails."""
        match message:
            case Deploy():
                self._guard(lambda: self._deploy(message))
            case AssignSplits(_, task, splits, no_more):
                self._guard(lambda: self._for(self._task(task), lambda t: t.assign(splits, no_more)))
            case AlignWatermarks(task, bound):
                self._guard(lambda: self._for(self._task(task), lambda t: t.align(bound)))
            case TriggerCheckpoint(checkpoint):
                self._for_all(lambda t: t.trigger(checkpoint))
            case Drain():
                self._for_all(lambda t: t.drain(message))
            case CheckpointCompleted():
                self._for_all(lambda t: t.completed(message))
                # So that the counts of a job that ends with this checkpoint are whole.
                self._metrics_at = 0.0
                self._tidy_once()
                self._tidy_copies(message.checkpoint)
            case CheckpointAbandoned():
                self._for_all(lambda t: t.abandoned(message))
            case StopWorker():
                self._send_metrics()
                self.close()
                self.is_stopped = True

    def receive_frame(self, frame: bytes) -> None:
        """A frame of a peer. Not before `Deploy` came: whoever owns the loop keeps what a peer sends earlier."""
        exchange = self._exchange
        if exchange is not None and not self._guard(lambda: exchange.receive(frame)):
            # Every frame behind a lost one would fail, too; the attempt is over, and that is said once.
            self._exchange = None

    def step(self) -> Progress:
        """One step of each task."""
        steps = [task.step() for task in self._tasks.values()]
        self._report()
        return Progress(
            any(step.worked for step in steps),
            earliest(*(step.wake_at for step in steps)),
            earliest(*(step.due_at for step in steps)),
            earliest(*(step.patient_at for step in steps)),
            tuple(descriptor for step in steps for descriptor in step.watched),
        )

    def arrived(self) -> None:
        """Something became readable that the last step's progress names."""
        for task in self._tasks.values():
            task.arrived()

    def close(self) -> None:
        """Let go of everything; open transactions stay as they are."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            # What raises is told; it must not keep the others open, nor look like the failure of what is done.
            self._guard(task.close)

    # -- deploying --

    def _deploy(self, deploy: Deploy) -> None:
        physical = build_physical(self._graph, deploy.parallelism, deploy.max_parallelism)
        store = self._ports.open_store(deploy.storage, deploy.job)
        outside = self._ports
        ports = TaskPorts(
            outside.executor,
            outside.clock,
            store,
            outside.send_data,
            outside.send_control,
            outside.calls,
            outside.stopwatch,
        )
        channels = Channels(self._index, physical, deploy, ports)
        backends = state_backends(deploy)
        self._copies = local_copies(deploy)
        builder = TaskBuilder(self._graph, physical, deploy, channels, ports, backends, self._copies)
        self._tidy = backends.tidy
        self._tasks = {id: builder.build(id) for id in physical.tasks if worker_of(id) == self._index}
        self._exchange = channels.exchange
        tasks = tuple(self._tasks.values())

        def restore() -> None:
            for task in tasks:
                task.state.restore(deploy.restored)

        self._ports.executor.submit("restore", restore, lambda _, error: self._restored(deploy, error))

    def _restored(self, deploy: Deploy, error: BaseException | None) -> None:
        def open_all() -> None:
            if error is not None:
                raise error
            for task in self._tasks.values():
                task.open()
                if not deploy.options.allow_non_restored_state:
                    for name, states in task.state.unclaimed.items():
                        self._refuse_unclaimed(name, states)
            self.is_open = True

        # Stopped meanwhile, nobody is there to claim what was read.
        if self._tasks:
            self._guard(open_all)

    def _refuse_unclaimed(self, name: OperatorName, states: tuple[str, ...]) -> None:
        raise InvalidError(
            f"the checkpoint has state {', '.join(states)} of operator {name}, which the program does not declare",
            remedy="Declare it again, or drop it with --allow-non-restored-state.",
            where=place(name, self._index, self._attempt),
        )

    def _tidy_once(self) -> None:
        """A checkpoint has completed: no task of this attempt, in whatever worker, restores any more."""
        tidy, self._tidy = self._tidy, None
        if tidy is not None:
            # What cannot be removed now is tried again by the next attempt.
            self._ports.executor.submit("tidy", tidy, lambda _, __: None)

    def _tidy_copies(self, completed: CheckpointId) -> None:
        copies = self._copies
        if copies is not None:
            self._ports.executor.submit("tidy", lambda: copies.tidy(completed), lambda _, __: None)

    # -- failures --

    def _task(self, id: TaskId) -> Task:
        if id not in self._tasks:
            raise InternalError(f"a message came for task {id}, which does not run here")
        return self._tasks[id]

    def _for_all(self, act: Callable[[Task], None]) -> None:
        for task in self._tasks.values():
            self._for(task, act)

    def _for(self, task: Task, act: Callable[[Task], None]) -> None:
        if task.failure is not None:
            return
        try:
            act(task)
        except Exception as error:
            task.fail(failure_of(error))

    def _guard(self, act: Callable[[], None]) -> bool:
        """What fails here ends the attempt, without a task to blame. False when it failed."""
        try:
            act()
            return True
        except Exception as error:
            failure = failure_of(error)
            where = failure.where or f"worker {self._index}, {place(attempt=self._attempt)}"
            self._ports.send_control(TaskFailed(None, msgspec.structs.replace(failure, where=where)))
            return False

    # -- metrics --

    def _report(self) -> None:
        now = self._ports.clock.now().monotonic
        if now < self._metrics_at or not self._tasks:
            return
        self._metrics_at = now + METRICS_INTERVAL
        self._send_metrics()

    def _send_metrics(self) -> None:
        tasks = self._tasks.values()
        times = () if self._ports.stopwatch is None else tuple(task.busyness.times() for task in tasks)
        metrics = WorkerMetrics(tuple(row for task in tasks for row in task.metrics()), times)
        last, self._last_metrics = self._last_metrics, metrics
        if last is None or not metrics.says_the_same(last):
            self._ports.send_control(metrics)
