"""Sending records with confluent-kafka: a new producer instance for every transaction, and each of its errors kept.

Nothing here may end a transaction. `Producer.close()` and leaving a `with Producer(...)` abort it, so a producer is
only ever dropped: deleting the last reference stops its threads and closes its sockets, and tells the coordinator
nothing. Whoever commits uses a request of its own.

The callbacks that librdkafka is given know no producer: a cycle would put its end off until the garbage is collected.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.client import Header
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.parcels import Parcel, Refused, parcels
from tidegate.errors import (
    Failure,
    InternalError,
    InvalidError,
    TidegateError,
    UnavailableError,
    failure_of,
    raise_failure,
)

SYSTEM_CLOCK = SystemClock()
T = TypeVar("T")

OPEN_PATIENCE = 60.0
"""Seconds within which a producer must be initialised: coordinators load and move."""
CONNECT_PATIENCE = 5.0
TRANSACTION_TOPIC = "__transaction_state"
"""A topic that exists wherever there are transactions, and that nobody can make by asking for it."""
PLAIN_PATIENCE = 300.0
"""Seconds for which a producer without transactions tries to deliver a record."""
LAST_PATIENCE = 5.0
"""Seconds for which a producer without guarantee waits when it is flushed, at its end."""
METADATA_PATIENCE = 10.0
TOPIC_PATIENCE = 3.0
"""Seconds within which a topic that does not exist may appear: brokers may make it when they are asked for it."""
DROP_PATIENCE = 1.0
"""Seconds for which a dropped producer may still send what it has; where no broker answers, it adds no partitions."""
FLUSH_STEP = 0.5
"""Seconds after which a flush looks at the time."""

DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 10,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "queue.buffering.max.messages": 200_000,
}
"""Large batches, and a queue of which a few fit into any process. The user's settings come after them."""

DECIDED: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "delivery.report.only.error": True,
}

APPEARING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
CONSEQUENCES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE, KafkaError._FATAL})
"""What records and calls get after something else has gone wrong: never the reason."""


class Reports:
    """What librdkafka reports of records that failed. Filled by callbacks, which run inside `poll` and `flush`, and
    sometimes while an exception of that call is on its way: they store, and call nothing."""

    def __init__(self) -> None:
        self.failed: list[tuple[Any, Any]] = []
        self.fatal: Any = None

    def delivered(self, error: Any, message: Any) -> None:
        """Only called for failures."""
        self.failed += ((error, message),)

    def went_wrong(self, error: Any) -> None:
        """Of the instance, not of a record. What is not fatal, librdkafka mends itself."""
        if error.fatal():
            self.fatal = error


OnFailure = Callable[[TidegateError, int], None]


class KafkaProducer:
    """A `client.Producer`. `place`: what is written to and how it is reached, for error texts. `patience`: seconds for
    which `flush` waits.

    Records for which librdkafka's queue has no place are kept here, in order, and put there whenever somebody asks for
    room or flushes: `send` never waits.
    """

    def __init__(
        self,
        client: Any,
        reports: Reports,
        place: str,
        patience: float,
        clock: Clock = SYSTEM_CLOCK,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._client = client
        self._reports = reports
        self._place = place
        self._patience = patience
        self._clock = clock
        self._on_failure = on_failure
        self._waiting: deque[Parcel] = deque()
        self._failure: Failure | None = None
        self._sent = 0

    @property
    def has_room(self) -> bool:
        self._guarded(lambda: self._client.poll(0))
        self._put()
        return self._failure is not None or not self._waiting

    @property
    def sent(self) -> int:
        return self._sent

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
    ) -> None:
        self._guarded(lambda: self._client.poll(0))
        self._raise_failure()
        self._sent += len(values)
        self._waiting.extend(parcels(topic, values, keys, partitions, timestamps, headers))
        self._put()
        self._raise_failure()

    def flush(self) -> None:
        deadline = self._clock.now().monotonic + self._patience
        while self._flush_some():
            if self._clock.now().monotonic >= deadline:
                late = f"{self._place}: not every record was accepted within {self._patience:g} s"
                self._failure = failure_of(UnavailableError(late))
        self._raise_failure()

    def _flush_some(self) -> bool:
        """Whether records are left, and no error has made it pointless to wait for them."""
        self._put()
        left = self._guarded(lambda: self._client.flush(FLUSH_STEP))
        return self._failure is None and bool(left or self._waiting)

    def partition_count(self, topic: str) -> int:
        doing = f"looking for topic {topic}, for {self._place}"
        deadline = self._clock.now().monotonic + TOPIC_PATIENCE
        while True:
            try:
                found = self._open_client().list_topics(topic, METADATA_PATIENCE).topics[topic]
            except KafkaException as error:
                raise errors.of_confluent(error, doing, errors.Subject(topic=topic)) from None
            if found.error is None:
                return len(found.partitions)
            if found.error.code() not in APPEARING or self._clock.now().monotonic >= deadline:
                raise errors.of_confluent(found.error, doing, errors.Subject(topic=topic))
            time.sleep(0.1)

    def drop(self) -> None:
        """What librdkafka was given leaves first, for a moment at most. A client that is destroyed while it adds a
        partition to its transaction can end the whole process: rd_kafka_txn_handle_AddPartitionsToTxn asserts that
        the request was counted, and a broker's thread that is ending answers it before it is."""
        self._waiting.clear()
        if self._client is not None and self._failure is None and len(self._client):
            self._guarded(lambda: self._client.flush(DROP_PATIENCE))
        self._client = None

    # ---- errors ----------------------------------------------------------------------------------------------------

    def _open_client(self) -> Any:
        if self._client is None:
            raise InternalError(f"{self._place}: the producer was used after it had been dropped")
        return self._client

    def _put(self) -> None:
        """Give librdkafka what waits, as far as it has room."""
        while self._waiting and self._failure is None and self._guarded(self._put_first):
            self._waiting.popleft()

    def _put_first(self) -> bool:
        while True:
            try:
                return self._waiting[0].put(self._client)
            except Refused as refused:
                if self._on_failure is None:
                    raise
                self._on_failure(self._error(refused), refused.records)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """`call`, with every error of it and every report that came with it made sticky, the reason first."""
        if self._failure is not None:
            return None
        self._open_client()
        refused: Refused | None = None
        result: T | None = None
        try:
            result = call()
        except Refused as error:
            refused = error
        except (KafkaException, SystemError) as error:
            # A callback that ran while the exception of a fatal error was on its way makes a SystemError of it.
            reason = _kafka_error(error)
            refused = None if reason is None else Refused(reason)
            if reason is None:
                self._failure = failure_of(InternalError(f"{self._place}: librdkafka's binding failed: {error}"))
        except (TypeError, ValueError) as error:
            self._failure = failure_of(InvalidError(f"{self._place} does not take what it was given: {error}"))
        except TidegateError as error:
            self._failure = error.failure
        if refused is not None or self._reports.failed or self._reports.fatal is not None:
            self._take_reports(refused)
        return result

    def _take_reports(self, refused: Refused | None) -> None:
        failed = by_error(self._reports.failed)
        self._reports.failed = []
        if self._on_failure is not None and refused is None and self._reports.fatal is None:
            for one in failed:
                self._on_failure(self._error(one), one.records)
            return
        fatal = [] if self._reports.fatal is None else [Refused(self._reports.fatal)]
        candidates = [*([] if refused is None else [refused]), *fatal, *failed]
        reason = next((one for one in candidates if one.error.code() not in CONSEQUENCES), None)
        reason = reason or self._reason_of_transaction(candidates[0].topic) or candidates[0]
        self._failure = failure_of(self._error(reason))

    def _reason_of_transaction(self, topic: str) -> Refused | None:
        """Why librdkafka gave the transaction up, where its records only say that they were dropped. It tells whoever
        calls it about the transaction, and of what may be called this changes nothing, in no state."""
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return Refused(error.args[0], topic)
        return None

    def _error(self, refused: Refused) -> TidegateError:
        if not refused.topic:
            return errors.of_confluent(refused.error, self._place)
        subject = errors.Subject(topic=refused.topic, size=refused.size)
        return errors.of_confluent(refused.error, f"{self._place}, writing to topic {refused.topic}", subject)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise_failure(self._failure)
        self._open_client()


def by_error(failed: Sequence[tuple[Any, Any]]) -> list[Refused]:
    """The failures of each kind together, with the size of the largest record: a batch that is too large fails with all
    of its records."""
    found: dict[tuple[int, str], Refused] = {}
    for error, message in failed:
        one = found.setdefault((error.code(), message.topic()), Refused(error, message.topic()))
        one.size = max(one.size, len(message.value() or b""))
        one.records += 1
    return list(found.values())


def _kafka_error(error: BaseException | None) -> Any:
    """The first of its causes that came from librdkafka; None when there is none."""
    while error is not None and not isinstance(error, KafkaException):
        error = error.__cause__
    return None if error is None else error.args[0]


# ---- opening -------------------------------------------------------------------------------------------------------


class KafkaProducerFactory:
    """A `client.ProducerFactory` on confluent-kafka."""

    def __init__(self, connection: Connection, clock: Clock = SYSTEM_CLOCK) -> None:
        self._connection = connection
        self._clock = clock

    def open_transaction(self, id: str, timeout: float) -> KafkaProducer:
        milliseconds = round(timeout * 1000)
        own = {"transactional.id": id, "transaction.timeout.ms": milliseconds}
        place = f"transaction {id} at {self._connection.bootstrap}"
        client, reports = self._client(own, milliseconds, place)
        subject = errors.Subject(id=id, timeout=timeout)
        deadline = self._clock.now().monotonic + OPEN_PATIENCE
        _connect(client)
        while True:
            left = deadline - self._clock.now().monotonic
            try:
                client.init_transactions(max(left, 0.1))
                client.begin_transaction()
                return KafkaProducer(client, reports, place, timeout, self._clock)
            except KafkaException as error:
                if not error.args[0].retriable() or left <= 0:
                    raise errors.of_confluent(error, f"opening {place}", subject) from None

    def open_plain(self, on_failure: OnFailure | None = None) -> KafkaProducer:
        place = f"Kafka at {self._connection.bootstrap}"
        own = {} if on_failure is None else {"enable.idempotence": False, "acks": 1}
        client, reports = self._client(own, round(PLAIN_PATIENCE * 1000), place)
        patience = PLAIN_PATIENCE if on_failure is None else LAST_PATIENCE
        return KafkaProducer(client, reports, place, patience, self._clock, on_failure)

    def _client(self, own: Mapping[str, Any], milliseconds: int, place: str) -> tuple[Any, Reports]:
        reports = Reports()
        config: dict[str, Any] = {**DEFAULTS, **self._connection.producer_config(), **DECIDED, **own}
        if "delivery.timeout.ms" in config:
            config["message.timeout.ms"] = config.pop("delivery.timeout.ms")
        for name, usual in (("message.timeout.ms", 300_000), ("socket.timeout.ms", 60_000)):
            # A record that is tried for longer than its transaction lives would come too late.
            config[name] = min(int(config.get(name, usual)) or milliseconds, milliseconds)
        config |= {"on_delivery": reports.delivered, "error_cb": reports.went_wrong}
        try:
            return Client(config), reports
        except KafkaException as error:
            raise errors.of_confluent(error, f"opening {place}") from None


def _connect(client: Any) -> None:
    """Have a connection to a broker before the producer is initialised, if one answers.

    Otherwise librdkafka may find none at its first try and waits for half a second until the next: it ends the
    connection to the bootstrap server when it knows the brokers. The second request makes it open another."""
    for _ in range(2):
        try:
            client.list_topics(TRANSACTION_TOPIC, CONNECT_PATIENCE)
        except KafkaException:
            return
