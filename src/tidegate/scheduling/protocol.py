"""What a JobManager is told and what it wants done: its events and commands, as data.

Whoever performs commands (`scheduling.performer`, over real or simulated ports) answers with events; nothing else
reaches a JobManager. Everything that belongs to one attempt carries its number, and what comes from another attempt is
ignored.
"""

import msgspec

from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Entry, ProcessRecord, SavepointOrigin, StoredEntry, Takeover
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import SplitState
from tidegate.errors import Failure
from tidegate.ids import Attempt, CheckpointId, LogInstance, LogPosition, OperatorName, WorkerIndex
from tidegate.metrics import Level
from tidegate.runtime.control import ToJobManager, ToWorker

# ---- events --------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """The process has begun."""


class LogRead(msgspec.Struct, frozen=True):
    stored: tuple[StoredEntry, ...]


class AppendWon(msgspec.Struct, frozen=True):
    """The entry is in the log, as ours."""

    position: LogPosition


class AppendRefused(msgspec.Struct, frozen=True):
    """Another JobManager's entry is at the position: we are fenced."""

    position: LogPosition
    by: StoredEntry | None


class AppendUnanswered(msgspec.Struct, frozen=True):
    """Nobody knows whether the entry is, or will be, in the log."""

    position: LogPosition
    why: str


class WorkersSpawned(msgspec.Struct, frozen=True):
    """The processes exist; they import the program and report `WorkerReady`."""

    attempt: Attempt
    processes: tuple[ProcessRecord, ...]
    control_address: str


class OldWorkersEnded(msgspec.Struct, frozen=True):
    """No worker that the last takeover recorded on this host is alive."""


class WorkerDied(msgspec.Struct, frozen=True):
    attempt: Attempt
    worker: WorkerIndex
    how: str
    """'killed by SIGKILL', 'exited with 1' …"""


class WorkersGone(msgspec.Struct, frozen=True):
    """Every worker process of the attempt has exited."""

    attempt: Attempt


class Received(msgspec.Struct, frozen=True):
    """A control message of a worker, once and in order."""

    attempt: Attempt
    worker: WorkerIndex
    message: ToJobManager


class SplitsFound(msgspec.Struct, frozen=True):
    attempt: Attempt
    operator: OperatorName
    splits: tuple[SplitState, ...]


class DiscoveryFailed(msgspec.Struct, frozen=True):
    attempt: Attempt
    operator: OperatorName
    failure: Failure


class RecoveryAnswered(msgspec.Struct, frozen=True):
    attempt: Attempt
    run: int
    event: recovery.Event


class CleanedUp(msgspec.Struct, frozen=True):
    """These are gone."""

    positions: tuple[LogPosition, ...] = ()
    files: tuple[str, ...] = ()


class StepFailed(msgspec.Struct, frozen=True):
    """A command could not be carried out, and it has no event of its own for that (reading the log, starting
    workers)."""

    failure: Failure


class CheckpointWanted(msgspec.Struct, frozen=True):
    """Somebody asks for a checkpoint now."""


class StopWanted(msgspec.Struct, frozen=True):
    """Ctrl-C, SIGTERM: end cleanly."""


class StatusWanted(msgspec.Struct, frozen=True):
    """Somebody asks how the job is; answered at once with `Reply`, whose text is a `JobStatus` as JSON."""

    request: str
    """Tells it from others."""


class SavepointWanted(msgspec.Struct, frozen=True):
    """Somebody asks for a savepoint; answered with `Reply`."""

    request: str
    """Tells it from others."""
    path: str | None
    """Folder or URL that must not hold anything yet; None: a new one under the job's `savepoints/`."""


class StopWithCheckpointWanted(msgspec.Struct, frozen=True):
    """Somebody asks for an end with a last checkpoint; answered with `Reply` before the end."""

    request: str
    savepoint: bool
    """Whether it is exported."""
    path: str | None
    """Of the savepoint, as above."""
    drain: bool
    """The inputs end here: every operator does what it does at the end of input, before the last checkpoint."""


class SavepointExported(msgspec.Struct, frozen=True):
    checkpoint: CheckpointId
    path: str | None
    """As it was asked for."""
    written: str
    """Where it is."""


class SavepointNotExported(msgspec.Struct, frozen=True):
    checkpoint: CheckpointId
    path: str | None
    failure: Failure


class SavepointRead(msgspec.Struct, frozen=True):
    path: str
    manifest: Manifest


class SavepointImported(msgspec.Struct, frozen=True):
    """Its state is in the job's folder, under the names of `manifest`."""

    attempt: Attempt
    manifest: Manifest


class Wake(msgspec.Struct, frozen=True):
    """The time of a `WakeAt` has come. Too many do nothing."""


Event = (
    Start
    | LogRead
    | AppendWon
    | AppendRefused
    | AppendUnanswered
    | WorkersSpawned
    | OldWorkersEnded
    | WorkerDied
    | WorkersGone
    | Received
    | SplitsFound
    | DiscoveryFailed
    | RecoveryAnswered
    | CleanedUp
    | StepFailed
    | CheckpointWanted
    | StatusWanted
    | SavepointWanted
    | StopWithCheckpointWanted
    | SavepointExported
    | SavepointNotExported
    | SavepointRead
    | SavepointImported
    | StopWanted
    | Wake
)

# ---- commands ------------------------------------------------------------------------------------------------------


class ReadLog(msgspec.Struct, frozen=True):
    """→ LogRead, StepFailed"""


class Append(msgspec.Struct, frozen=True):
    """→ AppendWon, AppendRefused, AppendUnanswered; the first time also StepFailed, when it certainly did not happen"""

    entry: Entry
    is_repeat: bool = False


class SpawnWorkers(msgspec.Struct, frozen=True):
    """→ WorkersSpawned, StepFailed"""

    attempt: Attempt
    count: int


class EndOldWorkers(msgspec.Struct, frozen=True):
    """Kill the workers that `takeover` recorded, where they are on this host. → OldWorkersEnded"""

    takeover: Takeover


class EndWorkers(msgspec.Struct, frozen=True):
    """Kill the attempt's workers; those that were asked to stop have `grace` seconds first. → WorkersGone"""

    attempt: Attempt
    grace: float


class SendToWorker(msgspec.Struct, frozen=True):
    attempt: Attempt
    worker: WorkerIndex
    message: ToWorker


class Discover(msgspec.Struct, frozen=True):
    """→ SplitsFound, DiscoveryFailed"""

    attempt: Attempt
    operator: OperatorName
    known: frozenset[str] | None


class Recover(msgspec.Struct, frozen=True):
    """One step on the transactions of a sink. → RecoveryAnswered"""

    attempt: Attempt
    run: int
    """Which of the attempt's recoveries asks; an answer to one that was dropped is no answer to the next."""
    step: recovery.Step


class CleanUp(msgspec.Struct, frozen=True):
    """Remove entries from the log, in this order, then files. → CleanedUp, unless they cannot be removed"""

    positions: tuple[LogPosition, ...]
    files: tuple[str, ...]


class CleanUpOrphans(msgspec.Struct, frozen=True):
    """Remove every file of attempts before `before` that is not in `keep`. → CleanedUp"""

    before: Attempt
    keep: frozenset[str]


class ExportSavepoint(msgspec.Struct, frozen=True):
    """Write a completed and committed checkpoint as a savepoint. → SavepointExported, SavepointNotExported"""

    manifest: Manifest
    path: str | None


class ReadSavepoint(msgspec.Struct, frozen=True):
    """→ SavepointRead, StepFailed"""

    path: str


class ImportSavepoint(msgspec.Struct, frozen=True):
    """Copy the state of the savepoint into the job's folder, as checkpoint `checkpoint` of `attempt`, if it still is
    this one. → SavepointImported, StepFailed"""

    origin: SavepointOrigin
    attempt: Attempt
    checkpoint: CheckpointId
    instance: LogInstance
    inline: bool
    """Into the manifest instead of files: where workers cannot read what the JobManager stores."""


class DropSavepoint(msgspec.Struct, frozen=True):
    """The savepoint was claimed and is not needed any more: remove it, if it still is this one. No answer."""

    origin: SavepointOrigin


class Reply(msgspec.Struct, frozen=True):
    """To whoever made `request`: how it ended. Exactly one of `text` and `failure` is there."""

    request: str
    text: str = ""
    """A savepoint's path; '' where there is nothing to say but that it is done."""
    failure: Failure | None = None


class WakeAt(msgspec.Struct, frozen=True):
    """→ Wake, at this monotonic time or soon after."""

    at: float


class Tell(msgspec.Struct, frozen=True):
    """To the person who watches."""

    level: Level
    text: str
    fields: dict[str, str | int | float] = {}


class Exit(msgspec.Struct, frozen=True):
    """The end of this JobManager: `failure` None is success."""

    failure: Failure | None


Command = (
    ReadLog
    | Append
    | SpawnWorkers
    | EndOldWorkers
    | EndWorkers
    | SendToWorker
    | Discover
    | Recover
    | CleanUp
    | CleanUpOrphans
    | ExportSavepoint
    | ReadSavepoint
    | ImportSavepoint
    | DropSavepoint
    | Reply
    | WakeAt
    | Tell
    | Exit
)
