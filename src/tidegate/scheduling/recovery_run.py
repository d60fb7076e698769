"""The recoveries of a JobManager, one at a time: before deploying, the sweep while it runs, the last clean-up. Pure.

A recovery may be dropped with a step under way; the number of its run tells that step's late answer from an answer to
the next recovery.
"""

from collections.abc import Sequence

from tidegate.checkpoint import recovery
from tidegate.checkpoint.recovery import RecoveryPlan, SinkTarget
from tidegate.clock import Now
from tidegate.ids import Attempt
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.protocol import Recover, WakeAt

RecoveryOutcome = Recover | WakeAt | recovery.Done | recovery.Failed
"""What a recovery asks its owner for: commands to pass on, and how it ended."""


class RecoveryRun:
    """At most one recovery, and how many there have been."""

    def __init__(self) -> None:
        self._recovery: recovery.Recovery | None = None
        self._attempt = Attempt(0)
        self._run = 0

    @property
    def is_under_way(self) -> bool:
        return self._recovery is not None

    def begin(self, plan: RecoveryPlan, attempt: Attempt, now: Now) -> list[RecoveryOutcome]:
        """`attempt`: the present one; the plan's may be that of the attempt that would follow."""
        self._recovery = recovery.Recovery(plan)
        self._attempt = attempt
        self._run += 1
        return self._handle(recovery.Begin(), now)

    def answered(self, run: int, answer: recovery.Event, now: Now) -> list[RecoveryOutcome]:
        return self._handle(answer, now) if run == self._run else []

    def wake(self, now: Now) -> list[RecoveryOutcome]:
        return self._handle(recovery.Wake(), now)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self._recovery = None

    def _handle(self, event: recovery.Event, now: Now) -> list[RecoveryOutcome]:
        if self._recovery is None:
            return []
        outcomes: list[RecoveryOutcome] = []
        for command in self._recovery.handle(event, now):
            match command:
                case recovery.WakeAt(at):
                    outcomes.append(WakeAt(at))
                case recovery.Done() | recovery.Failed():
                    self._recovery = None
                    outcomes.append(command)
                case _:
                    outcomes.append(Recover(self._attempt, self._run, command))
        return outcomes


def before_deploying(ledger: Ledger, sinks: Sequence[SinkTarget], attempt: Attempt, accept_lost: bool) -> RecoveryPlan:
    """Commit what the newest checkpoint names, abort what is open besides."""
    return RecoveryPlan(
        instance=ledger.instance,
        attempt=attempt,
        sinks=tuple(sinks),
        manifest=ledger.restorable,
        is_settled=ledger.is_settled,
        is_fresh=ledger.begins_fresh,
        accept_lost=accept_lost,
    )


def leftovers_before(ledger: Ledger, sinks: Sequence[SinkTarget], attempt: Attempt) -> RecoveryPlan:
    """Abort what attempts before `attempt` left open; everything of the newest checkpoint is committed."""
    return RecoveryPlan(
        instance=ledger.instance,
        attempt=attempt,
        sinks=tuple(sinks),
        manifest=ledger.restorable,
        is_settled=True,
        is_sweep=True,
    )
