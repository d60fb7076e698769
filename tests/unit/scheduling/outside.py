"""What a JobManager and its workers act upon, as it really is: the log, the transactions of a sink, the files of state.

It knows the truth, and refuses what would lose or double a record, whoever asks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tidegate.checkpoint.log import Completed, Entry, LogView, view_log
from tidegate.checkpoint.manifest import Manifest, OperatorRecord, files_of
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    Committable,
    Committed,
    Lost,
    OperatorSnapshot,
    Outcome,
    StateHandle,
)
from tidegate.checkpoint.recovery import named_by
from tidegate.ids import Attempt, CheckpointId, LogInstance, LogPosition, OperatorName, TransactionalId


@dataclass
class Transaction:
    """What is open, or was last, under one transactional id."""

    number: int
    state: str = "open"
    records: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Outside:
    entries: dict[LogPosition, Entry] = field(default_factory=dict)
    highest: int = -1
    """The highest position that was ever written."""
    transactions: dict[TransactionalId, Transaction] = field(default_factory=dict)
    output: list[tuple[str, int]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    count: int = 0
    savepoints: dict[str, Manifest] = field(default_factory=dict)
    """By folder."""
    exporting: list[Manifest] = field(default_factory=list)
    """Of which the living process makes savepoints."""
    may_repeat: bool = False
    """An operator went back: what came after is put out again."""

    # -- the log --

    def put(self, entry: Entry) -> Entry | None:
        """Put if absent. Returns who holds the position when it is somebody else."""
        holder = self.entries.get(entry.position)
        if holder is None:
            assert entry.position == self.highest + 1, "an entry is written where the log does not end"
            self.entries[entry.position] = entry
            self.highest = entry.position
            return None
        return None if holder == entry else holder

    @property
    def view(self) -> LogView:
        return view_log(list(self.entries.values()))

    @property
    def newest(self) -> Manifest | None:
        return self.view.newest

    def needed(self) -> frozenset[str]:
        """Files of every checkpoint that the log still has."""
        return files_of(e.body.manifest for e in self.entries.values() if isinstance(e.body, Completed))

    def used(self) -> frozenset[str]:
        """These, and those of which a savepoint is being made."""
        return self.needed() | files_of(self.exporting)

    # -- savepoints --

    def export(self, manifest: Manifest, path: str) -> None:
        """All that it holds must be out: whoever begins from it puts none of it out again."""
        assert path not in self.savepoints, f"a savepoint is written over that in {path}"
        assert manifest.files <= self.files, "a savepoint is made of files that are deleted"
        for name in sorted(named_by(manifest)):
            id = TransactionalId.parse(name)
            assert id is not None
            assert self.transactions[id].state == "committed", (
                f"{id} is in a savepoint, and {self.transactions[id].state}"
            )
        self.savepoints[path] = msgspec.structs.replace(manifest, operators=tuple(map(_settled, manifest.operators)))

    def take_in(self, path: str, attempt: int, checkpoint: CheckpointId, instance: LogInstance) -> Manifest:
        """A savepoint's files in the job's folder."""
        stored = self.savepoints[path]
        names = {old: f"chk-{attempt}-{checkpoint}/{number}" for number, old in enumerate(sorted(stored.files))}
        self.files |= set(names.values())
        operators = tuple(_renamed(operator, names) for operator in stored.operators)
        return msgspec.structs.replace(
            stored, attempt=Attempt(attempt), checkpoint=checkpoint, instance=instance, operators=operators
        )

    # -- transactions --

    def open(self, id: TransactionalId) -> None:
        """As InitProducerId does: aborts whatever is open under the id."""
        present = self.transactions.get(id)
        if present is not None and present.state == "open":
            self._abort(id, present)
        assert present is None or present.state != "committed" or str(id) not in named_by(self.newest), (
            f"{id} is opened again while the newest checkpoint lists its transaction"
        )
        self.count += 1
        self.transactions[id] = Transaction(self.count)

    def prepare(self, id: TransactionalId) -> Committable | None:
        """None when it is not there as it was left: the caller is fenced."""
        present = self.transactions[id]
        return Committable(str(id), {"number": present.number}) if present.state == "open" else None

    def commit(self, committable: Committable) -> Outcome:
        id = TransactionalId.parse(committable.id)
        assert id is not None
        present = self.transactions[id]
        if present.number != committable.payload["number"] or present.state == "aborted":
            return Lost(f"{id} is {present.state}")
        if present.state == "committed":
            return AlreadyCommitted()
        newest = self.newest
        assert newest is not None, f"{id} is committed before any checkpoint completed"
        assert str(id) in named_by(newest), f"{id} is committed, and the newest checkpoint does not name it"
        for record in present.records:
            assert self.may_repeat or record not in self.output, f"record {record} is committed twice"
        self.output += present.records
        present.state = "committed"
        return Committed()

    def abort(self, id: TransactionalId) -> None:
        present = self.transactions[id]
        if present.state == "open":
            self._abort(id, present)

    def _abort(self, id: TransactionalId, present: Transaction) -> None:
        assert str(id) not in named_by(self.newest), f"{id} is aborted, and the newest checkpoint needs it"
        present.state = "aborted"

    def list_open(self, prefix: str, sink: OperatorName) -> tuple[TransactionalId, ...]:
        found = (id for id, present in self.transactions.items() if present.state == "open")
        return tuple(sorted(id for id in found if (id.prefix, id.sink) == (prefix, sink)))


def _settled(operator: OperatorRecord) -> OperatorRecord:
    return _mapped(operator, lambda snapshot: msgspec.structs.replace(snapshot, pending=()))


def _renamed(operator: OperatorRecord, names: dict[str, str]) -> OperatorRecord:
    def renamed(handle: StateHandle) -> StateHandle:
        return msgspec.structs.replace(handle, path=None if handle.path is None else names[handle.path])

    return _mapped(operator, lambda s: msgspec.structs.replace(s, handles=tuple(map(renamed, s.handles))))


def _mapped(operator: OperatorRecord, change: Callable[[OperatorSnapshot], OperatorSnapshot]) -> OperatorRecord:
    subtasks = tuple(msgspec.structs.replace(each, snapshot=change(each.snapshot)) for each in operator.subtasks)
    return msgspec.structs.replace(operator, subtasks=subtasks)
