"""All state of one task's operators, with and without keys: restored before they are opened, captured at the barrier,
stored beside what follows, and kept in order while nothing else needs the executor.

It never decides when: the task does.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tidegate.checkpoint.protocol import OperatorSnapshot, SplitState
from tidegate.ids import CheckpointId, OperatorName, TaskId
from tidegate.runtime.control import RestoredOperator
from tidegate.runtime.ports import Executor
from tidegate.runtime.snapshots import CapturedOperator, SnapshotWriter, restore_backends, restore_operator_states
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.operator_state import OperatorStateBackend


class TaskState:
    """`keyed`: of the operators that have keyed state. `unkeyed`: of every operator, in the order of the chain."""

    def __init__(
        self,
        task: TaskId,
        keyed: Mapping[OperatorName, KeyedStateBackend],
        unkeyed: Mapping[OperatorName, OperatorStateBackend],
        writer: SnapshotWriter,
        executor: Executor,
    ) -> None:
        self._task = task
        self._keyed = keyed
        self._unkeyed = unkeyed
        self._writer = writer
        self._executor = executor
        self._maintained: set[OperatorName] = set()
        """Operators whose stored state is being worked on."""

    def restore(self, restored: Sequence[RestoredOperator]) -> None:
        """Load what earlier tasks stored; on a side thread, before the operators are opened."""
        restore_backends(self._keyed, self._writer.files, restored)
        restore_operator_states(self._unkeyed, self._writer.files, restored)

    @property
    def unclaimed(self) -> dict[OperatorName, tuple[str, ...]]:
        """By operator, the names of restored states that it did not ask for when it was opened."""
        left = {
            name: (*backend.unclaimed, *(self._keyed[name].unclaimed if name in self._keyed else ()))
            for name, backend in self._unkeyed.items()
        }
        return {name: states for name, states in left.items() if states}

    def capture(
        self,
        checkpoint: CheckpointId,
        ended: bool,
        splits: Mapping[OperatorName, tuple[SplitState, ...]],
        watermark: int | None = None,
    ) -> list[CapturedOperator]:
        """A cut through all of it. `splits`: those of a source. `watermark`: how far the task has come in event
        time."""
        return [
            CapturedOperator(
                name=name,
                ended=ended,
                capture=self._keyed[name].capture(checkpoint) if name in self._keyed else None,
                splits=splits.get(name, ()),
                operator_capture=backend.capture(checkpoint),
                watermark=watermark,
            )
            for name, backend in self._unkeyed.items()
        ]

    def store(self, checkpoint: CheckpointId, captured: Sequence[CapturedOperator]) -> tuple[OperatorSnapshot, ...]:
        """On a side thread; raises as `SnapshotWriter.store` does."""
        snapshots = self._writer.store(captured)
        for snapshot in snapshots:
            self._writer.files[snapshot.name].named(checkpoint, snapshot.all_handles)
        return snapshots

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint counts: what is stored may now be worked on."""
        for name, backend in self._keyed.items():
            backend.completed(checkpoint)
            self._maintain(name, backend)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        for backend in self._keyed.values():
            backend.abandoned(checkpoint)

    def close(self) -> None:
        """Let go of everything, also where something of it raises."""
        with ExitStack() as last_first:
            for backend in self._keyed.values():
                last_first.callback(backend.close)

    def _maintain(self, name: OperatorName, backend: KeyedStateBackend) -> None:
        """Let the backend work on what it has stored, beside everything else; one thing at a time."""
        work = None if name in self._maintained else backend.maintenance()
        if work is None:
            return
        self._maintained.add(name)

        def done(_: Any, error: BaseException | None) -> None:
            self._maintained.discard(name)
            work.finish(error)

        self._executor.submit(f"maintenance:{self._task}", lambda: self._writer.files[name].maintain(work), done)
