"""The Kafka client that source and sink are written against: records as columns, transactions as data.

Two libraries stand behind it. Data goes through confluent-kafka (`consumer`, `producer`); what concerns transactions
that somebody else opened goes through kafka-python (`transactions`), because librdkafka can neither describe nor finish
them. Nothing above this port may name one of the two, so that a faster data path can replace the first.

Columns that nobody asked for are not built: in librdkafka a timestamp costs as much as a value.

Errors, in all methods: UnavailableError for what passes (no broker, no answer, a coordinator that moves),
InvalidError for what an operator must mend (no such topic, no permission, a setting), SinkFencedError where another
producer took an id over, LostDataError where records are gone.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Literal, NamedTuple, Protocol

import msgspec

from tidegate.errors import CorruptError, TidegateError

_PARTITION = re.compile(r"([^/]+)/(0|[1-9][0-9]{0,9})")

Header = tuple[str, bytes | None]
"""A name may occur several times; the order is kept."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def partition_of(text: str) -> TopicPartition:
    """From 'topic/partition', which is also the id of a split. Raises CorruptError for any other text."""
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise CorruptError(f"{text!r} is stored where the name of a topic, '/' and the number of a partition should be")
    return TopicPartition(found[1], int(found[2]))


# ---- what there is -------------------------------------------------------------------------------------------------

Isolation = Literal["read_committed", "read_uncommitted"]

OnLostOffsets = Literal["fail", "earliest"]

At = Literal["earliest", "latest"] | int
"""A number is a time: the first record with a timestamp not before it, in milliseconds since 1970."""


class Topic(NamedTuple):
    """`id` is new when a topic is deleted and created again under its name."""

    name: str
    id: str
    partitions: tuple[int, ...]
    is_internal: bool


class Questions(Protocol):
    """Questions to a cluster about topics and offsets. Blocks, for some seconds at most."""

    @property
    def bootstrap(self) -> str: ...

    def names(self) -> list[str]:
        """Of all topics that the user may see."""
        ...

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that exist."""
        ...

    def offsets(self, partitions: Iterable[TopicPartition], at: At, isolation: Isolation) -> dict[TopicPartition, int]:
        """Of the partitions that exist; -1 where there is no record of that time."""
        ...


class Question(Protocol):
    """Which topics of some exist, asked without waiting for the answer."""

    def answer(self) -> Mapping[str, Topic] | None:
        """Those that exist; None while there is no answer."""
        ...


# ---- reading -------------------------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """Which columns a consumer builds besides the values."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False
    offsets: bool = False


class Chunk(msgspec.Struct):
    """Records of one partition in order, and where to read on.

    `next_offset` may lie far behind the last record, or move with no record at all: transaction markers, aborted and
    compacted records take offsets, too.
    """

    partition: TopicPartition
    values: list[bytes | None]
    next_offset: int
    keys: list[bytes | None] | None = None
    timestamps: list[int] | None = None
    """Milliseconds since 1970; -1 where the record has none."""
    headers: list[list[Header]] | None = None
    offsets: Sequence[int] | None = None


class Consumer(Protocol):
    """Reads partitions that it is given, from offsets that it is given, and never chooses either. One thread."""

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these too, from exactly these offsets."""
        ...

    def remove(self, partition: TopicPartition) -> None:
        """Read it no more; what was fetched of it is dropped."""
        ...

    def fetch(self, max_records: int) -> list[Chunk]:
        """What has arrived, without waiting; empty when there is nothing. Raises LostDataError when an offset is out of
        the partition's range, naming the range that is lost."""
        ...

    def commit_group_offsets(self, positions: Mapping[TopicPartition, int]) -> None:
        """For lag tools, best effort: does not wait, and a failure is only logged, once in a while."""
        ...

    def close(self) -> None: ...


# ---- writing -------------------------------------------------------------------------------------------------------


class Producer(Protocol):
    """Sends records, in order per partition. `send` and `has_room` on the task's thread, the rest on the side thread.

    An error of a single record is sticky: from then on `send` and `flush` raise it.
    """

    @property
    def has_room(self) -> bool:
        """Whether `send` takes a batch now without waiting. Also true when it would raise."""
        ...

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
    ) -> None:
        """Add records. Without `partitions` the key decides as in Java's client (murmur2), records without a key are
        spread."""
        ...

    @property
    def sent(self) -> int:
        """Records given to `send` so far."""
        ...

    def flush(self) -> None:
        """Wait until every record was accepted by the broker; raises when one was not."""
        ...

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises InvalidError when there is no such topic."""
        ...

    def drop(self) -> None:
        """Let go of the connection. Sends nothing: a transaction stays as it is."""
        ...


class ProducerFactory(Protocol):
    def open_transaction(self, id: str, timeout: float) -> Producer:
        """A new producer under the transactional id, initialised (which aborts what was open under the id and raises
        its epoch) and with a transaction begun. Blocks. `timeout` in seconds."""
        ...

    def open_plain(self, on_failure: Callable[[TidegateError, int], None] | None = None) -> Producer:
        """A producer without transactions, idempotent. With `on_failure` it has no guarantee instead: the error of so
        many records is handed to it, on whatever thread uses the producer, and nothing raises because of it."""
        ...


# ---- transactions, whoever opened them ----------------------------------------------------------------------------


class TransactionState(Enum):
    """As DescribeTransactions spells them (KIP-664)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


class TransactionDescription(msgspec.Struct, frozen=True):
    """What the coordinator says of a transactional id."""

    id: str
    state: TransactionState
    producer_id: int
    epoch: int
    timeout: float
    """Seconds."""
    started_at: float | None
    """Seconds since 1970, by the coordinator's clock; None when nothing was written."""
    partitions: tuple[TopicPartition, ...]
    """Sorted. Empty once it is complete."""


class PartitionProducer(msgspec.Struct, frozen=True):
    """What a partition's leader says of one producer that wrote there (DescribeProducers)."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    records: int
    """How many it wrote there since it was initialised: its last sequence number plus one."""
    first_open_offset: int | None
    """Where its open transaction begins; None when it has none open here."""
    coordinator_epoch: int = -1
    """Of the coordinator that wrote the producer's last marker here; -1 when there is none."""


class EndAnswer(Enum):
    """What the coordinator answers to EndTxn(commit). Only DONE says what happened; after the others, describe."""

    DONE = "done"
    CONCURRENT = "concurrent"
    """The markers of the last end are being written: ask again."""
    REFUSED = "refused"
    """Fenced, invalid state or unknown producer: never a proof of anything."""


class TransactionAdmin(Protocol):
    """Requests to transaction coordinators and partition leaders. One thread; blocks."""

    def describe(self, id: str) -> TransactionDescription | None:
        """None when the coordinator does not know the id."""
        ...

    def open_ids(self) -> list[str]:
        """Every transactional id of the cluster whose transaction is `Ongoing`, sorted. Those that the user may not
        describe are not among them: that is how brokers answer."""
        ...

    def commit(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        """EndTxn(commit), whoever opened the transaction. Where the cluster can, its epoch rises with that by one, and
        nothing of it that arrives later has an effect."""
        ...

    def fence(self, id: str) -> None:
        """InitProducerId: aborts what is open under the id and fences its producer. Returns when that is done. The only
        way to abort: EndTxn(abort) fences nobody, and WriteTxnMarkers leaves the coordinator `Ongoing`."""
        ...

    def producers(self, partitions: Sequence[TopicPartition]) -> list[PartitionProducer]:
        """The producers that the leaders of these partitions remember."""
        ...

    def first_sequences(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The sequence number of the batch at each of these offsets: 0 where the first records are that its producer
        wrote there since it was initialised. Reads one batch of each partition."""
        ...

    def write_markers(self, rows: Sequence[PartitionProducer], commit: bool) -> None:
        """WriteTxnMarkers for the transaction that one producer has open in the partitions of `rows`. Only to do what
        its coordinator says to have done: a broker that was killed between the decision and the markers may have
        forgotten them, and nobody else writes them then. Needs CLUSTER_ACTION."""
        ...

    def maximum_timeout(self) -> float:
        """`transaction.max.timeout.ms` of the brokers, in seconds; the smallest, should they differ."""
        ...

    def close(self) -> None: ...
