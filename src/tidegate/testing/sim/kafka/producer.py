"""`Producer` and `ProducerFactory` over the simulated cluster: one transaction of one producer instance, as librdkafka
has them.

Records wait here until the producer likes to send them, at the latest in `flush`; what is not answered is sent again
with the same sequence number. An error of a record is sticky. Nothing here ends a transaction.
"""

from collections.abc import Callable, Sequence

import xxhash

from tidegate.connectors.kafka.client import Header, TopicPartition
from tidegate.connectors.kafka.errors import Subject, of_code
from tidegate.errors import InternalError, InvalidError, TidegateError, UnavailableError
from tidegate.testing.sim.broker.codes import BrokerError
from tidegate.testing.sim.broker.partition import Batch, Record
from tidegate.testing.sim.kafka.line import PASSING, Line

OPEN_PATIENCE = 3.0
FLUSH_PATIENCE = 4.0
"""Seconds."""
Later = Callable[[float, str, Callable[[], None]], None]
"""Something happens in this process after so many seconds, if it lives."""


class ProducerHabits:
    """`eagerness`: the chance that a producer begins to send when it is given something. `linger`: seconds that it then
    waits at most. `fullness`: the chance that it says that it has no room. `largest`: records of a batch."""

    def __init__(
        self, eagerness: float = 0.5, linger: float = 0.01, fullness: float = 0.0, largest: int = 10_000
    ) -> None:
        self.eagerness = eagerness
        self.linger = linger
        self.fullness = fullness
        self.largest = largest


class SimProducerFactory:
    """`later`: how the producers' own threads get to run."""

    def __init__(self, line: Line, later: Later, habits: ProducerHabits, timestamp: Callable[[], int]) -> None:
        self._line = line
        self._later = later
        self._habits = habits
        self._timestamp = timestamp

    def open_transaction(self, id: str, timeout: float) -> "SimProducer":
        """An initialisation that is not answered is given up and never repeated here: it may arrive later still, and
        would abort what was begun after it."""
        for pause in self._line.pauses(OPEN_PATIENCE):
            try:
                producer_id, epoch = self._line.request(
                    f"initialises {id}",
                    lambda: self._line.cluster.initialise(id, round(timeout * 1000)),
                    can_land_later=True,
                )
            except BrokerError as error:
                if error.code not in PASSING:
                    raise of_code(error.code, f"opening {id}", str(error), Subject(id=id, timeout=timeout)) from None
                self._line.pause(pause)
            else:
                return SimProducer(id, producer_id, epoch, self._line, self._later, self._habits, self._timestamp)
        raise UnavailableError(f"opening {id}: the end of its last transaction is still being written")

    def open_plain(self, on_failure: Callable[[TidegateError, int], None] | None = None) -> "SimProducer":
        producer_id, epoch = self._line.ask("initialises", lambda: self._line.cluster.initialise(None, 0))
        return SimProducer(None, producer_id, epoch, self._line, self._later, self._habits, self._timestamp)


class SimProducer:
    """`id`: None without transactions."""

    def __init__(
        self,
        id: str | None,
        producer_id: int,
        epoch: int,
        line: Line,
        later: Later,
        habits: ProducerHabits,
        timestamp: Callable[[], int],
    ) -> None:
        self.name = id or f"producer {producer_id}"
        self.id = id
        self.producer_id = producer_id
        self.epoch = epoch
        self._line = line
        self._later = later
        self._habits = habits
        self._timestamp = timestamp
        self._waiting: dict[TopicPartition, list[Record]] = {}
        self._under_way: dict[TopicPartition, Batch] = {}
        """Sent, and not known to be there."""
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._counts: dict[str, int] = {}
        self._failure: TidegateError | None = None
        self._sent = 0
        self._is_planned = self._is_flushing = self._is_dropped = False

    # ---- the port --------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Now and then it has none: not for long, so that barriers come through."""
        return self._failure is not None or self._line.gate.chance() >= self._habits.fullness

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
        self._raise_failure()
        now = self._timestamp()
        for index, value in enumerate(values):
            key = None if keys is None else keys[index]
            number = partitions[index] if partitions is not None else self._partition(topic, key)
            timestamp = now if timestamps is None else timestamps[index]
            own = tuple((headers[index] if headers is not None else None) or ())
            at = TopicPartition(topic, number)
            self._waiting.setdefault(at, []).append(Record(value, key, timestamp, own))
            self._sent += 1
        if self._line.gate.chance() < self._habits.eagerness:
            self._plan()

    def _partition(self, topic: str, key: bytes | None) -> int:
        count = self._counts.get(topic) or self.partition_count(topic)
        return xxhash.xxh3_64_intdigest(key) % count if key is not None else self._sent % count

    def flush(self) -> None:
        """Raises what went wrong, and UnavailableError when it takes too long."""
        self._is_flushing = True
        try:
            for pause in self._line.pauses(FLUSH_PATIENCE):
                while self._failure is None and self._send_one():
                    """As long as something moves."""
                if self._failure is not None or not self._is_busy:
                    break
                self._line.pause(pause)
        finally:
            self._is_flushing = False
        self._raise_failure()
        if self._is_busy:
            self._failure = UnavailableError(f"{self.name}: not every record was accepted in time")
        self._raise_failure()

    def partition_count(self, topic: str) -> int:
        found = self._line.ask(f"looks for {topic}", lambda: self._line.cluster.described(topic))
        if found is None:
            raise InvalidError(f"{self.name}: topic {topic} does not exist")
        self._counts[topic] = len(found.partitions)
        return len(found.partitions)

    def drop(self) -> None:
        self._is_dropped = True
        self._waiting, self._under_way = {}, {}

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_dropped:
            raise InternalError(f"{self.name}: the producer was used after it had been dropped")

    # ---- sending ---------------------------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return bool(self._waiting or self._under_way)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            delay = self._line.gate.chance() * self._habits.linger
            self._later(delay, f"a producer of {self.name} sends", self._send_by_itself)

    def _send_by_itself(self) -> None:
        self._is_planned = False
        if self._is_dropped or self._is_flushing or self._failure is not None:
            return
        self._send_one()
        if self._is_busy and self._failure is None:
            self._plan()

    def _send_one(self) -> bool:
        """One batch of some partition; whether it is there now."""
        candidates = [*self._under_way, *(at for at in self._waiting if at not in self._under_way)]
        if not candidates or self._is_dropped:
            return False
        at = candidates[int(self._line.gate.chance() * len(candidates))]
        try:
            self._add(at)
            self._produce(at)
        except UnavailableError:
            return False
        except BrokerError as error:
            if error.code not in PASSING:
                self._failure = of_code(error.code, self.name, str(error), Subject(topic=at.topic, id=self.id or ""))
            return False
        return True

    def _add(self, at: TopicPartition) -> None:
        id = self.id
        if id is not None and at not in self._added:
            cluster = self._line.cluster
            what = f"adds {at} to {id}"
            self._line.request(what, lambda: cluster.add_partitions(id, self.producer_id, self.epoch, [at]))
            self._added.add(at)

    def _produce(self, at: TopicPartition) -> None:
        if self._is_dropped:
            return
        batch = self._under_way.get(at) or self._taken(at)
        what = f"sends {len(batch.records)} records from {batch.first_sequence} on to {at} for {self.name}"
        cluster = self._line.cluster
        self._line.request(what, lambda: cluster.produce(at, self.id, batch), can_land_later=True)
        self._under_way.pop(at, None)

    def _taken(self, at: TopicPartition) -> Batch:
        """The oldest records that wait for the partition."""
        waiting = self._waiting[at]
        count = min(self._habits.largest, 1 + int(self._line.gate.chance() * len(waiting)))
        first = self._sequences.get(at, 0)
        batch = Batch(self.producer_id, self.epoch, first, waiting[:count], self.id is not None)
        self._sequences[at] = first + count
        self._under_way[at] = batch
        if count == len(waiting):
            del self._waiting[at]
        else:
            del waiting[:count]
        return batch
