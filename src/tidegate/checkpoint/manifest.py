"""What a completed checkpoint is, as data: everything needed to restore it or to look at it without running the job.

A manifest is inside the *completed* entry of the checkpoint log. `docs/decisions/` says why it is not a file of its
own.
"""

from collections.abc import Iterable, Iterator

import msgspec

from tidegate.checkpoint.protocol import (
    OperatorSnapshot,
    PendingTransaction,
    RecoverySpec,
    SplitState,
    StateHandle,
)
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex

FORMAT = 1
"""Version of the manifest's form. A reader refuses a higher one."""
MAX_PARALLELISM_MAX = 32768
"""What `max_parallelism` can be set to at most."""


class SinkRecord(msgspec.Struct, frozen=True):
    """How to find and finish a sink's transactions, also when the program no longer has the sink."""

    prefix: str
    recovery: RecoverySpec


class SinkTarget(msgspec.Struct, frozen=True):
    """A sink whose transactions are looked after, and how to reach them."""

    sink: OperatorName
    record: SinkRecord


class SubtaskRecord(msgspec.Struct, frozen=True):
    subtask: SubtaskIndex
    snapshot: OperatorSnapshot


class OperatorRecord(msgspec.Struct, frozen=True):
    """One operator: its subtasks' snapshots, and what belongs to the operator as a whole."""

    name: OperatorName
    parallelism: int
    ended: bool
    """In all its subtasks: what it does at the end of input is not done again."""
    subtasks: tuple[SubtaskRecord, ...]
    unassigned: tuple[SplitState, ...] = ()
    """Splits that a source's enumerator held at the trigger."""
    sink: SinkRecord | None = None
    source: RecoverySpec | None = None
    """How tools reach the source's system without the program; None where that makes no sense, and in manifests of
    older versions."""

    @property
    def snapshots(self) -> tuple[OperatorSnapshot, ...]:
        return tuple(record.snapshot for record in self.subtasks)

    @property
    def splits(self) -> tuple[SplitState, ...]:
        """All splits with their pinned positions, assigned or not, by id."""
        held = (split for snapshot in self.snapshots for split in snapshot.splits)
        return tuple(sorted((*held, *self.unassigned), key=lambda split: split.id))

    @property
    def pending(self) -> tuple[PendingTransaction, ...]:
        """All transactions not confirmed committed at the barrier, in commit order."""
        found = (pending for snapshot in self.snapshots for pending in snapshot.pending)
        return tuple(sorted(found, key=lambda pending: (pending.checkpoint, pending.committable.id)))


class Manifest(msgspec.Struct, frozen=True):
    """A completed checkpoint. `triggered_at` in seconds since 1970, UTC; `duration` in seconds, trigger to last
    acknowledgement."""

    format: int
    job: JobName
    instance: LogInstance
    attempt: Attempt
    checkpoint: CheckpointId
    parallelism: int
    max_parallelism: int
    triggered_at: float
    duration: float
    operators: tuple[OperatorRecord, ...]

    def operator(self, name: OperatorName) -> OperatorRecord | None:
        return next((record for record in self.operators if record.name == name), None)

    @property
    def handles(self) -> Iterator[StateHandle]:
        for record in self.operators:
            for snapshot in record.snapshots:
                yield from snapshot.all_handles

    @property
    def files(self) -> frozenset[str]:
        """Paths, relative to the job's folder, that this checkpoint needs."""
        return frozenset(handle.path for handle in self.handles if handle.path is not None)

    @property
    def state_bytes(self) -> int:
        return sum(handle.size for handle in self.handles)


def flaw_in(manifest: Manifest) -> str:
    """What cannot be in a manifest, whatever job it is of; empty when nothing is wrong. Whoever goes through key groups
    relies on it."""
    if not 1 <= manifest.max_parallelism <= MAX_PARALLELISM_MAX:
        return f"max_parallelism {manifest.max_parallelism} is not between 1 and {MAX_PARALLELISM_MAX}"
    for handle in manifest.handles:
        if not (0 <= handle.first_group <= MAX_PARALLELISM_MAX and -1 <= handle.last_group < MAX_PARALLELISM_MAX):
            return f"there are no key groups {handle.first_group} to {handle.last_group}"
    return ""


def files_of(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Every file that any of these needs."""
    return frozenset[str]().union(*(manifest.files for manifest in manifests))
