"""Writes what a JobManager leaves in a checkpoint folder, entry by entry, through the real store."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidegate.checkpoint.log import Body, Completed, Created, Entry, ProcessRecord, Takeover
from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SinkRecord, SinkTarget, SubtaskRecord
from tidegate.checkpoint.protocol import (
    Committable,
    OperatorSnapshot,
    PendingTransaction,
    RecoverySpec,
    SplitState,
    StateHandle,
    StateInfo,
)
from tidegate.checkpoint.store import CheckpointStore, Won, checksum, state_path
from tidegate.ids import (
    Attempt,
    CheckpointId,
    JobName,
    LogInstance,
    LogPosition,
    OperatorName,
    SubtaskIndex,
    TaskId,
    VertexName,
)
from tidegate.storage.resolve import open_storage

STARTED = 1_700_000_000.0
"""2023-11-14T22:13:20Z."""


class StoredJob:
    def __init__(self, folder: Path, job: str, instance: str = "log-1") -> None:
        self.folder = folder
        self.store = CheckpointStore(open_storage(str(folder), writable=True), JobName(job))
        self.attempt = Attempt(0)
        self._instance = LogInstance(instance)
        self._position = LogPosition(0)

    @property
    def job_folder(self) -> Path:
        return self.folder / self.store.job

    def append(self, body: Body) -> None:
        entry = Entry(self._position, "nonce", self._instance, self.attempt, STARTED + self._position, body)
        assert self.store.append(entry) == Won()
        self._position = LogPosition(self._position + 1)

    def begin(self, *sinks: SinkTarget) -> None:
        self.append(Created())
        self.take_over(*sinks)

    def take_over(self, *sinks: SinkTarget, fresh: bool = False) -> None:
        self.attempt = Attempt(self.attempt + 1)
        self.append(Takeover("host", ProcessRecord(1, 1), fresh=fresh, sinks=sinks))

    def state_file(self, checkpoint: int) -> Path:
        return self.job_folder / self._state_path(checkpoint)

    def _state_path(self, checkpoint: int) -> str:
        task = TaskId(VertexName("totals"), SubtaskIndex(0))
        return state_path(self.attempt, CheckpointId(checkpoint), task, OperatorName("totals"), "state")

    def complete(
        self,
        checkpoint: int,
        *,
        pending: bool = False,
        prepared: Sequence[Committable] = (),
        sink: SinkRecord | None = None,
        source: RecoverySpec | None = None,
        splits: Sequence[SplitState] = (),
    ) -> None:
        """`pending`: with one transaction of an invented sink."""
        data = b"x" * 2000
        self.store.write_state(self._state_path(checkpoint), data)
        totals = OperatorSnapshot(
            OperatorName("totals"),
            states=(StateInfo("total", "value", "int", "msgpack/1"),),
            handles=(
                StateHandle(0, 63, len(data), checksum(data), path=self._state_path(checkpoint)),
                StateHandle(64, 127, 2, checksum(b"in"), inline=b"in"),
            ),
        )
        read = tuple(splits) or (SplitState("orders-0", checkpoint * 100),)
        orders = OperatorSnapshot(OperatorName("orders"), splits=read)
        invented = [Committable(f"totals:log-1:{self.attempt}:out:0:0")] if pending else []
        named = tuple(PendingTransaction(CheckpointId(checkpoint), one) for one in (*invented, *prepared))
        out = OperatorSnapshot(OperatorName("out"), pending=named)
        records = tuple(
            OperatorRecord(one.name, 1, False, (SubtaskRecord(SubtaskIndex(0), one),)) for one in (orders, totals, out)
        )
        unassigned = () if splits else (SplitState("orders-1", 7, stop=9),)
        records = (
            msgspec.structs.replace(records[0], unassigned=unassigned, source=source),
            records[1],
            msgspec.structs.replace(records[2], sink=sink),
        )
        self.append(
            Completed(
                Manifest(
                    format=FORMAT,
                    job=self.store.job,
                    instance=self._instance,
                    attempt=self.attempt,
                    checkpoint=CheckpointId(checkpoint),
                    parallelism=2,
                    max_parallelism=128,
                    triggered_at=STARTED + checkpoint,
                    duration=0.25,
                    operators=records,
                )
            )
        )

    def leave_unfinished(self, checkpoint: int) -> None:
        self.store.write_state(self._state_path(checkpoint), b"half")
