"""The checkpoint coordinator: when a checkpoint is triggered, when it is complete, when it is given up.

One `Coordinator` belongs to one attempt; it lives in the JobManager. One checkpoint at a time goes through

    waiting for acknowledgements  →  appending to the log  →  committing  →  done
                    ↓ (timeout, decline)
                abandoned

Checkpoint n + 1 is triggered only after every task has reported that it knows of n and that its commits are done: what
it captures for n + 1 is based on n, so what only older checkpoints name may be deleted. While an append is undecided
nothing is notified, abandoned or triggered: a write that "did not happen" can still land. An acknowledgement counts
only for the checkpoint and attempt that wait for it, and once.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.plan import CheckpointPlan, Gathered, make_manifest
from tidegate.checkpoint.protocol import Acknowledge, CommitsReported, Decline, OperatorSnapshot, SplitState
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, OperatorName, TaskId

SOON = 1.0
"""Seconds between a failed checkpoint that somebody waits for and the next try, at most; the interval where it is
shorter."""
FIRST_INTERVAL = 0.1
"""Seconds to the first checkpoint of an attempt that goes on where another one failed: what it puts out has been waited
for since then. Each following interval is twice as long, until it is the usual one."""


class CoordinatorSettings(msgspec.Struct, frozen=True):
    """Seconds, and a count of consecutive failures."""

    interval: float
    timeout: float
    min_pause: float
    tolerable_failures: int


class UnassignedSplits(Protocol):
    """An enumerator, seen from here: what it has not handed out at this moment."""

    @property
    def unassigned(self) -> Sequence[SplitState]: ...


REPORT_PATIENCE = 120.0
"""Seconds in which every task must have reported its commits; longer than a sink itself goes on asking."""

# ---- events --------------------------------------------------------------------------------------------------------


class TasksRunning(msgspec.Struct, frozen=True):
    """All tasks run; checkpoints may begin."""


class TriggerNow(msgspec.Struct, frozen=True):
    """Somebody asks for a checkpoint without waiting for the interval."""


class TakeLast(msgspec.Struct, frozen=True):
    """One more checkpoint, now, and none when it has settled: the job is to stop with it."""


class GoOn(msgspec.Struct, frozen=True):
    """After all it is not to stop: checkpoints go on."""


class Drained(msgspec.Struct, frozen=True):
    """Sources were told to end their inputs here. They will be gone on with, so nothing ends for ever; the checkpoint
    behind the end is the last."""


class AllTasksEnded(msgspec.Struct, frozen=True):
    """Every input has ended and everything is in the sinks: one more checkpoint, and the job is done."""


class AppendWon(msgspec.Struct, frozen=True):
    """The manifest is in the log: the checkpoint is complete."""


class StopTriggering(msgspec.Struct, frozen=True):
    """A clean stop: finish what is complete, give up what is not, begin nothing."""


class Wake(msgspec.Struct, frozen=True):
    """The time of a `WakeAt` has come."""


Event = (
    TasksRunning
    | TriggerNow
    | TakeLast
    | GoOn
    | Drained
    | AllTasksEnded
    | AppendWon
    | StopTriggering
    | Wake
    | Acknowledge
    | Decline
    | CommitsReported
)

# ---- commands ------------------------------------------------------------------------------------------------------


class Trigger(msgspec.Struct, frozen=True):
    """To every source task."""

    checkpoint: CheckpointId


class AppendManifest(msgspec.Struct, frozen=True):
    manifest: Manifest


class NotifyCompleted(msgspec.Struct, frozen=True):
    """To every task."""

    checkpoint: CheckpointId


class NotifyAbandoned(msgspec.Struct, frozen=True):
    """To every task."""

    checkpoint: CheckpointId
    reason: str


class CheckpointSettled(msgspec.Struct, frozen=True):
    """All commits of `checkpoint` are reported, and others may follow. `files`: what abandoned checkpoints left, to be
    deleted now."""

    checkpoint: CheckpointId
    files: tuple[str, ...]
    is_last: bool = False
    """It is the one that was asked for by `TakeLast`, or for which the job was drained: no other follows."""


class AllCommitted(msgspec.Struct, frozen=True):
    """Instead of `CheckpointSettled`, when the finite job is done: everything of `checkpoint`, its last, is
    committed."""

    checkpoint: CheckpointId
    files: tuple[str, ...]


class FailAttempt(msgspec.Struct, frozen=True):
    failure: Failure


class WakeAt(msgspec.Struct, frozen=True):
    at: float


Command = (
    Trigger
    | AppendManifest
    | NotifyCompleted
    | NotifyAbandoned
    | CheckpointSettled
    | AllCommitted
    | FailAttempt
    | WakeAt
)


class _Phase(Enum):
    IDLE = "idle"
    WAITING = "waiting for acknowledgements"
    APPENDING = "appending to the log"
    COMMITTING = "committing"


class Coordinator:
    """Decides about the checkpoints of one attempt. `last`: the newest checkpoint id ever used, 0 for none. `goes_on`:
    where an earlier attempt was, from its newest checkpoint."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        plan: CheckpointPlan,
        enumerators: Mapping[OperatorName, UnassignedSplits],
        last: CheckpointId,
        *,
        goes_on: bool = False,
    ) -> None:
        self._settings = settings
        self._interval = min(settings.interval, FIRST_INTERVAL) if goes_on else settings.interval
        """Seconds from one trigger to the next, at present."""
        self._plan = plan
        self._enumerators = enumerators
        self.last = last
        self._phase = _Phase.IDLE
        self._is_open = False
        """Whether checkpoints may be triggered."""
        self._due_at = 0.0
        self._is_wanted = False
        """Somebody asked for a checkpoint that is not triggered yet."""
        self._is_awaited = False
        """Somebody asked for the running checkpoint, or for an earlier one that was given up."""
        self._gathered = Gathered(last, Now(0.0, 0.0), {}, counts_ends=True)
        self._uncommitted: set[TaskId] = set()
        self._report_by = 0.0
        """Until when these must have reported."""
        self._failures: list[str] = []
        """Why the checkpoints since the last success failed."""
        self._garbage: list[str] = []
        self._has_ended = False
        self._is_final = False
        """Whether the running checkpoint was triggered after the end of all input."""
        self._is_drained = False
        self._is_last_wanted = False
        self._is_last = False
        """Whether the running checkpoint is the one to stop with."""
        self._is_held = False
        """The one to stop with has settled."""

    @property
    def is_settled(self) -> bool:
        """Whether every transaction of every completed checkpoint is committed, and none is on its way to
        completion."""
        return self._phase is _Phase.IDLE

    def handle(self, event: Event, now: Now) -> list[Command]:
        match event:
            case TasksRunning():
                self._is_open = True
                self._due_at = now.monotonic + (0.0 if self._has_ended else self._interval)
                return self._next(now)
            case TriggerNow():
                self._is_wanted = True
                return self._next(now)
            case TakeLast():
                self._is_wanted = self._is_last_wanted = True
                return self._next(now)
            case GoOn():
                self._is_last_wanted = self._is_last = self._is_held = False
                return self._next(now)
            case Drained():
                self._is_drained = not self._has_ended
                return []
            case AllTasksEnded():
                self._has_ended = True
                self._due_at = now.monotonic
                return self._next(now)
            case StopTriggering():
                self._is_open = False
                return self._abandon("the job stops", now) if self._phase is _Phase.WAITING else []
            case AppendWon():
                return self._completed(now)
            case Wake():
                return self._wake(now)
            case Acknowledge():
                return self._acknowledge(event, now)
            case Decline():
                return self._decline(event, now)
            case CommitsReported():
                return self._committed(event, now)

    # -- triggering --

    def _next(self, now: Now) -> list[Command]:
        """Trigger when it is time, or say when it will be."""
        if not self._is_open or self._is_held or self._phase is not _Phase.IDLE:
            return []
        if now.monotonic < self._due_at and not self._is_wanted:
            return [WakeAt(self._due_at)]
        self.last = CheckpointId(self.last + 1)
        self._phase = _Phase.WAITING
        self._is_awaited, self._is_wanted = self._is_awaited or self._is_wanted, False
        self._is_final, self._is_last = self._has_ended, self._is_last_wanted
        held = {name: tuple(enumerator.unassigned) for name, enumerator in self._enumerators.items()}
        self._gathered = Gathered(self.last, now, held, counts_ends=not self._is_drained)
        return [Trigger(self.last), WakeAt(now.monotonic + self._settings.timeout)]

    def _wake(self, now: Now) -> list[Command]:
        if self._phase is _Phase.COMMITTING and now.monotonic >= self._report_by:
            names = ", ".join(map(str, sorted(self._uncommitted)))
            text = f"the commits of checkpoint {self.last} were not reported by {names} within {REPORT_PATIENCE:g} s"
            return [FailAttempt(Failure(ErrorKind.UNAVAILABLE, text, "They are prepared; recovery commits them."))]
        if self._phase is not _Phase.WAITING:
            return self._next(now)
        deadline = self._gathered.triggered.monotonic + self._settings.timeout
        if now.monotonic < deadline:
            return [WakeAt(deadline)]
        late = sorted(self._plan.tasks - self._gathered.acknowledged.keys())
        names = ", ".join(map(str, late[:5])) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
        reason = f"no acknowledgement from {names} within {self._settings.timeout:g} s"
        return self._failed(reason, now)

    # -- acknowledgements --

    def _acknowledge(self, event: Acknowledge, now: Now) -> list[Command]:
        if not self._awaits(event.attempt, event.checkpoint) or event.task in self._gathered.acknowledged:
            if self._is_given_up(event.attempt, event.checkpoint):
                self._garbage += _files(event.operators)
            return []
        if event.task not in self._plan.tasks:
            return []
        self._gathered.acknowledged[event.task] = event.operators
        if len(self._gathered.acknowledged) < len(self._plan.tasks):
            return []
        self._phase = _Phase.APPENDING
        return [AppendManifest(make_manifest(self._plan, self._gathered, now))]

    def _decline(self, event: Decline, now: Now) -> list[Command]:
        if not self._awaits(event.attempt, event.checkpoint):
            return []
        return self._failed(f"{event.task} could not store its state: {event.reason}", now)

    def _awaits(self, attempt: Attempt, checkpoint: CheckpointId) -> bool:
        return self._phase is _Phase.WAITING and attempt == self._plan.attempt and checkpoint == self.last

    def _is_given_up(self, attempt: Attempt, checkpoint: CheckpointId) -> bool:
        """Also true for one that completed and is over; the owner never deletes what an entry in the log names."""
        is_over = checkpoint < self.last or self._phase is _Phase.IDLE
        return is_over and attempt == self._plan.attempt

    def _failed(self, reason: str, now: Now) -> list[Command]:
        self._failures.append(f"checkpoint {self.last}: {reason}")
        if len(self._failures) <= self._settings.tolerable_failures:
            return self._abandon(reason, now)
        self._is_open = False
        commands = self._abandon(reason, now)
        text = f"{len(self._failures)} checkpoints failed one after another. " + "; ".join(self._failures[-3:])
        return [*commands, FailAttempt(Failure(ErrorKind.UNAVAILABLE, text))]

    def _abandon(self, reason: str, now: Now) -> list[Command]:
        self._phase = _Phase.IDLE
        self._garbage += [path for operators in self._gathered.acknowledged.values() for path in _files(operators)]
        self._schedule(now)
        return [NotifyAbandoned(self.last, reason), *self._next(now)]

    # -- completion --

    def _completed(self, now: Now) -> list[Command]:
        assert self._phase is _Phase.APPENDING, f"an append was won while {self._phase.value}"
        self._phase = _Phase.COMMITTING
        self._is_awaited = False
        self._failures = []
        self._uncommitted = set(self._plan.tasks)
        self._report_by = now.monotonic + REPORT_PATIENCE
        return [NotifyCompleted(self.last), WakeAt(self._report_by)]

    def _committed(self, event: CommitsReported, now: Now) -> list[Command]:
        if self._phase is not _Phase.COMMITTING or event.attempt != self._plan.attempt:
            return []
        if event.checkpoint == self.last:
            self._uncommitted.discard(event.task)
        return self._settle(now)

    def _settle(self, now: Now) -> list[Command]:
        if self._uncommitted:
            return []
        self._phase = _Phase.IDLE
        files, self._garbage = tuple(self._garbage), []
        if self._is_final and self._gathered.counts_ends:
            self._is_open = False
            return [AllCommitted(self.last, files)]
        self._is_held = self._is_final or self._is_last
        self._schedule(now)
        return [CheckpointSettled(self.last, files, self._is_held), *self._next(now)]

    def _schedule(self, now: Now) -> None:
        """When the next checkpoint is due, now that one is over."""
        soon = now.monotonic + min(self._settings.interval, SOON)
        if self._has_ended:
            self._due_at = soon if self._is_final else now.monotonic
            return
        if self._is_awaited:
            self._due_at = soon
            return
        self._interval = min(2 * self._interval, self._settings.interval)
        due = self._gathered.triggered.monotonic + self._interval
        self._due_at = max(due, now.monotonic + self._settings.min_pause)


def _files(operators: Sequence[OperatorSnapshot]) -> list[str]:
    return [handle.path for operator in operators for handle in operator.all_handles if handle.path is not None]
