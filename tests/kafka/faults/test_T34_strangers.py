"""What other producers do in the same topics: their open and aborted transactions neither hide anything from a job nor
get into it (T34, T35)."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from tests.kafka.brokers import Broker, unique
from tests.kafka.faults.jobs import CountingJob, differences, interrupt, kill_all, states, wait_until_stopped
from tests.kafka.faults.leftovers import Leftovers
from tests.kafka.reading import Reading
from tidegate.formats import String
from tidegate.kafka import KafkaSource

FED = 200

# ---- open ones -----------------------------------------------------------------------------------------------------


def test_T34_a_strangers_open_transaction_in_the_output_hides_no_progress_from_a_recovery(job: CountingJob) -> None:
    """It lies below all that the job commits: who read committed records to see how far he was would see none."""
    stranger = unique("stranger")
    job.broker.produce_in_transaction(
        job.output_topic, ["k9-9 1 1"], partition=0, commit=None, transactional_id=stranger, timeout=60
    )
    hidden = job.broker.end_offsets(job.output_topic, "read_committed")[0]
    job.feed(FED)
    started = job.start(fail_point="commit:before@worker-0=stop,commit:before@worker-1=stop")
    wait_until_stopped(started, 2)
    kill_all(started)
    named = job.pending()
    job.feed(FED)
    started = job.start()
    total = sum(map(len, job.fed))
    started.wait_until(lambda: job.newest is not None and sum(job.positions().values()) == total, "the last checkpoint")
    interrupt(started)
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    # It neither waited for the stranger nor ended what is not its own.
    assert states(job.medium, [stranger]) == {stranger: "Ongoing"}
    assert job.broker.end_offsets(job.output_topic, "read_committed")[0] == hidden == 0
    job.broker.produce_in_transaction(job.output_topic, [], commit=None, transactional_id=stranger)
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T34_a_strangers_open_transaction_in_the_input_delays_what_is_behind_it_and_loses_nothing(
    job: CountingJob,
) -> None:
    started = job.start()
    job.feed(FED)
    job.wait_for_all(started)
    opened = job.broker.produce_in_transaction(job.input, ["k0-0 9999"], partition=0, commit=None)
    before = job.fed[0][:]
    job.feed(FED)
    behind = len(job.fed[0]) - len(before)
    started.wait_until(lambda: job.count() >= 2 * FED - behind, "what is not behind it")
    kill_all(started)
    started = job.start()
    waiting = job.output()
    opened.abort()
    job.wait_for_all(started)
    interrupt(started)
    assert differences(job.expected(lambda partition, offset: partition == 0 and offset >= len(before)), waiting) == []
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- aborted ones --------------------------------------------------------------------------------------------------


@pytest.fixture
def leftovers(kafka: Broker) -> Iterator[Leftovers]:
    with closing(Leftovers(kafka, kafka.create_topic())) as made:
        yield made


@pytest.mark.usefixtures("each_client_of_faults")
@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_T35_of_committed_and_aborted_transactions_in_one_fetch_only_the_committed_ones_are_read(
    kafka: Broker, compression: str
) -> None:
    topic = kafka.create_topic()
    with closing(Leftovers(kafka, topic)) as empty:
        written = write_in_turns(kafka, topic, compression, empty, 30)
    source = KafkaSource(kafka.bootstrap, topic, value=String(), bounded=True)
    everything = Reading(source).to_the_end()
    assert everything.all == written
    # The same from the middle of what was aborted and of what was committed.
    splits = source.discover(None)
    for count in (1, len(written) // 2, len(written) - 1):
        taken = Reading(source, splits).records(count, max_records=1).crash()
        assert Reading(source, taken).to_the_end().all == written[count:]


def write_in_turns(kafka: Broker, topic: str, compression: str, empty: Leftovers, rounds: int) -> list[str]:
    """Two producers, one after the other: one commits, one aborts, and now and then somebody aborts what he has not
    written. What was committed, in order."""
    committed: list[str] = []
    producers = [transactional(kafka, compression) for _ in range(2)]
    for number in range(rounds):
        producer, keeps = producers[number % 3 == 1], number % 3 != 1
        values = [f"{number}-{'kept' if keeps else 'aborted'}-{place}" for place in range(number % 4 + 1)]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode() + b"x" * 200, partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if keeps else producer.abort_transaction)(30)
        committed += [value + "x" * 200 for value in values] if keeps else []
        if number % 5 == 0:
            empty.register_and_abort(unique("empty"))
    return committed


def transactional(kafka: Broker, compression: str) -> Producer:
    settings = {"transactional.id": unique("other"), "compression.type": compression, "log_level": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, **settings})
    producer.init_transactions(30)
    return producer
