"""Reading real topics: what starts, stops, gaps, null values and headers look like to a job. The faults a broker can
make besides are in `test_source_faults`."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kafka.brokers import Broker, unique
from tests.kafka.reading import Reading, positions, stops
from tidegate.connectors.kafka import cluster
from tidegate.errors import InvalidError, UnavailableError
from tidegate.formats import Json, String
from tidegate.kafka import KafkaRecord, KafkaSource

pytestmark = pytest.mark.usefixtures("each_client_of_faults")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def texts(kafka: Broker, topic: Any = None, **options: Any) -> KafkaSource:
    return KafkaSource(kafka.bootstrap, topic, **{"value": String(), **options})


# ---- where reading begins ------------------------------------------------------------------------------------------


def test_S05_a_latest_start_is_pinned_before_the_first_record_and_survives_a_restart(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, ["before"], partition=partition)
    source = texts(kafka, topic, start="latest")
    splits = source.discover(None)
    assert positions(splits) == {f"{topic}/0": 1, f"{topic}/1": 1, f"{topic}/2": 1}
    for partition in (0, 1):
        kafka.produce(topic, ["first"], partition=partition)
    taken = Reading(source, splits).records(2).crash()
    for partition in range(3):
        kafka.produce(topic, ["second"], partition=partition)
    again = Reading(source, taken).records(3).for_a_while()
    again.close()
    assert again.values == {f"{topic}/0": ["second"], f"{topic}/1": ["second"], f"{topic}/2": ["second"]}


def test_S06_what_was_written_to_a_partition_before_it_was_found_is_read(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=1)
    kafka.produce(topic, ["old"])
    source = texts(kafka, topic, start="latest")
    reading = Reading(source)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["early"], partition=1)
    found = source.discover(frozenset(reading.splits))
    assert positions(found) == {f"{topic}/1": 0}
    reading.add(found)
    reading.records(1).for_a_while().close()
    assert reading.values == {f"{topic}/1": ["early"]}


def test_S15_a_partition_without_a_record_of_that_time_or_later_starts_at_its_end(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, ["a", "b"], partition=1, timestamps=[at(NOON) - 2000, at(NOON) - 1])
    kafka.produce(topic, ["c", "d", "e"], partition=2, timestamps=[at(NOON) - 1, at(NOON), at(NOON) + 1])
    splits = texts(kafka, topic, start=NOON).discover(None)
    assert positions(splits) == {f"{topic}/0": 0, f"{topic}/1": 2, f"{topic}/2": 1}


def test_a_start_between_two_milliseconds_is_the_later_one(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"], timestamps=[at(NOON), at(NOON) + 1])
    assert positions(texts(kafka, topic, start=NOON + timedelta(microseconds=1)).discover(None)) == {f"{topic}/0": 1}


def test_offsets_name_the_start_of_some_partitions_and_the_others_start_at_their_beginning(kafka: Broker) -> None:
    first, second = kafka.create_topic(partitions=2), kafka.create_topic()
    kafka.produce(first, ["a", "b", "c"], partition=1)
    kafka.produce(second, ["d", "e"])
    kafka.delete_records(second, 0, 1)
    splits = texts(kafka, [first, second], start={f"{first}/1": 2}).discover(None)
    assert positions(splits) == {f"{first}/0": 0, f"{first}/1": 2, f"{second}/0": 1}
    assert positions(texts(kafka, first, start={1: 3}).discover(None)) == {f"{first}/0": 0, f"{first}/1": 3}


@pytest.mark.parametrize(
    ("start", "says"), [({1: 0}, "/1"), ({0: 3}, "begins at 1 and ends at 2"), ({0: 0}, "offset 0")]
)
def test_offsets_that_are_not_there_are_refused(kafka: Broker, start: dict[int | str, int], says: str) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"])
    kafka.delete_records(topic, 0, 1)
    with pytest.raises(InvalidError, match=says):
        texts(kafka, topic, start=start).discover(None)


# ---- where reading ends --------------------------------------------------------------------------------------------


def test_S02_a_bounded_read_ends_behind_a_commit_marker(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce_in_transaction(topic, ["a", "b"])
    reading = Reading(texts(kafka, topic, bounded=True)).to_the_end()
    assert reading.all == ["a", "b"]
    assert positions(reading.checkpoint()) == {f"{topic}/0": 3}


def test_S02_a_bounded_read_ends_behind_an_aborted_transaction(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce_in_transaction(topic, ["a", "b"])
    kafka.produce_in_transaction(topic, ["x", "y", "z"], commit=False)
    reading = Reading(texts(kafka, topic, bounded=True)).to_the_end()
    assert reading.all == ["a", "b"]
    assert positions(reading.checkpoint()) == {f"{topic}/0": 7}


def test_S02_a_bounded_read_of_a_topic_that_was_emptied_ends(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", "b"], partition=0)
    kafka.delete_records(topic, 0, 2)
    reading = Reading(texts(kafka, topic, bounded=True)).to_the_end()
    assert reading.all == []
    assert positions(reading.checkpoint()) == {f"{topic}/0": 2, f"{topic}/1": 0}


def test_S02_a_bounded_read_ends_before_a_transaction_that_was_open_and_is_aborted_later(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    transaction = kafka.produce_in_transaction(topic, ["x"], commit=None)
    kafka.produce(topic, ["behind"])
    committed, uncommitted = (
        texts(kafka, topic, bounded=True, isolation=isolation) for isolation in ("read_committed", "read_uncommitted")
    )
    assert stops(committed.discover(None)) == {f"{topic}/0": 1}
    assert stops(uncommitted.discover(None)) == {f"{topic}/0": 3}
    assert Reading(committed).to_the_end().all == ["a"]
    assert Reading(uncommitted).to_the_end().all == ["a", "x", "behind"]
    transaction.abort()


def test_S14_splits_without_anything_to_read_finish(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, ["a", "b"], partition=1)
    for options in ({"start": "latest"}, {"start": {1: 2}}, {"bounded": {0: 0, 1: 0, 2: 0}}):
        reading = Reading(texts(kafka, topic, **{"bounded": True, **options})).to_the_end()
        assert reading.all == []


def test_S14_a_stop_before_the_start_finishes_without_reading(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c"])
    kafka.delete_records(topic, 0, 2)
    reading = Reading(texts(kafka, topic, bounded={0: 1})).to_the_end()
    assert reading.all == []
    assert positions(reading.checkpoint()) == {f"{topic}/0": 2}


def test_offsets_bound_some_partitions_and_the_others_stop_at_their_end(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", "b", "c"], partition=0)
    kafka.produce(topic, ["d", "e"], partition=1)
    reading = Reading(texts(kafka, topic, bounded={0: 2}))
    kafka.produce(topic, ["late"], partition=1)
    assert reading.to_the_end().values == {f"{topic}/0": ["a", "b"], f"{topic}/1": ["d", "e"]}


def test_a_bound_that_is_not_there_yet_is_refused_instead_of_awaited(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    with pytest.raises(InvalidError, match="offset 2 of"):
        texts(kafka, topic, bounded={0: 2}).discover(None)


def test_a_moment_bounds_before_its_first_record(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", "b", "c"], partition=0, timestamps=[at(NOON) - 5, at(NOON), at(NOON) + 5])
    kafka.produce(topic, ["d"], partition=1, timestamps=[at(NOON) - 5])
    reading = Reading(texts(kafka, topic, bounded=NOON)).to_the_end()
    assert reading.values == {f"{topic}/0": ["a"], f"{topic}/1": ["d"]}


# ---- positions -----------------------------------------------------------------------------------------------------


def test_S04_positions_survive_gaps_of_markers_and_aborted_records(kafka: Broker) -> None:
    topic = kafka.create_topic()
    expected = []
    for number in range(4):
        kafka.produce_in_transaction(topic, [f"x{number}", f"y{number}"], commit=False)
        kafka.produce_in_transaction(topic, [f"a{number}", f"b{number}"])
        expected += [f"a{number}", f"b{number}"]
    source = texts(kafka, topic, bounded=True)
    for crash_after in range(len(expected)):
        first = Reading(source).records(crash_after, max_records=1)
        before = first.all
        assert before + Reading(source, first.crash()).to_the_end().all == expected


def test_a_reader_that_waits_at_the_end_has_its_position_behind_the_markers(kafka: Broker) -> None:
    """Or retention would seem to have taken what was never unread."""
    topic = kafka.create_topic()
    kafka.produce_in_transaction(topic, ["a"])
    kafka.produce_in_transaction(topic, ["x"], commit=False)
    reading = Reading(texts(kafka, topic))
    reading.until(lambda one: positions(one.checkpoint()) == {f"{topic}/0": 4})
    kafka.delete_records(topic, 0, 4)
    taken = reading.crash()
    kafka.produce(topic, ["b"])
    again = Reading(texts(kafka, topic), taken).records(1)
    again.close()
    assert again.all == ["b"]


# ---- records -------------------------------------------------------------------------------------------------------


class Strict(String):
    """Breaks on what no format should see."""

    def decode(self, raw: list[Any]) -> list[Any]:
        assert None not in raw
        return super().decode(raw)

    def decode_one(self, raw: Any) -> Any:
        assert raw is not None
        return super().decode_one(raw)


def test_S16_null_values_and_keys_reach_the_user_and_no_format(kafka: Broker) -> None:
    topic = kafka.create_topic()
    keys, values = [b"k", None, b"k", None], ["a", "b", None, None]
    kafka.produce(topic, values, keys=keys)
    plain = Reading(KafkaSource(kafka.bootstrap, topic, value=Strict(), bounded=True)).to_the_end()
    assert plain.all == ["a", "b", None, None]
    assert positions(plain.checkpoint()) == {f"{topic}/0": 4}
    source = KafkaSource(kafka.bootstrap, topic, value=Strict(), key=Strict(), include=["key"], bounded=True)
    assert [(record.key, record.value) for record in Reading(source).to_the_end().all] == [
        ("k", "a"), (None, "b"), ("k", None), (None, None),
    ]  # fmt: skip


def test_S17_headers_keep_order_doubles_and_null_values(kafka: Broker) -> None:
    topic = kafka.create_topic()
    headers: list[list[tuple[str, bytes | None]]] = [[("a", b"1"), ("b", None), ("a", b""), ("", b"2")], []]
    kafka.produce(topic, ["x", "y"], headers=headers)
    records = Reading(texts(kafka, topic, include=["headers"], bounded=True)).to_the_end().all
    assert [record.headers for record in records] == [tuple(headers[0]), ()]


def test_what_is_included_is_filled_and_the_rest_has_its_default(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce_in_transaction(topic, ["x"], partition=1, commit=False)
    kafka.produce(topic, ['{"n": 1}'], keys=["k"], partition=1, timestamps=[at(NOON)], headers=[[("h", b"v")]])
    everything = ("key", "timestamp", "headers", "position")
    expected = {
        "key": {"key": b"k"},
        "timestamp": {"timestamp": at(NOON)},
        "headers": {"headers": (("h", b"v"),)},
        "position": {"topic": topic, "partition": 1, "offset": 2},
    }
    for include in [*((one,) for one in everything), everything]:
        source = texts(kafka, topic, value=Json(dict[str, int]), include=include, bounded=True)
        wanted = {name: value for field in include for name, value in expected[field].items()}
        assert Reading(source).to_the_end().all == [KafkaRecord({"n": 1}, **wanted)]


def test_timestamps_are_given_to_the_engine_when_asked_for(kafka: Broker) -> None:
    topic = kafka.create_topic()
    moments = [at(NOON) + number for number in range(5)]
    kafka.produce(topic, list("abcde"), timestamps=moments)
    reading = Reading(texts(kafka, topic, timestamps=True, bounded=True))
    reading.until(lambda one: len(one.all) == 5, max_records=2).to_the_end()
    assert reading.timestamps == {f"{topic}/0": moments}
    included = Reading(texts(kafka, topic, include=["timestamp"], bounded=True)).to_the_end()
    assert included.timestamps == {f"{topic}/0": moments}
    assert Reading(texts(kafka, topic, bounded=True)).to_the_end().timestamps == {f"{topic}/0": []}


# ---- which topics --------------------------------------------------------------------------------------------------


def test_a_pattern_finds_topics_whose_whole_name_matches_also_later(kafka: Broker) -> None:
    mark = unique("pattern")
    kafka.create_topic(f"{mark}.a")
    kafka.create_topic(f"{mark}.ab")
    source = texts(kafka, pattern=re.escape(mark) + r"\.[a-z]", start="latest")
    splits = source.discover(None)
    assert positions(splits) == {f"{mark}.a/0": 0}
    kafka.create_topic(f"{mark}.b")
    kafka.produce(f"{mark}.b", ["early"])
    reading = Reading(source, splits)
    reading.add(source.discover(frozenset(reading.splits)))
    reading.records(1).close()
    assert reading.values == {f"{mark}.b/0": ["early"]}


def test_a_pattern_leaves_internal_topics_out(kafka: Broker) -> None:
    kafka.set_group_offsets(unique("group"), kafka.create_topic(), {0: 0})
    assert "__consumer_offsets" in kafka.admin.list_topics(timeout=10).topics
    assert not [split.id for split in texts(kafka, pattern=".*").discover(None) if split.id.startswith("__")]


def test_a_pattern_without_topics_waits_for_some_unless_it_is_bounded(kafka: Broker) -> None:
    pattern = unique("nothing")
    assert texts(kafka, pattern=pattern).discover(None) == []
    with pytest.raises(InvalidError, match=f"matches pattern='{pattern}'"):
        texts(kafka, pattern=pattern, bounded=True).discover(None)


def test_a_topic_that_does_not_exist_is_named(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "UNKNOWN_WITHIN", 0.1)
    there, not_there = kafka.create_topic(), unique("absent")
    with pytest.raises(InvalidError, match=f"topic '{not_there}' does not exist at {kafka.bootstrap}"):
        texts(kafka, [there, not_there]).discover(None)


def test_no_broker_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_WITHIN", 1.0)
    for selection in ({"topics": "t"}, {"pattern": "t"}):
        before = time.monotonic()
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1:"):
            KafkaSource("127.0.0.1:1", **selection).discover(None)
        assert time.monotonic() - before < 5
