"""The object backend keeps the promises of the port, and those of its own."""

import pytest
from msgspec import structs

from tidegate.errors import CorruptError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.chain import read_rows
from tidegate.state.descriptors import ListState, ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_backend import StateBackendConformance
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, USERS, StateBackendKit, Taken
from tidegate.testing.conformance.state_partitions import StatePartitionConformance


class TestObjectStateBackend(StateBackendConformance):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), subtask, parallelism, max_parallelism)

    def limited(self, max_value_bytes: int) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 32, max_value_bytes=max_value_bytes)


class TestPartitionedKeys(StatePartitionConformance):
    def partitioned(
        self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int, key_type: str
    ) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), subtask, parallelism, max_parallelism, key_type=key_type)


NUMBER, OTHER = ValueState(int, name="number"), ValueState(int, name="other")


class TestWhatIsGoneOnWith(StateBackendKit):
    """When the object backend names what a restored checkpoint stored, and when it stores everything anew."""

    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), subtask, parallelism, max_parallelism)

    def stored(self) -> Taken:
        backend = self.filled(NUMBER)[0]
        other = backend.register(OTHER)
        backend.set_current_key(USERS[0])
        other.update(1)
        return self.complete(backend)

    def test_restored_files_are_named_again_and_only_changes_are_written(self) -> None:
        taken = self.stored()
        after = self.restored(taken)
        number = after.register(NUMBER)
        after.register(OTHER)
        assert self.take(after).handles == taken.handles
        after.set_current_key(USERS[0])
        number.update(99)
        assert self.take(after).handles[:-1] == taken.handles

    def test_a_state_that_is_new_leaves_the_restored_files_in_use(self) -> None:
        taken = self.stored()
        after = self.restored(taken)
        for descriptor in (NUMBER, OTHER, ListState(int, name="fresh")):
            after.register(descriptor)
        assert self.take(after).handles == taken.handles

    def test_a_state_that_nobody_asks_for_is_left_out_of_all_captures_from_the_first_on(self) -> None:
        taken = self.stored()
        after = self.restored(taken)
        number = after.register(NUMBER)
        assert after.unclaimed == ("other",)
        first = self.complete(after)
        assert not first.paths & taken.paths
        after.set_current_key(USERS[0])
        number.update(99)
        second = self.complete(after)
        assert after.unclaimed == ("other",)
        assert second.handles[:-1] == first.handles
        assert {row.state for row in read_rows(second.snapshot(), self.files, range(MAX_PARALLELISM))} == {"number"}

    def test_values_that_were_migrated_are_all_stored_anew_once(self) -> None:
        taken = self.stored()
        after = self.restored(taken)
        after.register(ValueState(float, name="number"))
        after.register(OTHER)
        first = self.complete(after)
        assert not first.paths & taken.paths
        assert self.take(after).handles == first.handles

    def test_without_increments_every_capture_is_full(self) -> None:
        backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, MAX_PARALLELISM, is_incremental=False)
        number = backend.register(NUMBER)
        backend.set_current_key("a")
        number.update(1)
        first = self.complete(backend)
        second = self.complete(backend)
        assert not first.paths & second.paths
        assert first.contents == second.contents

    def test_two_subtasks_that_stored_the_same_groups_are_corrupt(self) -> None:
        taken = self.stored()
        backend = self.one()
        with pytest.raises(CorruptError, match="two subtasks"):
            backend.restore([taken.snapshot(), taken.snapshot()], self.files)

    def test_a_handle_for_groups_that_its_content_does_not_cover_is_corrupt(self) -> None:
        taken = self.take(self.filled(NUMBER, 2)[0])
        (handle,) = taken.handles
        wider = structs.replace(handle, last_group=MAX_PARALLELISM - 1)
        backend = self.one()
        with pytest.raises(CorruptError, match="stands for groups 0 to 31 and holds groups 0 to 15"):
            backend.restore([structs.replace(taken.snapshot(), handles=(wider,))], self.files)
