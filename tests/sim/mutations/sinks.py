"""Errors of a sink's transactions: when they are prepared, committed, listed, and when their ids are used again."""

from typing import Any

import msgspec
import pytest

from tidegate.checkpoint import participant
from tidegate.checkpoint import transactions as pool
from tidegate.checkpoint.protocol import CheckpointCompleted, CommitPermit, Committed
from tidegate.elements import Batch
from tidegate.ids import Attempt, TransactionalId
from tidegate.runtime.sink_driver import SinkDriver


def commits_when_prepared(patch: pytest.MonkeyPatch) -> None:
    right = participant.Participant._sink_ready

    def wrong(self: Any, checkpoint: Any, pending: Any) -> Any:
        permit = CommitPermit(CheckpointCompleted(self._attempt, checkpoint))
        return [*right(self, checkpoint, pending), participant.PermitCommits(permit)]

    patch.setattr(participant.Participant, "_sink_ready", wrong)


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


def reuses_a_slot_as_soon_as_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._free_when_unlisted

    def wrong(self: Any, committable: Any) -> None:
        right(self, committable)
        for slot in self._slots.values():
            if slot.state is pool._SlotState.COMMITTED:
                slot.state, slot.unlisted_since = pool._SlotState.FREE, None

    patch.setattr(pool.SinkTransactions, "_free_when_unlisted", wrong)


def writes_on_while_the_last_transaction_is_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pool.SinkTransactions, "is_writable", property(lambda self: self.current is not None))


def shares_transactional_ids_between_attempts(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions.__init__

    def wrong(self: Any, prefix: Any, instance: Any, attempt: Any, *others: Any) -> None:
        right(self, prefix, instance, Attempt(1), *others)

    patch.setattr(pool.SinkTransactions, "__init__", wrong)


def lets_a_checkpoint_fail_alone_when_its_transaction_failed(patch: pytest.MonkeyPatch) -> None:
    right = SinkDriver._perform

    def wrong(self: Any, command: Any) -> None:
        if not isinstance(command, pool.PrepareTransaction):
            right(self, command)
            return
        handle = self._handles.pop(command.id)

        def done(committable: Any, error: Any) -> None:
            if error is not None:
                self._transactions._snapshot = None
            self._guard(lambda: self._handle(pool.Prepared(command.id, committable)))

        self._executor.submit(self._lane, lambda: self._sink.prepare(handle), done)

    patch.setattr(SinkDriver, "_perform", wrong)


def asks_for_a_commit_only_once(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, why: str, now: Any) -> Any:
        return self._answered(self._asked, Committed(), now)

    patch.setattr(pool.SinkTransactions, "_ask_again", wrong)


def reports_commits_before_they_are_answered(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._permitted

    def wrong(self: Any, permit: CommitPermit, now: Any) -> Any:
        return [pool.SinkCommitted(permit.checkpoint), *right(self, permit, now)]

    patch.setattr(pool.SinkTransactions, "_permitted", wrong)


def forgets_what_waits_for_the_new_transaction(patch: pytest.MonkeyPatch) -> None:
    right = SinkDriver.write

    def wrong(self: Any, batch: Batch, refuse: Any) -> None:
        if self._transactions.is_writable:
            right(self, batch, refuse)

    patch.setattr(SinkDriver, "is_writable", property(lambda self: self._transactions.current is not None))
    patch.setattr(SinkDriver, "write", wrong)


def uses_the_slot_of_an_abandoned_checkpoint_again(patch: pytest.MonkeyPatch) -> None:
    right = pool.SinkTransactions._abandoned

    def wrong(self: Any, checkpoint: Any) -> Any:
        for pending in self._pending:
            id = TransactionalId.parse(pending.committable.id)
            if pending.checkpoint == checkpoint and id is not None:
                self._slots[id.slot].state = pool._SlotState.FREE
        return right(self, checkpoint)

    patch.setattr(pool.SinkTransactions, "_abandoned", wrong)
