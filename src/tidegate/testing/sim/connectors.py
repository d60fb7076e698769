"""Source and sink on the simulated log service, written against the contracts like every connector.

They pass the same conformance kits as the real ones; so what the simulation shows of the engine counts for those, too.
A producer keeps records back and sends them when it likes, at the latest in `prepare`, as real producers do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import xxhash

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome, RecoverySpec, SplitState
from tidegate.clock import Clock
from tidegate.connectors.rotation import RotatingReader
from tidegate.elements import Batch
from tidegate.errors import InternalError, LostDataError, TidegateError, UnavailableError
from tidegate.ids import OperatorName, TransactionalId
from tidegate.operators.contracts import (
    Deserializer,
    Fetched,
    Sink,
    SinkContext,
    Source,
    SourceContext,
    SourceReader,
    TransactionalSink,
    TransactionInfo,
    TransactionRecovery,
    owned_by,
)
from tidegate.testing.sim.gate import FaultyGate, Gate, OpenGate
from tidegate.testing.sim.job import key_of
from tidegate.testing.sim.log_service import SERVICES, LogService, Transaction, TransactionState
from tidegate.testing.sim.scheduler import Process
from tidegate.testing.sim.swarm import Swarm

KeyOf = Callable[[Any], str]


class LogMedium(LogService):
    """The log service as the medium of a world."""

    def __init__(self, name: str, now: Callable[[], float], swarm: Swarm) -> None:
        super().__init__(name, now)
        self._swarm = swarm

    def connectors(
        self, process: Process, clock: Clock, ready: Callable[[], int]
    ) -> tuple[Callable[[str], Source], Callable[[str], Sink]]:
        """What makes source and sink of a topic in `process`."""
        swarm = self._swarm
        gate = FaultyGate(process, "log service", swarm.log_service)

        def source(topic: str) -> SimSource:
            return SimSource(self, topic, gate, ready=ready, slack=swarm.source_slack)

        def sink(topic: str) -> SimSink:
            return SimSink(
                self,
                topic,
                gate,
                key_of,
                timeout=swarm.transaction_timeout,
                eagerness=swarm.sink_eagerness,
                fullness=swarm.sink_fullness,
            )

        return source, sink


class SimSource:
    """Records of `topic`. `ready`: how many records of a partition may be read by now, so that input comes little by
    little; None for all. `slack`: the chance that a poll finds nothing though there is something."""

    def __init__(
        self,
        service: LogService,
        topic: str,
        gate: Gate,
        *,
        bounded: bool = True,
        start: str = "earliest",
        ready: Callable[[], int] | None = None,
        slack: float = 0.0,
    ) -> None:
        self._service = service
        self._topic = topic
        self._gate = gate
        self._bounded = bounded
        self._start = start
        self._ready = ready
        self._slack = slack

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def deserializer(self) -> Deserializer | None:
        return None

    @property
    def discovery_interval(self) -> float | None:
        return None if self._bounded else 1.0

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        return None

    def partition_of(self, split: str) -> tuple[str, int]:
        topic, _, number = split.rpartition("/")
        return topic, int(number)

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return self._gate.call(f"discovers {self._topic}", lambda: self._discover(known))

    def _discover(self, known: frozenset[str] | None) -> list[SplitState]:
        partitions = range(len(self._service.topics[self._topic]))
        splits = [self._split(number, is_later=known is not None) for number in partitions]
        return [split for split in splits if split.id not in (known or ())]

    def _split(self, number: int, is_later: bool) -> SplitState:
        log = self._service.topics[self._topic][number]
        end = log.last_stable_offset
        first = log.low if is_later or self._start == "earliest" else end
        return SplitState(f"{self._topic}/{number}", first, end if self._bounded else None)

    def open_reader(self, context: SourceContext) -> SourceReader:
        return RotatingReader(self._read)

    def _read(self, split: SplitState, max_records: int) -> Fetched | None:
        if split.stop is not None and split.position >= split.stop:
            return Fetched(split.id, [], split.position, finished=True)
        if self._gate.chance() < self._slack:
            return None
        return self._gate.call(f"reads {split.id} from {split.position}", lambda: self._fetch(split, max_records))

    def _fetch(self, split: SplitState, max_records: int) -> Fetched | None:
        topic, number = self.partition_of(split.id)
        end = len(self._service.topics[topic][number].records)
        limit = min(end if split.stop is None else split.stop, end if self._ready is None else self._ready())
        values, position = self._service.fetch(topic, number, split.position, max_records, limit)
        if position == split.position:
            return None
        return Fetched(split.id, values, position, finished=split.stop is not None and position >= split.stop)


class SimSink:
    """Writes to `topic`; records of one key go to one partition. `eagerness`: the chance that a producer sends what it
    holds back at a `write`. `fullness`: the chance that it says that it has no room. timeout: seconds."""

    def __init__(
        self,
        service: LogService,
        topic: str,
        gate: Gate,
        key: KeyOf,
        *,
        timeout: float = 60.0,
        eagerness: float = 0.5,
        fullness: float = 0.0,
    ) -> None:
        self.service = service
        self.topic = topic
        self.gate = gate
        self.key = key
        self.timeout = timeout
        self.eagerness = eagerness
        self.fullness = fullness

    @property
    def transaction_prefix(self) -> str | None:
        return None

    @property
    def recovery_spec(self) -> RecoverySpec:
        return RecoverySpec("tidegate.testing.sim.connectors:open_recovery", {"service": self.service.name})

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        return SimWriter(self)

    def open_recovery(self) -> TransactionRecovery:
        return SimRecovery(self.service, self.gate)


class OpenTransaction:
    """A producer's end of one transaction, and what it has not sent yet."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.buffer: list[tuple[str, int, Any]] = []
        self.failure: TidegateError | None = None


class SimWriter:
    """One subtask's end of a `SimSink`."""

    def __init__(self, sink: SimSink) -> None:
        self._sink = sink
        self._service = sink.service
        self._gate = sink.gate

    def begin(self, id: TransactionalId) -> OpenTransaction:
        timeout = self._sink.timeout
        begun = self._gate.call(f"begins {id}", lambda: self._service.begin(str(id), timeout), can_land_later=True)
        return OpenTransaction(begun)

    def has_room(self, txn: OpenTransaction) -> bool:
        """Now and then a producer is full: not for long, so that barriers come through."""
        return txn.failure is not None or self._gate.chance() >= self._sink.fullness

    def write(self, txn: OpenTransaction, batch: Batch) -> None:
        if txn.failure is not None:
            raise txn.failure
        topic, partitions = self._sink.topic, len(self._service.topics[self._sink.topic])
        txn.buffer += [(topic, partition_of(self._sink.key(value), partitions), value) for value in batch.values]
        if self._gate.chance() < self._sink.eagerness:
            self._send(txn, 1 + int(self._gate.chance() * len(txn.buffer)))

    def _send(self, txn: OpenTransaction, count: int) -> None:
        """The oldest `count` records; whether each is there must be certain."""
        rows = txn.buffer[:count]
        del txn.buffer[:count]
        self._answered(txn, lambda: self._service.write(txn.transaction, rows), f"sends {len(rows)} records")

    def _answered(self, txn: OpenTransaction, effect: Callable[[], Any], what: str) -> Any:
        try:
            return self._gate.call(f"{what} to {txn.transaction.id}", effect, can_land_later=True)
        except TidegateError as error:
            txn.failure = error
            raise

    def prepare(self, txn: OpenTransaction) -> Committable | None:
        if txn.failure is not None:
            raise txn.failure
        if txn.buffer:
            self._send(txn, len(txn.buffer))
        is_full = self._answered(txn, lambda: self._service.prepare(txn.transaction), "prepares")
        txn.failure = InternalError(f"transaction {txn.transaction.id} was used again after it had been prepared")
        return committable_of(txn.transaction) if is_full else None

    def check(self, committables: Sequence[Committable]) -> None:
        names = " ".join(committable.id for committable in committables)
        self._gate.call(f"checks {names}", lambda: self._check(committables))

    def _check(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            found = self._service.find(committable)
            if found is None or found.state is not TransactionState.ONGOING:
                what = "is not known" if found is None else f"is {found.state.value} ({found.reason})"
                raise LostDataError(f"the prepared transaction {committable.id} {what}")

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return commit(self._service, self._gate, committable)

    def abandon(self, txn: OpenTransaction) -> None:
        txn.buffer = []
        txn.failure = UnavailableError(f"transaction {txn.transaction.id} was abandoned by its producer")

    def close(self) -> None:
        """Nothing to release."""


class SimRecovery:
    """The service's transactions, seen from the JobManager."""

    def __init__(self, service: LogService, gate: Gate) -> None:
        self._service = service
        self._gate = gate

    def check_timeout(self, needed: float) -> None:
        self._gate.call("checks the timeout", lambda: None)

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return commit(self._service, self._gate, committable)

    def abort(self, id: TransactionalId) -> None:
        reason = "it was aborted by a recovery"
        self._gate.call(f"aborts {id}", lambda: self._service.abort(str(id), reason), can_land_later=True)

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        found = self._gate.call(f"lists {prefix} {sink}", self._service.list_open)
        return sorted(id for id in found if owned_by(id, prefix, sink))

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        return self._gate.call(f"describes {id}", lambda: self._describe(id))

    def _describe(self, id: TransactionalId) -> TransactionInfo | None:
        self._service.expire()
        uses = self._service.transactions.get(str(id))
        if not uses:
            return None
        newest = uses[-1]
        is_open = newest.state is TransactionState.ONGOING
        return TransactionInfo(
            id,
            newest.state.value,
            newest.start,
            newest.timeout,
            committable=committable_of(newest) if is_open else None,
        )

    def close(self) -> None:
        """Nothing to release."""


def commit(service: LogService, gate: Gate, committable: Committable) -> Outcome:
    """What the service says of it; UnavailableError when it does not answer."""
    epoch = committable.payload["epoch"]
    return gate.call(f"commits {committable.id}", lambda: service.commit(committable.id, epoch), can_land_later=True)


def committable_of(transaction: Transaction) -> Committable:
    return Committable(transaction.id, {"epoch": transaction.epoch})


def open_recovery(service: str) -> SimRecovery:
    """The factory that a manifest names."""
    return SimRecovery(SERVICES[service], OpenGate())


def partition_of(key: str, partitions: int) -> int:
    """The same in every process."""
    return xxhash.xxh3_64_intdigest(key.encode()) % partitions
