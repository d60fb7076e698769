"""The operator of a program, in as many subtasks as wished, whose state can be put into a checkpoint and taken out of
it again at another parallelism: what models of windows, joins and their like are compared with."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tests.unit.operators.bench import HandClock, context
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Batch
from tidegate.graph.logical import LogicalNode
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.contracts import EventTimeOperator, Operator, TimerOperator
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.operator_state import OperatorStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

Row = tuple[Any, int | None, Any]
"""Key, timestamp, value."""
Given = tuple[str | None, int | None, Any]
"""Side output, timestamp, value."""
NAME = OperatorName("it")


class _Subtask:
    """One, on backends of its own."""

    def __init__(self, index: int, parallelism: int, max_parallelism: int, checks: bool) -> None:
        self.index = SubtaskIndex(index)
        self.keyed = ObjectStateBackend(NAME, self.index, parallelism, max_parallelism, checks_mutation=checks)
        self.unkeyed = OperatorStateBackend(NAME, self.index, parallelism)
        self.operator: Operator | None = None

    def capture(self, checkpoint: CheckpointId, files: KeptFiles) -> OperatorSnapshot:
        keyed, unkeyed = self.keyed.capture(checkpoint), self.unkeyed.capture(checkpoint)
        return OperatorSnapshot(
            NAME,
            key_type=keyed.key_type,
            states=keyed.states,
            handles=keyed.store(files),
            operator_states=unkeyed.states if unkeyed is not None else (),
            operator_handles=unkeyed.store(files) if unkeyed is not None else (),
        )

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: KeptFiles) -> None:
        if with_keys := [snapshot for snapshot in snapshots if snapshot.handles]:
            self.keyed.restore(with_keys, files)
        self.unkeyed.restore(snapshots, files)

    def left(self) -> dict[str, int]:
        """How much there is of each state with keys: of maps and lists the elements."""
        found: dict[str, int] = {}
        for name, handle in self.keyed._handles.items():
            for key in list(self.keyed.keys(name)):
                self.keyed.set_current_key(key)
                found[name] = found.get(name, 0) + _size(handle)
        return found


def _size(handle: Any) -> int:
    if hasattr(handle, "items"):
        return len(list(handle.items()))
    return len(list(handle.get())) if handle.descriptor.kind == "list" else 1


class Subtasks:
    """See the module. Watermarks come to all subtasks at once, and clocks stand until they are moved."""

    def __init__(self, node: LogicalNode, parallelism: int = 1, max_parallelism: int = 8, batch_size: int = 3) -> None:
        self._node = node
        self._max_parallelism = max_parallelism
        self._batch_size = batch_size
        self._checkpoint = CheckpointId(0)
        self._files = KeptFiles()
        self._skipped_before = 0
        self.clock = HandClock()
        self.reached = MIN_WATERMARK
        """The highest watermark so far."""
        self._open(parallelism, [])

    @property
    def parallelism(self) -> int:
        return len(self._subtasks)

    @property
    def operators(self) -> list[Any]:
        return [subtask.operator for subtask in self._subtasks]

    def _open(self, parallelism: int, snapshots: Sequence[OperatorSnapshot]) -> None:
        assert self._node.factory is not None
        # What changes its state behind its back is found at the next capture.
        self._subtasks = [_Subtask(i, parallelism, self._max_parallelism, checks=True) for i in range(parallelism)]
        for subtask in self._subtasks:
            if snapshots:
                subtask.restore(snapshots, self._files)
            subtask.operator = self._node.factory()
            opened = context(self._batch_size, subtask.keyed, subtask.unkeyed, self.clock)
            placed = msgspec.structs.replace(
                opened, operator=NAME, subtask=subtask.index, parallelism=parallelism, watermark=self.reached
            )
            subtask.operator.open(placed)
            unclaimed = (*subtask.keyed.unclaimed, *subtask.unkeyed.unclaimed)
            assert not unclaimed, f"nobody asked for the restored states {unclaimed}"

    def move(self, parallelism: int | None = None) -> None:
        """Into a checkpoint, and out of it again in fresh operators."""
        self._checkpoint = CheckpointId(self._checkpoint + 1)
        self._skipped_before = self.skipped
        snapshots = [subtask.capture(self._checkpoint, self._files) for subtask in self._subtasks]
        for subtask in self._subtasks:
            assert subtask.operator is not None
            subtask.operator.close()
        self._open(parallelism or self.parallelism, snapshots)

    def batch(self, rows: Sequence[Row], input: int = 0) -> list[Given]:
        """What comes of these records, which come as one batch to each subtask that has keys of them."""
        given: list[Given] = []
        for subtask in self._subtasks:
            own = [row for row in rows if self._subtask_of(row[0]) == subtask.index]
            if own:
                keys, stamps, values = (list(column) for column in zip(*own, strict=True))
                batch = Batch(values, keys, None if None in stamps else stamps, None, input)
                assert subtask.operator is not None
                given += self._listed(subtask.operator.process(batch))
        return given

    def _subtask_of(self, key: Any) -> SubtaskIndex:
        return subtask_of(key_group(key, self._max_parallelism), self.parallelism, self._max_parallelism)

    def watermark(self, timestamp: int) -> list[Given]:
        """What comes of event time going on. It never goes back."""
        self.reached = max(self.reached, timestamp)
        given: list[Given] = []
        for subtask in self._subtasks:
            operator = subtask.operator
            if isinstance(operator, EventTimeOperator):
                while (outputs := operator.advance_watermark(self.reached, lambda: True)) is not None:
                    given += self._listed(outputs)
        return given

    def time(self, milliseconds: int) -> list[Given]:
        """What comes of processing time going on to there."""
        self.clock.milliseconds = max(self.clock.milliseconds, milliseconds)
        now, given = self.clock.milliseconds, list[Given]()
        for subtask in self._subtasks:
            operator = subtask.operator
            if isinstance(operator, TimerOperator):
                while (due := operator.next_timer) is not None and due <= now:
                    given += self._listed(operator.fire_timers(now, lambda: True))
        return given

    def end(self) -> list[Given]:
        """What comes of the end of the input, and with it of event time."""
        given = self.watermark(MAX_WATERMARK)
        for subtask in self._subtasks:
            assert subtask.operator is not None
            given += self._listed(subtask.operator.end_of_input())
        return given

    def _listed(self, batches: Iterable[Batch]) -> list[Given]:
        given: list[Given] = []
        for batch in batches:
            assert len(batch) > 0
            assert batch.tag is not None or len(batch) <= self._batch_size, f"{len(batch)} records in one batch"
            stamps: Sequence[int | None] = batch.timestamps or [None] * len(batch)
            given += [(batch.tag, stamp, value) for stamp, value in zip(stamps, batch.values, strict=True)]
        return given

    def left_of(self) -> dict[str, int]:
        """By state with keys, how much is left in it."""
        found: dict[str, int] = {}
        for subtask in self._subtasks:
            for name, count in subtask.left().items():
                found[name] = found.get(name, 0) + count
        return found

    def left(self) -> int:
        """How much is left in all states with keys together."""
        return sum(self.left_of().values())

    @property
    def skipped(self) -> int:
        """Records that were left out, as late or otherwise, since the beginning."""
        return self._skipped_before + sum(getattr(operator, "records_skipped", 0) for operator in self.operators)
