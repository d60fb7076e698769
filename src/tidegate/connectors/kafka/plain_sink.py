"""Writing into Kafka without transactions: at least once, or with no guarantee at all.

One producer a subtask serves every checkpoint. There is never anything to commit: what is written is read at once, and
after a failure it is written again. Nothing here may hold a record back for a later checkpoint.
"""

import logging
from collections.abc import Sequence

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import encoding
from tidegate.connectors.kafka.client import Producer, ProducerFactory
from tidegate.connectors.kafka.encoding import Encoding, PartitionCounts, takes_columns
from tidegate.elements import Batch
from tidegate.errors import InternalError, TidegateError, UnavailableError
from tidegate.ids import TransactionalId

LOGGER = logging.getLogger("tidegate.kafka.sink")
SYSTEM_CLOCK = SystemClock()

QUIET = 10.0
"""Seconds between two lines in the log about records that could not be written."""


class PlainHandle:
    """What stands for a transaction: only whether its records are complete."""

    def __init__(self, counts: PartitionCounts) -> None:
        self.counts = counts
        self.failure: Exception | None = None


class PlainSinkWriter:
    """One subtask's end of a `KafkaSink` that delivers at least once: every barrier waits until all is written."""

    def __init__(self, encoding: Encoding, producers: ProducerFactory) -> None:
        self._encoding = encoding
        self.takes_columns = takes_columns(encoding)
        self._producers = producers
        self._producer: Producer | None = None

    def begin(self, id: TransactionalId) -> PlainHandle:
        topic = self._encoding.topic
        counts = PartitionCounts()
        is_new = self._producer is None
        if self._producer is None:
            self._producer = self._open_producer()
        if isinstance(topic, str) and (is_new or self._encoding.partition is not None):
            counts.of(topic, self._producer)
        return PlainHandle(counts)

    def _open_producer(self) -> Producer:
        return self._producers.open_plain()

    def has_room(self, txn: PlainHandle) -> bool:
        return txn.failure is not None or self._opened().has_room

    def write(self, txn: PlainHandle, batch: Batch) -> None:
        try:
            encoding.send(self._encoding, batch, self._opened(), txn.counts)
        except Exception as error:
            txn.failure = error
            raise

    def prepare(self, txn: PlainHandle) -> Committable | None:
        """None, always, once every record is written."""
        if isinstance(txn.failure, TidegateError):
            raise txn.failure
        if txn.failure is not None:
            raise UnavailableError(f"an earlier write failed: {txn.failure}") from txn.failure
        self._opened().flush()
        return None

    def check(self, committables: Sequence[Committable]) -> None:
        """There are none."""

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        raise InternalError(f"transaction {committable.id} was given to a sink that has no transactions")

    def abandon(self, txn: PlainHandle) -> None:
        """The records of a handle are on their way like all others."""

    def close(self) -> None:
        if self._producer is not None:
            self._producer.drop()

    def _opened(self) -> Producer:
        if self._producer is None:
            raise InternalError("a batch came to a Kafka sink before it was opened")
        return self._producer


class UnguaranteedSinkWriter(PlainSinkWriter):
    """One subtask's end of a `KafkaSink` without guarantee: barriers do not wait, and records that could not be written
    are counted and mentioned in the log."""

    def __init__(self, encoding: Encoding, producers: ProducerFactory, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(encoding, producers)
        self._clock = clock
        self._quiet_until = 0.0
        self.lost_records = 0

    def _open_producer(self) -> Producer:
        return self._producers.open_plain(self._failed)

    def _failed(self, error: TidegateError, records: int) -> None:
        self.lost_records += records
        now = self._clock.now().monotonic
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            LOGGER.warning(
                "%d records could not be written so far, the last ones because: %s", self.lost_records, error
            )

    def prepare(self, txn: PlainHandle) -> Committable | None:
        """None, always, without waiting."""
        return None

    def close(self) -> None:
        if self._producer is not None:
            try:
                self._producer.flush()
            except TidegateError as error:
                LOGGER.warning("the last records may not have been written: %s", error)
        super().close()
