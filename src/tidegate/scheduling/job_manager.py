"""The JobManager: the life of one job in one process, decided without I/O.

It owns the ledger of the checkpoint log, the restart policy and, one after another, the deployments. The order that makes
recovery right:

    read the log → (discard) → start workers → win the takeover → end the old attempt's workers → recover transactions → deploy

and after a failure: end the attempt's workers, wait, start workers, win the next takeover. Nothing is appended while an
append is undecided. A refused append means that another JobManager runs the job: this one ends its workers and exits.
"""

from collections.abc import Callable, Sequence

from tidegate.checkpoint import coordinator as checkpoints
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import (
    Body,
    CleanStop,
    Completed,
    Created,
    Discarded,
    Entry,
    Finished,
    StoredEntry,
    Takeover,
)
from tidegate.checkpoint.manifest import Manifest
from tidegate.clock import Now
from tidegate.errors import RESTARTABLE, ErrorKind, Failure, TidegateError, place
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import Attempt, CheckpointId, LogPosition, WorkerIndex
from tidegate.metrics import CheckpointStatus, JobStatus
from tidegate.runtime.control import StopWorker, WorkerMetrics
from tidegate.scheduling import protocol as p
from tidegate.scheduling.deployment import AllTasksRun, AttemptFailed, Deployment, Outcome, sink_targets
from tidegate.scheduling.job import MOVES, Phase
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.opening import Opening, decide_opening
from tidegate.scheduling.progress import Progress
from tidegate.scheduling.restart import RestartPolicy
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings

_WITH_WORKERS = frozenset(
    {
        Phase.SPAWNING,
        Phase.TAKING_OVER,
        Phase.ENDING_OLD,
        Phase.RECOVERING,
        Phase.DEPLOYING,
        Phase.RUNNING,
        Phase.DRAINING,
    }
)


class JobManager:
    """`random` gives numbers from 0 to 1, for the jitter of restart delays."""

    def __init__(
        self,
        graph: LogicalGraph,
        physical: PhysicalGraph,
        settings: JobSettings,
        identity: JobManagerIdentity,
        random: Callable[[], float],
    ) -> None:
        self._graph = graph
        self._physical = physical
        self._settings = settings
        self._identity = identity
        self._fingerprint = graph.fingerprint()
        self._restarts = RestartPolicy(settings.restart, random)
        self._progress = Progress(frozenset(n.name for n in graph.sources), frozenset(n.name for n in graph.sinks))
        self.phase = Phase.READING_LOG
        self._ledger = Ledger((), identity.nonce, identity.new_instance)
        self._opening = Opening()
        self._is_fresh = False
        """The next takeover begins without state."""
        self._old_takeover: Takeover | None = None
        """Of the process before this one, until its workers are known to be dead."""
        self._attempt = Attempt(0)
        self._highest = CheckpointId(0)
        self._deployment: Deployment | None = None
        self._recovery: recovery.Recovery | None = None
        """Recovery before deploying, the sweep while running, or the last clean-up."""
        self._restart_count = 0
        self._resume_at: float | None = None
        self._drain_until: float | None = None
        self._end: Body | None = None
        """What is recorded when the workers are gone: a clean stop or the end of the job."""
        self._failure: Failure | None = None
        """With what this process ends."""
        self._newest: tuple[Manifest, float] | None = None
        """The newest checkpoint completed by this process, and when."""

    def handle(self, event: p.Event, now: Now) -> list[p.Command]:
        if self.phase is Phase.DONE:
            return []
        match event:
            case p.Start():
                return [p.ReadLog()]
            case p.LogRead(stored):
                return self._open(stored, now)
            case p.AppendWon():
                return self._append_won(now) if self._ledger.is_undecided else []
            case p.AppendRefused(position, by):
                return self._end_with(_fenced(self._graph.job, position, by))
            case p.AppendUnanswered(_, why):
                again_at = self._ledger.unanswered(now)
                return [p.Tell("warning", f"the checkpoint log does not answer: {why}"), p.WakeAt(again_at)]
            case p.StepFailed(failure):
                return self._attempt_failed(failure, now) if self.phase in _WITH_WORKERS else self._exit(failure)
            case p.StopWanted():
                return self._stop(now)
            case p.CheckpointWanted():
                return self._deployed(lambda d: d.coordinate(checkpoints.TriggerNow(), now), now)
            case p.Wake():
                return self._wake(now)
            case p.OldWorkersEnded():
                return self._recover(now) if self.phase is Phase.ENDING_OLD else []
            case _:
                return self._of_attempt(event, now) if event.attempt == self._attempt else []

    def _of_attempt(self, event: p.Event, now: Now) -> list[p.Command]:
        """Events that count only for the present attempt."""
        match event:
            case p.WorkersSpawned():
                return self._take_over(event, now) if self.phase is Phase.SPAWNING else []
            case p.RecoveryAnswered(_, answer):
                return self._recovery_step(answer, now)
            case p.WorkerDied(_, worker, how):
                return self._worker_died(worker, how, now)
            case p.WorkersGone():
                return self._workers_gone(now)
            case p.Received(_, _, WorkerMetrics() as metrics):
                self._progress.report(metrics, now.monotonic)
                return []
            case p.Received(_, worker, message):
                return self._deployed(lambda d: d.received(worker, message, now), now)
            case p.SplitsFound(_, operator, splits):
                return self._deployed(lambda d: d.discovered(operator, splits, now), now)
            case p.DiscoveryFailed(_, operator, failure):
                return self._deployed(lambda d: d.discovery_failed(operator, failure, now), now)
            case _:
                return []

    def status(self, now: Now) -> JobStatus:
        """How the job is, for people."""
        totals = self._progress.totals(now.monotonic)
        newest = self._newest
        return JobStatus(
            job=self._graph.job,
            attempt=self._attempt,
            state=self.phase.value,
            records_in=totals.records_in,
            records_out=totals.records_out,
            records_in_rate=totals.records_in_rate,
            records_out_rate=totals.records_out_rate,
            restarts=self._restart_count,
            checkpoint=None
            if newest is None
            else CheckpointStatus(
                newest[0].checkpoint, now.monotonic - newest[1], newest[0].duration, newest[0].state_bytes
            ),
            note=f"{totals.records_skipped} records skipped" if totals.records_skipped else "",
        )

    # -- beginning --

    def _open(self, stored: Sequence[StoredEntry], now: Now) -> list[p.Command]:
        ledger = self._ledger = Ledger(stored, self._identity.nonce, self._identity.new_instance)
        try:
            opening = self._opening = decide_opening(ledger.view, self._settings, self._graph)
        except TidegateError as error:
            return self._exit(error.failure)
        told: list[p.Command] = [p.Tell("info", note) for note in opening.notes]
        if opening.is_finished:
            return told + self._exit(None)
        self._highest = opening.highest
        self._attempt = ledger.view.attempt
        self._old_takeover = ledger.view.takeover
        self._is_fresh = opening.is_fresh
        if ledger.view.instance is None:
            return [*told, *self._move(Phase.CREATING_LOG), self._append(Created(), now)]
        if opening.discards:
            reason = f"--from-checkpoint {self._settings.from_checkpoint}"
            return [*told, *self._move(Phase.DISCARDING), self._append(Discarded(opening.discards, reason), now)]
        return told + self._spawn()

    def _spawn(self) -> list[p.Command]:
        self._attempt = Attempt(self._attempt + 1)
        self._deployment = Deployment(
            self._graph, self._physical, self._settings, self._ledger.instance, self._attempt, self._fingerprint
        )
        return [*self._move(Phase.SPAWNING), p.SpawnWorkers(self._attempt, self._physical.workers)]

    def _take_over(self, event: p.WorkersSpawned, now: Now) -> list[p.Command]:
        takeover = Takeover(
            host=self._identity.host,
            job_manager=self._identity.process,
            workers=event.processes,
            control_address=event.control_address,
            options=self._opening.options,
            fresh=self._is_fresh,
        )
        return [*self._move(Phase.TAKING_OVER), self._append(takeover, now)]

    def _took_over(self, now: Now) -> list[p.Command]:
        old, self._old_takeover = self._old_takeover, None
        if old is None:
            return self._recover(now)
        return [*self._move(Phase.ENDING_OLD), p.EndOldWorkers(old)]

    # -- the log --

    def _append(self, body: Body, now: Now) -> p.Command:
        return self._ledger.append(body, self._attempt, now)

    def _append_won(self, now: Now) -> list[p.Command]:
        entry = self._ledger.won()
        match entry.body:
            case Created() | Discarded():
                return self._spawn() if self.phase in (Phase.CREATING_LOG, Phase.DISCARDING) else []
            case Takeover():
                self._is_fresh = False
                return self._took_over(now) if self.phase is Phase.TAKING_OVER else self._wake(now)
            case Completed(manifest):
                return self._completed(manifest, now)
            case _:
                return self._exit(self._failure)

    def _completed(self, manifest: Manifest, now: Now) -> list[p.Command]:
        self._highest = max(self._highest, manifest.checkpoint)
        self._newest = (manifest, now.monotonic)
        told = p.Tell(
            "info",
            f"checkpoint {manifest.checkpoint} completed in {manifest.duration * 1000:.0f} ms",
            {"checkpoint": manifest.checkpoint, "state_bytes": manifest.state_bytes},
        )
        if self.phase in (Phase.RUNNING, Phase.DRAINING):
            return [told, *self._deployed(lambda d: d.coordinate(checkpoints.AppendWon(), now), now)]
        # Its attempt is over, but it is complete all the same: the next attempt restores it.
        return [told, *self._wake(now)]

    # -- recovery --

    def _recover(self, now: Now) -> list[p.Command]:
        plan = recovery.RecoveryPlan(
            instance=self._ledger.instance,
            attempt=self._attempt,
            sinks=sink_targets(self._graph),
            manifest=self._ledger.restorable,
            is_settled=self._ledger.is_settled,
            is_fresh=self._opening.is_fresh,
            accept_lost=self._settings.accept_lost,
        )
        return self._move(Phase.RECOVERING) + self._begin_recovery(plan, now)

    def _begin_recovery(self, plan: recovery.RecoveryPlan, now: Now) -> list[p.Command]:
        self._recovery = recovery.Recovery(plan)
        return self._recovery_step(recovery.Begin(), now)

    def _recovery_step(self, event: recovery.Event, now: Now) -> list[p.Command]:
        if self._recovery is None:
            return []
        commands: list[p.Command] = []
        for command in self._recovery.handle(event, now):
            match command:
                case recovery.WakeAt(at):
                    commands.append(p.WakeAt(at))
                case recovery.Done():
                    self._recovery = None
                    commands += self._recovered(command, now)
                case recovery.Failed(failure):
                    self._recovery = None
                    commands += self._recovery_failed(failure, now)
                case _:
                    commands.append(p.Recover(self._attempt, command))
        return commands

    def _recovered(self, done: recovery.Done, now: Now) -> list[p.Command]:
        told: list[p.Command] = [p.Tell("warning", f"given up by --accept-lost-transactions: {x}") for x in done.given_up]
        if done.committed or done.aborted:
            text = f"recovery committed {done.committed} and aborted {done.aborted} transactions"
            told.append(p.Tell("info", text, {"committed": done.committed, "aborted": done.aborted}))
        match self.phase:
            case Phase.RECOVERING:
                sweep = [p.CleanUpOrphans(self._attempt, self._ledger.needed_files)] if self._ledger.may_sweep else []
                moved = [*told, *self._move(Phase.DEPLOYING), *sweep]
                return moved + self._deployed(lambda d: d.recovered(self._ledger.restorable, self._highest), now)
            case Phase.SETTLING:
                return told + self._record_end(now)
            case _:
                return told

    def _recovery_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        if self.phase is Phase.RECOVERING:
            return self._attempt_failed(failure, now)
        told = p.Tell("warning", f"leftover transactions could not be looked after: {failure.message}")
        return [told, *self._record_end(now)] if self.phase is Phase.SETTLING else [told]

    def _leftovers(self, before: Attempt) -> recovery.RecoveryPlan:
        """To abort what attempts before `before` left open; everything of the newest checkpoint is committed."""
        return recovery.RecoveryPlan(
            instance=self._ledger.instance,
            attempt=before,
            sinks=sink_targets(self._graph),
            manifest=self._ledger.restorable,
            is_settled=True,
        )

    # -- the attempt --

    def _deployed(self, ask: Callable[[Deployment], list[Outcome]], now: Now) -> list[p.Command]:
        if self._deployment is None or self.phase not in _WITH_WORKERS:
            return []
        commands: list[p.Command] = []
        for outcome in ask(self._deployment):
            commands += self._outcome(outcome, now)
        return commands

    def _outcome(self, outcome: Outcome, now: Now) -> list[p.Command]:
        match outcome:
            case AttemptFailed(failure):
                return self._attempt_failed(failure, now)
            case AllTasksRun():
                self._restarts.on_running(now.monotonic)
                return self._move(Phase.RUNNING)
            case checkpoints.AppendManifest(manifest):
                return [self._append(Completed(manifest), now)]
            case checkpoints.CheckpointSettled(_, files):
                return self._settled(files, now)
            case checkpoints.AllCommitted(checkpoint):
                self._end = Finished(checkpoint)
                return self._close()
            case _:
                return [outcome]

    def _settled(self, files: Sequence[str], now: Now) -> list[p.Command]:
        commands: list[p.Command] = [self._ledger.clean_up(self._settings.retained, files)]
        if self.phase is Phase.DRAINING:
            return commands + self._drained()
        if self._attempt > 1 and self._recovery is None:
            # A process of an earlier attempt may have woken up since and opened a transaction.
            commands += self._begin_recovery(self._leftovers(self._attempt), now)
        return commands

    def _worker_died(self, worker: WorkerIndex, how: str, now: Now) -> list[p.Command]:
        if self.phase not in _WITH_WORKERS:
            return []
        return self._attempt_failed(Failure(ErrorKind.UNAVAILABLE, f"worker {worker} died: {how}"), now)

    def _attempt_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        """One incident, however many tasks it takes down."""
        if self.phase not in _WITH_WORKERS:
            return []
        if not failure.where:
            failure = Failure(
                failure.kind, failure.message, failure.remedy, place(attempt=self._attempt), failure.traceback
            )
        if failure.kind not in RESTARTABLE:
            return self._end_with(failure)
        delay = self._restarts.on_failure(now.monotonic)
        if delay is None or self.phase is Phase.DRAINING:
            return self._end_with(failure if self.phase is not Phase.DRAINING else None)
        self._restart_count += 1
        self._resume_at = now.monotonic + delay
        self._progress.attempt_over()
        text = f"restart {self._restart_count} in {delay:.1f} s after a failure: {failure.render()}"
        told = p.Tell("error", text, {"kind": failure.kind.value, "attempt": self._attempt})
        return [told, *self._leave(Phase.FAILING, 0.0)]

    def _workers_gone(self, now: Now) -> list[p.Command]:
        match self.phase:
            case Phase.FAILING:
                assert self._resume_at is not None
                return [*self._move(Phase.WAITING), p.WakeAt(self._resume_at), *self._wake(now)]
            case Phase.CLOSING if self._end is not None:
                return self._move(Phase.SETTLING) + self._begin_recovery(self._next_attempts_view(), now)
            case Phase.CLOSING:
                return self._exit(self._failure)
            case _:
                return []

    def _next_attempts_view(self) -> recovery.RecoveryPlan:
        return self._leftovers(Attempt(self._attempt + 1))

    # -- time --

    def _wake(self, now: Now) -> list[p.Command]:
        again = self._ledger.due(now)
        commands: list[p.Command] = [again] if again is not None else []
        if self._recovery is not None:
            commands += self._recovery_step(recovery.Wake(), now)
        match self.phase:
            case Phase.WAITING if not self._ledger.is_undecided and self._has_come(self._resume_at, now):
                commands += self._spawn()
            case Phase.RUNNING | Phase.DRAINING if self._has_come(self._drain_until, now):
                commands.append(p.Tell("warning", "commits under way were not confirmed in time; the next run goes on"))
                commands += self._end_with(None)
            case Phase.RUNNING | Phase.DRAINING | Phase.DEPLOYING:
                commands += self._deployed(lambda d: d.wake(now), now)
        return commands

    def _has_come(self, at: float | None, now: Now) -> bool:
        return at is not None and now.monotonic >= at

    # -- ending --

    def _stop(self, now: Now) -> list[p.Command]:
        if self.phase is not Phase.RUNNING:
            return [] if self.phase in (Phase.DRAINING, Phase.CLOSING, Phase.SETTLING) else self._end_with(None)
        self._drain_until = now.monotonic + self._settings.drain_timeout
        commands = self._move(Phase.DRAINING) + self._deployed(
            lambda d: d.coordinate(checkpoints.StopTriggering(), now), now
        )
        assert self._deployment is not None
        return [*commands, *(self._drained() if self._deployment.is_settled else [p.WakeAt(self._drain_until)])]

    def _drained(self) -> list[p.Command]:
        """Every commit is confirmed: end the workers, then abort what is open, then record it."""
        newest = self._ledger.restorable
        self._end = CleanStop(newest.checkpoint if newest else CheckpointId(0))
        return self._close()

    def _close(self) -> list[p.Command]:
        asked = [
            p.SendToWorker(self._attempt, WorkerIndex(i), StopWorker()) for i in range(self._physical.workers)
        ]
        return [*asked, *self._leave(Phase.CLOSING, self._settings.stop_grace)]

    def _record_end(self, now: Now) -> list[p.Command]:
        assert self._end is not None
        return [*self._move(Phase.RECORDING_END), self._append(self._end, now)]

    def _end_with(self, failure: Failure | None) -> list[p.Command]:
        """End the workers, if there are any, and exit."""
        self._failure = failure
        self._end = None
        if self.phase in _WITH_WORKERS:
            return self._leave(Phase.CLOSING, 0.0)
        if self.phase is Phase.FAILING:
            # Its workers are being ended already; only what follows has changed.
            return self._move(Phase.CLOSING)
        return [] if self.phase is Phase.CLOSING else self._exit(failure)

    def _leave(self, phase: Phase, grace: float) -> list[p.Command]:
        if self._deployment is not None:
            self._highest = max(self._highest, self._deployment.highest_checkpoint)
        self._deployment = self._recovery = None
        return [*self._move(phase), p.EndWorkers(self._attempt, grace)]

    def _exit(self, failure: Failure | None) -> list[p.Command]:
        return [*self._move(Phase.DONE), p.Exit(failure)]

    def _move(self, phase: Phase) -> list[p.Command]:
        assert phase in MOVES[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase
        return []


def _fenced(job: str, position: LogPosition, by: StoredEntry | None) -> Failure:
    who = f"attempt {by.attempt}" if isinstance(by, Entry) else "somebody else"
    return Failure(
        ErrorKind.FENCED,
        f"job {job} was taken over: position {position} of its checkpoint log belongs to {who}",
        "Another JobManager runs this job; nothing of this one's will be committed any more.",
    )
