"""The checkpoint coordinator: when a checkpoint is triggered, when it is complete, when it is given up.

One `Coordinator` belongs to one attempt; it lives in the JobManager. One checkpoint at a time goes through

    waiting for acknowledgements  →  appending to the log  →  committing  →  done
                    ↓ (timeout, decline)
                abandoned

Checkpoint n + 1 is triggered only after all commits of n are reported. While an append is undecided nothing is
notified, abandoned or triggered: a write that "did not happen" can still land. An acknowledgement counts only for the
checkpoint and attempt that wait for it, and once.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SinkRecord, SubtaskRecord
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CommitsReported,
    Decline,
    OperatorSnapshot,
    RecoverySpec,
    SplitState,
)
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, TaskId

FINAL_RETRY = 1.0
"""Seconds between a failed last checkpoint of a finite job and the next try, at most; the interval where it is
shorter."""


class CoordinatorSettings(msgspec.Struct, frozen=True):
    """Seconds, and a count of consecutive failures."""

    interval: float
    timeout: float
    min_pause: float
    tolerable_failures: int


class PlannedOperator(msgspec.Struct, frozen=True):
    """What the manifest says of an operator besides its snapshots."""

    name: OperatorName
    parallelism: int
    sink: SinkRecord | None = None
    source: RecoverySpec | None = None


class CheckpointPlan(msgspec.Struct, frozen=True):
    """Who takes part, of which job, in which attempt."""

    job: JobName
    instance: LogInstance
    attempt: Attempt
    parallelism: int
    max_parallelism: int
    operators: tuple[PlannedOperator, ...]
    tasks: frozenset[TaskId]
    sink_tasks: frozenset[TaskId]


class UnassignedSplits(Protocol):
    """An enumerator, seen from here: what it has not handed out at this moment."""

    @property
    def unassigned(self) -> Sequence[SplitState]: ...


REPORT_PATIENCE = 120.0
"""Seconds in which every sink must have reported its commits; longer than a sink itself goes on asking."""

# ---- events --------------------------------------------------------------------------------------------------------


class TasksRunning(msgspec.Struct, frozen=True):
    """All tasks run; checkpoints may begin."""


class TriggerNow(msgspec.Struct, frozen=True):
    """Somebody asks for a checkpoint without waiting for the interval."""


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
    """Decides about the checkpoints of one attempt. `last`: the newest checkpoint id ever used, 0 for none."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        plan: CheckpointPlan,
        enumerators: Mapping[OperatorName, UnassignedSplits],
        last: CheckpointId,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._enumerators = enumerators
        self.last = last
        self._phase = _Phase.IDLE
        self._is_open = False
        """Whether checkpoints may be triggered."""
        self._due_at = 0.0
        self._is_wanted = False
        """Somebody asked for a checkpoint that is not triggered yet."""
        self._triggered = Now(0.0, 0.0)
        self._held: dict[OperatorName, tuple[SplitState, ...]] = {}
        self._acknowledged: dict[TaskId, tuple[OperatorSnapshot, ...]] = {}
        self._uncommitted: set[TaskId] = set()
        self._report_by = 0.0
        """Until when these must have reported."""
        self._failures: list[str] = []
        """Why the checkpoints since the last success failed."""
        self._garbage: list[str] = []
        self._has_ended = False
        self._is_final = False
        """Whether the running checkpoint was triggered after the end of all input."""

    @property
    def is_settled(self) -> bool:
        """Whether every transaction of every completed checkpoint is committed, and none is on its way to
        completion."""
        return self._phase is _Phase.IDLE

    def handle(self, event: Event, now: Now) -> list[Command]:
        match event:
            case TasksRunning():
                self._is_open = True
                self._due_at = now.monotonic + (0.0 if self._has_ended else self._settings.interval)
                return self._next(now)
            case TriggerNow():
                self._is_wanted = True
                return self._next(now)
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
        if not self._is_open or self._phase is not _Phase.IDLE:
            return []
        if now.monotonic < self._due_at and not self._is_wanted:
            return [WakeAt(self._due_at)]
        self._is_wanted = False
        self.last = CheckpointId(self.last + 1)
        self._phase = _Phase.WAITING
        self._triggered = now
        self._is_final = self._has_ended
        self._acknowledged = {}
        self._held = {name: tuple(enumerator.unassigned) for name, enumerator in self._enumerators.items()}
        return [Trigger(self.last), WakeAt(now.monotonic + self._settings.timeout)]

    def _wake(self, now: Now) -> list[Command]:
        if self._phase is _Phase.COMMITTING and now.monotonic >= self._report_by:
            names = ", ".join(map(str, sorted(self._uncommitted)))
            text = f"the commits of checkpoint {self.last} were not reported by {names} within {REPORT_PATIENCE:g} s"
            return [FailAttempt(Failure(ErrorKind.UNAVAILABLE, text, "They are prepared; recovery commits them."))]
        if self._phase is not _Phase.WAITING:
            return self._next(now)
        deadline = self._triggered.monotonic + self._settings.timeout
        if now.monotonic < deadline:
            return [WakeAt(deadline)]
        late = sorted(self._plan.tasks - self._acknowledged.keys())
        names = ", ".join(map(str, late[:5])) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
        reason = f"no acknowledgement from {names} within {self._settings.timeout:g} s"
        return self._failed(reason, now)

    # -- acknowledgements --

    def _acknowledge(self, event: Acknowledge, now: Now) -> list[Command]:
        if not self._awaits(event.attempt, event.checkpoint) or event.task in self._acknowledged:
            if self._is_given_up(event.attempt, event.checkpoint):
                self._garbage += _files(event.operators)
            return []
        if event.task not in self._plan.tasks:
            return []
        self._acknowledged[event.task] = event.operators
        if len(self._acknowledged) < len(self._plan.tasks):
            return []
        self._phase = _Phase.APPENDING
        return [AppendManifest(self._manifest(now))]

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
        self._garbage += [path for operators in self._acknowledged.values() for path in _files(operators)]
        self._schedule(now)
        return [NotifyAbandoned(self.last, reason), *self._next(now)]

    # -- completion --

    def _completed(self, now: Now) -> list[Command]:
        assert self._phase is _Phase.APPENDING, f"an append was won while {self._phase.value}"
        self._phase = _Phase.COMMITTING
        self._failures = []
        self._uncommitted = set(self._plan.sink_tasks)
        self._report_by = now.monotonic + REPORT_PATIENCE
        waiting = [WakeAt(self._report_by)] if self._uncommitted else []
        return [NotifyCompleted(self.last), *waiting, *self._settle(now)]

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
        if self._is_final:
            self._is_open = False
            return [AllCommitted(self.last, files)]
        self._schedule(now)
        return [CheckpointSettled(self.last, files), *self._next(now)]

    def _schedule(self, now: Now) -> None:
        """When the next checkpoint is due, now that one is over."""
        if self._has_ended:
            retry = min(self._settings.interval, FINAL_RETRY)
            self._due_at = now.monotonic + (retry if self._is_final else 0.0)
            return
        due = self._triggered.monotonic + self._settings.interval
        self._due_at = max(due, now.monotonic + self._settings.min_pause)

    def _manifest(self, now: Now) -> Manifest:
        return Manifest(
            format=FORMAT,
            job=self._plan.job,
            instance=self._plan.instance,
            attempt=self._plan.attempt,
            checkpoint=self.last,
            parallelism=self._plan.parallelism,
            max_parallelism=self._plan.max_parallelism,
            triggered_at=self._triggered.wall,
            duration=now.monotonic - self._triggered.monotonic,
            operators=tuple(self._record(operator) for operator in self._plan.operators),
        )

    def _record(self, operator: PlannedOperator) -> OperatorRecord:
        subtasks = tuple(
            SubtaskRecord(task.subtask, snapshot)
            for task in sorted(self._acknowledged)
            for snapshot in self._acknowledged[task]
            if snapshot.name == operator.name
        )
        return OperatorRecord(
            name=operator.name,
            parallelism=operator.parallelism,
            ended=len(subtasks) == operator.parallelism and all(record.snapshot.ended for record in subtasks),
            subtasks=subtasks,
            unassigned=self._held.get(operator.name, ()),
            sink=operator.sink,
            source=operator.source,
        )


def _files(operators: Sequence[OperatorSnapshot]) -> list[str]:
    return [handle.path for operator in operators for handle in operator.handles if handle.path is not None]
