"""Errors of the checkpoint log, of recovery, and of how a job begins."""

from typing import Any

import msgspec
import pytest

from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Entry, LogView
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import AppendResult, CheckpointStore, Taken, Won, encode_entry
from tidegate.ids import LogPosition
from tidegate.scheduling import beginning
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.opening import FROM_SAVEPOINT
from tidegate.storage.port import AlreadyExists


def aborts_before_it_commits_at_recovery(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> Any:
        if not self._steps and not self._commits_are_done:
            self._commits_are_done = True
            lists = [recovery.ListOpen(target) for target in reversed(self._targets)]
            self._steps = [*reversed(self._commits()), *lists]
        if self._steps:
            return [self._steps[-1]]
        return [recovery.Done(self._committed, self._aborted, tuple(self._given_up))]

    patch.setattr(recovery.Recovery, "_next", wrong)
    patch.setattr(recovery, "named_by", lambda manifest: frozenset())


def aborts_nothing_at_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.Recovery, "_may_abort", lambda self, id: False)


def commits_nothing_at_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.Recovery, "_commits", lambda self: [])


def tries_the_next_position_after_a_conflict(patch: pytest.MonkeyPatch) -> None:
    right = CheckpointStore.append

    def wrong(self: Any, entry: Entry) -> AppendResult:
        while isinstance(result := right(self, entry), Taken):
            entry = msgspec.structs.replace(entry, position=LogPosition(entry.position + 1))
        return result

    patch.setattr(CheckpointStore, "append", wrong)


def wins_a_position_that_was_pruned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CheckpointStore, "_fate", lambda self, entry: Won())


def goes_back_to_an_older_checkpoint_silently(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: LogView) -> Manifest | None:
        return self.manifests[-2:][0] if self.manifests else None

    patch.setattr(LogView, "newest", property(wrong))


def says_lost_without_asking_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobManager, "_must_confirm", property(lambda self: False))


def counts_from_savepoint_twice(patch: pytest.MonkeyPatch) -> None:
    right = beginning.decide_opening

    def wrong(view: LogView, *others: Any) -> Any:
        options = {name: value for name, value in view.options.items() if name != FROM_SAVEPOINT}
        return right(msgspec.structs.replace(view, options=options), *others)

    patch.setattr(beginning, "decide_opening", wrong)


def imports_without_logging(patch: pytest.MonkeyPatch) -> None:
    """Found by a script: `test_scenarios`."""
    right = JobManager._of_attempt

    def wrong(self: Any, event: Any, now: Any) -> Any:
        if not isinstance(event, p.SavepointImported):
            return right(self, event, now)
        self._move(Phase.DEPLOYING)
        deployed = self._deployed(lambda d: d.recovered(event.manifest, event.manifest.checkpoint), now)
        return [*deployed, p.DropSavepoint(self._ledger.view.origin)]

    patch.setattr(JobManager, "_of_attempt", wrong)


def keeps_to_itself_what_it_begins_from(patch: pytest.MonkeyPatch) -> None:
    """Found by a script: `test_scenarios`."""
    right = beginning.Beginning.takeover
    known: dict[str, Any] = {}

    def wrong(self: Any, event: Any) -> Any:
        takeover = right(self, event)
        known.setdefault(self._identity.nonce, takeover.savepoint)
        return msgspec.structs.replace(takeover, savepoint=None)

    def unimported(self: LogView) -> Any:
        return None if self.completed else known.get(self.newest_nonce)

    patch.setattr(beginning.Beginning, "takeover", wrong)
    patch.setattr(LogView, "unimported", property(unimported))


def takes_an_entry_that_is_there_for_its_own(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, entry: Entry) -> AppendResult:
        try:
            self.storage.put_if_absent(self._entry_path(entry.position), encode_entry(entry))
        except AlreadyExists:
            return Won()
        return self._fate(entry)

    patch.setattr(CheckpointStore, "append", wrong)


def appends_without_asking_whether_the_place_is_free(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, entry: Entry) -> AppendResult:
        self.storage.write(self._entry_path(entry.position), encode_entry(entry))
        return self._fate(entry)

    patch.setattr(CheckpointStore, "append", wrong)


def aborts_what_its_own_attempt_has_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.Recovery, "_may_abort", lambda self, id: id.attempt <= self._plan.attempt)


def asks_only_once_at_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.Recovery, "_again", lambda self, failure, now: [])


def goes_on_when_nobody_knows_what_became_of_a_commit(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, failure: Any, now: Any) -> Any:
        return self._advance()

    patch.setattr(recovery.Recovery, "_again", wrong)
