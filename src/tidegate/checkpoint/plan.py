"""Who takes part in the checkpoints of one attempt, and the manifest that their acknowledgements make together. Pure.

A manifest says of an operator that it has ended only where that will be true for ever. In a drained job inputs end that
are gone on with later, so nothing has ended there: what an operator does at the end of input is done again by the run
that goes on, with the state of then.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SinkRecord, SubtaskRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, RecoverySpec, SplitState
from tidegate.clock import Now
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, TaskId


class PlannedOperator(msgspec.Struct, frozen=True):
    """What the manifest says of an operator besides its snapshots."""

    name: OperatorName
    parallelism: int
    sink: SinkRecord | None = None
    source: RecoverySpec | None = None


class CheckpointPlan(msgspec.Struct, frozen=True):
    """Who takes part, of which job, in which attempt."""

    job: JobName
    instance: LogInstance
    attempt: Attempt
    parallelism: int
    max_parallelism: int
    operators: tuple[PlannedOperator, ...]
    tasks: frozenset[TaskId]


class Gathered(msgspec.Struct):
    """What has come for one checkpoint since it was triggered."""

    checkpoint: CheckpointId
    triggered: Now
    held: dict[OperatorName, tuple[SplitState, ...]]
    """Splits that enumerators had not handed out at the trigger."""
    counts_ends: bool
    """Whether an operator that has ended will have ended for ever."""
    acknowledged: dict[TaskId, tuple[OperatorSnapshot, ...]] = msgspec.field(default_factory=dict)


def make_manifest(plan: CheckpointPlan, gathered: Gathered, now: Now) -> Manifest:
    """Of a checkpoint that every task has acknowledged."""
    return Manifest(
        format=FORMAT,
        job=plan.job,
        instance=plan.instance,
        attempt=plan.attempt,
        checkpoint=gathered.checkpoint,
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        triggered_at=gathered.triggered.wall,
        duration=now.monotonic - gathered.triggered.monotonic,
        operators=tuple(_record(operator, gathered) for operator in plan.operators),
    )


def _record(operator: PlannedOperator, gathered: Gathered) -> OperatorRecord:
    subtasks = _subtasks(operator.name, gathered.acknowledged, gathered.counts_ends)
    return OperatorRecord(
        name=operator.name,
        parallelism=operator.parallelism,
        ended=len(subtasks) == operator.parallelism and all(record.snapshot.ended for record in subtasks),
        subtasks=subtasks,
        unassigned=gathered.held.get(operator.name, ()),
        sink=operator.sink,
        source=operator.source,
    )


def _subtasks(
    name: OperatorName, acknowledged: Mapping[TaskId, Sequence[OperatorSnapshot]], counts_ends: bool
) -> tuple[SubtaskRecord, ...]:
    found = ((task, s) for task in sorted(acknowledged) for s in acknowledged[task] if s.name == name)
    return tuple(
        SubtaskRecord(task.subtask, s if counts_ends else msgspec.structs.replace(s, ended=False)) for task, s in found
    )
