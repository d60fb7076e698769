"""The transaction coordinator: states and epochs by transactional id, and decisions whose markers are not written yet.

A decision (PrepareCommit, PrepareAbort) is answered at once and carried out later, partition by partition, by whoever
calls `written`. Rules are those of EndTxn up to version 4 unless the version says otherwise: an end raises no epoch,
and DescribeTransactions keeps the start time of what has ended until the id is initialised again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.connectors.kafka.client import TopicPartition, TransactionDescription, TransactionState
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.outside import TIMED_OUT

S = TransactionState
NO_EPOCH = -1
BUMPING_VERSION = 5
"""Of EndTxn: from here on an end raises the epoch."""


@dataclass(frozen=True)
class CoordinatorLimits:
    """Times in milliseconds."""

    last_epoch: int = 32_767
    """Before it is reached by initialising, the id gets a new producer id."""
    maximum_timeout: int = 900_000
    check_interval: int = 500
    """Between two looks for transactions whose timeout has passed, and for ids that nobody uses."""
    id_expiration: int = 604_800_000
    expiry_bump: int = 1
    """By how much a timeout raises the epoch: 1, and 2 in Kafka 4.0."""
    transaction_version: int = 0
    """The feature that a cluster has agreed on; clients choose the version of EndTxn by it."""


@dataclass(slots=True)
class Entry:
    """One transactional id. Times in milliseconds since 1970; `timeout` in milliseconds."""

    id: str
    producer_id: int
    epoch: int
    timeout: int
    updated: int
    state: TransactionState = S.EMPTY
    started: int | None = None
    partitions: list[TopicPartition] = field(default_factory=list)
    ended_epoch: int = NO_EPOCH
    """The epoch before an end that raised it."""


@dataclass(slots=True)
class Decision:
    """An end that is decided, and the partitions that do not know of it."""

    id: str
    producer_id: int
    epoch: int
    """Of the markers."""
    commit: bool
    coordinator_epoch: int
    missing: list[TopicPartition]
    transaction_epoch: int
    """Of the transaction that it ends."""
    why: str = ""
    """For an abort."""


class Coordinator:
    """`now` in milliseconds since 1970. `on_decided` is told of each decision, before any marker of it."""

    def __init__(self, now: Callable[[], int], limits: CoordinatorLimits) -> None:
        self._now = now
        self.limits = limits
        self.entries: dict[str, Entry] = {}
        self.decisions: dict[str, Decision] = {}
        """By id: those with markers to be written."""
        self.on_initialise: list[Callable[[str], None]] = []
        """Told the id before anything happens."""
        self.on_decided: list[Callable[[Decision], None]] = []
        self.on_reuse: list[Callable[[str], None]] = []
        """Told an id whose producer begins another transaction with the epoch that it had for one before."""
        self.epoch = 0
        """Of the coordinator; each restart raises it."""
        self.has_timed_out: set[tuple[int, int]] = set()
        """Producer id and epoch of every transaction that ran into its timeout."""
        self._next_producer_id = 1000
        self._next_check = 0

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    # ---- requests --------------------------------------------------------------------------------------------------

    def initialise(self, id: str, timeout: int) -> tuple[int, int]:
        """InitProducerId of a new instance: producer id and epoch. What is open is aborted first, and the answer is to
        ask again. Raises BrokerError."""
        if not 0 < timeout <= self.limits.maximum_timeout:
            raise BrokerError(Code.INVALID_TRANSACTION_TIMEOUT, f"a timeout of {timeout} ms for {id}")
        for told in self.on_initialise:
            told(id)
        entry = self.entries.get(id)
        if entry is None:
            entry = Entry(id, self.new_producer_id(), NO_EPOCH, timeout, self._now())
            self.entries[id] = entry
        if entry.state is S.ONGOING:
            self._fence(entry, 1, "its id was initialised again")
        if entry.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            raise _concurrent(id)
        if entry.epoch >= self.limits.last_epoch - 1:
            entry.producer_id, entry.epoch = self.new_producer_id(), 0
        else:
            entry.epoch += 1
        entry.state, entry.started, entry.timeout, entry.updated = S.EMPTY, None, timeout, self._now()
        entry.partitions, entry.ended_epoch = [], NO_EPOCH
        return entry.producer_id, entry.epoch

    def add_partitions(self, id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn: the first one begins the transaction. Raises BrokerError."""
        entry = self._owned(id, producer_id, epoch)
        if entry.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            raise _concurrent(id)
        if entry.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
            for told in self.on_reuse:
                told(id)
        if entry.state is not S.ONGOING:
            entry.state, entry.started, entry.partitions = S.ONGOING, self._now(), []
        entry.partitions += [partition for partition in partitions if partition not in entry.partitions]
        entry.updated = self._now()

    def verify(self, id: str, producer_id: int, epoch: int, partition: TopicPartition) -> None:
        """Whether a batch that opens a transaction in `partition` belongs to one. Raises BrokerError."""
        entry = self._owned(id, producer_id, epoch)
        if entry.state is not S.ONGOING or partition not in entry.partitions:
            raise BrokerError(Code.INVALID_TXN_STATE, f"{id} has no transaction that {partition} is part of")

    def end(self, id: str, producer_id: int, epoch: int, commit: bool, version: int = 3) -> None:
        """EndTxn: returns when it is decided, and when it had been done. Raises BrokerError."""
        entry = self.entries.get(id)
        if entry is None or entry.producer_id != producer_id:
            raise _no_mapping(id, producer_id)
        if entry.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT) and epoch in (entry.epoch, entry.ended_epoch):
            raise _concurrent(id)
        done = {S.COMPLETE_COMMIT: True, S.COMPLETE_ABORT: False}.get(entry.state)
        if version >= BUMPING_VERSION and epoch == entry.ended_epoch and done is commit:
            return
        if epoch != entry.epoch:
            code = Code.PRODUCER_FENCED if version > 1 else Code.INVALID_PRODUCER_EPOCH
            raise BrokerError(code, f"{id} has epoch {entry.epoch}, not {epoch}")
        if done is commit:
            return
        if entry.state is not S.ONGOING:
            raise BrokerError(Code.INVALID_TXN_STATE, f"{id} is {entry.state.value}")
        if version >= BUMPING_VERSION:
            entry.ended_epoch, entry.epoch = epoch, epoch + 1
        self._decide(entry, epoch, commit, "" if commit else "it was aborted by a request of its own epoch")

    def describe(self, id: str) -> TransactionDescription | None:
        entry = self.entries.get(id)
        if entry is None:
            return None
        return TransactionDescription(
            id=id,
            state=entry.state,
            producer_id=entry.producer_id,
            epoch=entry.epoch,
            timeout=entry.timeout / 1000,
            started_at=None if entry.started is None else entry.started / 1000,
            partitions=tuple(sorted(entry.partitions)),
        )

    def ids(self, state: TransactionState) -> list[str]:
        return sorted(entry.id for entry in self.entries.values() if entry.state is state)

    def _owned(self, id: str, producer_id: int, epoch: int) -> Entry:
        entry = self.entries.get(id)
        if entry is None or entry.producer_id != producer_id:
            raise _no_mapping(id, producer_id)
        if entry.epoch != epoch:
            raise BrokerError(Code.PRODUCER_FENCED, f"{id} has epoch {entry.epoch}, not {epoch}")
        return entry

    # ---- ends ------------------------------------------------------------------------------------------------------

    def _fence(self, entry: Entry, bump: int, why: str) -> None:
        """Abort what is open, with an epoch that its producer does not have."""
        epoch, entry.epoch = entry.epoch, entry.epoch + bump
        self._decide(entry, epoch, commit=False, why=why)

    def _decide(self, entry: Entry, epoch: int, commit: bool, why: str) -> None:
        entry.state = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
        entry.updated = self._now()
        decision = Decision(
            entry.id, entry.producer_id, entry.epoch, commit, self.epoch, list(entry.partitions), epoch, why
        )
        self.decisions[entry.id] = decision
        for told in self.on_decided:
            told(decision)

    def written(self, decision: Decision, partition: TopicPartition) -> None:
        """The marker is in the partition, or the partition is gone."""
        if partition in decision.missing:
            decision.missing.remove(partition)
        if not decision.missing:
            self.complete(decision)

    def complete(self, decision: Decision) -> None:
        """Nothing is left to be written of it, or it was forgotten."""
        if self.decisions.get(decision.id) is not decision:
            return
        del self.decisions[decision.id]
        entry = self.entries[decision.id]
        entry.state = S.COMPLETE_COMMIT if decision.commit else S.COMPLETE_ABORT
        entry.partitions, entry.updated = [], self._now()

    # ---- what happens by itself ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Somewhere else, or here again, with what was in its log: markers that are missing are written by it."""
        self.epoch += 1
        for decision in self.decisions.values():
            decision.coordinator_epoch = self.epoch

    def forget_idle(self) -> None:
        """Ids that were initialised and not used since, as if they had been left alone for long enough."""
        for id in self.ids(S.EMPTY):
            del self.entries[id]

    def tick(self) -> None:
        """Time has passed."""
        now = self._now()
        if now < self._next_check:
            return
        self._next_check = now + self.limits.check_interval
        for entry in list(self.entries.values()):
            if entry.state is S.ONGOING and entry.started is not None and entry.started + entry.timeout < now:
                self.has_timed_out.add((entry.producer_id, entry.epoch))
                self._fence(entry, self.limits.expiry_bump, TIMED_OUT)
            elif self._is_forgotten(entry, now):
                del self.entries[entry.id]

    def _is_forgotten(self, entry: Entry, now: int) -> bool:
        is_at_rest = entry.state is not S.ONGOING and entry.id not in self.decisions
        return is_at_rest and entry.updated + self.limits.id_expiration < now


def _no_mapping(id: str, producer_id: int) -> BrokerError:
    return BrokerError(Code.INVALID_PRODUCER_ID_MAPPING, f"{id} does not have producer id {producer_id}")


def _concurrent(id: str) -> BrokerError:
    return BrokerError(Code.CONCURRENT_TRANSACTIONS, f"the end of the last transaction of {id} is being written")
