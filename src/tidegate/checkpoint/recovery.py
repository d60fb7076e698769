"""What is done with transactions before anything is deployed, in this order (the takeover is won already):

0. ask every sink of the program whether its transactions live long enough for the checkpoints of this job
1. look at every open transaction of every sink's prefix; one of another log instance stops the job (wrong folder?)
2. commit what the newest completed checkpoint names, in order: restoring it *is* the proof that it completed
3. abort every other open transaction of earlier attempts of this log, also of subtasks and sinks that no longer exist

Abort never comes before commit, never touches an id of this or a later attempt, and never one that the newest completed
checkpoint names, not even after it was committed: the next recovery would take it for lost (unless the log itself says
that all of it is committed, and no recovery will ever ask again). A crash between any two
steps is followed by the same steps again. Steps 1 and 3 are repeated after completed checkpoints, because a process of
an earlier attempt may wake up late and open a transaction under an id that it had initialised.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.loss import lost_transaction
from tidegate.checkpoint.manifest import Manifest, SinkTarget
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CommitPermit,
    Committable,
    Committed,
    CompletedInLog,
    Lost,
    Outcome,
    Retry,
    Unknown,
)
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, LogInstance, TransactionalId

PATIENCE = 60.0
"""Seconds for which an external system that does not answer is asked again before the attempt fails."""


# ---- events --------------------------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True):
    pass


class TimeoutChecked(msgspec.Struct, frozen=True):
    """The target's transactions live long enough."""

    target: SinkTarget


class Listed(msgspec.Struct, frozen=True):
    """The open transactions of one target."""

    target: SinkTarget
    ids: tuple[TransactionalId, ...]


class CommitAnswered(msgspec.Struct, frozen=True):
    committable: Committable
    outcome: Outcome


class Aborted(msgspec.Struct, frozen=True):
    id: TransactionalId


class NoAnswer(msgspec.Struct, frozen=True):
    """The last command could not be carried out; `failure` says why. What may pass is tried again."""

    failure: Failure


class Wake(msgspec.Struct, frozen=True):
    """The time of a `WakeAt` has come."""


Event = Begin | TimeoutChecked | Listed | CommitAnswered | Aborted | NoAnswer | Wake

# ---- commands ------------------------------------------------------------------------------------------------------


class CheckTimeout(msgspec.Struct, frozen=True):
    """Refuse a sink whose transactions could time out within `needed` seconds."""

    target: SinkTarget
    needed: float


class ListOpen(msgspec.Struct, frozen=True):
    target: SinkTarget


class Commit(msgspec.Struct, frozen=True):
    target: SinkTarget
    committable: Committable
    permit: CommitPermit


class Abort(msgspec.Struct, frozen=True):
    target: SinkTarget
    id: TransactionalId


class Done(msgspec.Struct, frozen=True):
    """Everything is committed or aborted; deploy. `given_up`: lost transactions that were accepted."""

    committed: int
    aborted: int
    given_up: tuple[Failure, ...]


class Failed(msgspec.Struct, frozen=True):
    failure: Failure


class WakeAt(msgspec.Struct, frozen=True):
    at: float


Step = CheckTimeout | ListOpen | Commit | Abort
"""What is asked of a sink's system."""
Command = Step | Done | Failed | WakeAt


class RecoveryPlan(msgspec.Struct, frozen=True):
    """What recovery works on. `manifest`: the newest completed checkpoint; None for a start without state."""

    instance: LogInstance
    attempt: Attempt
    sinks: tuple[SinkTarget, ...]
    """The program's."""
    manifest: Manifest | None
    is_settled: bool = False
    """The log says that everything the manifest names is committed: a clean stop, or a later checkpoint."""
    is_fresh: bool = False
    """Asked for by --fresh: abort what is open in other instances, too, instead of stopping."""
    accept_lost: bool = False
    needed_timeout: float | None = None
    """Seconds that the transactions of the program's sinks must live; None asks nobody."""
    is_sweep: bool = False
    """While the job runs: what another log left open was no obstacle to its start, and is passed over."""


class Recovery:
    """Steps 0 to 3; one command at a time is under way."""

    def __init__(self, plan: RecoveryPlan) -> None:
        self._plan = plan
        self._targets = _targets(plan)
        self._steps: list[Step] = []
        """Still to be done, the next one last."""
        self._commits_are_done = False
        self._committed = 0
        self._aborted = 0
        self._given_up: list[Failure] = []
        self._silent_since: float | None = None
        self._retry_at: float | None = None

    @property
    def ended(self) -> int:
        """How many transactions are committed or aborted so far."""
        return self._committed + self._aborted

    @property
    def left(self) -> int:
        """How many more are known of. Sinks that have not been asked for their open ones yet may have others."""
        return sum(isinstance(step, Commit | Abort) for step in self._steps)

    def handle(self, event: Event, now: Now) -> list[Command]:
        match event:
            case Begin():
                self._steps = [ListOpen(target) for target in reversed(self._targets)] + self._checks()
                return self._next()
            case TimeoutChecked():
                return self._advance()
            case Listed(target, ids):
                return self._took_list(target, ids)
            case CommitAnswered(_, Retry(why)):
                return self._again(Failure(ErrorKind.UNAVAILABLE, f"a commit at recovery is not answered: {why}"), now)
            case CommitAnswered(committable, outcome):
                return self._took_outcome(committable, outcome)
            case Aborted():
                self._aborted += 1
                return self._advance()
            case NoAnswer(failure):
                return self._again(failure, now) if failure.kind is ErrorKind.UNAVAILABLE else [Failed(failure)]
            case Wake():
                if self._retry_at is None or now.monotonic < self._retry_at:
                    return []
                self._retry_at = None
                return [self._steps[-1]]

    def _advance(self) -> list[Command]:
        self._silent_since = None
        self._steps.pop()
        return self._next()

    def _next(self) -> list[Command]:
        if self._steps:
            return [self._steps[-1]]
        if not self._commits_are_done:
            self._commits_are_done = True
            self._steps = [*(ListOpen(target) for target in reversed(self._targets)), *reversed(self._commits())]
            return self._next()
        return [Done(self._committed, self._aborted, tuple(self._given_up))]

    def _commits(self) -> list[Step]:
        manifest = self._plan.manifest
        if manifest is None or self._plan.is_settled:
            return []
        permit = CommitPermit(CompletedInLog(manifest.attempt, manifest.checkpoint))
        return [
            Commit(SinkTarget(record.name, record.sink), pending.committable, permit)
            for record in manifest.operators
            if record.sink is not None
            for pending in record.pending
        ]

    def _checks(self) -> list[Step]:
        needed = self._plan.needed_timeout
        return [] if needed is None else [CheckTimeout(target, needed) for target in reversed(self._plan.sinks)]

    def _took_list(self, target: SinkTarget, ids: Sequence[TransactionalId]) -> list[Command]:
        foreign = [id for id in ids if id.instance != self._plan.instance]
        if foreign and not (self._plan.is_fresh or self._plan.is_sweep):
            return [Failed(_foreign_failure(foreign, target, self._plan.instance))]
        if not self._commits_are_done:
            return self._advance()
        doomed = [id for id in ids if self._may_abort(id) and str(id) not in self._spared]
        self._silent_since = None
        self._steps.pop()
        self._steps += [Abort(target, id) for id in reversed(doomed)]
        return self._next()

    @property
    def _spared(self) -> frozenset[str]:
        """Where the log says for good that everything named is committed, what is open under such an id is a later use
        of it: the operator went back to a checkpoint behind which its slot had been used again."""
        is_over = self._plan.is_settled and not self._plan.is_sweep
        return frozenset() if is_over else named_by(self._plan.manifest)

    def _may_abort(self, id: TransactionalId) -> bool:
        return id.attempt < self._plan.attempt if id.instance == self._plan.instance else self._plan.is_fresh

    def _took_outcome(self, committable: Committable, outcome: Outcome) -> list[Command]:
        match outcome:
            case Committed() | AlreadyCommitted():
                self._committed += 1
            case Lost(why) | Unknown(why):
                kind = ErrorKind.LOST if isinstance(outcome, Lost) else ErrorKind.UNKNOWN_OUTCOME
                failure = lost_transaction(kind, committable, why)
                if not self._plan.accept_lost:
                    return [Failed(failure)]
                self._given_up.append(failure)
        return self._advance()

    def _again(self, failure: Failure, now: Now) -> list[Command]:
        self._silent_since = self._silent_since if self._silent_since is not None else now.monotonic
        waited = now.monotonic - self._silent_since
        if waited >= PATIENCE:
            return [Failed(failure)]
        self._retry_at = now.monotonic + min(max(waited, 0.05), 2.0)
        return [WakeAt(self._retry_at)]


def named_by(manifest: Manifest | None) -> frozenset[str]:
    """The transactional ids that a checkpoint names: nobody aborts them, whatever became of them."""
    if manifest is None:
        return frozenset()
    return frozenset(pending.committable.id for record in manifest.operators for pending in record.pending)


def _targets(plan: RecoveryPlan) -> tuple[SinkTarget, ...]:
    """The program's sinks and those that the manifest names, under the prefix and in the system of then and of now,
    once."""
    then = [
        SinkTarget(record.name, record.sink)
        for record in (plan.manifest.operators if plan.manifest else ())
        if record.sink is not None
    ]
    found: list[SinkTarget] = []
    for target in (*plan.sinks, *then):
        if target not in found:
            found.append(target)
    return tuple(found)


def _foreign_failure(foreign: Sequence[TransactionalId], target: SinkTarget, own: LogInstance) -> Failure:
    names = ", ".join(str(id) for id in foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
    return Failure(
        ErrorKind.UNKNOWN_OUTCOME,
        f"sink {target.sink} has open transactions of another checkpoint log ({names}); this log is {own}",
        "Is this the right --checkpoint-dir? Start with the folder in which the job ran before. If that is lost and "
        "the job runs nowhere else, abort them with 'tidegate transactions abort --force', or start with --fresh: that "
        "aborts them and begins without state.",
    )
