"""The sink of a job under test: keeps what is written in the order of writing, and knows what of it is committed.

It keeps the contract of a transactional sink in full. Transactions live outside of the job's processes, so that a crash
of these leaves them as they are.
"""

import enum
import itertools
import weakref
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CommitPermit,
    Committable,
    Committed,
    Lost,
    Outcome,
    RecoverySpec,
    Unknown,
)
from tidegate.elements import Batch
from tidegate.errors import InternalError, LostDataError, SinkFencedError
from tidegate.ids import OperatorName, TransactionalId
from tidegate.operators.contracts import (
    SinkContext,
    TransactionalSink,
    TransactionInfo,
    TransactionRecovery,
    owned_ids,
)
from tidegate.testing.harness.elements import Record


class _State(enum.Enum):
    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class CollectTransaction:
    """One transaction of a `Collected`."""

    def __init__(self, id: str, number: int) -> None:
        self.id = id
        self.number = number
        """Among those under its id, from 0."""
        self.has_records = False
        self.state = _State.OPEN


class Collected:
    """What one sink of a job has written, in the order of writing over all subtasks."""

    in_process_only = True
    transaction_prefix: str | None = None

    def __init__(self) -> None:
        self._name = f"collect-{next(_NUMBERS)}"
        self._written: list[tuple[Record, CollectTransaction]] = []
        self._transactions: dict[str, list[CollectTransaction]] = {}
        _SINKS[self._name] = self

    @property
    def records(self) -> list[Record]:
        """Everything that is written and not lost, committed or not, with timestamps."""
        return [record for record, transaction in self._written if transaction.state is not _State.ABORTED]

    @property
    def committed_records(self) -> list[Record]:
        """What readers of the output can see."""
        return [record for record, transaction in self._written if transaction.state is _State.COMMITTED]

    @property
    def output(self) -> list[Any]:
        """The values of `records`."""
        return [record.value for record in self.records]

    @property
    def committed(self) -> list[Any]:
        """The values of `committed_records`."""
        return [record.value for record in self.committed_records]

    # -- for the engine --

    @property
    def recovery_spec(self) -> RecoverySpec:
        return RecoverySpec(f"{__name__}:open_recovery", {"name": self._name})

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        return CollectSinkWriter(self)

    def open_recovery(self) -> TransactionRecovery:
        return CollectRecovery(self)

    def begin(self, id: str) -> CollectTransaction:
        self.abort(id)
        under_id = self._transactions.setdefault(id, [])
        under_id.append(CollectTransaction(id, len(under_id)))
        return under_id[-1]

    def abort(self, id: str) -> None:
        for transaction in self._transactions.get(id, []):
            if transaction.state in (_State.OPEN, _State.PREPARED):
                transaction.state = _State.ABORTED

    def write(self, transaction: CollectTransaction, batch: Batch) -> None:
        _require(transaction, _State.OPEN)
        transaction.has_records = True
        stamps = batch.timestamps if batch.timestamps is not None else repeat(None)
        self._written += [(Record(value, at), transaction) for value, at in zip(batch.values, stamps, strict=False)]

    def commit(self, committable: Committable) -> Outcome:
        transaction = self.find(committable)
        if transaction is None:
            return Unknown(f"no transaction {committable.id} is known")
        match transaction.state:
            case _State.COMMITTED:
                return AlreadyCommitted()
            case _State.PREPARED:
                transaction.state = _State.COMMITTED
                return Committed()
            case _:
                return Lost(f"transaction {committable.id} is {transaction.state.value}")

    def find(self, committable: Committable) -> CollectTransaction | None:
        under_id = self._transactions.get(committable.id, [])
        number = committable.payload["number"]
        return under_id[number] if number < len(under_id) else None

    def newest(self, id: str) -> CollectTransaction | None:
        return self._transactions.get(id, [None])[-1]

    def unfinished(self) -> list[str]:
        """Ids with records that are neither committed nor aborted."""
        return [
            id
            for id, under_id in sorted(self._transactions.items())
            if under_id[-1].has_records and under_id[-1].state in (_State.OPEN, _State.PREPARED)
        ]


_NUMBERS = itertools.count(1)
_SINKS: "weakref.WeakValueDictionary[str, Collected]" = weakref.WeakValueDictionary()
"""By what manifests call them: a program that has a sink no more still commits what it left."""


class CollectSinkWriter:
    """One subtask's end of a `Collected`."""

    def __init__(self, sink: Collected) -> None:
        self._sink = sink

    def begin(self, id: TransactionalId) -> CollectTransaction:
        return self._sink.begin(str(id))

    def has_room(self, txn: CollectTransaction) -> bool:
        return True

    def write(self, txn: CollectTransaction, batch: Batch) -> None:
        self._sink.write(txn, batch)

    def prepare(self, txn: CollectTransaction) -> Committable | None:
        _require(txn, _State.OPEN)
        txn.state = _State.PREPARED
        return _committable(txn) if txn.has_records else None

    def check(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            transaction = self._sink.find(committable)
            if transaction is None or transaction.state is not _State.PREPARED:
                raise LostDataError(f"the prepared transaction {committable.id} is not pending any more")

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return self._sink.commit(committable)

    def abandon(self, txn: CollectTransaction) -> None:
        """It stays as it is."""

    def close(self) -> None:
        """Nothing is held."""


class CollectRecovery:
    """The transactions of a `Collected`, seen from the JobManager."""

    def __init__(self, sink: Collected) -> None:
        self._sink = sink

    def check_timeout(self, needed: float) -> None:
        """They never time out."""

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return self._sink.commit(committable)

    def abort(self, id: TransactionalId) -> None:
        self._sink.abort(str(id))

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        return owned_ids(self._sink.unfinished(), prefix, sink)

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        newest = self._sink.newest(str(id))
        if newest is None:
            return None
        is_pending = newest.state is _State.PREPARED and newest.has_records
        return TransactionInfo(id, newest.state.value, committable=_committable(newest) if is_pending else None)

    def close(self) -> None:
        """Nothing is held."""


def open_recovery(name: str) -> TransactionRecovery:
    """The factory that a manifest names. Raises InternalError when the harness is gone."""
    sink = _SINKS.get(name)
    if sink is None:
        raise InternalError(f"the sink {name} of a harness is gone, and with it its transactions")
    return CollectRecovery(sink)


def _committable(transaction: CollectTransaction) -> Committable:
    return Committable(transaction.id, {"number": transaction.number})


def _require(transaction: CollectTransaction, state: _State) -> None:
    if transaction.state is _State.ABORTED:
        raise SinkFencedError(f"transaction {transaction.id} was aborted, or another was begun under its id")
    if transaction.state is not state:
        raise InternalError(f"transaction {transaction.id} is {transaction.state.value} and not {state.value}")
