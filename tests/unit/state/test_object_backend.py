"""The object backend keeps the promises of the port, and those of its own."""

from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_backend import StateBackendConformance


class TestObjectStateBackend(StateBackendConformance):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), subtask, parallelism, max_parallelism)
