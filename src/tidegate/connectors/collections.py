"""Sources and sinks of this process's memory, for tests, notebooks and trying out; nothing of them outlives the
process.

The sink keeps the contract of a transactional one in full, but for surviving a crash. It must not be used where
workers are processes of their own: each would write into a memory that nobody else sees. `in_process_only` says so to
whoever deploys.
"""

import enum
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CommitPermit,
    Committable,
    Committed,
    Lost,
    Outcome,
    RecoverySpec,
    SplitState,
    Unknown,
)
from tidegate.connectors.rotation import RotatingReader
from tidegate.elements import Batch
from tidegate.errors import CorruptError, InternalError, InvalidError, LostDataError, SinkFencedError
from tidegate.ids import OperatorName, TransactionalId, is_name
from tidegate.operators.contracts import (
    Deserializer,
    Fetched,
    SinkContext,
    SourceContext,
    SourceReader,
    TransactionalSink,
    TransactionInfo,
    TransactionRecovery,
    owned_ids,
)


class CollectionSource:
    """The values of a sequence, dealt in turn to `splits` splits. Bounded; a split's positions are indexes into it.

    The values are taken when it is made; every process that makes it must get the same ones.
    """

    def __init__(self, values: Sequence[Any], splits: int = 1) -> None:
        if splits < 1:
            raise InvalidError(f"splits={splits} must be at least 1")
        self._splits = tuple(tuple(values[first::splits]) for first in range(splits))

    @classmethod
    def of_splits(cls, splits: Sequence[Sequence[Any]]) -> "CollectionSource":
        """With the values of each split given one by one."""
        source = cls((), 1)
        source._splits = tuple(tuple(values) for values in splits)
        return source

    @property
    def bounded(self) -> bool:
        return True

    @property
    def deserializer(self) -> Deserializer | None:
        return None

    @property
    def discovery_interval(self) -> float | None:
        return None

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        return None

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return [
            SplitState(id=str(index), position=0, stop=len(values))
            for index, values in enumerate(self._splits)
            if str(index) not in (known or ())
        ]

    def open_reader(self, context: SourceContext) -> SourceReader:
        return RotatingReader(self._read)

    def _read(self, split: SplitState, max_records: int) -> Fetched:
        values = self._splits[int(split.id)] if int(split.id) < len(self._splits) else ()
        stop = len(values) if split.stop is None else split.stop
        if split.position < stop and stop > len(values):
            raise LostDataError(
                f"split {split.id} of the collection had {stop} values and now has {len(values)}",
                remedy="A program must make its collections the same each time; start afresh with the new ones.",
            )
        end = max(split.position, min(split.position + max_records, stop))
        return Fetched(split.id, list(values[split.position : end]), end, finished=end >= stop)


class _State(enum.Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class CollectionTransaction:
    """One transaction of a `CollectionSink`."""

    def __init__(self, id: str, epoch: int) -> None:
        self.id = id
        self.epoch = epoch
        self.values: list[Any] = []
        self.state = _State.OPEN
        self.prepared = False


class _Store:
    """What every sink, writer and recovery of one name share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.committed: list[Any] = []
        self.transactions: dict[str, list[CollectionTransaction]] = {}
        """By id; the place in the list is the epoch."""

    def begin(self, id: str) -> CollectionTransaction:
        with self.lock:
            self.abort_open(id)
            under_id = self.transactions.setdefault(id, [])
            under_id.append(CollectionTransaction(id, len(under_id)))
            return under_id[-1]

    def abort_open(self, id: str) -> None:
        for transaction in self.transactions.get(id, []):
            if transaction.state is _State.OPEN:
                transaction.state = _State.ABORTED

    def find(self, committable: Committable) -> CollectionTransaction | None:
        under_id = self.transactions.get(committable.id, [])
        epoch = committable.payload.get("epoch")
        if type(epoch) is not int or epoch < 0:
            raise CorruptError(
                f"what the checkpoint says of the transaction {committable.id} cannot be read: {epoch!r}"
            )
        return under_id[epoch] if epoch < len(under_id) else None

    def commit(self, committable: Committable) -> Outcome:
        with self.lock:
            transaction = self.find(committable)
            if transaction is None:
                return Unknown(f"this process knows no transaction {committable.id} of epoch {committable.payload}")
            match transaction.state:
                case _State.COMMITTED:
                    return AlreadyCommitted()
                case _State.ABORTED:
                    return Lost(f"transaction {committable.id} was aborted, or another was begun under its id")
                case _State.OPEN:
                    transaction.state = _State.COMMITTED
                    self.committed += transaction.values
                    return Committed()

    def with_records(self) -> list[CollectionTransaction]:
        """Those that are open or prepared and hold records, by id."""
        return [
            transaction
            for id in sorted(self.transactions)
            for transaction in self.transactions[id]
            if transaction.state is _State.OPEN and transaction.values
        ]


_STORES: dict[str, _Store] = {}
_NAMES = itertools.count(1)


class CollectionSink:
    """Collects what is committed, in the order of the commits, in this process.

    Sinks with the same `name` share one memory, and so do an earlier and a later run of a job; without a name it has
    its own.
    """

    in_process_only = True

    def __init__(self, name: str | None = None, *, transaction_prefix: str | None = None) -> None:
        if transaction_prefix is not None and not is_name(transaction_prefix):
            raise InvalidError(f"transaction_prefix={transaction_prefix!r} is not a name: A-Z, a-z, 0-9, '_', '-'")
        self.name = f"collection-{next(_NAMES)}" if name is None else name
        self._transaction_prefix = transaction_prefix
        self._store = _STORES.setdefault(self.name, _Store())

    @property
    def committed(self) -> list[Any]:
        """Every value of every committed transaction, as a copy."""
        with self._store.lock:
            return list(self._store.committed)

    @property
    def open(self) -> dict[str, list[Any]]:
        """The values of each transaction that is neither committed nor aborted, by its id, as a copy."""
        with self._store.lock:
            return {transaction.id: list(transaction.values) for transaction in self._store.with_records()}

    @property
    def transaction_prefix(self) -> str | None:
        return self._transaction_prefix

    @property
    def recovery_spec(self) -> RecoverySpec:
        return RecoverySpec("tidegate.connectors.collections:open_recovery", {"name": self.name})

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        return CollectionSinkWriter(self._store)

    def open_recovery(self) -> TransactionRecovery:
        return CollectionRecovery(self._store)


class CollectionSinkWriter:
    """One subtask's end of a `CollectionSink`."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    def begin(self, id: TransactionalId) -> CollectionTransaction:
        return self._store.begin(str(id))

    def has_room(self, txn: CollectionTransaction) -> bool:
        return True

    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        with self._store.lock:
            _require_open(txn)
            txn.values += batch.values

    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        with self._store.lock:
            _require_open(txn)
            txn.prepared = True
            return _committable(txn) if txn.values else None

    def check(self, committables: Sequence[Committable]) -> None:
        with self._store.lock:
            for committable in committables:
                transaction = self._store.find(committable)
                if transaction is None or transaction.state is not _State.OPEN:
                    what = "unknown" if transaction is None else transaction.state.value
                    raise LostDataError(f"the prepared transaction {committable.id} is not pending any more: {what}")

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return self._store.commit(committable)

    def abandon(self, txn: CollectionTransaction) -> None:
        """Nothing is held but the transaction itself, which stays."""

    def close(self) -> None:
        """Nothing is held."""


class CollectionRecovery:
    """Transactions of a `CollectionSink`, seen from the JobManager."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    def check_timeout(self, needed: float) -> None:
        """They never time out."""

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return self._store.commit(committable)

    def abort(self, id: TransactionalId) -> None:
        with self._store.lock:
            self._store.abort_open(str(id))

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        with self._store.lock:
            found = [transaction.id for transaction in self._store.with_records()]
        return owned_ids(found, prefix, sink)

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        with self._store.lock:
            uses = self._store.transactions.get(str(id))
            if not uses:
                return None
            newest = uses[-1]
            can_commit = newest.state is _State.OPEN and bool(newest.values)
            return TransactionInfo(id, newest.state.value, committable=_committable(newest) if can_commit else None)

    def close(self) -> None:
        """Nothing is held."""


def open_recovery(name: str) -> CollectionRecovery:
    """The factory that a manifest names. In another process it finds an empty memory, so every commit is unknown
    there."""
    return CollectionRecovery(_STORES.setdefault(name, _Store()))


def _committable(transaction: CollectionTransaction) -> Committable:
    return Committable(transaction.id, {"epoch": transaction.epoch})


def _require_open(txn: CollectionTransaction) -> None:
    if txn.state is _State.ABORTED:
        raise SinkFencedError(
            f"transaction {txn.id} was taken from its producer: it was aborted, or another was begun under its id",
            remedy="If no newer attempt of this job runs, another job uses this prefix: change one of them.",
        )
    if txn.prepared or txn.state is _State.COMMITTED:
        raise InternalError(f"transaction {txn.id} was used again after it had been prepared")
