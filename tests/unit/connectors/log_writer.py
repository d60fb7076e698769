"""A process that writes numbered transactions into an embedded log, made to be killed at any moment and started again.

Its ledger plays the part of the checkpoint log: a line there is the proof that a transaction's checkpoint completed.
Run as `python -m tests.unit.connectors.log_writer DIRECTORY LEDGER NAME TRANSACTIONS`.
"""

import os
import sys
from pathlib import Path

import msgspec

from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CommitPermit,
    Committable,
    Committed,
    CompletedInLog,
)
from tidegate.elements import Batch
from tidegate.formats import String
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.local import LocalSink
from tidegate.operators.contracts import SinkContext

PARTITIONS = 3
RECORDS = 4500
"""In one transaction: more than reach the log at once, so that a kill can leave one half written."""
BATCH = 700


class Line(msgspec.Struct, omit_defaults=True):
    """'Started', or 'checkpoint `number` completed, with this transaction'."""

    number: int = -1
    committable: Committable | None = None


def text(name: str, number: int, record: int) -> str:
    return f"{name}:{number}:{record}"


def key(value: str) -> str:
    name, _, record = value.split(":")
    return f"{name}-{int(record) % 5}"


def permit(number: int) -> CommitPermit:
    return CommitPermit(CompletedInLog(Attempt(1), CheckpointId(number)))


def read_ledger(path: Path) -> list[Line]:
    """Its whole lines; a torn last one was never finished."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().split(b"\n")[:-1]]


def append_ledger(path: Path, line: Line) -> None:
    whole = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    kept = len(whole[0]) + len(whole[1])
    with path.open("ab") as file:
        file.truncate(kept)
        file.write(msgspec.json.encode(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def run(directory: Path, ledger: Path, name: str, transactions: int) -> None:
    append_ledger(ledger, Line())
    lines = read_ledger(ledger)
    attempt = Attempt(sum(line.committable is None for line in lines))
    completed = [line for line in lines if line.committable is not None]
    sink = LocalSink(directory, "output", value=String(), key=key, partitions=PARTITIONS)
    writer = sink.open_writer(SinkContext(JobName(name), OperatorName("out"), SubtaskIndex(0), 1, attempt))
    recovery = sink.open_recovery()
    if completed and completed[-1].committable is not None:
        outcome = recovery.commit(completed[-1].committable, permit(completed[-1].number))
        assert outcome in (Committed(), AlreadyCommitted()), outcome
    for id in recovery.open_transactions(name, OperatorName("out")):
        recovery.abort(id)
    for number in range(completed[-1].number + 1 if completed else 0, transactions):
        id = TransactionalId(name, LogInstance("log"), attempt, OperatorName("out"), SubtaskIndex(0), number % 2)
        txn = writer.begin(id)
        for start in range(0, RECORDS, BATCH):
            records = range(start, min(start + BATCH, RECORDS))
            writer.write(txn, Batch([text(name, number, record) for record in records]))
        committable = writer.prepare(txn)
        assert committable is not None
        append_ledger(ledger, Line(number, committable))
        outcome = writer.commit(committable, permit(number))
        assert outcome == Committed(), outcome


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
