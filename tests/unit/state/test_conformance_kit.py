"""The conformance kit notices a backend that breaks a promise."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.errors import CorruptError, InternalError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.backend import SnapshotFiles, StoredFiles
from tidegate.state.descriptors import StateDescriptor, ValueState
from tidegate.state.increments import REMOVED
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.object_capture import ObjectCapture
from tidegate.state.object_containers import ObjectMapHandle
from tidegate.state.object_handles import Cursor, MutableValueHandle
from tidegate.testing.conformance.state_backend import StateBackendConformance as Suite
from tidegate.testing.conformance.state_checkpoints import KINDS
from tidegate.testing.conformance.state_kit import Basket
from tidegate.testing.conformance.state_partitions import StatePartitionConformance as PartitionSuite


class CapturesLate(ObjectStateBackend):
    """What it captures is the state when it is stored, not at the barrier."""

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        capture = super().capture(checkpoint)
        later = super().capture

        class Late(ObjectCapture):
            def store(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
                return later(checkpoint).store(files)

        return Late(capture._increment, capture.key_type, capture._captured, self._owner)


class KeepsAllGroups(ObjectStateBackend):
    """Restores also what belongs to other subtasks."""

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        everything = range(self._owner.max_parallelism)
        self._owner = self._owner._replace(groups=everything)
        whole = [
            structs.replace(
                snapshot,
                handles=tuple(structs.replace(h, first_group=0, last_group=everything[-1]) for h in snapshot.handles),
            )
            for snapshot in snapshots
        ]
        super().restore(whole, files)


class LosesAPiece(ObjectStateBackend):
    """Forgets the last of several pieces."""

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        super().restore(snapshots[:-1] if len(snapshots) > 1 else snapshots, files)


class MixesKeyTypes(ObjectStateBackend):
    """Takes 1 and True for one key."""

    def set_current_key(self, key: Any) -> None:
        self._cursor.key = key


class LooksAtNoKeys(ObjectStateBackend):
    """Takes every key of a batch for one of the right type."""

    def cursor_over(self, keys: list[Any]) -> Cursor:
        return self._cursor


class ForgetsRemovals(ObjectStateBackend):
    """Clearing a key changes the live state only."""

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        for handle in self._handles.values():
            handle._changes = {key: value for key, value in handle._changes.items() if value is not REMOVED}
        return super().capture(checkpoint)


class MissesReads(ObjectStateBackend):
    """Only a write counts as a change."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        handle = super().register(descriptor)
        for name in ("value", "get", "values", "items", "__iter__"):
            if hasattr(handle, name):
                _make_read_unseen(handle, name)
        return handle


def _make_read_unseen(handle: Any, name: str) -> None:
    cls = type(handle)
    read = getattr(cls, name)

    def unseen(self: Any, *arguments: Any) -> Any:
        before = dict(self._changes)
        found = read(self, *arguments)
        self._changes = before
        return found

    handle.__class__ = type(cls.__name__, (cls,), {name: unseen, "__slots__": ()})


class TrustsAbandoned(ObjectStateBackend):
    """Takes a checkpoint that was given up for one that completed."""

    def abandoned(self, checkpoint: CheckpointId) -> None:
        self.completed(checkpoint)


class ForgetsUnheard(ObjectStateBackend):
    """Changes are captured once, whether or not the checkpoint completes."""

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        self._increments._generations.clear()
        return super().capture(checkpoint)


class HastyAboutMerges(ObjectStateBackend):
    """Goes back to the files from before a merge while it is undecided whether the merge counts."""

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        if any(increment.merge is not None for increment in self._increments._waiting.values()):
            self._increments._merged = None
            self._increments._waiting.clear()
        return super().capture(checkpoint)


class NeverIncremental(ObjectStateBackend):
    """Each capture is full."""

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        self._increments.restart()
        return super().capture(checkpoint)


class SortsMaps(ObjectStateBackend):
    """A map is stored in the order of its keys."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        handle = super().register(descriptor)
        if isinstance(handle, ObjectMapHandle):
            handle._write = lambda entries: descriptor.stored.encode(sorted(entries.items()))
        return handle


class MarksLooks(ObjectStateBackend):
    """Looking at a value counts as changing it."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        handle = super().register(descriptor)
        if isinstance(handle, MutableValueHandle):
            handle.__class__ = _MarksLooks
        return handle


class _MarksLooks(MutableValueHandle[Any]):
    __slots__ = ()

    def peek(self) -> Any:
        return self.value()


class SweepsTheSame(ObjectStateBackend):
    """A sweep begins anew at each call."""

    def sweep(self, name: str, limit: int) -> list[Any]:
        return list(self.keys(name))[:limit]


class SweepsTheGone(ObjectStateBackend):
    """A sweep meets keys that are gone."""

    met: tuple[Any, ...] = ()

    def sweep(self, name: str, limit: int) -> list[Any]:
        self.met = tuple(super().sweep(name, limit)) or self.met
        return list(self.met)


class KeepsTheOldForm(ObjectStateBackend):
    """Goes on from files with values of an older type."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        handle = super().register(descriptor)
        self._increments.is_restarting = False
        if self._increments.chain:
            handle.descriptor = ValueState(int, name=descriptor.name)
        return handle


class NoGuard(ObjectStateBackend):
    """Takes values of any size."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        self._max_value_bytes = 1 << 40
        return super().register(descriptor)


class IgnoresPartitions(ObjectStateBackend):
    """Gives co-partitioned keys to groups as all others."""

    def __init__(self, *arguments: Any, key_type: str = "") -> None:
        super().__init__(*arguments)


def _partition_suite(backend: type[ObjectStateBackend]) -> PartitionSuite:
    class Broken(PartitionSuite):
        def partitioned(
            self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int, key_type: str
        ) -> ObjectStateBackend:
            return backend(OperatorName("totals"), subtask, parallelism, max_parallelism, key_type=key_type)

    return Broken()


def _suite(backend: type[ObjectStateBackend]) -> Suite:
    class Broken(Suite):
        def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
            return backend(OperatorName("totals"), subtask, parallelism, max_parallelism)

        def limited(self, max_value_bytes: int) -> ObjectStateBackend:
            return backend(OperatorName("totals"), SubtaskIndex(0), 1, 32, max_value_bytes=max_value_bytes)

    return Broken()


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (CapturesLate, Suite.test_what_happens_after_the_barrier_is_not_in_the_capture),
        (
            CapturesLate,
            lambda suite: suite.test_a_capture_is_a_cut_also_through_objects_that_user_code_holds(Basket),
        ),
        (
            KeepsAllGroups,
            lambda suite: suite.test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
                1, 3
            ),
        ),
        (
            LosesAPiece,
            lambda suite: suite.test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
                3, 1
            ),
        ),
        (MixesKeyTypes, Suite.test_keys_of_another_type_are_refused_also_after_a_restore),
        (LooksAtNoKeys, Suite.test_a_cursor_over_keys_makes_each_the_current_one_and_refuses_what_cannot_be_one),
        (ForgetsRemovals, Suite.test_any_completed_checkpoint_gives_back_the_state_at_its_barrier),
        (ForgetsRemovals, Suite.test_what_was_cleared_after_a_checkpoint_does_not_come_back),
        *(
            (
                MissesReads,
                partial(
                    Suite.test_a_value_that_was_read_and_changed_is_in_the_next_checkpoint, kind=kind, declared=Basket
                ),
            )
            for kind in KINDS
        ),
        (TrustsAbandoned, Suite.test_files_of_an_abandoned_checkpoint_are_never_named_again),
        (ForgetsUnheard, Suite.test_a_completion_that_is_never_heard_of_loses_nothing),
        (
            HastyAboutMerges,
            Suite.test_files_that_only_an_earlier_checkpoint_names_may_be_gone_before_the_later_one_is_heard_of,
        ),
        (NeverIncremental, Suite.test_a_checkpoint_writes_in_proportion_to_what_changed),
        (SortsMaps, Suite.test_a_map_keeps_its_order_over_checkpoints),
        (KeepsAllGroups, Suite.test_checkpoints_go_on_through_any_parallelism),
        (KeepsAllGroups, Suite.test_a_subtask_that_has_no_group_of_a_snapshot_takes_nothing_from_it),
        (KeepsTheOldForm, Suite.test_a_restored_state_that_changes_its_type_is_stored_in_the_new_one),
        (NoGuard, Suite.test_a_value_that_is_too_large_is_refused_with_state_and_key_at_the_latest_when_it_is_stored),
        (MarksLooks, Suite.test_a_look_does_not_change_what_the_next_checkpoint_writes),
        (SweepsTheSame, Suite.test_every_key_that_stays_is_met_once_in_each_round_of_a_sweep),
        (SweepsTheGone, Suite.test_a_sweep_of_nothing_ends),
    ],
)
def test_a_broken_promise_fails_its_test(broken: type[ObjectStateBackend], promise: Callable[[Suite], None]) -> None:
    promise(_suite(ObjectStateBackend))
    with pytest.raises((AssertionError, InternalError, CorruptError, pytest.fail.Exception)):
        promise(_suite(broken))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (
            IgnoresPartitions,
            lambda suite: suite.test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
                1, 3
            ),
        ),
        (IgnoresPartitions, PartitionSuite.test_checkpoints_go_on_through_any_parallelism),
        (
            IgnoresPartitions,
            PartitionSuite.test_the_type_of_the_keys_names_the_partitions_before_there_is_a_key_and_after_a_restore,
        ),
        (
            IgnoresPartitions,
            lambda suite: suite.test_what_was_kept_for_other_partitions_or_none_is_never_gone_on_with("str"),
        ),
        (
            LooksAtNoKeys,
            lambda suite: suite.test_only_keys_of_the_declared_class_are_taken_and_no_none(None),
        ),
        (MixesKeyTypes, lambda suite: suite.test_only_keys_of_the_declared_class_are_taken_and_no_none(b"a")),
    ],
)
def test_a_promise_for_co_partitioned_keys_that_is_broken_fails_its_test(
    broken: type[ObjectStateBackend], promise: Callable[[PartitionSuite], None]
) -> None:
    promise(_partition_suite(ObjectStateBackend))
    with pytest.raises((AssertionError, InternalError, CorruptError, pytest.fail.Exception)):
        promise(_partition_suite(broken))
