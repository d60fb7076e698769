"""The object backend against plain dicts, with pieces so small and merges so eager that a short run meets them all."""

import pytest
from hypothesis import settings

from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state import merging, runs
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_model import StateModel


@pytest.fixture(autouse=True)
def small_and_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 200)
    monkeypatch.setattr(merging, "FAN_IN", 2)
    monkeypatch.setattr(merging, "MAX_CHANGES", 3)
    monkeypatch.setattr(merging, "FULL_SHARE", 2.0)
    monkeypatch.setattr(merging, "FULL_SHARE_OF_FEW", 4.0)


class Machine(StateModel):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        own = (OperatorName("totals"), subtask, parallelism, max_parallelism)
        return ObjectStateBackend(*own, key_type=self.key_type, checks_mutation=True)


class PartitionedMachine(Machine):
    key_type = "str in 3 partitions by murmur2"


TestAgainstDicts = Machine.TestCase
TestAgainstDicts.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)

TestPartitionedAgainstDicts = PartitionedMachine.TestCase
TestPartitionedAgainstDicts.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
