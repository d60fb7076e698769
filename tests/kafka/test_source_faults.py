"""What a broker and its operators can do to a reading job: offsets that vanish, topics that are made anew, groups that
others use. State wins, and nothing is passed over in silence."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import msgspec
import pytest
from kafka import KafkaAdminClient

from tests.kafka.brokers import Broker, unique
from tests.kafka.conftest import OwnKafka
from tests.kafka.reading import Reading, positions
from tidegate.connectors.kafka import cluster, consumer, identity, rare_log
from tidegate.errors import InvalidError, LostDataError, UnavailableError
from tidegate.formats import String
from tidegate.kafka import KafkaSource

pytestmark = pytest.mark.usefixtures("each_client_of_faults")


def texts(kafka: Broker, topics: Any = None, **options: Any) -> KafkaSource:
    return KafkaSource(kafka.bootstrap, topics, **{"value": String(), **options})


def wait(condition: Callable[[], bool], patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


# ---- groups --------------------------------------------------------------------------------------------------------


def test_S01_offsets_of_the_group_are_written_after_checkpoints_and_never_read(kafka: Broker) -> None:
    topic, group = kafka.create_topic(partitions=2), unique("group")
    kafka.produce(topic, ["a", "b", "c", "d"], partition=0)
    source = texts(kafka, topic, group=group)
    reading = Reading(source).records(2, max_records=2)
    taken = reading.checkpoint()
    reading.reader.notify_checkpoint_complete(taken)
    reading.until(lambda one: kafka.group_offsets(group, topic) == {0: 2, 1: 0})
    reading.crash()
    for wrong in (0, 4):
        kafka.set_group_offsets(group, topic, {0: wrong})
        again = Reading(source, taken).records(2).for_a_while()
        again.close()
        assert again.all == ["c", "d"]
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        admin.delete_groups([group])
    assert kafka.group_offsets(group, topic) == {}
    last = Reading(source, taken).records(2)
    last.close()
    assert last.all == ["c", "d"]


def test_S01_only_what_the_reader_was_given_is_committed_and_nothing_without_a_position(kafka: Broker) -> None:
    topic, group = kafka.create_topic(partitions=3), unique("group")
    source = texts(kafka, topic, group=group)
    all_splits = source.discover(None)
    reading = Reading(source, all_splits[:2])
    told = [*all_splits[1:], msgspec.structs.replace(all_splits[0], position=-1)]
    reading.reader.notify_checkpoint_complete(told)
    reading.until(lambda one: kafka.group_offsets(group, topic) == {1: 0}).close()


def test_S01_without_commit_group_offsets_nothing_is_committed(kafka: Broker) -> None:
    topic, group = kafka.create_topic(), unique("group")
    kafka.produce(topic, ["a"])
    reading = Reading(texts(kafka, topic, group=group, commit_group_offsets=False)).records(1)
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    reading.for_a_while().close()
    assert kafka.group_offsets(group, topic) == {}


def test_S01_the_group_is_called_like_the_job_by_default(kafka: Broker) -> None:
    topic = kafka.create_topic()
    reading = Reading(texts(kafka, topic))
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    reading.until(lambda one: kafka.group_offsets("reading", topic) == {0: 0}).close()


@pytest.fixture
def stranger(kafka: Broker) -> Iterator[Callable[[str, str], confluent_kafka.Consumer]]:
    """A member of the group, as another program would be: it subscribes, and has everything assigned."""
    members: list[confluent_kafka.Consumer] = []

    def join(topic: str, group: str) -> confluent_kafka.Consumer:
        member = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
        )
        members.append(member)
        member.subscribe([topic])
        wait(lambda: member.poll(0.05) is not None or bool(member.assignment()))
        return member

    yield join
    for member in members:
        member.close()


def test_S21_a_stranger_in_the_group_takes_no_partition_away(
    kafka: Broker, stranger: Callable[[str, str], confluent_kafka.Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidegate.kafka")
    topic, group = kafka.create_topic(partitions=2), unique("group")
    kafka.produce(topic, ["a"], partition=0)
    reading = Reading(texts(kafka, topic, group=group)).records(1)
    stranger(topic, group)
    kafka.produce(topic, ["b"], partition=1)
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    reading.until(lambda one: f"offsets of group {group}" in caplog.text)
    kafka.produce(topic, ["c"], partition=0)
    reading.records(3).close()
    assert reading.values == {f"{topic}/0": ["a", "c"], f"{topic}/1": ["b"]}


# ---- topics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounded", [False, True])
def test_S09_a_topic_that_the_source_reads_no_more_is_named(kafka: Broker, bounded: bool) -> None:
    kept, left = kafka.create_topic(), kafka.create_topic()
    taken = texts(kafka, [kept, left], bounded=bounded).discover(None)
    known = frozenset(split.id for split in taken)
    for narrower in (texts(kafka, kept, bounded=bounded), texts(kafka, pattern=kept, bounded=bounded)):
        with pytest.raises(
            InvalidError, match=f"positions in topic {left}, which is not among the source's"
        ) as refused:
            narrower.discover(known)
        assert "--fresh" in refused.value.failure.remedy
        # Restored bounded sources are not asked for new splits: their readers say it.
        with pytest.raises(InvalidError, match=left):
            Reading(narrower, taken).records(1)


def test_S11_a_topic_that_was_made_anew_is_not_read_on(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"])
    source = texts(kafka, topic)
    taken = Reading(source).records(1, max_records=1).crash()
    remade(kafka, topic, ["x", "y", "z"])
    with pytest.raises(LostDataError, match=f"topic '{topic}' at .* was deleted and created anew"):
        Reading(source, taken).records(1)


def test_S11_a_topic_that_is_made_anew_while_it_is_read_is_found_out(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHECKED_EVERY", 0.2)
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"])
    reading = Reading(texts(kafka, topic)).records(2)
    remade(kafka, topic, ["x", "y", "z"])
    with pytest.raises(LostDataError, match="created anew"):
        reading.records(100)
    reading.close()


def remade(kafka: Broker, topic: str, values: list[str]) -> None:
    kafka.delete_topic(topic)
    wait(lambda: topic not in kafka.admin.list_topics(timeout=10).topics)
    kafka.create_topic(topic)
    kafka.produce(topic, values)


def test_a_topic_that_was_deleted_is_not_forgotten(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster, identity):
        monkeypatch.setattr(module, "UNKNOWN_WITHIN", 0.2)
    topic = kafka.create_topic(partitions=2)
    source = texts(kafka, topic)
    taken = source.discover(None)
    kafka.delete_topic(topic)
    for looking in (source, texts(kafka, pattern=topic)):
        with pytest.raises(LostDataError, match=f"{topic}/0, {topic}/1 at .* was read and is not there any more"):
            looking.discover(frozenset(split.id for split in taken))
        with pytest.raises(LostDataError, match=f"{topic}/0 at .* is not there any more"):
            Reading(looking, taken).records(1)


# ---- offsets -------------------------------------------------------------------------------------------------------


def test_S10_lost_offsets_are_named_with_the_choices(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c", "d"])
    taken = Reading(texts(kafka, topic)).records(1, max_records=1).crash()
    kafka.delete_records(topic, 0, 3)
    with pytest.raises(LostDataError, match=f"{topic}/0 at .*: offsets 1 to 2 are gone .* begins at 3") as lost:
        Reading(texts(kafka, topic), taken).records(1)
    assert "on_lost_offsets='earliest'" in lost.value.failure.remedy
    assert "--fresh" in lost.value.failure.remedy


def test_S10_reading_goes_on_at_the_beginning_where_that_was_chosen(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c", "d"])
    source = texts(kafka, topic, on_lost_offsets="earliest")
    taken = Reading(source).records(1, max_records=1).crash()
    kafka.delete_records(topic, 0, 3)
    again = Reading(source, taken).records(1)
    assert again.all == ["d"]
    assert positions(again.checkpoint()) == {f"{topic}/0": 4}
    assert f"{topic}/0 at {kafka.bootstrap}: offsets 1 to 2 are gone" in caplog.text
    assert "2 lost in all" in caplog.text
    again.close()


def test_S10_a_bounded_read_ends_though_all_up_to_its_stop_is_gone(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c"])
    source = texts(kafka, topic, on_lost_offsets="earliest", bounded=True)
    splits = source.discover(None)
    kafka.produce(topic, ["behind", "behind"])
    kafka.delete_records(topic, 0, 4)
    assert Reading(source, splits).to_the_end().all == []


def test_S10_offsets_that_vanish_while_the_job_stands_still_are_an_error(kafka: Broker) -> None:
    """With almost nothing fetched ahead: what is fetched already is not lost."""
    topic = kafka.create_topic()
    kafka.produce(topic, ["first"])
    small = {"queued.min.messages": 1, "queued.max.messages.kbytes": 1, "fetch.message.max.bytes": 1000}
    reading = Reading(texts(kafka, topic, settings=small)).records(1)
    for _ in range(4):
        kafka.produce(topic, ["x" * 900] * 10)
    kafka.delete_records(topic, 0, 41)
    with pytest.raises(LostDataError, match=f"{topic}/0 at .* to 40 are gone"):
        reading.records(41)
    reading.close()


def test_S10_a_log_that_has_become_shorter_is_an_error_whatever_was_chosen(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"])
    for choice in ("fail", "earliest"):
        source = texts(kafka, topic, on_lost_offsets=choice)
        (split,) = source.discover(None)
        with pytest.raises(LostDataError, match=f"{topic}/0 at .* ends at offset 2, and reading had reached 5"):
            Reading(source, [msgspec.structs.replace(split, position=5)]).records(1)


def test_S02_a_bounded_read_ends_though_its_last_records_were_compacted_away(own_kafka: OwnKafka) -> None:
    kafka = own_kafka(settings={"log.cleaner.backoff.ms": 100})
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    topic = kafka.create_topic(config=config)
    kafka.produce(topic, ["a", "b", "c"], keys=["kept", "k", "k"])
    source = texts(kafka, topic, bounded=True)
    splits = source.discover(None)
    middle = Reading(source, splits).records(2, max_records=1).crash()

    def compacted() -> bool:
        time.sleep(0.2)
        kafka.produce(topic, ["later"], keys=["k"])
        return [record.offset for record in kafka.read(topic)][:2] not in ([0, 1], [0, 2])

    wait(compacted, 40)
    assert Reading(source, splits).to_the_end().all == ["a"]
    # S04: restored in the middle of what is not there any more.
    assert positions(middle) == {f"{topic}/0": 2}
    assert Reading(source, middle).to_the_end().all == []


# ---- brokers -------------------------------------------------------------------------------------------------------


def test_a_broker_that_dies_and_comes_back_costs_no_record(
    own_kafka: OwnKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = own_kafka()
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    reading = Reading(texts(kafka, topic)).records(1)
    kafka.kafka.kill()
    reading.until(lambda one: "reading from" in caplog.text)
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    kafka.kafka.restart()
    kafka.produce(topic, ["b"])
    reading.records(2)
    kafka.kafka.kill()
    reading.for_a_while(0.2)
    before = time.monotonic()
    reading.close()
    assert time.monotonic() - before < consumer.CLOSED_WITHIN + 1
    warnings = [record for record in caplog.records if "reading from" in record.getMessage()]
    assert len(warnings) <= 1 + (warnings[-1].created - warnings[0].created) / rare_log.LOG_INTERVAL


def test_a_broker_that_hangs_holds_nothing_up(own_kafka: OwnKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_WITHIN", 1.0)
    kafka = own_kafka()
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    source = texts(kafka, topic)
    reading = Reading(source).records(1)
    # One commit must have worked: librdkafka then knows the coordinator that will not answer.
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    reading.until(lambda one: kafka.group_offsets("reading", topic) == {0: 1})
    kafka.kafka.pause()
    reading.reader.notify_checkpoint_complete(reading.checkpoint())
    for asked in (lambda: source.discover(None), lambda: Reading(source, reading.checkpoint()).records(1)):
        before = time.monotonic()
        with pytest.raises(UnavailableError, match=topic):
            asked()
        assert time.monotonic() - before < 5
    before = time.monotonic()
    reading.close()
    assert time.monotonic() - before < consumer.CLOSED_WITHIN + 1
    kafka.kafka.resume()
