"""Records that are out of the ordinary, and where reading goes on behind each of them (S17, S18, S19)."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.integration.running import KILLED
from tests.kafka.brokers import Broker, unique
from tests.kafka.faults.jobs import CountingJob, interrupt, kill_all
from tests.kafka.reading import Reading, positions
from tests.kafka.sinks import SinkGround
from tidegate.elements import Batch
from tidegate.formats import String
from tidegate.kafka import KafkaRecord, KafkaSource
from tidegate.testing.conformance.sink_kit import open_writer

# ---- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_client_of_faults")
def test_S17_headers_go_through_source_and_sink_as_they_came(kafka: Broker) -> None:
    """Names twice, empty ones, values that are null or empty or no text, and none at all."""
    topic = kafka.create_topic()
    headers: list[list[tuple[str, bytes | None]]] = [
        [("a", b"1"), ("b", None), ("a", b""), ("", b"\xff\x00"), ("a", b"1")],
        [],
        [("ü", "ü".encode())],
    ]
    kafka.produce(topic, ["x", "y", "z"], headers=headers)
    source = KafkaSource(kafka.bootstrap, topic, value=String(), include=["headers"], bounded=True)
    records: list[KafkaRecord[Any]] = Reading(source).to_the_end().all
    ground = SinkGround(kafka)

    class Values(String):
        def encode(self, values: Sequence[Any]) -> list[bytes | None]:
            return super().encode([record.value for record in values])

    ground.write_and_commit(open_writer(ground.sink(value=Values(), headers=lambda one: one.headers)), Batch(records))
    written = kafka.read(ground.topic)
    assert [record.value for record in written] == [b"x", b"y", b"z"]
    assert [record.headers for record in written] == headers


# ---- poison --------------------------------------------------------------------------------------------------------

POISON = b"\xff\xfe is no UTF-8"


def test_S18_records_that_cannot_be_decoded_are_passed_once_and_dead_letters_are_written_exactly_once(
    kafka: Broker, job: CountingJob
) -> None:
    """Partition 3 has nothing else. Its position moves with checkpoints; so no restart meets them again."""
    dead = job.medium.name("dead")
    job.medium.create_topic(dead, 1)
    words = ["--dead-letters", dead]
    letters = [POISON + str(number).encode() for number in range(100)]
    kafka.produce(job.input, letters[:50], partition=3)
    job.feed(90, partitions=[0, 1, 2])
    died = job.run(*words, fail_point="log-append:after:3@jobmanager")
    assert died.process.returncode == KILLED, died.said
    kafka.produce(job.input, letters[50:], partition=3)
    job.feed(90, partitions=[0, 1, 2])
    started = job.start(*words)
    job.wait_for_all(started)
    started.wait_until(lambda: len(kafka.values(dead)) >= len(letters), "all dead letters")
    started.wait_until(lambda: job.positions()[3] == len(letters), "a checkpoint behind them")
    interrupt(started)
    assert sorted(value or b"" for value in kafka.values(dead)) == sorted(letters)
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_S18_skipped_records_are_behind_the_checkpoint_and_a_job_that_fails_on_one_never_gets_past_it(
    kafka: Broker, job: CountingJob
) -> None:
    kafka.produce(job.input, [POISON] * 50, partition=3)
    job.feed(90, partitions=[0, 1, 2])
    failed = job.run(options=["--restart", "fixed-delay:2:50ms"])
    assert failed.process.returncode == 1, failed.said
    assert failed.said.count("restart 2 in") == 1
    assert job.newest is None or job.positions()[3] == 0
    started = job.start("--undecodable", "skip")
    job.wait_for_all(started)
    started.wait_until(lambda: job.positions()[3] == 50, "a checkpoint behind them")
    kill_all(started)
    # From here on one would fail the job; nobody meets those again.
    job.feed(90, partitions=[0, 1, 2])
    job.run_until_all_is_out(options=["--restart", "none"])
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- off by one ----------------------------------------------------------------------------------------------------


def with_gaps(kafka: Broker, rounds: int) -> tuple[str, list[str]]:
    """A topic of one partition in which aborted records and markers lie between the records; and these."""
    topic, written = kafka.create_topic(), []
    for number in range(rounds):
        values = [f"{number}-{place}" for place in range(number % 3 + 1)]
        kafka.produce_in_transaction(topic, values, commit=number % 4 != 2)
        written += values if number % 4 != 2 else []
    return topic, written


@pytest.mark.usefixtures("each_client_of_faults")
def test_S19_whichever_record_a_checkpoint_is_taken_behind_the_next_is_read_first(kafka: Broker) -> None:
    """Everything behind it was fetched ahead when the reader died, and is read again."""
    topic, written = with_gaps(kafka, 7)
    source = KafkaSource(kafka.bootstrap, topic, value=String(), bounded=True)
    splits = source.discover(None)
    read: list[str] = []
    while len(read) < len(written):
        reading = Reading(source, splits).records(1, max_records=1)
        read += reading.all
        assert positions(reading.checkpoint())[f"{topic}/0"] > positions(splits)[f"{topic}/0"]
        splits = reading.crash()
    assert read == written
    assert Reading(source, splits).to_the_end().all == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("each_client_of_faults")
def test_S19_crashes_behind_any_number_of_records_in_any_partition_skip_and_repeat_none(
    kafka: Broker, seed: int
) -> None:
    draw = random.Random(seed)
    topic = kafka.create_topic(partitions=3)
    written: dict[str, list[str]] = {}
    for partition in range(3):
        for number in range(15):
            values = [f"{number}-{place}" for place in range(draw.randrange(1, 8))]
            keeps = draw.random() < 0.7
            kafka.produce_in_transaction(topic, values, commit=keeps, partition=partition, transactional_id=unique("t"))
            written.setdefault(f"{topic}/{partition}", []).extend(values if keeps else [])
    source = KafkaSource(kafka.bootstrap, topic, value=String(), bounded=True)
    splits = source.discover(None)
    read: dict[str, list[str]] = {split.id: [] for split in splits}
    for _ in range(80):
        reading = Reading(source, splits)
        for _ in range(draw.randrange(1, 4)):
            reading.until(lambda one: one.poll(draw.randrange(1, 4)) or all(s.finished for s in one.splits.values()))
        for split, values in reading.values.items():
            read[split] += values
        splits = reading.crash()
    rest = Reading(source, splits).to_the_end()
    assert {split: values + rest.values[split] for split, values in read.items()} == written
