"""Control messages between the JobManager and workers, and how they are written as bytes.

The checkpoint messages are in `checkpoint.protocol`; `docs/PROTOCOL.md` lists all of them with what a lost, late or
doubled one does.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    CommitsReported,
    Decline,
    OperatorSnapshot,
    SplitState,
    TriggerCheckpoint,
    least_watermark,
)
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import Failure, InternalError
from tidegate.graph.logical import Fingerprint
from tidegate.ids import (
    Attempt,
    CheckpointId,
    JobName,
    KeyGroup,
    LogInstance,
    OperatorName,
    SubtaskIndex,
    TaskId,
    WorkerIndex,
)


class RestoredOperator(msgspec.Struct, frozen=True):
    """What one operator restores: the snapshots of all its old subtasks (each keeps what falls into its key groups)."""

    name: OperatorName
    ended: bool
    """It had ended in all its subtasks."""
    snapshots: tuple[OperatorSnapshot, ...]

    @property
    def watermark(self) -> int:
        """How far all its old subtasks had come in event time."""
        return _known(least_watermark(self.snapshots))

    def watermark_of(self, subtasks: Iterable[SubtaskIndex]) -> int:
        """How far all of these old subtasks had come."""
        return _known(least_watermark([self.snapshots[subtask] for subtask in subtasks]))

    @property
    def watermarks(self) -> dict[KeyGroup, int]:
        """How far that old subtask had come that had the group: of all groups of which there is state."""
        return {
            KeyGroup(group): _known(snapshot.watermark)
            for snapshot in self.snapshots
            for handle in snapshot.handles
            for group in range(handle.first_group, handle.last_group + 1)
        }


def _known(watermark: int | None) -> int:
    return MIN_WATERMARK if watermark is None else watermark


class RuntimeOptions(msgspec.Struct, frozen=True):
    """What tasks need of the configuration."""

    batch_size: int = 2048
    linger: float = 0.005
    """Seconds a record may wait in an output buffer for company."""
    watermark_interval: float = 0.2
    """Seconds between two watermarks of a task that makes them."""
    step_target: float = 0.02
    """Seconds a step of a task should take at most; batches are cut so that it does."""
    channel_bytes: int = 128 * 1024
    """Credit of a channel between workers."""
    channel_records: int = 4096
    """Capacity of a channel within a worker."""
    inline_limit: int = 8 * 1024
    """Captured state up to this many bytes goes into the acknowledgement instead of a file."""
    state_in_job_manager: bool = False
    """The `memory` preset: all state goes into the acknowledgement, up to `memory_limit` bytes a task."""
    memory_limit: int = 32 * 1024 * 1024
    state_backend: str = "fs"
    """'memory', 'fs' or 'rocksdb'."""
    local_dir: str = ""
    """Where workers may keep files of this machine: databases, copies of what is stored. '' when the backend has
    none."""
    local_recovery: bool = True
    """Whether what is stored remotely is copied there, for restarts on the same machine."""
    local_memory: int = 256 * 1024 * 1024
    """Bytes that such a backend may keep in a worker's memory."""
    allow_non_restored_state: bool = False
    """States that the program does not declare any more are dropped."""
    checks_mutation: bool = False
    """Whether objects in memory are looked after for changes that the state was not told of; for tests."""
    pool_limit: int = 10
    """Transactions that a sink's subtask may hold at once: 4 + 2 x tolerable failures."""


# ---- JobManager to worker ------------------------------------------------------------------------------------------


class Deploy(msgspec.Struct, frozen=True, tag=True):
    """Make the tasks of this worker and open them."""

    job: JobName
    attempt: Attempt
    instance: LogInstance
    parallelism: int
    max_parallelism: int
    restored: tuple[RestoredOperator, ...]
    peers: tuple[str, ...]
    """Data address of each worker, by index."""
    options: RuntimeOptions
    storage: str
    """Folder or URL of the job's checkpoints."""
    last_checkpoint: CheckpointId
    """The highest id used before, 0 for none: barriers up to it are of the past."""


class AssignSplits(msgspec.Struct, frozen=True, tag=True):
    """A source task reads these splits, too. Shares one ordered channel with triggers: a split is in exactly one of the
    enumerator's and the reader's snapshot."""

    operator: OperatorName
    task: TaskId
    splits: tuple[SplitState, ...]
    no_more: bool
    """No further split will come: when those it has are finished, the source has ended."""


class AlignWatermarks(msgspec.Struct, frozen=True, tag=True):
    """The answer to `WatermarkReported`, or news of its group: this source task does not read splits whose watermark is
    beyond `bound`."""

    task: TaskId
    bound: int


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To every source task: your input ends here. Shares the ordered channel of triggers; splits keep the positions
    that they have reached."""


class StopWorker(msgspec.Struct, frozen=True, tag=True):
    """Drop all open transactions as they are, close, and exit."""


# ---- worker to JobManager ------------------------------------------------------------------------------------------


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """The program is imported and waits for `Deploy`."""

    worker: WorkerIndex
    attempt: Attempt
    fingerprint: Fingerprint
    data_address: str


class TaskRunning(msgspec.Struct, frozen=True, tag=True):
    """State is restored, the sink's first transaction is open: records may come."""

    task: TaskId


class TaskEnded(msgspec.Struct, frozen=True, tag=True):
    """All input of the task has ended and everything it had to say is in its outputs."""

    task: TaskId


class TaskFailed(msgspec.Struct, frozen=True, tag=True):
    """The task cannot go on; the attempt is over. `task` is None when the worker itself failed."""

    task: TaskId | None
    failure: Failure


class WatermarkReported(msgspec.Struct, frozen=True, tag=True):
    """So far has a task of an aligned source come. Said again and again, new or not, and answered each time."""

    task: TaskId
    watermark: int
    is_idle: bool


class OperatorMetrics(msgspec.Struct, frozen=True, array_like=True):
    """Counts since the attempt began."""

    task: TaskId
    operator: OperatorName
    records_in: int
    records_out: int
    records_skipped: int
    busy_share: int = 0
    """Thousandths of its task's busy time that it needs itself; the rest is the engine's."""


class TaskTimes(msgspec.Struct, frozen=True, array_like=True):
    """What a task does with its time. Milliseconds a second of the last while, which add up to 1000, and seconds since
    it was ready."""

    task: TaskId
    busy_time_ms_per_second: int
    idle_time_ms_per_second: int
    back_pressured_time_ms_per_second: int
    busy_time: float
    idle_time: float
    back_pressured_time: float


class WorkerMetrics(msgspec.Struct, frozen=True, tag=True):
    """Sent about once a second; a lost one does nothing."""

    operators: tuple[OperatorMetrics, ...]
    tasks: tuple[TaskTimes, ...] = ()

    def says_the_same(self, other: "WorkerMetrics") -> bool:
        """Whether nothing but time has passed. Of a task that goes on as before, the sums alone are no news."""
        return self.operators == other.operators and all(
            (a.busy_time_ms_per_second, a.back_pressured_time_ms_per_second)
            == (b.busy_time_ms_per_second, b.back_pressured_time_ms_per_second)
            for a, b in zip(self.tasks, other.tasks, strict=True)
        )


ToWorker = (
    Deploy
    | AssignSplits
    | AlignWatermarks
    | Drain
    | StopWorker
    | TriggerCheckpoint
    | CheckpointCompleted
    | CheckpointAbandoned
)
ToJobManager = (
    WorkerReady
    | TaskRunning
    | TaskEnded
    | TaskFailed
    | WatermarkReported
    | WorkerMetrics
    | Acknowledge
    | Decline
    | CommitsReported
)

encode = msgspec.msgpack.Encoder().encode
_TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
_TO_JOB_MANAGER = msgspec.msgpack.Decoder(ToJobManager)
T = TypeVar("T")


def decode_to_worker(data: bytes) -> ToWorker:
    """Raises InternalError for bytes that are no message of this version."""
    return _decoded(_TO_WORKER, data)


def decode_to_job_manager(data: bytes) -> ToJobManager:
    """Raises InternalError for bytes that are no message of this version."""
    return _decoded(_TO_JOB_MANAGER, data)


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InternalError(
            f"{len(data)} bytes that are no control message came over a link: {error}",
            remedy="Run JobManager and workers with the same version of Tidegate.",
        ) from error
