"""A cluster for tests of what a consumer decides: leaders that move, answers that are cut, late, stale or never come.

It holds partition logs as bytes and answers commands as brokers do. What goes wrong is chosen by a seeded generator;
what is right to read is kept beside the logs.
"""

import random
from dataclasses import dataclass, field

from tests.unit.connectors.kafka.batches.logs import batch, marker, texts
from tidegate.connectors.kafka.batches.commands import AskMetadata, AskRange, Fetch
from tidegate.connectors.kafka.batches.events import (
    Described,
    Event,
    Fetched,
    NoRange,
    NotDescribed,
    NotFetched,
    Range,
)
from tidegate.connectors.kafka.batches.requests import FetchedRow, FetchRow
from tidegate.connectors.kafka.batches.visibility import Aborted
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address
from tidegate.errors import UnavailableError

OUT_OF_RANGE, NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH = 1, 6, 74, 76
LOST = UnavailableError("no answer")


@dataclass
class Log:
    """One partition."""

    leader: int = 1
    epoch: int = 0
    nearer: int = -1
    """Another broker, that the leader names where it may."""
    replicated: int = 0
    """Up to which offset that one has everything."""
    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Behind which offset each ends, of which epoch it is, and its bytes."""
    aborted: list[tuple[Aborted, int]] = field(default_factory=list)
    """With the offset of the marker that ended each."""
    values: dict[int, str] = field(default_factory=dict)
    """By offset, what readers of committed records see."""

    def append(self, count: int, *, gaps: int = 0) -> None:
        first = self.end
        names = [f"v{first + index}" for index in range(count)]
        end = first + count + gaps
        self._put(end, batch(texts(first, *names), end=end, leader_epoch=self.epoch))
        self.values |= {first + index: name for index, name in enumerate(names)}

    def append_transactions(self, outcomes: dict[int, bool]) -> None:
        """Of several producers at once, by producer id: whether each commits."""
        begun = {}
        for producer_id in outcomes:
            first = begun[producer_id] = self.end
            records = texts(first, f"t{first}", f"t{first + 1}")
            data = batch(records, attributes=0x10, producer_id=producer_id, leader_epoch=self.epoch)
            self._put(first + 2, data)
        for producer_id, commits in outcomes.items():
            first = begun[producer_id]
            if commits:
                self.values |= {first: f"t{first}", first + 1: f"t{first + 1}"}
            else:
                self.aborted.append((Aborted(producer_id, first), self.end))
            self._put(self.end + 1, marker(self.end, producer_id, commit=commits, leader_epoch=self.epoch))

    def _put(self, end: int, data: bytes) -> None:
        self.batches.append((end, self.epoch, data))
        self.end = end

    def from_offset(self, offset: int, size: int, known: int) -> tuple[bytes, tuple[Aborted, ...]]:
        """What a broker sends: from the batch with the offset on, cut at a number of bytes, but one batch at least."""
        sent = b""
        for end, _, data in self.batches:
            if offset < end <= known:
                if sent and len(sent) + len(data) > size:
                    sent += data[: size - len(sent)]
                    break
                sent += data
        return sent, tuple(one for one, ended in self.aborted if ended >= offset)


class Brokers:
    """Brokers 1 to 3. `faults`: of a hundred answers, how many go wrong."""

    def __init__(self, logs: dict[TopicPartition, Log], source: random.Random, faults: int = 0) -> None:
        self.logs = logs
        self.faults = faults
        self._source = source
        self._old: dict[TopicPartition, tuple[int, int]] = {}
        self._addresses = {node: Address("host", 9000 + node) for node in (1, 2, 3)}

    def move(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        self._old[partition] = (log.leader, log.epoch)
        log.leader, log.epoch = self._source.choice([1, 2, 3]), log.epoch + 1
        log.nearer = -1

    def bring_nearer(self, partition: TopicPartition) -> None:
        """Another broker has the partition, or none has any more, and is behind or not."""
        log = self.logs[partition]
        log.nearer = self._source.choice([-1, *({1, 2, 3} - {log.leader})])
        log.replicated = self._source.choice([log.end, self._source.randint(log.start, log.end)])

    def catch_up(self) -> None:
        for log in self.logs.values():
            log.replicated = log.end

    @property
    def _goes_wrong(self) -> bool:
        return self._source.randrange(100) < self.faults

    def answer(self, command: Fetch | AskMetadata | AskRange) -> Event:
        match command:
            case AskMetadata():
                return NotDescribed(LOST) if self._goes_wrong else Described(self._cluster())
            case AskRange():
                log = self.logs[command.partition]
                if self._goes_wrong or command.node != log.leader:
                    return NoRange(command.partition, LOST)
                return Range(command.partition, log.start, log.end)
            case Fetch():
                if self._goes_wrong:
                    return NotFetched(command.node, LOST)
                throttle = 0.05 if self._goes_wrong else 0.0
                rows = [self._row(command, row) for row in command.rows if not self._goes_wrong]
                return Fetched(command.node, 0, throttle, rows)

    def _cluster(self) -> Cluster:
        """As one of them knows it: now and then as it was before the last move."""
        leaders = {}
        for partition, log in self.logs.items():
            now = (log.leader, log.epoch)
            leaders[partition] = self._old.get(partition, now) if self._goes_wrong else now
        return Cluster(self._addresses, leaders, {})

    def _row(self, asked: Fetch, row: FetchRow) -> FetchedRow:
        log = self.logs[row.partition]
        known = log.replicated if asked.node == log.nearer else log.end
        code = self._code(asked.node, row, log, known)
        if code:
            return FetchedRow(row.partition, code, b"", (), -1)
        if log.nearer >= 0 and asked.node == log.leader and not asked.itself:
            return FetchedRow(row.partition, 0, b"", (), -1, log.nearer)
        epochs = [(min(end, known), epoch) for end, epoch, _ in log.batches if epoch <= row.last_epoch]
        if row.last_epoch >= 0 and (not epochs or max(epochs)[0] < row.offset or max(epochs)[1] < row.last_epoch):
            return FetchedRow(row.partition, 0, b"", (), max(epochs)[0] if epochs else 0)
        size = self._source.choice([1, 100, 300, 10_000])
        sent, aborted = log.from_offset(row.offset, size, known)
        return FetchedRow(row.partition, 0, sent, aborted, -1)

    def _code(self, node: int, row: FetchRow, log: Log, known: int) -> int:
        if node not in (log.leader, log.nearer):
            return NOT_LEADER
        if row.leader_epoch != log.epoch:
            return FENCED_EPOCH if row.leader_epoch < log.epoch else UNKNOWN_EPOCH
        # Where the last batch is known, a log that ends before it is told as another one.
        highest = log.end if row.last_epoch >= 0 else known
        return 0 if log.start <= row.offset <= highest else OUT_OF_RANGE
