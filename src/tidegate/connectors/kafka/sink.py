"""Writing into Kafka in two phases: one transaction for each sink subtask and checkpoint, committed by a request that
needs no producer.

Nothing here may abort a transaction but `begin`, for its own id. Closing, an error and the end of the process leave
every transaction as it is: one that a checkpoint names is committed by whoever comes next, and what nobody names is
aborted by recovery.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome, RecoverySpec
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import encoding, outcomes
from tidegate.connectors.kafka.client import (
    Header,
    Producer,
    ProducerFactory,
    TopicPartition,
    TransactionAdmin,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.connection import Client, Connection
from tidegate.connectors.kafka.encoding import Encoding, PartitionCounts
from tidegate.connectors.kafka.open_transaction import KafkaTransaction
from tidegate.connectors.kafka.outcomes import Prepared, StillOpen
from tidegate.connectors.kafka.settings import Setting
from tidegate.elements import Batch
from tidegate.errors import (
    InternalError,
    InvalidError,
    LostDataError,
    SinkFencedError,
    TidegateError,
    UnavailableError,
)
from tidegate.formats import Bytes, Serializer
from tidegate.ids import TransactionalId, is_name
from tidegate.operators.contracts import SinkContext, TransactionalSink, TransactionRecovery

LOGGER = logging.getLogger("tidegate.kafka.sink")
SYSTEM_CLOCK = SystemClock()

Delivery = Literal["exactly-once", "at-least-once", "none"]

SHORTEST_TIMEOUT = 1.0
"""Seconds. Below it a transaction would expire while it is being prepared."""


class KafkaSink:
    """Writes to Kafka.

    bootstrap: 'HOST:PORT', several with commas between. topic: its name, or a function that gives it from a record.
    value: the format of the values; without it they must be bytes. A value of None is written as a tombstone. key:
    gives a record's key (bytes, str, or None for none), and with it the partition, the same as with Java's client.
    headers: gives a record's headers. timestamp: gives milliseconds since 1970; by default the record's own, else the
    time of sending. partition: gives the partition from a record and the number of partitions.

    delivery: "exactly-once" commits with checkpoints; readers must read with isolation "read_committed".
    "at-least-once" writes at once and waits at each checkpoint until all is written: after a failure records are there
    again. "none" does not wait and only counts what could not be written.

    transaction_prefix: the beginning of the transactional ids, unique in the cluster; by default the job's name.
    timeout: seconds after its first record at which the broker aborts a transaction that nobody committed; by default
    the most that the broker allows (its transaction.max.timeout.ms). settings: for security and
    tuning, by librdkafka's names. client: who writes: 'batches', Tidegate's own, or 'librdkafka', which costs more.

    Raises InvalidError for an argument that cannot be right.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str | Callable[[Any], str],
        *,
        value: Serializer | None = None,
        key: Callable[[Any], bytes | str | None] | None = None,
        headers: Callable[[Any], Sequence[Header]] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        partition: Callable[[Any, int], int] | None = None,
        delivery: Delivery = "exactly-once",
        transaction_prefix: str | None = None,
        timeout: float | None = None,
        settings: Mapping[str, Setting] | None = None,
        client: Client | None = None,
    ) -> None:
        _check_topic(topic)
        for name, function in (("key", key), ("headers", headers), ("timestamp", timestamp), ("partition", partition)):
            if function is not None and not callable(function):
                raise InvalidError(f"{name}={function!r} must be a function of a record")
        if value is not None and (isinstance(value, str | type) or not callable(getattr(value, "encode", None))):
            raise InvalidError(f"value={value!r} is not a format, as Json() is")
        if delivery not in get_args(Delivery):
            raise InvalidError(f"delivery={delivery!r} must be one of {', '.join(map(repr, get_args(Delivery)))}")
        _check_transactions(delivery, transaction_prefix, timeout)
        self.connection = Connection.for_records(bootstrap, settings or {}, client)
        self.encoding = Encoding(topic, Bytes() if value is None else value, key, headers, timestamp, partition)
        self.delivery: Delivery = delivery
        self.timeout = timeout
        self._transaction_prefix = transaction_prefix

    def __repr__(self) -> str:
        return f"KafkaSink({self.connection.bootstrap!r}, {self.encoding.topic!r}, delivery={self.delivery!r})"

    @property
    def transaction_prefix(self) -> str | None:
        return self._transaction_prefix

    @property
    def recovery_spec(self) -> RecoverySpec:
        arguments = self.connection.arguments() | {"delivery": self.delivery}
        place = f"Kafka at {self.connection.bootstrap}"
        return RecoverySpec("tidegate.connectors.kafka.recovery:open_recovery", arguments, place)

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        from tidegate.connectors.kafka.plain_sink import PlainSinkWriter, UnguaranteedSinkWriter
        from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin

        if self.delivery == "exactly-once":
            return KafkaSinkWriter(self, self._producers(), KafkaTransactionAdmin(self.connection))
        plain = PlainSinkWriter if self.delivery == "at-least-once" else UnguaranteedSinkWriter
        return plain(self.encoding, self._producers())

    def _producers(self) -> ProducerFactory:
        if self.connection.moves_batches:
            from tidegate.connectors.kafka.batches.factory import BatchProducerFactory

            return BatchProducerFactory(self.connection)
        from tidegate.connectors.kafka.producer import KafkaProducerFactory

        return KafkaProducerFactory(self.connection)

    def open_recovery(self) -> TransactionRecovery:
        from tidegate.connectors.kafka.recovery import KafkaRecovery
        from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin

        return KafkaRecovery(KafkaTransactionAdmin(self.connection), self.delivery, self.timeout)


def _check_topic(topic: object) -> None:
    if not callable(topic) and not (isinstance(topic, str) and topic):
        raise InvalidError(f"topic={topic!r} must be the name of a topic, or a function that gives it from a record")


def _check_transactions(delivery: str, transaction_prefix: object, timeout: object) -> None:
    if transaction_prefix is not None and not (isinstance(transaction_prefix, str) and is_name(transaction_prefix)):
        raise InvalidError(
            f"transaction_prefix={transaction_prefix!r} is not a name: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'"
        )
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= SHORTEST_TIMEOUT:
        raise InvalidError(f"timeout={timeout!r} must be at least {SHORTEST_TIMEOUT:g} second")
    if delivery != "exactly-once":
        raise InvalidError(f"timeout={timeout!r} is for transactions, and delivery={delivery!r} has none")


class KafkaSinkWriter:
    """One subtask's end of a `KafkaSink` with transactions.

    Only `has_room` and `write` are called on the task's thread; they use the producer of their transaction and never
    the admin, which belongs to the side thread.
    """

    def __init__(
        self,
        sink: KafkaSink,
        producers: ProducerFactory,
        admin: TransactionAdmin,
        clock: Clock = SYSTEM_CLOCK,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sink = sink
        self._producers = producers
        self._admin = admin
        self._clock = clock
        self._pause = pause
        self._timeout = sink.timeout
        self.takes_columns = encoding.takes_columns(sink.encoding)
        self._counts = PartitionCounts()
        self._written_at: dict[str, float] = {}
        """Monotonic seconds of the first record of each prepared transaction, until it is committed or warned of."""

    # ---- writing ---------------------------------------------------------------------------------------------------

    def begin(self, id: TransactionalId) -> KafkaTransaction:
        if self._timeout is None:
            self._timeout = self._admin.maximum_timeout()
        producer = self._producers.open_transaction(str(id), self._timeout)
        try:
            own = self._admin.describe(str(id))
            if own is None or own.state is not TransactionState.EMPTY:
                raise SinkFencedError(
                    f"another producer used the transactional id {id} while it was being opened: {_state(own)}",
                    remedy="Two running jobs must not share a transaction_prefix.",
                )
            self._counts = self._counted(producer)
        except BaseException:
            producer.drop()
            raise
        return KafkaTransaction(str(id), producer, own, self._counts)

    def _counted(self, producer: Producer) -> PartitionCounts:
        """The partition counts for a new transaction: a topic may have got more. It also makes the producer know its
        topics before the first record comes."""
        counts = PartitionCounts()
        topic = self._sink.encoding.topic
        for known in self._counts.topics if callable(topic) else [topic]:
            counts.of(known, producer)
        return counts

    def has_room(self, txn: KafkaTransaction) -> bool:
        return txn.failure is not None or txn.producer.has_room

    def write(self, txn: KafkaTransaction, batch: Batch) -> None:
        txn.raise_failure()
        if txn.wrote_at is None:
            now = self._clock.now()
            txn.wrote_at = (now.monotonic, now.wall)
        try:
            encoding.send(self._sink.encoding, batch, txn.producer, txn.counts)
        except (SinkFencedError, UnavailableError) as error:
            txn.failure = self._fenced_or_expired(txn, error)
            raise txn.failure from None
        except Exception as error:
            txn.failure = error
            raise

    def _fenced_or_expired(self, txn: KafkaTransaction, error: SinkFencedError | UnavailableError) -> TidegateError:
        """A producer cannot tell being fenced from a time-out, and the coordinator cannot be asked on this thread. But
        no time-out comes before its time."""
        outlived = txn.outlived(self._clock.now())
        if not outlived:
            return error
        if isinstance(error, SinkFencedError):
            return LostDataError(f"transaction {txn.id} expired before it was prepared: {outlived}", remedy=TOO_SLOW)
        # What was under way was not taken in time: with it the transaction may have expired, or have never begun.
        said = f"{error.failure.message}; its transaction is older than its timeout: {outlived}"
        return UnavailableError(said, remedy=error.failure.remedy or TOO_SLOW)

    # ---- preparing -------------------------------------------------------------------------------------------------

    def flush(self, txn: KafkaTransaction) -> None:
        txn.raise_failure()
        if not txn.producer.sent:
            return
        try:
            txn.producer.flush()
        except TidegateError as error:
            txn.failure = self._not_flushed(txn, error)
            raise txn.failure from None

    def _not_flushed(self, txn: KafkaTransaction, error: TidegateError) -> TidegateError:
        """Of a transaction that expired, its producer says that it was fenced; or, where its records were under way at
        that time, only that nobody took them. What became of it, the coordinator knows."""
        is_late = isinstance(error, UnavailableError) and txn.outlived(self._clock.now())
        if not is_late and not isinstance(error, SinkFencedError):
            return error
        try:
            found = self._admin.describe(txn.id)
        except TidegateError:
            return error
        return self._not_prepared(txn, found, error)

    def prepare(self, txn: KafkaTransaction) -> Committable | None:
        try:
            self.flush(txn)
            committable = self._prepare(txn) if txn.producer.sent else None
            txn.failure = InternalError(f"transaction {txn.id} was used after it had been prepared")
        except TidegateError as error:
            txn.failure = error
            raise
        finally:
            txn.producer.drop()
        return committable

    def _prepare(self, txn: KafkaTransaction) -> Committable:
        found = self._admin.describe(txn.id)
        own = txn.own
        if (
            found is None
            or found.state is not TransactionState.ONGOING
            or (found.producer_id, found.epoch) != (own.producer_id, own.epoch)
        ):
            raise self._not_prepared(txn, found, None)
        prepared = self._prepared(txn, found)
        producers = self._admin.producers(prepared.partitions)
        wrong = outcomes.problems(prepared, producers) or outcomes.cut_off(
            self._admin.first_sequences(outcomes.first_open_offsets(prepared, producers))
        )
        if wrong:
            raise LostDataError(f"transaction {txn.id} cannot be prepared: {wrong}", remedy=ABORTED_BY_HAND)
        assert txn.wrote_at is not None
        self._written_at[txn.id] = txn.wrote_at[0]
        return prepared.committable()

    def _prepared(self, txn: KafkaTransaction, found: TransactionDescription) -> Prepared:
        """`txn` as `found` describes it; where that has no start time, with that of the first write."""
        assert txn.wrote_at is not None
        started_at = txn.wrote_at[1] if found.started_at is None else found.started_at
        own = txn.own
        return Prepared(
            txn.id, own.producer_id, own.epoch, started_at, own.timeout, found.partitions, txn.producer.sent
        )

    def _not_prepared(
        self, txn: KafkaTransaction, found: TransactionDescription | None, error: TidegateError | None
    ) -> TidegateError:
        """Why `found` is not the transaction that was to be prepared. `error`: what its producer says."""
        what = f"transaction {txn.id} cannot be prepared"
        if found is None:
            return LostDataError(f"{what}: its coordinator does not know it any more", remedy=FORGOTTEN)
        own = txn.own
        mine = found.producer_id == own.producer_id and found.epoch == own.epoch
        if mine and error is not None:
            return error
        why = outcomes.what_became(self._prepared(txn, found), found, self._clock.now().wall)
        if found.producer_id == own.producer_id and outcomes.is_expiry(own.epoch, found):
            # Why nobody took its records may be why it took so long.
            said = f". Its producer says: {error.failure.message}" if isinstance(error, UnavailableError) else ""
            return LostDataError(f"{what}: {why}{said}", remedy=TOO_SLOW)
        if mine:
            return LostDataError(f"{what}: {why}", remedy=ABORTED_BY_HAND)
        return SinkFencedError(f"{what}: {why}", remedy=TAKEN_OVER)

    # ---- what is prepared ------------------------------------------------------------------------------------------

    def check(self, committables: Sequence[Committable]) -> None:
        pending = [Prepared.of(committable) for committable in committables]
        now = self._clock.now()
        for prepared in pending:
            judgement = outcomes.judge(prepared, self._admin.describe(prepared.id), now.wall)
            if not isinstance(judgement, StillOpen):
                raise _not_pending(prepared, getattr(judgement, "why", "it was committed by another process"))
            self._warn_of_age(prepared, now.monotonic)
        producers = self._admin.producers(_partitions(pending)) if pending else []
        for prepared in pending:
            wrong = outcomes.problems(prepared, producers)
            if wrong:
                raise _not_pending(prepared, wrong)

    def _warn_of_age(self, prepared: Prepared, now: float) -> None:
        """By the clock of this process alone: that of the coordinator may be another one's."""
        age = now - self._written_at.get(prepared.id, now)
        if age > prepared.timeout / 2:
            LOGGER.warning(
                "transaction %s is %.0f s old and not committed; its coordinator aborts it after %g s, at %s",
                prepared.id,
                age,
                prepared.timeout,
                outcomes.utc(prepared.expires_at),
            )
            del self._written_at[prepared.id]

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        self._written_at.pop(committable.id, None)
        return outcomes.commit(self._admin, committable, self._clock, self._pause)

    # ---- letting go ------------------------------------------------------------------------------------------------

    def abandon(self, txn: KafkaTransaction) -> None:
        txn.failure = UnavailableError(f"transaction {txn.id} was abandoned by its producer")
        txn.producer.drop()

    def close(self) -> None:
        self._admin.close()


TOO_SLOW = (
    "Its records are read again. Give the sink a longer timeout=, up to the broker's transaction.max.timeout.ms, or "
    "take checkpoints more often."
)
ABORTED_BY_HAND = "Its records are read again. Transactions of a running job must not be ended by other tools."
FORGOTTEN = (
    "Its records are read again. Brokers forget an id on which nothing happens for transactional.id.expiration.ms."
)
TAKEN_OVER = (
    "Another producer uses this transactional id. Two running jobs must not share a transaction_prefix; if the job was "
    "started again elsewhere, that one has taken over."
)


def _not_pending(prepared: Prepared, why: str) -> LostDataError:
    return LostDataError(
        f"the prepared transaction {prepared.id} is not pending any more: {why}",
        remedy="No checkpoint will count on it. See whether the timeout is too short.",
    )


def _partitions(pending: Sequence[Prepared]) -> list[TopicPartition]:
    return sorted({partition for prepared in pending for partition in prepared.partitions})


def _state(found: TransactionDescription | None) -> str:
    return "it is unknown" if found is None else f"it is {found.state.value}"
