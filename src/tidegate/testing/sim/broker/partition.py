"""One partition of a simulated topic: its log, the producers that it knows, and what readers may see of it.

A record is never changed or moved; what becomes of it is decided by the marker that ends its span. The partition knows
nothing of coordinators: whoever writes a marker is believed, as in Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.connectors.kafka.client import Header, Isolation
from tidegate.testing.sim.broker.codes import BrokerError, Code

KEPT_BATCHES = 5
"""Of each producer: a batch that comes again is known among so many."""
NO_SEQUENCE = -1


@dataclass(slots=True)
class Record:
    """`timestamp`: milliseconds since 1970."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = -1
    headers: tuple[Header, ...] = ()


@dataclass(slots=True)
class Span:
    """What one producer wrote here between two markers. `is_committed`: None while it is open."""

    producer_id: int
    epoch: int
    first_offset: int
    is_committed: bool | None = None


@dataclass(slots=True)
class Stored:
    """What is at one offset. `record`: None for a marker. `span`: None outside of transactions."""

    record: Record | None
    span: Span | None
    sequence: int = NO_SEQUENCE

    @property
    def is_visible(self) -> bool:
        """To readers of committed records, were nothing open before it."""
        return self.record is not None and (self.span is None or self.span.is_committed is True)


@dataclass(slots=True)
class Batch:
    """Of one producer for one partition. `first_sequence` counts its records there since it was initialised."""

    producer_id: int
    epoch: int
    first_sequence: int
    records: Sequence[Record]
    is_transactional: bool = True


@dataclass(slots=True)
class ProducerEntry:
    """What the partition keeps of one producer id."""

    epoch: int
    last_sequence: int = NO_SEQUENCE
    span: Span | None = None
    coordinator_epoch: int = -1
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First sequence, last sequence and offset of the newest ones."""


class Partition:
    """`log_start`: the first offset that was not deleted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[Stored] = []
        self.log_start = 0
        self.producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, Span] = {}
        """By producer id; the oldest first."""

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def last_stable_offset(self) -> int:
        """The first offset that readers of committed records may not see yet."""
        return next(iter(self._open.values())).first_offset if self._open else self.end

    def open_spans(self) -> list[Span]:
        return list(self._open.values())

    def end_for(self, isolation: Isolation) -> int:
        return self.last_stable_offset if isolation == "read_committed" else self.end

    # ---- writing ---------------------------------------------------------------------------------------------------

    def append_plain(self, records: Sequence[Record]) -> int:
        """Without idempotence; the first offset."""
        base = self.end
        self.log += [Stored(record, None) for record in records]
        return base

    def is_open_for(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open here already."""
        span = self._open.get(producer_id)
        return span is not None and span.epoch == epoch

    def append(self, batch: Batch) -> int:
        """The first offset, also of a batch that has been here before. Raises BrokerError."""
        entry = self.producers.get(batch.producer_id)
        last = batch.first_sequence + len(batch.records) - 1
        if entry is not None:
            if batch.epoch < entry.epoch:
                text = f"epoch {batch.epoch} of producer {batch.producer_id} in {self.name}, it has {entry.epoch}"
                raise BrokerError(Code.INVALID_PRODUCER_EPOCH, text)
            if batch.epoch == entry.epoch:
                for first, end, offset in entry.batches:
                    if (first, end) == (batch.first_sequence, last):
                        return offset
        self._check_sequence(entry, batch)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.epoch)
        elif batch.epoch > entry.epoch:
            entry.epoch, entry.batches = batch.epoch, []
        return self._stored(entry, batch, last)

    def _check_sequence(self, entry: ProducerEntry | None, batch: Batch) -> None:
        known = NO_SEQUENCE if entry is None or entry.epoch != batch.epoch else entry.last_sequence
        if batch.first_sequence != known + 1:
            text = f"sequence {batch.first_sequence} of producer {batch.producer_id} in {self.name} after {known}"
            raise BrokerError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, text)

    def _stored(self, entry: ProducerEntry, batch: Batch, last: int) -> int:
        base = self.end
        if batch.is_transactional and entry.span is None:
            entry.span = self._open[batch.producer_id] = Span(batch.producer_id, batch.epoch, base)
        first = batch.first_sequence
        self.log += [Stored(record, entry.span, first + number) for number, record in enumerate(batch.records)]
        entry.last_sequence = last
        entry.batches = [*entry.batches[1 - KEPT_BATCHES :], (first, last, base)]
        return base

    def write_marker(self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> None:
        """The end of what the producer has open here; it is also written where nothing is. Raises BrokerError."""
        entry = self.producers.setdefault(producer_id, ProducerEntry(epoch))
        if epoch < entry.epoch:
            raise BrokerError(Code.INVALID_PRODUCER_EPOCH, f"a marker of epoch {epoch} in {self.name}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise BrokerError(Code.TRANSACTION_COORDINATOR_FENCED, f"a marker of an old coordinator in {self.name}")
        self.log.append(Stored(None, None))
        if entry.span is not None:
            entry.span.is_committed = commit
            entry.span = None
            del self._open[producer_id]
        if epoch > entry.epoch:
            entry.epoch, entry.last_sequence, entry.batches = epoch, NO_SEQUENCE, []
        entry.coordinator_epoch = coordinator_epoch

    # ---- reading ---------------------------------------------------------------------------------------------------

    def fetch(
        self, position: int, most: int, isolation: Isolation, until: int | None = None
    ) -> tuple[list[tuple[int, Record]], int]:
        """Up to `most` records with their offsets, and where to read on. Raises BrokerError out of the range."""
        if not self.log_start <= position <= self.end:
            text = f"{self.name} goes from {self.log_start} to {self.end}, asked was {position}"
            raise BrokerError(Code.OFFSET_OUT_OF_RANGE, text)
        end = self.end_for(isolation) if until is None else min(until, self.end_for(isolation))
        found: list[tuple[int, Record]] = []
        while position < end and len(found) < most:
            stored = self.log[position]
            if stored.record is not None and (stored.is_visible or isolation == "read_uncommitted"):
                found.append((position, stored.record))
            position += 1
        return found, position

    def committed(self) -> list[Record]:
        """Every committed record, also behind what is open, and deleted ones."""
        return [stored.record for stored in self.log if stored.is_visible and stored.record is not None]

    def first_at(self, timestamp: int) -> int:
        """The first offset with a record of this time or later; -1 where there is none."""
        for offset in range(self.log_start, self.end):
            record = self.log[offset].record
            if record is not None and record.timestamp >= timestamp:
                return offset
        return -1

    def delete_before(self, offset: int) -> None:
        self.log_start = max(self.log_start, min(offset, self.end))
