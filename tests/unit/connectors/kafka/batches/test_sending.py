"""What a producer decides, against brokers at which everything goes wrong that may: each record is written once and in
its order, and to nothing that is not part of the transaction."""

import random
from collections import defaultdict

import pytest

from tests.unit.connectors.kafka.batches.clusters import LOST
from tests.unit.connectors.kafka.batches.write_clusters import WriteBrokers, Written
from tidegate.connectors.kafka.batches.building import SEQUENCES, UNCOMPRESSED, Building, Sealed
from tidegate.connectors.kafka.batches.queues import Leaders
from tidegate.connectors.kafka.batches.reading import Batches, Reader, spans
from tidegate.connectors.kafka.batches.readings import LONGEST_PAUSE
from tidegate.connectors.kafka.batches.sending import IN_FLIGHT_MAX, UNKNOWN_WITHIN, Sending
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
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.connectors.kafka.client import Columns as Wanted
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address
from tidegate.errors import InvalidError, SinkFencedError, TidegateError, UnavailableError

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TRANSACTION = Producing(id=7, epoch=0, is_transactional=True)
NODES = {node: Address("host", node) for node in (1, 2, 3)}


class Run:
    """A producer's decisions and its brokers, with time that passes when it is told to."""

    def __init__(
        self,
        written: dict[TopicPartition, Written],
        seed: int = 0,
        faults: int = 0,
        who: Producing = TRANSACTION,
        patience: float = 1e6,
    ) -> None:
        self.source = random.Random(seed)
        self.who = who
        self.brokers = WriteBrokers(written, self.source, faults, sequenced=who.id >= 0)
        self.sending = Sending("Kafka at host:9092", Leaders(), who, patience, UNCOMPRESSED)
        self.now = 0.0
        self.questions: list[AddPartitions | AskMetadata] = []
        self.under_way: dict[int, list[Produce]] = defaultdict(list)
        self.failures: list[TidegateError] = []
        self.lost = 0
        self.finds = 0
        self.values: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.sequences: dict[TopicPartition, int] = defaultdict(int)

    def put(self, *partitions: TopicPartition, records: int = 3) -> None:
        self.handle(Put([(partition, self._batch(partition, records)) for partition in partitions]))

    def _batch(self, partition: TopicPartition, records: int) -> Sealed:
        values = [b"%d" % (len(self.values[partition]) + index) for index in range(records)]
        self.values[partition] += values
        building = Building(1 << 20, self.who)
        building.add(Columns(values, None, [1] * records, None))
        sequence = self.sequences[partition] if self.who.id >= 0 else -1
        self.sequences[partition] = (self.sequences[partition] + records) % SEQUENCES
        return building.seal(sequence, self.now)

    def handle(self, event: Event) -> None:
        for command in self.sending.handle(event, self.now):
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case AddPartitions() | AskMetadata():
                self.questions.append(command)
            case Produce():
                self.under_way[command.node].append(command)
                assert len(self.under_way[command.node]) <= IN_FLIGHT_MAX
            case FindCoordinator():
                self.finds += 1
            case Fail():
                self.failures.append(command.error)
                self.lost += command.records

    def answer(self) -> None:
        """One of what was asked, in each broker's order; or a connection breaks."""
        self.now += 0.01
        busy = [node for node, asked in self.under_way.items() if asked]
        if self.questions and self.source.random() < 0.5:
            asked = self.questions.pop(self.source.randrange(len(self.questions)))
            self.handle(self.brokers.answer(asked))
        elif busy:
            node = self.source.choice(busy)
            if self.source.randrange(100) < self.brokers.faults:
                for event in self.brokers.break_connection(self.under_way.pop(node)):
                    self.handle(event)
            else:
                self.handle(self.brokers.answer(self.under_way[node].pop(0)))
        self.handle(TICK)

    def until_done(self, steps: int = 3000) -> None:
        self.brokers.faults = 0
        for _ in range(steps):
            if self.sending.is_done:
                return
            self.answer()
        raise AssertionError(f"{self.sending.unwritten} bytes left after {steps} answers; failures {self.failures}")

    def found(self, partition: TopicPartition) -> list[bytes]:
        values: list[bytes] = []
        for batch in self.brokers.written[partition].batches:
            kept = list(spans(batch.data))
            chunk = Reader(Wanted(), "here").chunk(Batches(partition, batch.data, kept, 0, kept[0].end_offset), 0)
            values += [value or b"" for value in chunk.values]
        return values


def brokers(count: int = 1) -> dict[TopicPartition, Written]:
    return {TopicPartition("orders", number): Written(leader=1 + number % 3) for number in range(count)}


@pytest.mark.parametrize("seed", range(80))
def test_every_record_is_written_once_and_in_order_whatever_goes_wrong(seed: int) -> None:
    run = Run(brokers(4), seed, faults=15)
    source = run.source
    partitions = list(run.brokers.written)
    run.brokers.largest = 3 if seed % 3 == 0 else 1000
    for _ in range(400):
        match source.randrange(10):
            case 0 | 1:
                run.put(*source.sample(partitions, source.randrange(1, 4)), records=source.randrange(1, 9))
            case 2:
                run.brokers.move(source.choice(partitions))
            case 3:
                run.brokers.do_late()
            case _:
                run.answer()
    run.until_done()
    assert not run.failures
    assert run.sending.unwritten == run.sending.unwritten_records == 0
    for partition in partitions:
        assert run.found(partition) == run.values[partition]


@pytest.mark.parametrize("seed", range(20))
def test_without_sequence_numbers_order_is_kept_and_nothing_is_lost(seed: int) -> None:
    """Records may be there twice."""
    written = brokers(3)
    for one in written.values():
        one.is_added = True
    run = Run(written, seed, faults=10, who=Producing())
    for _ in range(200):
        if run.source.random() < 0.2:
            run.put(*written, records=2)
        run.answer()
    run.until_done()
    for partition in written:
        found = run.found(partition)
        assert list(dict.fromkeys(found)) == run.values[partition]


def test_sequence_numbers_begin_again_behind_the_last_there_is() -> None:
    run = Run(brokers(), seed=1, faults=20)
    run.sequences[A] = SEQUENCES - 5
    run.brokers.written[A].batches = []
    first = run._batch(A, 4)
    run.brokers.written[A].batches.append(first)
    for _ in range(40):
        run.put(A)
        run.answer()
    run.until_done()
    assert run.found(A) == run.values[A]


def test_partitions_of_one_broker_go_in_one_request() -> None:
    written = {TopicPartition("orders", number): Written() for number in range(8)}
    run = Run(written)
    run.put(*written)
    while not run.under_way[1]:
        run.answer()
    (request,) = run.under_way[1]
    assert set(request.batches) == set(written)


# ---- what will not pass by itself ----------------------------------------------------------------------------------


def begun(run: Run, partition: TopicPartition = A) -> Produce:
    """The first request with records."""
    run.put(partition)
    for _ in range(20):
        for asked in run.under_way.values():
            if asked:
                return asked[0]
        run.answer()
    raise AssertionError("no request")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(47, SinkFencedError), (90, SinkFencedError), (29, InvalidError), (10, InvalidError), (87, InvalidError),
     (48, UnavailableError), (59, UnavailableError), (120, UnavailableError)],
)  # fmt: skip
def test_a_record_that_will_never_be_written_is_a_failure(code: int, kind: type[TidegateError]) -> None:
    run = Run(brokers())
    run.put(A, records=1)
    while not run.under_way[1]:
        run.answer()
    run.handle(Produced(run.under_way[1].pop(), {A: (code, "why")}, 0.0))
    (error,) = run.failures
    assert isinstance(error, kind)
    assert "writing to topic orders" in error.failure.message
    assert "why" in error.failure.message
    assert (run.lost, run.sending.is_done) == (1, True)


def test_a_broker_that_has_lost_what_it_took_is_a_failure() -> None:
    run = Run(brokers())
    run.put(A)
    run.until_done()
    request = begun(run)
    run.handle(Produced(request, {A: (45, "")}, 0.0))
    assert [type(error) for error in run.failures] == [UnavailableError]


def test_what_a_broker_says_that_it_has_already_is_written() -> None:
    run = Run(brokers())
    run.handle(Produced(begun(run), {A: (46, "")}, 0.0))
    assert run.sending.is_done
    assert not run.failures


def test_who_is_fenced_when_a_partition_is_added_is_told() -> None:
    run = Run(brokers())
    run.put(A)
    (asked,) = [one for one in run.questions if isinstance(one, AddPartitions)]
    run.handle(Added(dict.fromkeys(asked.partitions, 90)))
    assert [type(error) for error in run.failures] == [SinkFencedError]
    assert run.sending.is_done


def test_of_partitions_that_are_refused_together_only_the_one_to_blame_fails() -> None:
    run = Run(brokers(2))
    run.put(A, B)
    run.handle(Added({A: 29, B: 55}))
    (error,) = run.failures
    assert isinstance(error, InvalidError)
    run.questions.clear()
    for _ in range(300):
        run.answer()
    assert run.sending.is_done
    assert run.found(B) == run.values[B]


def test_a_coordinator_that_moved_is_looked_for() -> None:
    run = Run(brokers())
    run.put(A)
    run.questions.clear()
    run.handle(Added({A: 16}))
    assert run.finds == 1
    run.until_done()


def test_a_login_that_is_refused_is_a_failure_at_once() -> None:
    refused = InvalidError("no")
    for event in (NotDescribed(refused), NotAdded(refused)):
        run = Run(brokers())
        run.put(A)
        run.handle(event)
        assert run.failures == [refused]


def test_what_cannot_be_delivered_in_time_is_given_up_with_the_last_trouble() -> None:
    run = Run(brokers(), patience=5.0)
    run.put(A)
    run.put(A)
    while run.now < 6:
        run.now += 0.1
        for asked in [*run.questions]:
            run.questions.remove(asked)
            run.handle(NotDescribed(LOST) if isinstance(asked, AskMetadata) else run.brokers.answer(asked))
        run.handle(TICK)
    assert "not accepted within 5 s: no answer" in run.failures[0].failure.message
    assert (run.lost, run.sending.is_done) == (6, True)


def test_a_topic_that_stays_unknown_is_a_failure() -> None:
    run = Run(brokers())
    run.put(A)
    while run.now < UNKNOWN_WITHIN + 3 and not run.failures:
        run.now += 0.1
        for asked in [*run.questions]:
            run.questions.remove(asked)
            if isinstance(asked, AskMetadata):
                run.handle(Described(Cluster(NODES, {}, {"orders": 3})))
            else:
                run.handle(run.brokers.answer(asked))
        run.handle(TICK)
    assert run.now > UNKNOWN_WITHIN
    (error,) = run.failures
    assert isinstance(error, InvalidError)
    assert "orders/0 is unknown to the brokers" in error.failure.message


def test_a_cluster_that_does_not_answer_is_asked_less_and_less_often() -> None:
    run = Run(brokers(2))
    run.put(A, B)
    count = 0
    while run.now < 60:
        run.now += 0.001
        for asked in [*run.questions]:
            run.questions.remove(asked)
            count += 1
            run.handle(NotDescribed(LOST) if isinstance(asked, AskMetadata) else NotAdded(LOST))
        for asked in [*run.under_way.pop(1, []), *run.under_way.pop(2, [])]:
            count += 1
            run.handle(NotProduced(asked, LOST))
        run.handle(TICK)
    assert count <= 2 * 60 / LONGEST_PAUSE + 20
    assert not run.failures
    run.until_done()


def test_a_broker_that_wants_to_hear_nothing_for_a_while_hears_nothing() -> None:
    run = Run(brokers())
    request = begun(run)
    run.under_way.clear()
    run.handle(Produced(request, {A: (0, "")}, 2.0))
    run.put(A)
    begin = run.now
    while run.now < begin + 1.9:
        run.now += 0.1
        run.handle(TICK)
        assert not any(run.under_way.values())
    run.now += 0.2
    run.handle(TICK)
    assert len(run.under_way[1]) == 1
