"""Sending records in whole record batches: columns are encoded as they come, and go out when a batch is full or old.

Nothing here may end a transaction: a producer is dropped, and sends nothing at that. Each transaction has a producer id
and epoch of its own, by one InitProducerId on a connection that is open already.
"""

from collections.abc import Callable, Sequence

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches import produce_requests
from tidegate.connectors.kafka.batches.building import SEQUENCES, Building, Sealed
from tidegate.connectors.kafka.batches.grouping import Given, grouped
from tidegate.connectors.kafka.batches.hub import QUESTIONS, RECORDS, STEP, Hub
from tidegate.connectors.kafka.batches.network import Outcome
from tidegate.connectors.kafka.batches.parking import Parking
from tidegate.connectors.kafka.batches.partitioning import Partitioner
from tidegate.connectors.kafka.batches.sending import Sending
from tidegate.connectors.kafka.batches.sending_protocol import (
    TICK,
    Added,
    AddPartitions,
    AskMetadata,
    Command,
    Described,
    Event,
    Fail,
    FindCoordinator,
    NotAdded,
    NotDescribed,
    NotProduced,
    Produce,
    Produced,
    Put,
)
from tidegate.connectors.kafka.batches.settings import ProducerSettings
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.connectors.kafka.client import Header, TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address, name_of
from tidegate.errors import (
    Failure,
    InternalError,
    InvalidError,
    TidegateError,
    UnavailableError,
    failure_of,
    raise_failure,
)

NO_SEQUENCE = -1
IN_TRANSACTION_LINGER, PLAIN_LINGER = 0.025, 0.01
METADATA_AGE = 300.0
"""Seconds after which a producer without transactions looks for more partitions of its topics."""
TOPIC_PATIENCE = 3.0
"""Seconds within which a topic that does not exist may appear: brokers may make it when they are asked for it."""
APPEARING = frozenset({3, 5})
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""

OnFailure = Callable[[TidegateError, int], None]


class Role:
    """Who a producer is to brokers. `id`: of its transaction, '' where it has none. `acks`: how many replicas must
    have what it sends."""

    def __init__(self, who: Producing, id: str = "", coordinator: Address | None = None) -> None:
        self.who = who
        self.id = id
        self.coordinator = coordinator

    @property
    def linger(self) -> float:
        """Seconds for which a batch that is not full waits for more, where the user did not say: nobody sees a record
        of a transaction before its end."""
        return IN_TRANSACTION_LINGER if self.who.is_transactional else PLAIN_LINGER

    @property
    def acks(self) -> int:
        return produce_requests.LEADER_ALONE if self.who.id < 0 else produce_requests.ALL_IN_SYNC


class BatchProducer:
    """A `client.Producer`. `place`: what is written to and how it is reached, for error texts. `patience`: seconds for
    which `flush` waits; `delivery`: for which a record is tried to be delivered."""

    def __init__(
        self,
        hub: Hub,
        role: Role,
        place: str,
        settings: ProducerSettings,
        patience: float,
        delivery: float,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._hub = hub
        self._role = role
        self._place = place
        self._settings = settings
        self._patience = patience
        self._on_failure = on_failure
        self._sending = Sending(place, hub.leaders, role.who, delivery, settings.compression)
        self._linger = role.linger if settings.linger is None else settings.linger
        self._partitioners: dict[str, Partitioner] = {}
        self._parked = Parking(place)
        self._building: dict[TopicPartition, tuple[Building, float]] = {}
        """With the time at which each is old."""
        self._sequences: dict[TopicPartition, int] = {}
        self._look_again_at = hub.now + METADATA_AGE
        self._is_finding = False
        self._is_dropped = False
        self._failure: Failure | None = None
        self._sent = 0

    # ---- for who writes --------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        with self._hub.lock:
            self._raise_if_dropped()
            self._move_on()
            return self._failure is not None or not self._is_full

    @property
    def _is_full(self) -> bool:
        built = [building for building, _ in self._building.values()]
        size = self._sending.unwritten + sum(building.size for building in built)
        records = self._sending.unwritten_records + sum(building.records for building in built)
        is_full = size >= self._settings.buffer_bytes or records >= self._settings.buffer_records
        return is_full or bool(self._parked)

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
        with self._hub.lock:
            self._raise_failure()
            self._sent += len(values)
            self._take(Given(topic, values, keys, partitions, timestamps, headers))
            self._move_on()
            self._raise_failure()

    def flush(self) -> None:
        deadline = self._hub.now + self._patience
        while True:
            with self._hub.lock:
                self._raise_failure()
                self._move_on()
                self._seal(float("inf"))
                self._raise_failure()
                if self._is_idle:
                    return
                if self._hub.now >= deadline:
                    self._late()
            self._hub.pump(STEP)

    @property
    def _is_idle(self) -> bool:
        return self._sending.is_done and not self._parked and not self._building

    def _late(self) -> None:
        late = f"{self._place}: not every record was accepted within {self._patience:g} s"
        trouble = self._sending.trouble
        self._failure = failure_of(UnavailableError(f"{late}: {trouble}" if trouble else late))
        self._raise_failure()

    def partition_count(self, topic: str) -> int:
        deadline = self._hub.now + TOPIC_PATIENCE
        while True:
            self._raise_if_dropped()
            cluster = self._described(topic)
            code = cluster.errors.get(topic, 0)
            if not code:
                return self._hub.counts[topic]
            if code not in APPEARING or self._hub.now >= deadline:
                subject = errors.Subject(topic=topic, operation="WRITE")
                raise errors.of_code(code, f"looking for topic {topic}, for {self._place}", name_of(code), subject)
            self._hub.pump(STEP * 5)

    def _described(self, topic: str) -> Cluster:
        found: list[Cluster | TidegateError] = []
        with self._hub.lock:
            self._hub.describe([topic], found.append, creates=True)
        while not found:
            self._hub.pump(STEP)
        (answer,) = found
        if isinstance(answer, TidegateError):
            raise answer
        return answer

    def drop(self) -> None:
        with self._hub.lock:
            self._is_dropped = True
            self._building.clear()
            self._parked.clear()

    # ---- records ---------------------------------------------------------------------------------------------------

    def _take(self, given: Given) -> None:
        partitioner = self._partitioner(given.topic)
        if partitioner is None or self._parked.holds(given.topic):
            self._parked.add(given, self._hub.now)
            return
        try:
            self._build(given.topic, grouped(given, partitioner, self._hub.wall))
        except (TypeError, ValueError, AttributeError) as error:
            # A batch may have been begun for it; a broker takes none without records.
            self._building = {where: begun for where, begun in self._building.items() if begun[0].records}
            self._fail(InvalidError(f"{self._place} does not take what it was given: {error}"))

    def _partitioner(self, topic: str) -> Partitioner | None:
        """None while nobody knows how many partitions the topic has. A transaction sees one number till its end."""
        found, count = self._partitioners.get(topic), self._hub.counts.get(topic)
        is_right = found is not None and (bool(self._role.id) or found.count == count)
        if count is not None and not is_right:
            found = self._partitioners[topic] = Partitioner(count)
        return found

    def _build(self, topic: str, groups: dict[int, Columns]) -> None:
        full: list[tuple[TopicPartition, Sealed]] = []
        for number, columns in groups.items():
            partition, done = TopicPartition(topic, number), 0
            while done < len(columns.values):
                building = self._built(partition)
                done = building.add(columns, done)
                if done < len(columns.values) or building.size >= self._settings.batch_bytes:
                    full.append((partition, self._sealed(partition)))
        if full:
            self._handle(Put(full))

    def _built(self, partition: TopicPartition) -> Building:
        if partition not in self._building:
            building = Building(self._settings.batch_bytes, self._role.who)
            self._building[partition] = (building, self._hub.now + self._linger)
        return self._building[partition][0]

    def _sealed(self, partition: TopicPartition) -> Sealed:
        building, _ = self._building.pop(partition)
        sequence = self._sequences.get(partition, 0) if self._role.who.id >= 0 else NO_SEQUENCE
        self._sequences[partition] = (sequence + building.records) % SEQUENCES
        return building.seal(sequence, self._hub.now, self._settings.compression)

    def _seal(self, now: float) -> None:
        """What is old at that time, unless something waits before it: then it may as well grow. The very first records
        wait for nothing: with them a transaction begins."""
        is_first, is_end = not self._sequences, now == float("inf")
        old = [
            partition
            for partition, (_, at) in self._building.items()
            if is_first or is_end or (at <= now and not self._sending.has_waiting(partition))
        ]
        if old:
            self._handle(Put([(partition, self._sealed(partition)) for partition in old]))

    def _move_on(self) -> None:
        """Take what came, and send what can be sent."""
        self._hub.poll()
        if self._is_dropped:
            return
        if self._parked:
            self._unpark()
        if self._hub.now >= self._look_again_at:
            self._look_again()
        self._seal(self._hub.now)
        self._handle(TICK)

    def _look_again(self) -> None:
        """Topics may have got more partitions. Within a transaction that does not matter."""
        self._look_again_at = self._hub.now + METADATA_AGE
        if self._partitioners and not self._role.id:
            self._hub.describe(sorted(self._partitioners), self._told)

    def _unpark(self) -> None:
        for given in self._parked.released(self._hub.counts):
            self._take(given)
        topics = self._parked.to_ask(self._hub.now)
        if topics:
            self._hub.describe(topics, self._told_of_parked, creates=True)

    def _told_of_parked(self, answer: Cluster | TidegateError) -> None:
        for error, records in self._parked.told(answer, self._hub.now):
            self._fail(error, records)

    # ---- doing what `Sending` says ---------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if not self._is_dropped:
            for command in self._sending.handle(event, self._hub.now):
                self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Produce():
                self._produce(command)
            case AddPartitions():
                self._add(command)
            case AskMetadata():
                self._hub.describe(command.topics, self._told)
            case FindCoordinator():
                self._find_coordinator()
            case Fail():
                self._fail(command.error, command.records)

    def _produce(self, command: Produce) -> None:
        timeout = self._settings.acknowledgement
        request = produce_requests.produce(self._role.id or None, self._role.acks, timeout, command.batches)

        def produced(outcome: Outcome) -> None:
            if outcome.error is not None:
                self._handle(NotProduced(command, outcome.error))
                return
            codes = produce_requests.produced_codes(outcome.response)
            self._handle(Produced(command, codes, outcome.response.throttle_time_ms / 1000))

        self._hub.network.ask(command.node, RECORDS, request, produced, timeout)

    def _told(self, answer: Cluster | TidegateError) -> None:
        self._handle(NotDescribed(answer) if isinstance(answer, TidegateError) else Described(answer))

    def _add(self, command: AddPartitions) -> None:
        role = self._role
        if role.coordinator is None:
            self._handle(NotAdded(UnavailableError(f"{self._place}: its coordinator is not known")))
            return
        request = produce_requests.add_partitions(role.id, role.who.id, role.who.epoch, command.partitions)

        def added(outcome: Outcome) -> None:
            if outcome.error is not None:
                self._handle(NotAdded(outcome.error))
            else:
                self._handle(Added(produce_requests.added_codes(outcome.response)))

        self._hub.network.ask_at(role.coordinator, QUESTIONS, request, added)

    def _find_coordinator(self) -> None:
        def found(outcome: Outcome) -> None:
            self._is_finding = False
            if outcome.error is None:
                code, address = produce_requests.coordinator(outcome.response)
                self._role.coordinator = None if code else address

        if not self._is_finding:
            self._is_finding = True
            self._role.coordinator = None
            request = produce_requests.find_transaction_coordinator(self._role.id)
            self._hub.network.ask_any(QUESTIONS, request, found)

    # ---- errors ----------------------------------------------------------------------------------------------------

    def _fail(self, error: TidegateError, records: int = 0) -> None:
        if self._on_failure is not None:
            self._on_failure(error, records)
        elif self._failure is None:
            self._failure = failure_of(error)

    def _raise_if_dropped(self) -> None:
        if self._is_dropped:
            raise InternalError(f"{self._place}: the producer was used after it had been dropped")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise_failure(self._failure)
        self._raise_if_dropped()
