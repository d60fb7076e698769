"""Errors of the coordinator, of the JobManager around it, and of what is removed when."""

from typing import Any

import msgspec
import pytest

from tidegate.checkpoint import coordinator
from tidegate.checkpoint.log import Completed
from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import CheckpointId
from tidegate.runtime.link import Link
from tidegate.scheduling import housekeeping
from tidegate.scheduling import protocol as p
from tidegate.scheduling.deployment import Deployment
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.performer import JobManagerPerformer


def triggers_before_the_commits_are_reported(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.Coordinator._settle

    def wrong(self: Any, now: Any) -> Any:
        self._uncommitted = set()
        return right(self, now)

    patch.setattr(coordinator.Coordinator, "_settle", wrong)


def takes_the_acknowledgements_of_any_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, attempt: Any, checkpoint: Any) -> bool:
        return self._phase is coordinator._Phase.WAITING

    patch.setattr(coordinator.Coordinator, "_awaits", wrong)


def exports_before_the_commits_are_reported(patch: pytest.MonkeyPatch) -> None:
    right = JobManager._completed

    def wrong(self: Any, manifest: Manifest, now: Any) -> Any:
        return [*right(self, manifest, now), *self._requests.settled(manifest, is_last=False)]

    patch.setattr(JobManager, "_completed", wrong)


def exports_what_it_has_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Housekeeping, "pin", lambda self, manifest: None)
    patch.setattr(Housekeeping, "release", lambda self, checkpoint, ledger: [])


def takes_a_drained_operator_for_ended(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.make_manifest

    def wrong(plan: Any, gathered: Any, now: Any) -> Manifest:
        return right(plan, msgspec.structs.replace(gathered, counts_ends=True), now)

    patch.setattr(coordinator, "make_manifest", wrong)


def commits_before_the_log_has_it(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.Coordinator._acknowledge

    def wrong(self: Any, event: Any, now: Any) -> Any:
        commands = right(self, event, now)
        is_complete = any(isinstance(command, coordinator.AppendManifest) for command in commands)
        return [coordinator.NotifyCompleted(self.last), *commands] if is_complete else commands

    patch.setattr(coordinator.Coordinator, "_acknowledge", wrong)


def ends_the_job_before_its_last_commits(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.Coordinator._completed

    def wrong(self: Any, now: Any) -> Any:
        commands = right(self, now)
        if not (self._is_final and self._gathered.counts_ends):
            return commands
        self._uncommitted = set()
        return [*commands, *self._settle(now)]

    patch.setattr(coordinator.Coordinator, "_completed", wrong)


def counts_checkpoints_anew_in_each_attempt(patch: pytest.MonkeyPatch) -> None:
    right = Deployment.recovered

    def wrong(self: Any, manifest: Any, highest: Any) -> Any:
        return right(self, manifest, CheckpointId(0))

    patch.setattr(Deployment, "recovered", wrong)


def begins_before_the_splits_are_known(patch: pytest.MonkeyPatch) -> None:
    right = Deployment._begin_checkpoints

    def wrong(self: Any, now: Any) -> Any:
        waiting, self._undiscovered = self._undiscovered, {}
        outcomes = right(self, now)
        self._undiscovered = waiting
        return outcomes

    patch.setattr(Deployment, "_begin_checkpoints", wrong)


def takes_an_append_without_an_answer_for_failed(patch: pytest.MonkeyPatch) -> None:
    right = JobManager.handle

    def wrong(self: Any, event: Any, now: Any) -> Any:
        pending = self._ledger._cursor.pending
        if not isinstance(event, p.AppendUnanswered) or pending is None or not isinstance(pending.body, Completed):
            return right(self, event, now)
        self._ledger._cursor.pending = None
        return self._deployed(lambda d: _given_up(d, now), now)

    patch.setattr(JobManager, "handle", wrong)


def _given_up(deployment: Any, now: Any) -> list[Any]:
    commands = deployment._coordinator._failed("the log did not answer", now)
    return [outcome for command in commands for outcome in deployment._translate(command)]


def repeats_an_append_with_other_bytes(patch: pytest.MonkeyPatch) -> None:
    right = Ledger.due

    def wrong(self: Any, now: Any) -> Any:
        again = right(self, now)
        if again is None:
            return None
        self._cursor.pending = msgspec.structs.replace(again.entry, at=now.wall)
        return msgspec.structs.replace(again, entry=self._cursor.pending)

    patch.setattr(Ledger, "due", wrong)


def goes_on_when_an_append_is_refused(patch: pytest.MonkeyPatch) -> None:
    right = JobManager.handle

    def wrong(self: Any, event: Any, now: Any) -> Any:
        is_refused = isinstance(event, p.AppendRefused)
        return right(self, p.AppendWon(event.position) if is_refused else event, now)

    patch.setattr(JobManager, "handle", wrong)


def runs_without_taking_over(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, event: Any, now: Any) -> Any:
        return [*self._move(Phase.TAKING_OVER), *self._took_over(now)]

    patch.setattr(JobManager, "_take_over", wrong)


def sends_a_control_message_only_once(patch: pytest.MonkeyPatch) -> None:
    right = Link.due

    def wrong(self: Any, now: float) -> Any:
        self._resend_at = None
        return right(self, now)

    patch.setattr(Link, "due", wrong)


def deletes_before_the_later_entry_is_won(patch: pytest.MonkeyPatch) -> None:
    right = JobManager._outcome

    def wrong(self: Any, outcome: Any, now: Any) -> Any:
        commands = right(self, outcome, now)
        pending = self._ledger._cursor.pending
        if not isinstance(outcome, coordinator.AppendManifest) or pending is None:
            return commands
        hoped = Ledger([*self._ledger.stored, pending], self._graph.job, pending.nonce, pending.instance)
        return [*commands, *self._housekeeping.after_checkpoint((), hoped)]

    patch.setattr(JobManager, "_outcome", wrong)


def deletes_files_before_the_entries_that_name_them(patch: pytest.MonkeyPatch) -> None:
    right = JobManagerPerformer._clean_up

    def wrong(self: Any, command: Any) -> Any:
        if isinstance(command, p.CleanUp):
            self._store.delete_files(command.files)
        return right(self, command)

    patch.setattr(JobManagerPerformer, "_clean_up", wrong)


def deletes_all_that_earlier_attempts_stored(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, attempt: Any, ledger: Any) -> Any:
        return [p.CleanUpOrphans(attempt, frozenset())]

    patch.setattr(Housekeeping, "of_attempts_before", wrong)


def leaves_what_abandoned_checkpoints_stored(patch: pytest.MonkeyPatch) -> None:
    right = Housekeeping.after_checkpoint

    def wrong(self: Any, garbage: Any, ledger: Any) -> Any:
        return right(self, (), ledger)

    patch.setattr(Housekeeping, "after_checkpoint", wrong)
    patch.setattr(Housekeeping, "of_own_attempts", lambda self, ledger: [])


def prunes_the_newest_takeover(patch: pytest.MonkeyPatch) -> None:
    right = housekeeping.prunable

    def wrong(view: Any, retained: int) -> Any:
        return right(msgspec.structs.replace(view, takeover_position=None), retained)

    patch.setattr(housekeeping, "prunable", wrong)
