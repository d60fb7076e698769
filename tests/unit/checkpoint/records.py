"""Entries and manifests to test with, full enough that every field takes part."""

from tidegate.checkpoint import manifest as manifests
from tidegate.checkpoint.log import (
    Body,
    CleanStop,
    Completed,
    Created,
    Discarded,
    Entry,
    Finished,
    ProcessRecord,
    Takeover,
)
from tidegate.checkpoint.manifest import Manifest, OperatorRecord, SinkRecord, SubtaskRecord
from tidegate.checkpoint.protocol import (
    Committable,
    OperatorSnapshot,
    PendingTransaction,
    RecoverySpec,
    SplitState,
    StateHandle,
    StateInfo,
)
from tidegate.checkpoint.store import checksum
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, LogPosition, OperatorName, SubtaskIndex

JOB = JobName("orders")
INSTANCE = LogInstance("5f2c")


def manifest(checkpoint: int = 1, attempt: int = 1, handles: tuple[StateHandle, ...] = ()) -> Manifest:
    """With a source, a keyed operator that has `handles`, and a sink."""
    source = OperatorSnapshot(
        OperatorName("read"), splits=(SplitState("orders-0", 17, attributes={"topic": "ördërs"}),)
    )
    keyed = OperatorSnapshot(
        OperatorName("totals"), key_type="str", states=(StateInfo("sum", "value", "int", "msgpack/1"),), handles=handles
    )
    prepared = PendingTransaction(
        CheckpointId(checkpoint), Committable(f"app:5f2c:{attempt}:write:0:0", {"epoch": 3, "partitions": [0, 1]})
    )
    sink = OperatorSnapshot(OperatorName("write"), pending=(prepared,))
    records = tuple(
        OperatorRecord(snapshot.name, 1, False, (SubtaskRecord(SubtaskIndex(0), snapshot),), sink=found)
        for snapshot, found in (
            (source, None),
            (keyed, None),
            (sink, SinkRecord("app", RecoverySpec("module:function", {"servers": "localhost:9092"}))),
        )
    )
    return Manifest(
        manifests.FORMAT, JOB, INSTANCE, Attempt(attempt), CheckpointId(checkpoint), 1, 128, 1.75e9, 0.25, records
    )


def entry(position: int, body: Body, nonce: str = "mine", attempt: int = 1) -> Entry:
    return Entry(LogPosition(position), nonce, INSTANCE, Attempt(attempt), 1.75e9 + position, body)


def completed(position: int, checkpoint: int = 1, nonce: str = "mine", attempt: int = 1) -> Entry:
    return entry(position, Completed(manifest(checkpoint, attempt)), nonce, attempt)


CREATED = entry(0, Created(), attempt=0)
TAKEOVER = Takeover("höst", ProcessRecord(7, 99), (ProcessRecord(8, 100),), "ipc:///x", {"fresh": "a"}, fresh=True)
INLINE = StateHandle(0, 63, 3, checksum(b"\x00\xffx"), inline=b"\x00\xffx")
ENTRIES = (
    CREATED,
    entry(1, TAKEOVER),
    entry(2, Completed(manifest(handles=(INLINE,)))),
    entry(3, CleanStop(CheckpointId(4))),
    entry(4, Discarded((LogPosition(2), LogPosition(3)), "asked for")),
    entry(5, Finished(CheckpointId(4))),
)
"""A whole log, with every kind of entry."""
