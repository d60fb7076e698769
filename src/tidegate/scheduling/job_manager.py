"""The JobManager: the life of one job in one process, decided without I/O.

It owns the ledger of the checkpoint log, the restart policy and, one after another, the deployments. The order that
makes recovery right:

    read the log → (read the savepoint, discard) → start workers → win the takeover → end the old attempt's workers →
    recover transactions → (import the savepoint, log it) → deploy

and after a failure: end the attempt's workers, wait, start workers, win the next takeover. Nothing is appended while an
append is undecided. A refused append means that another JobManager runs the job: this one ends its workers and exits.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from tidegate.checkpoint import coordinator as checkpoints
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import CleanStop, Completed, Created, Discarded, Finished, Takeover
from tidegate.checkpoint.loss import explain_loss
from tidegate.checkpoint.manifest import Manifest
from tidegate.clock import Now
from tidegate.errors import RESTARTABLE, Failure, place
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import Attempt, CheckpointId
from tidegate.metrics import JobStatus
from tidegate.runtime.control import WorkerMetrics
from tidegate.scheduling import protocol as p
from tidegate.scheduling import telling
from tidegate.scheduling.deployment import AllTasksRun, AttemptFailed, Deployment, Outcome
from tidegate.scheduling.job import WITH_WORKERS, Phase
from tidegate.scheduling.life import JobLife
from tidegate.scheduling.progress import Progress
from tidegate.scheduling.recovery_run import RecoveryOutcome
from tidegate.scheduling.restart import RestartPolicy
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings


class JobManager(JobLife):
    """`random` gives numbers from 0 to 1, for the jitter of restart delays."""

    def __init__(
        self,
        graph: LogicalGraph,
        physical: PhysicalGraph,
        settings: JobSettings,
        identity: JobManagerIdentity,
        random: Callable[[], float],
    ) -> None:
        super().__init__(graph, physical, settings, identity)
        self._restarts = RestartPolicy(settings.restart, random)
        self._progress = Progress(frozenset(n.name for n in graph.sources), frozenset(n.name for n in graph.sinks))
        self._drain_until = math.inf

    def handle(self, event: p.Event, now: Now) -> list[p.Command]:
        if self.phase is Phase.DONE:
            return self._too_late(event)
        match event:
            case p.Start():
                return [p.ReadLog()]
            case p.LogRead(stored):
                return self._log_read(stored, now)
            case p.SavepointRead(_, manifest):
                return self._savepoint_read(manifest, now)
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
            case p.StatusWanted() | p.SavepointWanted() | p.StopWithCheckpointWanted():
                return self._asked(event, now)
            case p.Wake():
                return self._wake(now)
            case p.CleanedUp() | p.SavepointExported() | p.SavepointNotExported():
                return self._side_work_done(event, now)
            case p.OldWorkersEnded():
                self._beginning.old_takeover = None
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
            case p.SavepointImported(_, manifest):
                importing = self.phase is Phase.IMPORTING and not self._ledger.is_undecided
                return [self._append(Completed(manifest), now)] if importing else []
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

    # -- taking over --

    def _take_over(self, event: p.WorkersSpawned, now: Now) -> list[p.Command]:
        return [*self._move(Phase.TAKING_OVER), self._append(self._beginning.takeover(event), now)]

    def _took_over(self, now: Now) -> list[p.Command]:
        if self._beginning.old_takeover is None:
            return self._recover(now)
        return [*self._move(Phase.ENDING_OLD), p.EndOldWorkers(self._beginning.old_takeover)]

    # -- the log --

    def _append_won(self, now: Now) -> list[p.Command]:
        entry = self._ledger.won()
        match entry.body:
            case Created() | Discarded():
                return self._spawn() if self.phase in (Phase.CREATING_LOG, Phase.DISCARDING) else []
            case Takeover():
                return self._took_over(now) if self.phase is Phase.TAKING_OVER else self._wake(now)
            case Completed(manifest):
                return self._completed(manifest, now)
            case CleanStop(_, False):
                removed = self._housekeeping.after_checkpoint((), self._ledger)
                return removed + self._leave_savepoints_time()
            case _:
                return self._leave_savepoints_time()

    def _completed(self, manifest: Manifest, now: Now) -> list[p.Command]:
        self._highest = max(self._highest, manifest.checkpoint)
        self._progress.completed(manifest, now.monotonic)
        imported = self._ledger.view.origin is not None and len(self._ledger.view.completed) == 1
        told: list[p.Command] = [telling.imported(manifest) if imported else telling.completed(manifest)]
        told += self._beginning.drop_claimed() if imported else []
        match self.phase:
            case Phase.IMPORTING:
                return told + self._deploy(now)
            case Phase.RUNNING | Phase.DRAINING:
                return told + self._deployed(lambda d: d.coordinate(checkpoints.AppendWon(), now), now)
            case _:
                # Its attempt is over, but it is complete all the same: the next attempt restores it.
                return told + self._wake(now)

    # -- recovery --

    def _recover(self, now: Now) -> list[p.Command]:
        begun = self._recovery.before_deploying(self._ledger, self._beginning.savepoint, self._attempt, now)
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
                told += self._housekeeping.of_attempts_before(self._attempt, self._ledger)
                return told + (self._deploy(now) if self._ledger.view.unimported is None else self._import())
            case Phase.SETTLING:
                return [*told, *self._housekeeping.of_own_attempts(self._ledger), *self._record_end(now)]
            case _:
                return told

    def _import(self) -> list[p.Command]:
        origin = self._ledger.view.unimported
        assert origin is not None, "there is nothing to import"
        checkpoint, inline = CheckpointId(self._highest + 1), self._settings.runtime.state_in_job_manager
        wanted = p.ImportSavepoint(origin, self._attempt, checkpoint, self._ledger.instance, inline)
        return [*self._move(Phase.IMPORTING), wanted]

    def _deploy(self, now: Now) -> list[p.Command]:
        restored, highest = self._ledger.restorable, self._highest
        return self._move(Phase.DEPLOYING) + self._deployed(lambda d: d.recovered(restored, highest), now)

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
                return self._move(Phase.RUNNING) + self._ask_for_checkpoint(now)
            case checkpoints.AppendManifest(manifest):
                return [self._append(Completed(manifest), now)]
            case checkpoints.CheckpointSettled():
                return self._settled(outcome, now)
            case checkpoints.AllCommitted(checkpoint, files):
                served = self._serve(is_last=True)
                cleaned = self._housekeeping.after_checkpoint(files, self._ledger)
                return served + cleaned + self._close(Finished(checkpoint))
            case _:
                return [outcome]

    def _settled(self, settled: checkpoints.CheckpointSettled, now: Now) -> list[p.Command]:
        commands = self._serve(is_last=settled.is_last)
        commands += self._housekeeping.after_checkpoint(settled.files, self._ledger)
        if self.phase is Phase.DRAINING:
            return commands + self._close_cleanly()
        if self._requests.is_stopping:
            return commands + self._stop_if_due(now)
        if self._attempt > 1 and not self._recovery.is_under_way:
            # A process of an earlier attempt may have woken up since and opened a transaction.
            swept = self._recovery.sweep(self._ledger, self._attempt, self._attempt, now)
            commands += self._recovering(swept, now)
        return commands

    def _step_failed(self, failure: Failure, now: Now) -> list[p.Command]:
        if self._is_confirming:
            return self._unconfirmed(now)
        if self._ledger.is_undecided:
            # It was the append: refused outright, it would be again, and nothing goes on without it.
            return self._end_with(failure)
        if self.phase is Phase.READING_LOG:
            return self._exit(failure)
        if self.phase is Phase.READING_SAVEPOINT:
            return self._savepoint_unread(failure)
        if self.phase is Phase.IMPORTING and failure.kind not in RESTARTABLE:
            # Whoever took over meanwhile may have been the one to remove it.
            return self._end_with(failure, is_doubtful=True)
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
        if self.phase is Phase.DRAINING:
            return [telling.failed_while_stopping(failure), *self._end_with(None)]
        if self._requests.is_stopping:
            # Its last checkpoint is complete and committed: nothing is to be repeated.
            self._resume_at = now.monotonic
            return [telling.failed_while_stopping(failure), *self._leave(Phase.FAILING, 0.0)]
        delay = self._restarts.on_failure(now.monotonic)
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
                return self._confirm() if self._must_confirm else self._exit(self._ending.failure)
            case _:
                return []

    # -- requests --

    def _asked(
        self, event: p.StatusWanted | p.SavepointWanted | p.StopWithCheckpointWanted, now: Now
    ) -> list[p.Command]:
        if isinstance(event, p.StatusWanted):
            return [p.Reply(event.request, text=msgspec.json.encode(self.status(now)).decode())]
        deadline = now.monotonic + self._settings.stop_patience
        return self._requests.asked(event, self._newest, deadline) + self._ask_for_checkpoint(now)

    def _side_work_done(
        self, event: p.CleanedUp | p.SavepointExported | p.SavepointNotExported, now: Now
    ) -> list[p.Command]:
        if not isinstance(event, p.CleanedUp):
            return self._exported(event, now)
        self._housekeeping.cleaned_up(event, self._ledger)
        return []

    def _ask_for_checkpoint(self, now: Now) -> list[p.Command]:
        """Now that the job runs, or as soon as it does."""
        if self.phase is not Phase.RUNNING or not self._requests.wants_checkpoint:
            return []
        if self._requests.wants_drain:
            return self._deployed(lambda d: d.drain(now), now)
        wish = checkpoints.TakeLast() if self._requests.wants_stop else checkpoints.TriggerNow()
        return self._deployed(lambda d: d.coordinate(wish, now), now)

    def _serve(self, *, is_last: bool) -> list[p.Command]:
        manifest = self._ledger.restorable
        assert manifest is not None, "a checkpoint has settled that is not in the log"
        return self._requests.settled(manifest, is_last=is_last)

    def _exported(self, answer: p.SavepointExported | p.SavepointNotExported, now: Now) -> list[p.Command]:
        was_stopping = self._requests.is_stopping
        commands = self._requests.exported(answer, self._ledger)
        if self.phase is Phase.EXPORTING:
            return commands + self._leave_savepoints_time()
        if was_stopping and not self._requests.is_stopping:
            commands += self._deployed(lambda d: d.coordinate(checkpoints.GoOn(), now), now)
        return commands + (self._wake(now) if self.phase is Phase.WAITING else self._stop_if_due(now))

    def _stop_if_due(self, now: Now) -> list[p.Command]:
        can_stop = self.phase in (Phase.RUNNING, Phase.WAITING) and not self._ledger.is_undecided
        return self._stop(now) if can_stop and self._requests.is_stop_due else []

    def _overdue(self, now: Now) -> list[p.Command]:
        if self._deployment is not None and self._deployment.is_drained:
            # There is no way back but by a failure.
            return []
        refused = self._requests.overdue(now.monotonic)
        return refused + self._deployed(lambda d: d.coordinate(checkpoints.GoOn(), now), now) if refused else []

    # -- time --

    def _wake(self, now: Now) -> list[p.Command]:
        again = self._ledger.due(now)
        commands: list[p.Command] = [again] if again is not None else []
        commands += self._recovering(self._recovery.wake(now), now)
        commands += self._overdue(now)
        match self.phase:
            case Phase.WAITING if self._requests.is_stopping:
                commands += self._stop_if_due(now)
            case Phase.WAITING if not self._ledger.is_undecided and now.monotonic >= self._resume_at:
                commands += self._spawn()
            case Phase.DRAINING if now.monotonic >= self._drain_until:
                commands += [telling.not_confirmed_in_time(), *self._end_with(None)]
            case Phase.RUNNING | Phase.DRAINING | Phase.DEPLOYING:
                commands += self._deployed(lambda d: d.wake(now), now)
            case Phase.CLOSING if self._is_confirming and now.monotonic >= self._resume_at:
                commands += self._confirm()
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
        return [*commands, *(self._close_cleanly() if is_settled else [p.WakeAt(self._drain_until)])]

    def _settle_failed_attempt(self, own: Attempt, now: Now) -> list[p.Command]:
        """Nothing runs, but attempt `own` left transactions: commit what is due and abort the rest, as the next would.
        Not those of an attempt whose takeover was not won: that number may be another JobManager's."""
        self._ending.records(self._ledger.clean_stop(keeps=True), is_certain=False)
        begun = self._recovery.as_the_next(self._ledger, own, self._attempt, now)
        return self._move(Phase.SETTLING) + self._recovering(begun, now)
