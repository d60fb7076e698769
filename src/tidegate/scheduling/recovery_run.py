"""The recoveries of a JobManager, one at a time: before deploying, the sweep while it runs, the last clean-up. Pure.

A recovery may be dropped with a step under way; the number of its run tells that step's late answer from an answer to
the next recovery. While an external system does not answer, that is told; and while very many transactions are being
ended, how far that is.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint import recovery
from tidegate.checkpoint.manifest import Manifest, SinkTarget
from tidegate.checkpoint.protocol import Retry
from tidegate.checkpoint.recovery import RecoveryPlan
from tidegate.clock import Now
from tidegate.ids import Attempt, JobName
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.protocol import Recover, Tell, WakeAt
from tidegate.scheduling.settings import JobSettings
from tidegate.scheduling.waiting import TELL_AFTER, TELL_EVERY, Wait

RecoveryOutcome = Recover | WakeAt | Tell | recovery.Done | recovery.Failed
"""What a recovery asks its owner for: commands to pass on, and how it ended."""


class RecoveryRun:
    """At most one recovery, and how many there have been. `sinks`: the program's."""

    def __init__(self, job: JobName, sinks: Sequence[SinkTarget], settings: JobSettings) -> None:
        self._job = job
        self._sinks = tuple(sinks)
        self._settings = settings
        self._recovery: recovery.Recovery | None = None
        self._wait: Wait | None = None
        self._tell_at = 0.0
        """When it is told next how many transactions were ended."""
        self._attempt = Attempt(0)
        self._run = 0

    @property
    def is_under_way(self) -> bool:
        return self._recovery is not None

    # -- beginning --

    def before_deploying(
        self, ledger: Ledger, savepoint: Manifest | None, attempt: Attempt, now: Now
    ) -> list[RecoveryOutcome]:
        """Commit what the newest checkpoint names, abort what is open besides; first see whether the sinks will do.
        savepoint: what the attempt begins from while the log has no checkpoint: it tells of sinks and prefixes, too."""
        plan = self._settling(ledger, attempt, self._settings.needed_timeout)
        if plan.manifest is None and savepoint is not None and savepoint.job == self._job:
            plan = msgspec.structs.replace(plan, manifest=savepoint, is_settled=True)
        return self._begin(plan, attempt, now)

    def as_the_next(self, ledger: Ledger, own: Attempt, present: Attempt, now: Now) -> list[RecoveryOutcome]:
        """What the attempt behind `own` would do before deploying, when there is to be none."""
        return self._begin(self._settling(ledger, Attempt(own + 1), None), present, now)

    def sweep(self, ledger: Ledger, before: Attempt, present: Attempt, now: Now) -> list[RecoveryOutcome]:
        """Abort what attempts before `before` left open; everything of the newest checkpoint is committed."""
        plan = RecoveryPlan(
            instance=ledger.instance,
            attempt=before,
            sinks=self._sinks,
            manifest=ledger.restorable,
            is_settled=True,
            is_sweep=True,
        )
        return self._begin(plan, present, now)

    def _settling(self, ledger: Ledger, attempt: Attempt, needed_timeout: float | None) -> RecoveryPlan:
        return RecoveryPlan(
            instance=ledger.instance,
            attempt=attempt,
            sinks=self._sinks,
            manifest=ledger.restorable,
            is_settled=ledger.view.is_settled,
            is_fresh=ledger.begins_fresh,
            accept_lost=self._settings.accept_lost,
            needed_timeout=needed_timeout,
        )

    def _begin(self, plan: RecoveryPlan, attempt: Attempt, now: Now) -> list[RecoveryOutcome]:
        """`attempt`: the present one; the plan's may be that of the attempt that would follow."""
        self.drop()
        self._recovery = recovery.Recovery(plan)
        self._tell_at = now.monotonic + TELL_AFTER
        self._attempt = attempt
        self._run += 1
        return self._handle(recovery.Begin(), now)

    # -- going on --

    def answered(self, run: int, answer: recovery.Event, now: Now) -> list[RecoveryOutcome]:
        if run != self._run:
            return []
        match answer:
            case recovery.NoAnswer(failure) if self._wait is not None:
                self._wait.failed(failure.message)
            case recovery.CommitAnswered(_, Retry(why)) if self._wait is not None:
                self._wait.failed(why)
        return [*self._handle(answer, now), *self._progress(now)]

    def _progress(self, now: Now) -> list[Tell]:
        if self._recovery is None or not self._recovery.ended or now.monotonic < self._tell_at:
            return []
        self._tell_at = now.monotonic + TELL_EVERY
        text = f"recovery has ended {self._recovery.ended} transactions and knows of {self._recovery.left} more"
        return [Tell("info", text)]

    def wake(self, now: Now) -> list[RecoveryOutcome]:
        told = self._wait.told(now) if self._wait is not None else []
        return [*told, *self._handle(recovery.Wake(), now)]

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self._recovery = self._wait = None

    def _handle(self, event: recovery.Event, now: Now) -> list[RecoveryOutcome]:
        if self._recovery is None:
            return []
        outcomes: list[RecoveryOutcome] = []
        for command in self._recovery.handle(event, now):
            match command:
                case recovery.WakeAt(at):
                    outcomes.append(WakeAt(at))
                case recovery.Done() | recovery.Failed():
                    self.drop()
                    outcomes.append(command)
                case _:
                    outcomes += [Recover(self._attempt, self._run, command), *self._waiting(command, now)]
        return outcomes

    def _waiting(self, step: recovery.Step, now: Now) -> list[WakeAt]:
        """A step that is asked for again is still the same wait."""
        what = _described(step)
        if self._wait is not None and self._wait.what == what:
            return []
        self._wait = Wait(what, now)
        return [self._wait.next]


def _described(step: recovery.Step) -> str:
    place = step.target.record.recovery.place or "the external system"
    sink = f"{place}, for sink {step.target.sink}"
    match step:
        case recovery.CheckTimeout():
            return f"{sink} (its transactions' timeout)"
        case recovery.ListOpen():
            return f"{sink} (the list of open transactions)"
        case recovery.Commit(_, committable):
            return f"{sink} (commit of {committable.id})"
        case recovery.Abort(_, id):
            return f"{sink} (abort of {id})"
