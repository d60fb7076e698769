"""A simulated log service: partitioned topics with transactions, read_committed, fencing by epoch, and timeouts.

Each `begin` makes a new transaction with an epoch of its own under its id and aborts what was open there. As with
Kafka, only the newest use of an id can be asked about. Nothing here fails or delays anything: that is the gate's part.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from weakref import WeakValueDictionary

from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed, Lost, Outcome, Unknown
from tidegate.errors import InternalError, LostDataError, SinkFencedError, TidegateError, UnavailableError
from tidegate.ids import TransactionalId
from tidegate.testing.sim import outside
from tidegate.testing.sim.outside import OutsideTransaction

TIMED_OUT = outside.TIMED_OUT


class TransactionState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@dataclass
class Transaction:
    """One use of a transactional id. `timeout`, `start`: seconds."""

    id: str
    epoch: int
    timeout: float
    state: TransactionState = TransactionState.EMPTY
    is_prepared: bool = False
    start: float | None = None
    """When its first record was written."""
    reason: str = ""
    """Why it was aborted."""
    values: list[Any] = field(default_factory=list)

    @property
    def producer_id(self) -> int:
        """There is only the id."""
        return 0

    @property
    def is_open(self) -> bool:
        return self.state in (TransactionState.EMPTY, TransactionState.ONGOING)


@dataclass
class Record:
    value: Any
    transaction: Transaction | None


@dataclass
class Partition:
    """`low`: the first offset that was not deleted."""

    records: list[Record] = field(default_factory=list)
    low: int = 0

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a reader of committed records may not see yet."""
        for offset, record in enumerate(self.records):
            if record.transaction is not None and record.transaction.state is TransactionState.ONGOING:
                return offset
        return len(self.records)


class LogService:
    """`now` in seconds. `on_begin` is told the id of each transaction that begins, `on_commit` of each one that becomes
    visible."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self._now = now
        self.topics: dict[str, list[Partition]] = {}
        self.transactions: dict[str, list[Transaction]] = {}
        """By id, newest last."""
        self.on_begin: list[Callable[[str], None]] = []
        self.on_reuse: list[Callable[[str], None]] = []
        self.on_commit: list[Callable[[OutsideTransaction], None]] = []
        self.on_visible: list[Callable[[], None]] = []
        SERVICES[name] = self

    # -- topics --

    def create_topic(self, topic: str, partitions: int) -> None:
        self.topics[topic] = [Partition() for _ in range(partitions)]

    def append(self, topic: str, partition: int, values: Iterable[Any]) -> None:
        """Outside of any transaction."""
        self.topics[topic][partition].records += [Record(value, None) for value in values]

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.topics[topic][partition].low = before

    def fetch(self, topic: str, partition: int, position: int, most: int, stop: int) -> tuple[list[Any], int]:
        """Up to `most` committed values from `position` on, and the next position. Raises LostDataError."""
        self.expire()
        log = self.topics[topic][partition]
        if position < log.low:
            raise LostDataError(f"{topic}/{partition}: offset {position} was deleted, the first is {log.low}")
        values: list[Any] = []
        end = min(log.last_stable_offset, stop)
        while position < end and len(values) < most:
            record = log.records[position]
            if _is_visible(record):
                values.append(record.value)
            position += 1
        while position < end and not _is_visible(log.records[position]):
            position += 1
        return values, position

    def count_before(self, topic: str, partition: int, position: int) -> int:
        """Input has no gaps here."""
        return position

    def visible(self, topic: str) -> list[list[Any]]:
        """What readers of committed records see now, by partition."""
        self.expire()
        return [
            [record.value for record in log.records[: log.last_stable_offset] if _is_visible(record)]
            for log in self.topics[topic]
        ]

    def committed(self, topic: str) -> list[list[Any]]:
        """Every committed value by partition, also behind open transactions."""
        return [[record.value for record in log.records if _is_visible(record)] for log in self.topics[topic]]

    # -- transactions --

    def begin(self, id: str, timeout: float) -> Transaction:
        self.expire()
        for told in self.on_begin:
            told(id)
        self.abort(id, "a newer transaction was begun under its id")
        uses = self.transactions.setdefault(id, [])
        uses.append(Transaction(id, len(uses), timeout))
        return uses[-1]

    def write(self, transaction: Transaction, rows: Sequence[tuple[str, int, Any]]) -> None:
        """Topic, partition, value. Raises SinkFencedError, UnavailableError when it is not the producer's any more."""
        self.expire()
        self._check_own(transaction)
        if rows and transaction.state is TransactionState.EMPTY:
            transaction.state = TransactionState.ONGOING
            transaction.start = self._now()
        for topic, partition, value in rows:
            self.topics[topic][partition].records.append(Record(value, transaction))
            transaction.values.append(value)

    def prepare(self, transaction: Transaction) -> bool:
        """Whether there is something to commit. Raises as `write`."""
        self.expire()
        self._check_own(transaction)
        transaction.is_prepared = transaction.state is TransactionState.ONGOING
        return transaction.is_prepared

    def _check_own(self, transaction: Transaction) -> None:
        if transaction.state is TransactionState.COMPLETE_ABORT:
            raise _taken_away(transaction)
        if transaction.is_prepared or not transaction.is_open:
            raise InternalError(f"transaction {transaction.id} was used again after it had been prepared")

    def find(self, committable: Committable) -> Transaction | None:
        return self.use(committable.id, committable.payload["epoch"])

    def use(self, id: str, epoch: int) -> Transaction | None:
        self.expire()
        uses = self.transactions.get(id, [])
        return uses[epoch] if 0 <= epoch < len(uses) else None

    def commit(self, id: str, epoch: int) -> Outcome:
        transaction = self.use(id, epoch)
        if transaction is None:
            return Unknown(f"no transaction {id} with epoch {epoch} is known")
        if transaction is not self.transactions[id][-1]:
            return Lost(f"{id} has been used again since epoch {epoch}; nobody knows any more what became of that")
        match transaction.state:
            case TransactionState.COMPLETE_COMMIT:
                return AlreadyCommitted()
            case TransactionState.COMPLETE_ABORT:
                return Lost(f"transaction {id} with epoch {epoch} was aborted: {transaction.reason}")
        transaction.state = TransactionState.COMPLETE_COMMIT
        for told in self.on_commit:
            told(transaction)
        for seen in self.on_visible:
            seen()
        return Committed()

    def abort(self, id: str, reason: str) -> None:
        """Whatever is open under `id`; its producer is fenced."""
        for transaction in self.transactions.get(id, ()):
            if transaction.is_open:
                transaction.state, transaction.reason = TransactionState.COMPLETE_ABORT, reason

    def ongoing(self) -> list[Transaction]:
        """Those that hold records and are neither committed nor aborted."""
        self.expire()
        return [t for uses in self.transactions.values() for t in uses if t.state is TransactionState.ONGOING]

    def list_open(self) -> list[TransactionalId]:
        """Their ids, as far as they are of our form."""
        found = [TransactionalId.parse(transaction.id) for transaction in self.ongoing()]
        return [id for id in found if id is not None]

    def mishaps(self) -> Mapping[str, Callable[[], None]]:
        """None of its own."""
        return {}

    def expire(self) -> None:
        """Abort what is past its timeout."""
        now = self._now()
        for uses in self.transactions.values():
            newest = uses[-1]
            if (
                newest.state is TransactionState.ONGOING
                and newest.start is not None
                and newest.start + newest.timeout < now
            ):
                self.abort(newest.id, TIMED_OUT)

    @property
    def has_timed_out(self) -> bool:
        """Whether any prepared transaction passed its timeout."""
        return any(t.reason == TIMED_OUT for uses in self.transactions.values() for t in uses)


SERVICES: WeakValueDictionary[str, LogService] = WeakValueDictionary()
"""Every service by name: how a sink's recovery is found again by what a manifest says."""


def _is_visible(record: Record) -> bool:
    return record.transaction is None or record.transaction.state is TransactionState.COMPLETE_COMMIT


def _taken_away(transaction: Transaction) -> TidegateError:
    text = f"transaction {transaction.id} was taken from its producer: {transaction.reason}"
    return UnavailableError(text) if transaction.reason == TIMED_OUT else SinkFencedError(text)
