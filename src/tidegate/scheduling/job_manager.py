"""The JobManager: the life of one job in one process, decided without I/O.

It owns the ledger of the checkpoint log, the restart policy and, one after another, the deployments. The order that
makes recovery right:

    read the log → (discard) → start workers → win the takeover → end the old attempt's workers → recover transactions →
    deploy

and after a failure: end the attempt's workers, wait, start workers, win the next takeover. Nothing is appended while an
append is undecided. A refused append means that another JobManager runs the job: this one ends its workers and exits.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from tidegate.checkpoint import coordinator as checkpoints
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Body, Completed, Created, Discarded, Finished, StoredEntry, Takeover
from tidegate.checkpoint.loss import explain_loss
from tidegate.checkpoint.manifest import Manifest
from tidegate.clock import Now
from tidegate.errors import RESTARTABLE, Failure, TidegateError, place
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import Attempt, CheckpointId, WorkerIndex
from tidegate.metrics import JobStatus
from tidegate.runtime.control import StopWorker, WorkerMetrics
from tidegate.scheduling import protocol as p
from tidegate.scheduling import telling
from tidegate.scheduling.deployment import AllTasksRun, AttemptFailed, Deployment, Outcome, sink_targets
from tidegate.scheduling.ending import Ending
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job import MOVES, WITH_WORKERS, Phase
from tidegate.scheduling.ledger import APPEND_RETRY, Ledger
from tidegate.scheduling.opening import Opening, decide_opening
from tidegate.scheduling.progress import Progress
from tidegate.scheduling.recovery_run import RecoveryOutcome, RecoveryRun
from tidegate.scheduling.restart import RestartPolicy
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings


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
        self._sinks = sink_targets(graph)
        self._settings = settings
        self._identity = identity
        self._fingerprint = graph.fingerprint()
        self._restarts = RestartPolicy(settings.restart, random)
        self._progress = Progress(frozenset(n.name for n in graph.sources), frozenset(n.name for n in graph.sinks))
        self.phase = Phase.READING_LOG
        self._ledger = Ledger((), graph.job, identity.nonce, identity.new_instance)
        self._housekeeping = Housekeeping(settings.retained)
        self._opening = Opening()
        self._old_takeover: Takeover | None = None
        """Of the process before this one, until its workers are known to be dead."""
        self._attempt = Attempt(0)
        self._highest = CheckpointId(0)
        self._deployment: Deployment | None = None
        self._recovery = RecoveryRun(self._sinks, settings)
        self._resume_at = self._drain_until = math.inf
        self._ending = Ending()

    def handle(self, event: p.Event, now: Now) -> list[p.Command]:
        if self.phase is Phase.DONE:
            return []
        match event:
            case p.Start():
                return [p.ReadLog()]
            case p.LogRead(stored):
                if self.phase is Phase.READING_LOG:
                    return self._open(stored, now)
                return self._exit(self._ledger.fencing(stored) or self._ending.failure)
            case p.AppendWon():
                return self._append_won(now) if self._ledger.is_undecided else []
            case p.AppendRefused(position, by):
                return self._end_with(self._ledger.refused(position, by)) if self._ledger.is_undecided else []
            case p.AppendUnanswered(_, why):
                return [*self._ledger.unanswered(why, now)]
            case p.StepFailed(failure):
                return self._step_failed(failure, now)
            case p.StopWanted():
                return self._stop(now)
            case p.CheckpointWanted():
                return self._deployed(lambda d: d.coordinate(checkpoints.TriggerNow(), now), now)
            case p.Wake():
                return self._wake(now)
            case p.CleanedUp():
                self._housekeeping.cleaned_up(event, self._ledger)
                return []
            case p.OldWorkersEnded():
                self._old_takeover = None
                return self._recover(now) if self.phase is Phase.ENDING_OLD else []
            case _:
                return self._of_attempt(event, now) if event.attempt == self._attempt else []

    def _of_attempt(self, event: p.Event, now: Now) -> list[p.Command]:
        """Events that count only for the present attempt."""
        match event:
            case p.WorkersSpawned():
                return self._take_over(event, now) if self.phase is Phase.SPAWNING else []
            case p.RecoveryAnswered(_, run, answer):
                return self._recovering(self._recovery.answered(run, answer, now), now)
            case p.WorkerDied(_, worker, how):
                return self._attempt_failed(telling.worker_died(worker, how), now)
            case p.WorkersGone():
                return self._workers_gone(now)
            case p.Received(_, _, WorkerMetrics() as metrics):
                self._progress.report(metrics, now.monotonic)
                return []
            case p.Received() | p.SplitsFound() | p.DiscoveryFailed():
                return self._deployed(lambda d: d.handle(event, now), now)
            case _:
                return []

    def status(self, now: Now) -> JobStatus:
        """How the job is, for people."""
        return self._progress.status(self._graph.job, self._attempt, self.phase.value, now.monotonic)

    # -- beginning --

    def _open(self, stored: Sequence[StoredEntry], now: Now) -> list[p.Command]:
        ledger = self._ledger = Ledger(stored, self._graph.job, self._identity.nonce, self._identity.new_instance)
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
        who, opening = self._identity, self._opening
        fresh = opening.is_fresh and self._ledger.own_attempt is None
        takeover = Takeover(
            who.host, who.process, event.processes, event.control_address, opening.options, fresh, self._sinks
        )
        return [*self._move(Phase.TAKING_OVER), self._append(takeover, now)]

    def _took_over(self, now: Now) -> list[p.Command]:
        if self._old_takeover is None:
            return self._recover(now)
        return [*self._move(Phase.ENDING_OLD), p.EndOldWorkers(self._old_takeover)]

    # -- the log --

    def _append(self, body: Body, now: Now) -> p.Command:
        return self._ledger.append(body, self._attempt, now)

    def _append_won(self, now: Now) -> list[p.Command]:
        entry = self._ledger.won()
        match entry.body:
            case Created() | Discarded():
                return self._spawn() if self.phase in (Phase.CREATING_LOG, Phase.DISCARDING) else []
            case Takeover():
                return self._took_over(now) if self.phase is Phase.TAKING_OVER else self._wake(now)
            case Completed(manifest):
                return self._completed(manifest, now)
            case _:
                return self._exit(self._ending.failure)

    def _completed(self, manifest: Manifest, now: Now) -> list[p.Command]:
        self._highest = max(self._highest, manifest.checkpoint)
        self._progress.completed(manifest, now.monotonic)
        told = telling.completed(manifest)
        if self.phase in (Phase.RUNNING, Phase.DRAINING):
            return [told, *self._deployed(lambda d: d.coordinate(checkpoints.AppendWon(), now), now)]
        # Its attempt is over, but it is complete all the same: the next attempt restores it.
        return [told, *self._wake(now)]

    # -- recovery --

    def _recover(self, now: Now) -> list[p.Command]:
        begun = self._recovery.before_deploying(self._ledger, self._attempt, now)
        return self._move(Phase.RECOVERING) + self._recovering(begun, now)

    def _recovering(self, outcomes: Sequence[RecoveryOutcome], now: Now) -> list[p.Command]:
        commands: list[p.Command] = []
        for outcome in outcomes:
            match outcome:
                case recovery.Done():
                    commands += self._recovered(outcome, now)
                case recovery.Failed(failure):
                    commands += self._recovery_failed(failure, now)
                case _:
                    commands.append(outcome)
        return commands

    def _recovered(self, done: recovery.Done, now: Now) -> list[p.Command]:
        told: list[p.Command] = [*telling.recovered(done, self._ledger.view.manifests)]
        match self.phase:
            case Phase.RECOVERING:
                moved = [
                    *told,
                    *self._move(Phase.DEPLOYING),
                    *self._housekeeping.of_attempts_before(self._attempt, self._ledger),
                ]
                return moved + self._deployed(lambda d: d.recovered(self._ledger.restorable, self._highest), now)
            case Phase.SETTLING:
                return [*told, *self._housekeeping.of_own_attempts(self._ledger), *self._record_end(now)]
            case _:
                return told

    def _recovery_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        if self.phase is Phase.RECOVERING:
            return self._attempt_failed(failure, now)
        failure = explain_loss(failure, self._ledger.view.manifests)
        told = telling.leftovers_remain(failure)
        if self.phase is not Phase.SETTLING:
            return [told]
        if not self._ending.is_certain:
            return [told, *self._exit(None if failure.kind in RESTARTABLE else failure)]
        return [told, *self._record_end(now)]

    # -- the attempt --

    def _deployed(self, ask: Callable[[Deployment], list[Outcome]], now: Now) -> list[p.Command]:
        if self._deployment is None or self.phase not in WITH_WORKERS:
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
            case checkpoints.AllCommitted(checkpoint, files):
                return self._housekeeping.after_checkpoint(files, self._ledger) + self._close(Finished(checkpoint))
            case _:
                return [outcome]

    def _settled(self, files: Sequence[str], now: Now) -> list[p.Command]:
        commands: list[p.Command] = [*self._housekeeping.after_checkpoint(files, self._ledger)]
        if self.phase is Phase.DRAINING:
            return commands + self._close(self._ledger.clean_stop)
        if self._attempt > 1 and not self._recovery.is_under_way:
            # A process of an earlier attempt may have woken up since and opened a transaction.
            swept = self._recovery.sweep(self._ledger, self._attempt, self._attempt, now)
            commands += self._recovering(swept, now)
        return commands

    def _step_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        if self._must_confirm:
            self._resume_at = now.monotonic + APPEND_RETRY
            return [p.WakeAt(self._resume_at)]
        if self._ledger.is_undecided:
            # It was the append: refused outright, it would be again, and nothing goes on without it.
            return self._end_with(failure)
        if self.phase is Phase.READING_LOG:
            return self._exit(failure)
        return self._attempt_failed(failure, now)

    def _attempt_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        """One incident, however many tasks it takes down."""
        if self.phase not in WITH_WORKERS:
            return []
        failure = explain_loss(failure, self._ledger.view.manifests)
        if not failure.where:
            failure = msgspec.structs.replace(failure, where=place(attempt=self._attempt))
        # A loss that is accepted is given up by the next attempt's recovery.
        if failure.kind not in RESTARTABLE and not (failure.transaction and self._settings.accept_lost):
            return self._end_with(failure)
        delay = self._restarts.on_failure(now.monotonic)
        if self.phase is Phase.DRAINING:
            return [telling.failed_while_stopping(failure), *self._end_with(None)]
        if delay is None:
            return self._end_with(failure)
        self._resume_at = now.monotonic + delay
        self._progress.attempt_over()
        told = telling.restarting(self._progress.restarts, delay, failure, self._attempt)
        return [told, *self._leave(Phase.FAILING, 0.0)]

    def _workers_gone(self, now: Now) -> list[p.Command]:
        match self.phase:
            case Phase.FAILING:
                return [*self._move(Phase.WAITING), p.WakeAt(self._resume_at), *self._wake(now)]
            case Phase.CLOSING if self._ending.record is not None:
                swept = self._recovery.sweep(self._ledger, Attempt(self._attempt + 1), self._attempt, now)
                return self._move(Phase.SETTLING) + self._recovering(swept, now)
            case Phase.CLOSING:
                return [p.ReadLog()] if self._must_confirm else self._exit(self._ending.failure)
            case _:
                return []

    # -- time --

    def _wake(self, now: Now) -> list[p.Command]:
        again = self._ledger.due(now)
        commands: list[p.Command] = [again] if again is not None else []
        commands += self._recovering(self._recovery.wake(now), now)
        match self.phase:
            case Phase.WAITING if not self._ledger.is_undecided and now.monotonic >= self._resume_at:
                commands += self._spawn()
            case Phase.DRAINING if now.monotonic >= self._drain_until:
                commands += [telling.not_confirmed_in_time(), *self._end_with(None)]
            case Phase.RUNNING | Phase.DRAINING | Phase.DEPLOYING:
                commands += self._deployed(lambda d: d.wake(now), now)
            case Phase.CLOSING if self._must_confirm and now.monotonic >= self._resume_at:
                self._resume_at = math.inf
                commands.append(p.ReadLog())
        return commands

    # -- ending --

    def _stop(self, now: Now) -> list[p.Command]:
        if self.phase is Phase.WAITING and not self._ledger.is_undecided and self._ledger.own_attempt is not None:
            return self._settle_failed_attempt(self._ledger.own_attempt, now)
        if self.phase is not Phase.RUNNING:
            return [] if self.phase in (Phase.DRAINING, Phase.CLOSING, Phase.SETTLING) else self._end_with(None)
        self._drain_until = now.monotonic + self._settings.drain_timeout
        stop = checkpoints.StopTriggering()
        commands = self._move(Phase.DRAINING) + self._deployed(lambda d: d.coordinate(stop, now), now)
        is_settled = self._deployment is not None and self._deployment.is_settled
        return [*commands, *(self._close(self._ledger.clean_stop) if is_settled else [p.WakeAt(self._drain_until)])]

    def _settle_failed_attempt(self, own: Attempt, now: Now) -> list[p.Command]:
        """Nothing runs, but attempt `own` left transactions: commit what is due and abort the rest, as the next would.
        Not those of an attempt whose takeover was not won: that number may be another JobManager's."""
        self._ending.records(self._ledger.clean_stop, is_certain=False)
        begun = self._recovery.as_the_next(self._ledger, own, self._attempt, now)
        return self._move(Phase.SETTLING) + self._recovering(begun, now)

    def _close(self, end: Body) -> list[p.Command]:
        """Every commit is confirmed: end the workers, then abort what is open, then record it."""
        self._ending.records(end)
        asked = [p.SendToWorker(self._attempt, WorkerIndex(i), StopWorker()) for i in range(self._physical.workers)]
        return [*asked, *self._leave(Phase.CLOSING, self._settings.stop_grace)]

    def _record_end(self, now: Now) -> list[p.Command]:
        assert self._ending.record is not None
        return [*self._move(Phase.RECORDING_END), self._append(self._ending.record, now)]

    @property
    def _must_confirm(self) -> bool:
        return self.phase is Phase.CLOSING and self._ending.must_be_confirmed

    def _end_with(self, failure: Failure | None) -> list[p.Command]:
        """End the workers, if there are any, and exit."""
        self._ending.fails(failure)
        self._resume_at = math.inf
        if self.phase in WITH_WORKERS:
            return self._leave(Phase.CLOSING, 0.0)
        if self.phase is Phase.FAILING:
            # Its workers are being ended already; only what follows has changed.
            return self._move(Phase.CLOSING)
        return [] if self.phase is Phase.CLOSING else self._exit(failure)

    def _leave(self, phase: Phase, grace: float) -> list[p.Command]:
        if self._deployment is not None:
            self._highest = max(self._highest, self._deployment.highest_checkpoint)
        self._deployment = None
        self._recovery.drop()
        return [*self._move(phase), p.EndWorkers(self._attempt, grace)]

    def _exit(self, failure: Failure | None) -> list[p.Command]:
        return [*self._move(Phase.DONE), p.Exit(failure)]

    def _move(self, phase: Phase) -> list[p.Command]:
        assert phase in MOVES[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase
        return []
