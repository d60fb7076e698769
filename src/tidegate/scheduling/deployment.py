"""One attempt, from recovery on: deploys the tasks, hands out splits, runs the checkpoint coordinator. Pure, like its
owner.

Checkpoints begin only when every task runs and every source has been looked at once: a checkpoint that knew no splits
yet would, restored, be taken for that of a source without any.

A source that begins at its end, as "latest" does, is read only when a checkpoint has the offsets at which it begins:
the next attempt would take another end for the beginning, and pass over what came in between.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint import coordinator as checkpoints
from tidegate.checkpoint.coordinator import Coordinator
from tidegate.checkpoint.manifest import Manifest, SinkRecord, SinkTarget
from tidegate.checkpoint.plan import CheckpointPlan, PlannedOperator
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    CommitsReported,
    Decline,
    SplitState,
    TriggerCheckpoint,
)
from tidegate.checkpoint.recovery import PATIENCE
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure, place
from tidegate.graph.logical import Fingerprint, LogicalGraph, LogicalNode
from tidegate.graph.partitioned import split_places
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import Attempt, CheckpointId, LogInstance, OperatorName, TaskId, VertexName, WorkerIndex
from tidegate.operators.contracts import starts_at_end
from tidegate.runtime.control import (
    AlignWatermarks,
    AssignSplits,
    Deploy,
    Drain,
    TaskEnded,
    TaskFailed,
    TaskRunning,
    ToJobManager,
    ToWorker,
    WatermarkReported,
    WorkerReady,
)
from tidegate.scheduling.alignment import SourceAlignment
from tidegate.scheduling.enumerator import SplitEnumerator
from tidegate.scheduling.protocol import (
    Command,
    Discover,
    DiscoveryFailed,
    Received,
    SendToWorker,
    SplitsFound,
    Tell,
    WakeAt,
)
from tidegate.scheduling.restore import restored_for
from tidegate.scheduling.settings import JobSettings
from tidegate.scheduling.waiting import Wait

DISCOVERY_RETRY = 1.0
"""Seconds between two first looks at a source that does not answer."""


class AttemptFailed(msgspec.Struct, frozen=True):
    """To the owner: the attempt is over."""

    failure: Failure


class AllTasksRun(msgspec.Struct, frozen=True):
    """To the owner: the attempt is healthy from now on."""


Outcome = (
    Command
    | AttemptFailed
    | AllTasksRun
    | checkpoints.AppendManifest
    | checkpoints.CheckpointSettled
    | checkpoints.AllCommitted
)
"""What a deployment asks its owner for: commands to pass on, and decisions about the log and the attempt."""


class Deployment:
    """The tasks of one attempt. `manifest` is what it restores."""

    def __init__(
        self,
        graph: LogicalGraph,
        physical: PhysicalGraph,
        settings: JobSettings,
        instance: LogInstance,
        attempt: Attempt,
        fingerprint: Fingerprint,
    ) -> None:
        self._graph = graph
        self._physical = physical
        self._settings = settings
        self._instance = instance
        self.attempt = attempt
        self._fingerprint = fingerprint
        self._addresses: dict[WorkerIndex, str] = {}
        self._is_recovered = False
        self._manifest: Manifest | None = None
        self._highest = CheckpointId(0)
        self._running: set[TaskId] = set()
        self._ended: set[TaskId] = set()
        self._enumerators: dict[OperatorName, SplitEnumerator] = {}
        self._undiscovered: dict[OperatorName, Wait] = {}
        """Sources that nobody has looked at yet."""
        self._discover_at: dict[OperatorName, float] = {}
        self._unpinned: frozenset[OperatorName] = frozenset()
        """Sources whose splits wait until a checkpoint has the positions at which they begin."""
        self._coordinator: Coordinator | None = None
        self._alignment = SourceAlignment(graph, physical)
        self._has_begun = False
        self.is_drained = False
        """Whether its sources were told that their inputs end."""

    @property
    def is_settled(self) -> bool:
        """Whether no completed checkpoint has a commit under way."""
        return self._coordinator is None or self._coordinator.is_settled

    @property
    def highest_checkpoint(self) -> CheckpointId:
        """The highest id used so far."""
        return self._coordinator.last if self._coordinator else self._highest

    # -- deploying --

    def recovered(self, manifest: Manifest | None, highest: CheckpointId) -> list[Outcome]:
        """Transactions are settled: state may be restored. `highest`: the highest checkpoint id ever used."""
        self._is_recovered = True
        self._manifest = manifest
        self._highest = highest
        return self._deploy()

    def _deploy(self) -> list[Outcome]:
        if not self._is_recovered or len(self._addresses) < self._physical.workers:
            return []
        self._enumerators = {node.name: self._enumerator(node) for node in self._graph.sources}
        self._unpinned = frozenset(node.name for node in self._graph.sources if self._begins_at_end(node))
        self._coordinator = Coordinator(
            self._settings.checkpoints,
            self._plan(),
            self._enumerators,
            self._highest,
            goes_on=self._manifest is not None,
        )
        peers = tuple(self._addresses[worker] for worker in sorted(self._addresses))
        return [self._send(worker, self._deploy_message(worker, peers)) for worker in sorted(self._addresses)]

    def _deploy_message(self, worker: WorkerIndex, peers: tuple[str, ...]) -> Deploy:
        manifest = self._manifest
        return Deploy(
            job=self._graph.job,
            attempt=self.attempt,
            instance=self._instance,
            parallelism=self._settings.parallelism,
            max_parallelism=self._settings.max_parallelism,
            restored=restored_for(manifest, self._physical, worker) if manifest else (),
            peers=peers,
            options=msgspec.structs.replace(
                self._settings.runtime, allow_non_restored_state=self._settings.allow_non_restored_state
            ),
            storage=self._settings.storage,
            last_checkpoint=self._highest,
        )

    def _enumerator(self, node: LogicalNode) -> SplitEnumerator:
        assert node.source is not None
        record = self._manifest.operator(node.name) if self._manifest else None
        parallelism = self._vertex_parallelism(node.name)
        # With one subtask a key is right wherever it is: so a topic that has grown can be gone on with and left.
        is_placed = parallelism > 1 or self._manifest is None
        return SplitEnumerator(
            node.name,
            parallelism=parallelism,
            restored=record.splits if record else None,
            rediscovers=node.source.discovery_interval is not None and not node.source.bounded,
            bounded=node.source.bounded,
            places=split_places(self._graph, node, self._physical.max_parallelism) if is_placed else None,
        )

    def _begins_at_end(self, node: LogicalNode) -> bool:
        has_begun = self._manifest is not None and self._manifest.operator(node.name) is not None
        return node.source is not None and starts_at_end(node.source) and not has_begun

    def _plan(self) -> CheckpointPlan:
        records = {target.sink: target.record for target in sink_targets(self._graph)}
        operators = tuple(
            PlannedOperator(
                node.name,
                self._vertex_parallelism(node.name),
                records.get(node.name),
                None if node.source is None else node.source.inspection_spec,
            )
            for node in self._graph.nodes
        )
        return CheckpointPlan(
            job=self._graph.job,
            instance=self._instance,
            attempt=self.attempt,
            parallelism=self._settings.parallelism,
            max_parallelism=self._settings.max_parallelism,
            operators=operators,
            tasks=frozenset(self._physical.tasks),
        )

    def _vertex_parallelism(self, operator: OperatorName) -> int:
        return next(vertex.parallelism for vertex in self._physical.vertices if operator in vertex.operators)

    # -- events --

    def handle(self, event: Received | SplitsFound | DiscoveryFailed, now: Now) -> list[Outcome]:
        match event:
            case Received(_, worker, message):
                return self.received(worker, message, now)
            case SplitsFound(_, operator, splits):
                return self.discovered(operator, splits, now)
            case DiscoveryFailed(_, operator, failure):
                return self.discovery_failed(operator, failure, now)

    def received(self, worker: WorkerIndex, message: ToJobManager, now: Now) -> list[Outcome]:
        match message:
            case WorkerReady():
                return self._worker_ready(worker, message)
            case TaskRunning(task) if task not in self._running:
                self._running.add(task)
                return self._all_running(now) if len(self._running) == len(self._physical.tasks) else []
            case TaskEnded(task) if task not in self._ended:
                self._ended.add(task)
                has_all = len(self._ended) == len(self._physical.tasks)
                over = self.coordinate(checkpoints.AllTasksEnded(), now) if has_all else []
                return self._send_bounds(self._alignment.ended(task)) + over
            case TaskFailed(_, failure):
                return [AttemptFailed(failure)]
            case Acknowledge() | Decline() | CommitsReported():
                return self.coordinate(message, now)
            case WatermarkReported():
                return self._send_bounds(self._alignment.reported(message))
            case _:
                return []

    def _worker_ready(self, worker: WorkerIndex, message: WorkerReady) -> list[Outcome]:
        if message.fingerprint != self._fingerprint:
            return [AttemptFailed(_other_program(self._fingerprint, message.fingerprint))]
        self._addresses[worker] = message.data_address
        return self._deploy()

    def _all_running(self, now: Now) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for name, enumerator in self._enumerators.items():
            if enumerator.needs_discovery:
                wait = self._undiscovered[name] = Wait(f"the splits of source {name}", now)
                outcomes += [Discover(self.attempt, name, enumerator.known), wait.next]
            elif (failure := enumerator.failure) is not None:
                return [AttemptFailed(failure)]
            else:
                outcomes += self._assign(enumerator)
        # Last: what the owner asks for now goes to the sources behind the splits that they have been given.
        return [*outcomes, *self._begin_checkpoints(now), AllTasksRun()]

    # -- splits --

    def discovered(self, operator: OperatorName, splits: Sequence[SplitState], now: Now) -> list[Outcome]:
        enumerator = self._enumerators[operator]
        enumerator.discovered(splits)
        if (failure := enumerator.failure) is not None:
            return [AttemptFailed(failure)]
        self._undiscovered.pop(operator, None)
        return [*self._assign(enumerator), *self._look_again(operator, now), *self._begin_checkpoints(now)]

    def discovery_failed(self, operator: OperatorName, failure: Failure, now: Now) -> list[Outcome]:
        wait = self._undiscovered.get(operator)
        is_over = wait is not None and wait.seconds(now) >= PATIENCE
        if is_over or failure.kind is not ErrorKind.UNAVAILABLE:
            where = failure.where or place(operator, attempt=self.attempt)
            return [AttemptFailed(msgspec.structs.replace(failure, where=where))]
        if wait is not None:
            wait.failed(failure.message)
            self._discover_at[operator] = now.monotonic + DISCOVERY_RETRY
            return [WakeAt(self._discover_at[operator])]
        # A later look may fail without harm: what is not found now is found by the next one, from its beginning.
        text = f"source {operator} could not be looked at for new splits: {failure.message}"
        return [Tell("warning", text), *self._look_again(operator, now)]

    def _look_again(self, operator: OperatorName, now: Now) -> list[Outcome]:
        source = self._graph.node(operator).source
        if source is None or source.bounded or source.discovery_interval is None:
            return []
        self._discover_at[operator] = now.monotonic + source.discovery_interval
        return [WakeAt(self._discover_at[operator])]

    def _assign(self, enumerator: SplitEnumerator) -> list[Outcome]:
        name = enumerator.operator
        if name in self._unpinned:
            return []
        vertex = VertexName(next(v.name for v in self._physical.vertices if name in v.operators))
        return [
            self._send(WorkerIndex(a.subtask), AssignSplits(name, TaskId(vertex, a.subtask), a.splits, a.no_more))
            for a in enumerator.assign()
        ]

    def _assign_pinned(self) -> list[Outcome]:
        """A checkpoint is complete: it has every split that waited for it. Inputs that were ended meanwhile stay so."""
        if self.is_drained:
            return []
        waited = [enumerator for name, enumerator in self._enumerators.items() if name in self._unpinned]
        self._unpinned = frozenset()
        return [out for enumerator in waited for out in self._assign(enumerator)]

    # -- checkpoints --

    def _begin_checkpoints(self, now: Now) -> list[Outcome]:
        if self._has_begun or self._undiscovered or len(self._running) < len(self._physical.tasks):
            return []
        self._has_begun = True
        begun = self.coordinate(checkpoints.TasksRunning(), now)
        return begun + (self.coordinate(checkpoints.TriggerNow(), now) if self._unpinned else [])

    def wake(self, now: Now) -> list[Outcome]:
        outcomes: list[Outcome] = [told for wait in self._undiscovered.values() for told in wait.told(now)]
        for operator in [name for name, at in self._discover_at.items() if now.monotonic >= at]:
            del self._discover_at[operator]
            outcomes.append(Discover(self.attempt, operator, self._enumerators[operator].known))
        return outcomes + self.coordinate(checkpoints.Wake(), now)

    def drain(self, now: Now) -> list[Outcome]:
        """End every input where it is, once; the checkpoint behind the end is the last."""
        if self.is_drained:
            return []
        self.is_drained = True
        return [*self.coordinate(checkpoints.Drained(), now), *self._send_to_sources(Drain())]

    def coordinate(self, event: checkpoints.Event, now: Now) -> list[Outcome]:
        """Pass an event to the coordinator, and its commands on."""
        if self._coordinator is None:
            return []
        return [out for command in self._coordinator.handle(event, now) for out in self._translate(command)]

    def _translate(self, command: checkpoints.Command) -> list[Outcome]:
        match command:
            case checkpoints.Trigger(checkpoint):
                return self._send_to_sources(TriggerCheckpoint(checkpoint))
            case checkpoints.NotifyCompleted(checkpoint):
                return self._send_all(CheckpointCompleted(self.attempt, checkpoint)) + self._assign_pinned()
            case checkpoints.NotifyAbandoned(checkpoint, reason):
                told = Tell("warning", f"checkpoint {checkpoint} is abandoned: {reason}", {"checkpoint": checkpoint})
                return [told, *self._send_all(CheckpointAbandoned(checkpoint))]
            case checkpoints.FailAttempt(failure):
                return [AttemptFailed(failure)]
            case checkpoints.WakeAt(at):
                return [WakeAt(at)]
            case _:
                return [command]

    def _send_to_sources(self, message: ToWorker) -> list[Outcome]:
        sources = {vertex.name for vertex in self._physical.vertices if not self._physical.inputs(vertex.name)}
        workers = sorted({task.subtask for task in self._physical.tasks if task.vertex in sources})
        return [self._send(WorkerIndex(worker), message) for worker in workers]

    def _send_bounds(self, bounds: Sequence[AlignWatermarks]) -> list[Outcome]:
        return [self._send(WorkerIndex(bound.task.subtask), bound) for bound in bounds]

    def _send_all(self, message: ToWorker) -> list[Outcome]:
        return [self._send(worker, message) for worker in sorted(self._addresses)]

    def _send(self, worker: WorkerIndex, message: ToWorker) -> SendToWorker:
        return SendToWorker(self.attempt, worker, message)


def sink_targets(graph: LogicalGraph) -> tuple[SinkTarget, ...]:
    """The program's sinks, as recovery and manifests need them."""
    return tuple(
        SinkTarget(node.name, SinkRecord(node.sink.transaction_prefix or graph.job, node.sink.recovery_spec))
        for node in graph.sinks
        if node.sink is not None
    )


def _other_program(own: Fingerprint, other: Fingerprint) -> Failure:
    differing = [f"  JobManager: {line}" for line in own.lines if line not in other.lines]
    differing += [f"  worker:     {line}" for line in other.lines if line not in own.lines]
    return Failure(
        ErrorKind.INVALID,
        "the program built another graph in a worker:\n"
        + "\n".join(differing or ["  the same lines in another order"]),
        "A program must build the same graph each time: no names or operators from a clock, chance or the environment.",
    )
