"""Performs what the JobManager decides, over ports: the only place where its commands meet the outside.

The same performer runs over real processes (`deploy/`) and in the simulated world (`testing/sim`); only the ports
differ. It decides nothing: each command is one call on a lane of the executor or on the cluster, and each answer one
event.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

import msgspec

from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Completed, Takeover
from tidegate.checkpoint.manifest import SinkTarget
from tidegate.checkpoint.protocol import Retry, TriggerCheckpoint
from tidegate.checkpoint.store import CheckpointStore, Won, attempt_of
from tidegate.clock import Clock
from tidegate.errors import ErrorKind, Failure, failure_of, place
from tidegate.failpoints import reach
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import Attempt, WorkerIndex
from tidegate.metrics import Reporter
from tidegate.operators.contracts import TransactionRecovery
from tidegate.operators.reaching import open_recovery
from tidegate.runtime.control import ToWorker
from tidegate.runtime.ports import Executor
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.savepoint_work import SavepointPlaces, SavepointWork

_OnSavepoints = p.ExportSavepoint | p.ReadSavepoint | p.ImportSavepoint | p.DropSavepoint
LOG_LANE = "log"
SINK_LANE = "sinks"
CLEAN_UP_LANE = "clean-up"
SAVEPOINT_LANE = "savepoints"
"""Copying state takes long: neither the log nor recovery may wait for it."""
FAILED = "failed"
"""The state of a job that has ended so, where others are `done`."""


class Cluster(Protocol):
    """Where workers run. Its answers and everything that happens to workers come as events to `deliver`."""

    def spawn(self, attempt: Attempt, count: int) -> None:
        """→ WorkersSpawned or StepFailed; then Received and WorkerDied."""
        ...

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        """Once and in order, as long as the worker lives."""
        ...

    def end(self, attempt: Attempt, grace: float) -> None:
        """Let the workers exit within `grace` seconds, then kill them; → WorkersGone when no process is left."""
        ...

    def end_recorded(self, takeover: Takeover) -> None:
        """Kill the recorded workers that still run on this host; → OldWorkersEnded."""
        ...


def nobody_asked(reply: p.Reply) -> None:
    """Where no request can come from, no reply is for anybody."""


class JobManagerPerformer:
    """One JobManager process without its loop: whoever owns the loop calls `start`, `deliver`, and `wake` when it is
    time."""

    def __init__(
        self,
        manager: JobManager,
        graph: LogicalGraph,
        cluster: Cluster,
        store: CheckpointStore,
        executor: Executor,
        clock: Clock,
        reporter: Reporter,
        replies: Callable[[p.Reply], None] = nobody_asked,
        places: SavepointPlaces | None = None,
    ) -> None:
        self.manager = manager
        self._graph = graph
        self._cluster = cluster
        self._store = store
        self._executor = executor
        self._clock = clock
        self._reporter = reporter
        self._replies = replies
        self._savepoints = SavepointWork(store, places or SavepointPlaces())
        self._recoveries: dict[str, TransactionRecovery] = {}
        self._wakes: list[float] = []
        """A heap: with quick checkpoints there are thousands, and the next is asked for all the time."""
        self._clean_ups = 0
        self.is_done = False
        self.failure: Failure | None = None
        """With what the JobManager ended; None is success."""

    @property
    def wake_at(self) -> float | None:
        """When `wake` is to be called next, monotonic seconds."""
        return self._wakes[0] if self._wakes else None

    @property
    def is_cleaning_up(self) -> bool:
        """Whether files of old checkpoints are still being deleted: nobody else does it when the job is finished."""
        return self._clean_ups > 0

    def start(self) -> None:
        self.deliver(p.Start())

    def wake(self) -> None:
        now = self._clock.now().monotonic
        if not self._wakes or self._wakes[0] > now:
            return
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
        self.deliver(p.Wake())

    def deliver(self, event: p.Event) -> None:
        """An event for the JobManager, on the stepping thread."""
        for command in self.manager.handle(event, self._clock.now()):
            self._perform(command)

    def show_status(self) -> None:
        status = self.manager.status(self._clock.now())
        self._reporter.update(msgspec.structs.replace(status, state=FAILED) if self.failure else status)

    def _perform(self, command: p.Command) -> None:
        match command:
            case p.SendToWorker(attempt, worker, message):
                self._cluster.send(attempt, worker, message)
                if isinstance(message, TriggerCheckpoint):
                    reach("trigger:after")
            case p.SpawnWorkers(attempt, count):
                self._cluster.spawn(attempt, count)
            case p.EndWorkers(attempt, grace):
                self._cluster.end(attempt, grace)
            case p.EndOldWorkers(takeover):
                self._cluster.end_recorded(takeover)
            case p.WakeAt(at):
                heappush(self._wakes, at)
            case p.Tell(level, text, fields):
                self._reporter.event(level, text, **fields)
            case p.Reply():
                self._replies(command)
            case p.Exit(failure):
                self.is_done, self.failure = True, failure
            case p.ExportSavepoint() | p.ReadSavepoint() | p.ImportSavepoint() | p.DropSavepoint():
                self._submit_savepoint(command)
            case _:
                self._submit(command)

    def _submit(self, command: p.Command) -> None:
        """What blocks."""
        match command:
            case p.ReadLog():
                self._ask(LOG_LANE, self._store.read_log, lambda stored: p.LogRead(tuple(stored)), p.StepFailed)
            case p.Append():
                self._append(command)
            case p.Discover(attempt, operator, known):
                source = self._graph.node(operator).source
                assert source is not None
                self._ask(
                    f"discovery:{operator}",
                    lambda: source.discover(known),
                    lambda splits: p.SplitsFound(attempt, operator, tuple(splits)),
                    lambda failure: p.DiscoveryFailed(attempt, operator, failure),
                )
            case p.Recover(attempt, run, step):
                self._ask(
                    SINK_LANE,
                    lambda: self._recover(step),
                    lambda event: p.RecoveryAnswered(attempt, run, event),
                    lambda failure: p.RecoveryAnswered(attempt, run, _no_answer(step, failure)),
                )
            case p.CleanUp() | p.CleanUpOrphans():
                self._clean_ups += 1
                self._executor.submit(CLEAN_UP_LANE, lambda: self._clean_up(command), self._cleaned_up)

    def _submit_savepoint(self, command: _OnSavepoints) -> None:
        match command:
            case p.ExportSavepoint(manifest, path):
                self._ask(
                    SAVEPOINT_LANE,
                    lambda: self._savepoints.export(manifest, path),
                    lambda written: p.SavepointExported(manifest.checkpoint, path, written),
                    lambda failure: p.SavepointNotExported(manifest.checkpoint, path, failure),
                )
            case p.ReadSavepoint(path):
                self._ask(
                    SAVEPOINT_LANE,
                    lambda: self._savepoints.read(path),
                    lambda manifest: p.SavepointRead(path, manifest),
                    p.StepFailed,
                )
            case p.ImportSavepoint(_, attempt):
                self._ask(
                    SAVEPOINT_LANE,
                    lambda: self._savepoints.take_in(command),
                    lambda manifest: p.SavepointImported(attempt, manifest),
                    p.StepFailed,
                )
            case p.DropSavepoint(origin):
                self._clean_ups += 1
                self._executor.submit(SAVEPOINT_LANE, lambda: self._savepoints.drop(origin), self._dropped)

    def _ask(
        self,
        lane: str,
        work: Callable[[], Any],
        event: Callable[[Any], p.Event],
        otherwise: Callable[[Failure], p.Event],
    ) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            self.deliver(event(result) if error is None else otherwise(failure_of(error)))

        self._executor.submit(lane, work, done)

    def _append(self, command: p.Append) -> None:
        entry = command.entry
        is_checkpoint = isinstance(entry.body, Completed)

        def work() -> Any:
            if is_checkpoint:
                reach("log-append:before")
            result = self._store.append(entry)
            if is_checkpoint:
                reach("log-append:after")
            return result

        def done(result: Any, error: BaseException | None) -> None:
            if error is not None:
                failure = failure_of(error)
                # An error now says nothing about an earlier try.
                unknown = command.is_repeat or failure.kind is ErrorKind.UNAVAILABLE
                self.deliver(p.AppendUnanswered(entry.position, failure.message) if unknown else p.StepFailed(failure))
            elif isinstance(result, Won):
                self.deliver(p.AppendWon(entry.position))
            else:
                self.deliver(p.AppendRefused(entry.position, result.by))

        self._executor.submit(LOG_LANE, work, done)

    def _recover(self, step: recovery.Step) -> recovery.Event:
        sink = self._recovery(step.target)
        match step:
            case recovery.CheckTimeout(target, needed):
                sink.check_timeout(needed)
                return recovery.TimeoutChecked(target)
            case recovery.ListOpen(target):
                return recovery.Listed(target, tuple(sink.open_transactions(target.record.prefix, target.sink)))
            case recovery.Commit(_, committable, permit):
                reach("recovery-commit:before")
                outcome = sink.commit(committable, permit)
                reach("recovery-commit:after")
                return recovery.CommitAnswered(committable, outcome)
            case recovery.Abort(_, id):
                reach("recovery-abort:before")
                sink.abort(id)
                reach("recovery-abort:after")
                return recovery.Aborted(id)

    def _recovery(self, target: SinkTarget) -> TransactionRecovery:
        """The program's own access where the sink is where it was, by the sink's own name if it can be; by the
        manifest's words otherwise."""
        spec = target.record.recovery
        same = {node.name: node.sink for node in self._graph.sinks if node.sink and node.sink.recovery_spec == spec}
        name = target.sink if target.sink in same else next(iter(same), None)
        key = f"{name} {spec.factory} {sorted(spec.arguments.items())}"
        if key not in self._recoveries:
            self._recoveries[key] = open_recovery(spec) if name is None else same[name].open_recovery()
        return self._recoveries[key]

    def _clean_up(self, command: p.CleanUp | p.CleanUpOrphans) -> p.CleanedUp:
        match command:
            case p.CleanUp(positions, files):
                self._store.prune(positions)
                self._store.delete_files(files)
                return p.CleanedUp(positions, files)
            case p.CleanUpOrphans(before, keep):
                found = [path for path in self._store.state_files() if path not in keep]
                self._store.delete_files(path for path in found if (attempt_of(path) or before) < before)
                return p.CleanedUp()

    def _cleaned_up(self, event: p.CleanedUp | None, error: BaseException | None) -> None:
        self._removed("old checkpoints", error)
        if event is not None:
            self.deliver(event)

    def _dropped(self, _: None, error: BaseException | None) -> None:
        self._removed("the claimed savepoint", error)

    def _removed(self, what: str, error: BaseException | None) -> None:
        self._clean_ups -= 1
        if error is not None:
            self._reporter.event("warning", f"{what} could not be removed: {failure_of(error).message}")

    def close(self) -> None:
        for sink in self._recoveries.values():
            sink.close()


def _no_answer(step: recovery.Step, failure: Failure) -> recovery.Event:
    if isinstance(step, recovery.Commit) and failure.kind is ErrorKind.INTERNAL:
        return recovery.CommitAnswered(step.committable, Retry(failure.message))
    return recovery.NoAnswer(msgspec.structs.replace(failure, where=failure.where or place(step.target.sink)))
