"""What a keyed state backend promises for co-partitioned keys, as tests: derive a class from
`StatePartitionConformance`, let pytest run it.

    class TestMyBackend(StatePartitionConformance):
        def partitioned(self, subtask, parallelism, max_parallelism, key_type): ...

They are kept, captured and restored as other keys are; only their groups follow from the partitions of the input.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.savepoints.rows import read_rows
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.key_partitions import CRC32, MURMUR2, KeyPartitions, partitioned_key_type
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, USERS
from tidegate.testing.conformance.state_rescaling import NUMBER, StateRescalingConformance

PARTITIONS = KeyPartitions(5, MURMUR2)


class StatePartitionConformance(StateRescalingConformance):
    """The suite: each test is one promise."""

    key_type = partitioned_key_type("str", PARTITIONS)

    @abstractmethod
    def partitioned(
        self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int, key_type: str
    ) -> KeyedStateBackend:
        """An empty backend that is told the type of its keys, '' where nothing is declared."""

    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        return self.partitioned(subtask, parallelism, max_parallelism, self.key_type)

    def of_type(self, key_type: str) -> KeyedStateBackend:
        """The backend of the only subtask."""
        return self.partitioned(SubtaskIndex(0), 1, MAX_PARALLELISM, key_type)

    def test_all_keys_of_a_partition_are_in_its_group(self, tmp_path: Path) -> None:
        snapshot = self.take(self.filled(NUMBER)[0]).snapshot()
        rows = list(read_rows(snapshot, self.files, range(MAX_PARALLELISM), tmp_path / "scratch"))
        found = {row.key.removeprefix(b"s").decode(): row.group for row in rows}
        assert found == {user: PARTITIONS.of(user) * MAX_PARALLELISM // PARTITIONS.count for user in USERS}
        assert len(set(found.values())) == PARTITIONS.count

    def test_the_type_of_the_keys_names_the_partitions_before_there_is_a_key_and_after_a_restore(self) -> None:
        backend = self.one()
        backend.register(NUMBER)
        assert self.take(backend).key_type == "str in 5 partitions by murmur2"
        taken = self.take(self.filled(NUMBER)[0])
        assert taken.key_type == taken.snapshot().key_type == self.take(self.restored(taken)).key_type == self.key_type

    @pytest.mark.parametrize("wrong", [None, b"a", 1, ("a",)], ids=repr)
    def test_only_keys_of_the_declared_class_are_taken_and_no_none(self, wrong: Any) -> None:
        for backend in (self.one(), self.restored(self.take(self.filled(NUMBER)[0]))):
            number = backend.register(NUMBER)
            backend.set_current_key("a")
            number.update(7)
            for keys in ([wrong], ["a", wrong]):
                with pytest.raises(InvalidError, match="str in 5 partitions by murmur2"):
                    backend.cursor_over(keys)
            with pytest.raises(InvalidError, match="str in 5 partitions by murmur2"):
                backend.set_current_key(wrong)
            backend.set_current_key("a")
            assert number.value() == 7

    @pytest.mark.parametrize(
        "other", ["", "str", "str in 6 partitions by murmur2", f"str in 5 partitions by {CRC32}"], ids=repr
    )
    def test_what_was_kept_for_other_partitions_or_none_is_never_gone_on_with(self, other: str) -> None:
        taken = self.take(self.filled(NUMBER)[0])
        with pytest.raises(InvalidError, match="str in 5 partitions by murmur2"):
            self.of_type(other).restore([taken.snapshot()], self.files)
        backend = self.of_type(other)
        number = backend.register(NUMBER)
        for user in USERS:
            backend.set_current_key(user)
            number.update(1)
        snapshot = self.take(backend).snapshot()
        with pytest.raises(InvalidError, match="str in 5 partitions by murmur2"):
            self.of_type(self.key_type).restore([snapshot], self.files)
