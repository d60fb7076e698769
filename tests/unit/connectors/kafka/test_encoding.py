"""A batch becomes columns in order, and what a user's function may not give is refused before anything is sent."""

from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.kafka.scripted import KeepingProducer
from tidegate.connectors.kafka.encoding import Encoding, PartitionCounts, send, takes_columns
from tidegate.connectors.kafka.records import Beside, RecordColumns, RecordValue
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.formats import Bytes, String


class Constant:
    def encode(self, values: list[Any]) -> list[bytes | None]:
        return [b"v"] * len(values)


def sent(batch: Batch, producer: KeepingProducer | None = None, **encoding: Any) -> list[tuple[Any, ...]]:
    producer = KeepingProducer() if producer is None else producer
    send(Encoding(**{"topic": "totals", "value": Bytes(), **encoding}), batch, producer, PartitionCounts())
    return producer.calls


def test_a_batch_is_one_call_with_only_the_columns_that_were_asked_for() -> None:
    assert sent(Batch([b"a", b"b"])) == [("totals", [b"a", b"b"], None, None, None, None)]


def test_every_function_gives_a_column() -> None:
    calls = sent(
        Batch(["a", "bb"]),
        value=String(),
        key=lambda text: text[0],
        partition=lambda text, count: len(text) % count,
        timestamp=len,
        headers=lambda text: [("length", b"%d" % len(text))],
    )
    headers = [[("length", b"1")], [("length", b"2")]]
    assert calls == [("totals", [b"a", b"bb"], [b"a", b"b"], [1, 2], [1, 2], headers)]


def test_none_is_a_tombstone_with_its_key() -> None:
    calls = sent(Batch([None, b"a"]), key=lambda value: b"k" if value is None else None)
    assert calls == [("totals", [None, b"a"], [b"k", None], None, None, None)]


keys_of_all_kinds = st.none() | st.text(max_size=3) | st.binary(max_size=3) | st.just(5)


@given(st.lists(keys_of_all_kinds, min_size=1, max_size=6) | st.lists(st.text(), min_size=1))
def test_keys_become_bytes_alike_whatever_is_beside_them(keys: list[Any]) -> None:
    if any(key == 5 for key in keys):
        with pytest.raises(InvalidError, match="key= must give bytes, str or None, not int: 5"):
            sent(Batch(keys), value=Constant(), key=lambda value: value)
        return
    expected = [key.encode() if isinstance(key, str) else key for key in keys]
    assert sent(Batch(keys), value=Constant(), key=lambda value: value)[0][2] == expected


columns_of_records = st.lists(
    st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3)), min_size=1
)


class Doubled(Bytes):
    def encode(self, values: list[Any]) -> list[bytes | None]:
        return [None if value is None else value * 2 for value in super().encode(values)]


@given(
    columns_of_records,
    st.booleans(),
    st.sampled_from([None, attrgetter("key")]),
    st.sampled_from([RecordValue(), RecordValue(Doubled())]),
    st.booleans(),
)
def test_records_that_are_columns_are_written_as_those_that_are_objects(
    rows: list[Any], has_keys: bool, key: Any, value: RecordValue, is_timed: bool
) -> None:
    values, keys = map(list, zip(*rows, strict=True))
    columns: Any = RecordColumns(values, Beside(keys if has_keys else None))
    timestamps = list(range(len(rows))) if is_timed else None
    assert takes_columns(Encoding("totals", value, key))
    plain = sent(Batch(list(columns), None, timestamps), value=value, key=key)
    assert sent(Batch(columns, None, timestamps), value=value, key=key) == plain


@pytest.mark.parametrize(
    "encoding",
    [
        Encoding(lambda value: "totals", RecordValue()),
        Encoding("totals", Bytes()),
        Encoding("totals", RecordValue(), lambda record: record.key),
        Encoding("totals", RecordValue(), attrgetter("value")),
        Encoding("totals", RecordValue(), attrgetter("key", "value")),  # type: ignore[arg-type]
        Encoding("totals", RecordValue(), headers=attrgetter("headers")),
        Encoding("totals", RecordValue(), timestamp=attrgetter("timestamp")),
        Encoding("totals", RecordValue(), partition=lambda record, count: 0),
    ],
)
def test_whoever_asks_a_record_itself_gets_records(encoding: Encoding) -> None:
    assert not takes_columns(encoding)


def test_the_records_own_timestamps_are_taken_unless_there_is_a_function() -> None:
    batch = Batch([b"a", b"b"], timestamps=[7, 8])
    assert sent(batch)[0][4] == [7, 8]
    assert sent(batch, timestamp=lambda value: 1)[0][4] == [1, 1]


def test_a_topic_for_each_record_keeps_the_order_within_each() -> None:
    batch = Batch([b"a1", b"b1", b"a2", b"b2"], timestamps=[1, 2, 3, 4])
    calls = sent(batch, topic=lambda value: value.decode()[0], key=lambda value: value[1:])
    assert calls == [
        ("a", [b"a1", b"a2"], [b"1", b"2"], None, [1, 3], None),
        ("b", [b"b1", b"b2"], [b"1", b"2"], None, [2, 4], None),
    ]
    assert sent(Batch([b"a1", b"a2"]), topic=lambda value: "a")[0][1] == [b"a1", b"a2"]


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ({"topic": lambda value: None}, "topic= must give the name of a topic, not None"),
        ({"topic": lambda value: ""}, "topic= must give"),
        ({"key": lambda value: 5}, "key= must give bytes, str or None, not int"),
        ({"timestamp": lambda value: 1.5}, "timestamp= must give whole milliseconds"),
        ({"partition": lambda value, count: 4}, "partition= gave 4, and topic totals has the partitions 0 to 3"),
        ({"partition": lambda value, count: -1}, "partition= gave -1"),
        ({"partition": lambda value, count: None}, "partition= gave None"),
    ],
)
def test_what_a_function_may_not_give_is_refused_and_nothing_is_sent(encoding: dict[str, Any], words: str) -> None:
    producer = KeepingProducer()
    with pytest.raises(InvalidError) as caught:
        sent(Batch([b"a"]), producer, **encoding)
    assert words in str(caught.value)
    assert producer.calls == []


def test_a_function_that_raises_leaves_the_batch_unsent_as_a_whole() -> None:
    producer = KeepingProducer()

    def key(value: bytes) -> bytes:
        return {b"a1": b"k", b"b1": b"k"}[value]

    with pytest.raises(KeyError):
        sent(Batch([b"a1", b"b1", b"b2"]), producer, topic=lambda value: value.decode()[0], key=key)
    assert producer.calls == []


def test_an_empty_batch_sends_nothing() -> None:
    assert sent(Batch([]), topic=lambda value: "a") == []


def test_a_topic_is_asked_for_its_partitions_once_a_transaction() -> None:
    producer = KeepingProducer()
    counts = PartitionCounts()
    encoding = Encoding("totals", Bytes(), partition=lambda value, count: 0)
    for _ in range(3):
        send(encoding, Batch([b"a"]), producer, counts)
    assert producer.asked == ["totals"]
