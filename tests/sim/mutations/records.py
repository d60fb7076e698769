"""Errors on the way of the records and of what is captured of them: barriers, channels, splits, state, timers."""

from contextlib import suppress
from typing import Any

import pytest

from tidegate.checkpoint.store import CheckpointStore
from tidegate.elements import Barrier, Batch
from tidegate.operators.timers import TimerQueue
from tidegate.runtime import channels, gate, router
from tidegate.runtime.task import Task
from tidegate.scheduling import restore
from tidegate.state import increments, key_groups, object_handles
from tidegate.state.operator_state import OperatorStateBackend
from tidegate.storage.port import StorageUnavailable


def acknowledges_what_may_not_be_stored(patch: pytest.MonkeyPatch) -> None:
    right = CheckpointStore.write_state

    def wrong(self: Any, path: str, data: bytes) -> None:
        try:
            right(self, path, data)
        except StorageUnavailable:
            return

    patch.setattr(CheckpointStore, "write_state", wrong)


def acknowledges_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    right = CheckpointStore.write_state

    def wrong(self: Any, path: str, data: bytes) -> None:
        def later() -> None:
            with suppress(StorageUnavailable):
                right(self, path, data)

        self.storage._gate._process.plan(0.2, f"writes {path} at last", later)

    patch.setattr(CheckpointStore, "write_state", wrong)


def does_not_align(patch: pytest.MonkeyPatch) -> None:
    right = gate.InputGate._barrier

    def wrong(self: Any, position: int, checkpoint: Any) -> Any:
        if right(self, position, checkpoint) is None and checkpoint <= self._closed:
            return None
        self._unblock()
        self._closed = checkpoint
        return gate.AlignedBarrier(checkpoint)

    patch.setattr(gate.InputGate, "_barrier", wrong)


def captures_mutable_state_by_reference(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> Any:
        changes, self._changes = self._changes, {}
        return changes

    def captured(self: Any) -> Any:
        return object_handles.CapturedState(self.descriptor.info, self.encode)

    patch.setattr(object_handles.ObjectHandle, "take_changes", wrong)
    patch.setattr(object_handles.ObjectHandle, "captured", property(captured))


def loses_a_data_frame_and_does_not_notice(patch: pytest.MonkeyPatch) -> None:
    right = channels.RemoteOutput.put

    def wrong(self: Any, element: Any) -> None:
        self._lost = getattr(self, "_lost", 0) + isinstance(element, Batch)
        if not isinstance(element, Batch) or self._lost % 7:
            right(self, element)

    patch.setattr(channels.RemoteOutput, "put", wrong)


def lets_a_barrier_overtake_what_waits_for_company(patch: pytest.MonkeyPatch) -> None:
    right = router.Output.broadcast

    def wrong(self: Any, element: Any) -> None:
        if not isinstance(element, Barrier):
            right(self, element)
            return
        for buffer in self._buffers:
            buffer.channel.put(element)

    patch.setattr(router.Output, "broadcast", wrong)


def bases_changes_on_an_abandoned_checkpoint(patch: pytest.MonkeyPatch) -> None:
    right = increments.Increments.abandoned

    def wrong(self: Any, checkpoint: Any) -> None:
        self._generations = [kept for kept in self._generations if kept.checkpoint > checkpoint]
        right(self, checkpoint)

    patch.setattr(increments.Increments, "abandoned", wrong)


def lets_a_trigger_overtake_an_assignment(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, checkpoint: Any) -> None:
        if self._parts.source is not None:
            self._orders.appendleft(checkpoint)

    patch.setattr(Task, "trigger", wrong)


def lets_a_barrier_overtake_the_rest_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    right = Task._advance

    def wrong(self: Any, now: float) -> bool:
        if self._chain.idle and self._orders and self._parts.source is not None:
            self._carry_out(self._orders.popleft(), self._parts.source)
            return True
        return right(self, now)

    patch.setattr(Task, "_advance", wrong)


def forgets_a_value_that_was_changed_in_place(patch: pytest.MonkeyPatch) -> None:
    right = object_handles.FactoryValueHandle.value

    def wrong(self: Any) -> Any:
        is_new = self._cursor.key not in self._entries
        changes = dict(self._changes)
        value = right(self)
        self._changes = self._changes if is_new else changes
        return value

    patch.setattr(object_handles.FactoryValueHandle, "value", wrong)


def restores_too_few_key_groups(patch: pytest.MonkeyPatch) -> None:
    right = restore.groups_of

    def wrong(*arguments: Any) -> range:
        groups = right(*arguments)
        return groups if len(groups) == 1 else groups[:-1]

    patch.setattr(restore, "groups_of", wrong)


def spreads_key_groups_in_another_way_than_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_groups, "subtask_of", lambda group, parallelism, _: group % parallelism)


def restores_only_its_own_lists(patch: pytest.MonkeyPatch) -> None:
    right = OperatorStateBackend.restore

    def wrong(self: Any, snapshots: Any, files: Any) -> None:
        right(self, snapshots[self._subtask : self._subtask + 1], files)

    patch.setattr(OperatorStateBackend, "restore", wrong)


def loses_timers_at_a_restore(patch: pytest.MonkeyPatch) -> None:
    right = TimerQueue.load

    def wrong(self: Any) -> None:
        right(self)
        for timestamp, keys in list(self._timers.items()):
            for key in list(keys.values()):
                self._backend.set_current_key(key)
                self.delete(timestamp, key)

    patch.setattr(TimerQueue, "load", wrong)


def fires_timers_again_after_a_restore(patch: pytest.MonkeyPatch) -> None:
    right = TimerQueue.take_due

    def wrong(self: Any, *arguments: Any, **options: Any) -> Any:
        for fired in right(self, *arguments, **options):
            self._state.put(fired[0], True)
            yield fired

    patch.setattr(TimerQueue, "take_due", wrong)
