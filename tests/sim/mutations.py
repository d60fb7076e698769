"""Deliberate errors of the protocol, applied to the real classes: what the simulated world is there to find.

Each is something that a reasonable person might write.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tidegate.checkpoint import coordinator, participant, recovery
from tidegate.checkpoint import transactions as pool
from tidegate.checkpoint.log import Entry, LogView
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import CheckpointCompleted, CommitPermit
from tidegate.checkpoint.store import AppendResult, CheckpointStore, Taken, Won
from tidegate.elements import Batch
from tidegate.ids import Attempt, LogPosition
from tidegate.runtime import channels, gate, router
from tidegate.scheduling import beginning
from tidegate.scheduling import protocol as p
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.opening import FROM_SAVEPOINT
from tidegate.state import increments, object_handles
from tidegate.storage.port import StorageUnavailable


@dataclass(frozen=True)
class Mutation:
    apply: Callable[[pytest.MonkeyPatch], None]
    seeds: range
    """One of these has to find it."""


def commits_when_prepared(patch: pytest.MonkeyPatch) -> None:
    right = participant.Participant._sink_ready

    def wrong(self: Any, checkpoint: Any, pending: Any) -> Any:
        permit = CommitPermit(CheckpointCompleted(self._attempt, checkpoint))
        return [*right(self, checkpoint, pending), participant.PermitCommits(permit)]

    patch.setattr(participant.Participant, "_sink_ready", wrong)


def acknowledges_what_may_not_be_stored(patch: pytest.MonkeyPatch) -> None:
    right = CheckpointStore.write_state

    def wrong(self: Any, path: str, data: bytes) -> None:
        try:
            right(self, path, data)
        except StorageUnavailable:
            return

    patch.setattr(CheckpointStore, "write_state", wrong)


def forgets_what_was_prepared_for_an_abandoned_checkpoint(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._abandoned

    def wrong(self: Any, checkpoint: Any) -> Any:
        self._pending = [pending for pending in self._pending if pending.checkpoint != checkpoint]
        return right(self, checkpoint)

    patch.setattr(pool.SinkTransactions, "_abandoned", wrong)


def lists_only_the_newest_pending_transaction(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._ready

    def wrong(self: Any) -> Any:
        return [msgspec.structs.replace(ready, pending=ready.pending[-1:]) for ready in right(self)]

    patch.setattr(pool.SinkTransactions, "_ready", wrong)


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


def does_not_align(patch: pytest.MonkeyPatch) -> None:
    right = gate.InputGate._barrier

    def wrong(self: Any, position: int, checkpoint: Any) -> Any:
        if right(self, position, checkpoint) is None and checkpoint <= self._closed:
            return None
        self._unblock()
        self._closed = checkpoint
        return gate.AlignedBarrier(checkpoint)

    patch.setattr(gate.InputGate, "_barrier", wrong)


def reuses_a_slot_as_soon_as_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._free_when_unlisted

    def wrong(self: Any, committable: Any) -> None:
        right(self, committable)
        for slot in self._slots:
            if slot.state is pool._SlotState.COMMITTED:
                slot.state, slot.unlisted_since = pool._SlotState.FREE, None

    patch.setattr(pool.SinkTransactions, "_free_when_unlisted", wrong)


def captures_mutable_state_by_reference(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> Any:
        changes, self._changes = self._changes, {}
        return changes

    def captured(self: Any) -> Any:
        return object_handles.CapturedState(self.descriptor.info, self.encode)

    patch.setattr(object_handles.ObjectHandle, "take_changes", wrong)
    patch.setattr(object_handles.ObjectHandle, "captured", property(captured))


def triggers_before_the_commits_are_reported(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.Coordinator._settle

    def wrong(self: Any, now: Any) -> Any:
        self._uncommitted = set()
        return right(self, now)

    patch.setattr(coordinator.Coordinator, "_settle", wrong)


def loses_a_data_frame_and_does_not_notice(patch: pytest.MonkeyPatch) -> None:
    right = channels.RemoteOutput.put

    def wrong(self: Any, element: Any) -> None:
        self._lost = getattr(self, "_lost", 0) + isinstance(element, Batch)
        if not isinstance(element, Batch) or self._lost % 7:
            right(self, element)

    patch.setattr(channels.RemoteOutput, "put", wrong)


def lets_a_barrier_overtake_what_waits_for_company(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, element: Any) -> None:
        for buffer in self._buffers:
            buffer.channel.put(element)
            buffer.flush()

    patch.setattr(router.Output, "broadcast", wrong)


def writes_on_while_the_last_transaction_is_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pool.SinkTransactions, "is_writable", property(lambda self: self.current is not None))


def goes_back_to_an_older_checkpoint_silently(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: LogView) -> Manifest | None:
        return self.manifests[-2:][0] if self.manifests else None

    patch.setattr(LogView, "newest", property(wrong))


def shares_transactional_ids_between_attempts(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions.__init__

    def wrong(self: Any, prefix: Any, instance: Any, attempt: Any, *others: Any) -> None:
        right(self, prefix, instance, Attempt(1), *others)

    patch.setattr(pool.SinkTransactions, "__init__", wrong)


def takes_the_acknowledgements_of_any_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, attempt: Any, checkpoint: Any) -> bool:
        return self._phase is coordinator._Phase.WAITING

    patch.setattr(coordinator.Coordinator, "_awaits", wrong)


def says_lost_without_asking_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobManager, "_must_confirm", property(lambda self: False))


def exports_before_the_commits_are_reported(patch: pytest.MonkeyPatch) -> None:
    right = JobManager._completed

    def wrong(self: Any, manifest: Manifest, now: Any) -> Any:
        return [*right(self, manifest, now), *self._requests.settled(manifest, is_last=False)]

    patch.setattr(JobManager, "_completed", wrong)


def exports_what_it_has_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Housekeeping, "pin", lambda self, manifest: None)
    patch.setattr(Housekeeping, "release", lambda self, checkpoint, ledger: [])


def counts_from_savepoint_twice(patch: pytest.MonkeyPatch) -> None:
    right = beginning.decide_opening

    def wrong(view: LogView, *others: Any) -> Any:
        options = {name: value for name, value in view.options.items() if name != FROM_SAVEPOINT}
        return right(msgspec.structs.replace(view, options=options), *others)

    patch.setattr(beginning, "decide_opening", wrong)


def takes_a_drained_operator_for_ended(patch: pytest.MonkeyPatch) -> None:
    right = coordinator.make_manifest

    def wrong(plan: Any, gathered: Any, now: Any) -> Manifest:
        return right(plan, msgspec.structs.replace(gathered, counts_ends=True), now)

    patch.setattr(coordinator, "make_manifest", wrong)


def bases_changes_on_an_abandoned_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(increments.Increments, "abandoned", increments.Increments.completed)


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


MUTATIONS: dict[str, Mutation] = {
    function.__name__: Mutation(function, seeds)
    for function, seeds in (
        (commits_when_prepared, range(50)),
        (acknowledges_what_may_not_be_stored, range(200)),
        (forgets_what_was_prepared_for_an_abandoned_checkpoint, range(200)),
        (lists_only_the_newest_pending_transaction, range(200)),
        (aborts_before_it_commits_at_recovery, range(50)),
        (aborts_nothing_at_recovery, range(50)),
        (commits_nothing_at_recovery, range(50)),
        (tries_the_next_position_after_a_conflict, range(50)),
        (does_not_align, range(50)),
        (reuses_a_slot_as_soon_as_it_is_committed, range(100)),
        (captures_mutable_state_by_reference, range(200)),
        (triggers_before_the_commits_are_reported, range(50)),
        (loses_a_data_frame_and_does_not_notice, range(50)),
        (lets_a_barrier_overtake_what_waits_for_company, range(50)),
        (writes_on_while_the_last_transaction_is_flushed, range(50)),
        (goes_back_to_an_older_checkpoint_silently, range(50)),
        (shares_transactional_ids_between_attempts, range(50)),
        (takes_the_acknowledgements_of_any_checkpoint, range(300)),
        (exports_before_the_commits_are_reported, range(100)),
        (exports_what_it_has_deleted, range(300)),
        (counts_from_savepoint_twice, range(400)),
        (bases_changes_on_an_abandoned_checkpoint, range(100)),
        (takes_a_drained_operator_for_ended, range(100)),
    )
}
