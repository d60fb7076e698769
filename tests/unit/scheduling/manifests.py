"""Completed checkpoints and logs for tests of what a new JobManager finds."""

from collections.abc import Iterable

from tests.unit.scheduling.programs import JOB, MAX_PARALLELISM, READ, SPEC, TOTALS, WRITE
from tidegate.checkpoint.log import Body, Completed, Created, Entry, ProcessRecord, Takeover
from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SinkRecord, SubtaskRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, SplitState, StateHandle, StateInfo
from tidegate.ids import Attempt, CheckpointId, LogInstance, LogPosition, SubtaskIndex

INSTANCE = LogInstance("i0")
CREATED = Created()
SUM = StateInfo("sum", "value", "int", "msgpack/1")


def handle(first: int, last: int, path: str | None = None) -> StateHandle:
    return StateHandle(first, last, 1, "", path)


def manifest(
    checkpoint: int,
    attempt: int = 1,
    handles: Iterable[StateHandle] = (),
    splits: Iterable[SplitState] = (),
    unassigned: Iterable[SplitState] = (),
    states: tuple[StateInfo, ...] = (SUM,),
    max_parallelism: int = MAX_PARALLELISM,
    ended: bool = False,
) -> Manifest:
    """Of one subtask, but that each handle is of a subtask of its own."""

    def record(snapshots: Iterable[OperatorSnapshot], **more: object) -> OperatorRecord:
        found = tuple(SubtaskRecord(SubtaskIndex(i), snapshot) for i, snapshot in enumerate(snapshots))
        return OperatorRecord(found[0].snapshot.name, len(found), ended, found, **more)  # type: ignore[arg-type]

    source = record([OperatorSnapshot(READ, splits=tuple(splits))], unassigned=tuple(unassigned))
    keyed = [OperatorSnapshot(TOTALS, ended, "str", states, (h,)) for h in handles]
    totals = record(keyed or [OperatorSnapshot(TOTALS, ended, "str", states)])
    sink = record([OperatorSnapshot(WRITE)], sink=SinkRecord("orders", SPEC))
    return Manifest(
        FORMAT,
        JOB,
        INSTANCE,
        Attempt(attempt),
        CheckpointId(checkpoint),
        1,
        max_parallelism,
        0.0,
        0.25,
        (source, totals, sink),
    )


def completed(checkpoint: int, *files: str) -> Completed:
    return Completed(manifest(checkpoint, handles=[handle(i, i, path) for i, path in enumerate(files)]))


def takeover(is_fresh: bool = False, **options: str) -> Takeover:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return Takeover("host", ProcessRecord(7, 1), options=named, fresh=is_fresh)


def log(*bodies: Body, nonce: str = "earlier") -> list[Entry]:
    """Entries from position 0 on, each attempt begun by its takeover."""
    entries: list[Entry] = []
    attempt = 0
    for position, body in enumerate(bodies):
        attempt += isinstance(body, Takeover)
        previous = nonce if position else ""
        entries.append(Entry(LogPosition(position), nonce, INSTANCE, Attempt(attempt), 0.0, body, previous))
    return entries
