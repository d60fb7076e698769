"""KafkaSource's arguments, and its reader over a consumer that brings what a test gives it."""

import importlib
import importlib.util
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.connectors.kafka import connection
from tidegate.connectors.kafka import source as module
from tidegate.connectors.kafka.buffers import PartitionBuffer
from tidegate.connectors.kafka.client import Chunk, TopicPartition
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.connectors.kafka.source import KafkaSource, KafkaSourceReader
from tidegate.errors import InvalidError
from tidegate.formats import String
from tidegate.operators.contracts import Fetched
from tidegate.operators.partitioned import PartitionedSource

BOOTSTRAP = "127.0.0.1:9092"
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


# ---- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "topics or a pattern"),
        ({"topics": "t", "pattern": "t"}, "topics or a pattern"),
        ({"topics": []}, "names no topic"),
        ({"topics": ["a", ""]}, "names no topic"),
        ({"pattern": "("}, "no regular expression"),
        ({"topics": "t", "include": ["keys"]}, "include='keys'"),
        ({"topics": "t", "key": String()}, "the key is not asked for"),
        ({"topics": "t", "start": "now"}, "start='now'"),
        ({"topics": "t", "start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"topics": ["t", "u"], "start": {0: 1}}, "by number alone"),
        ({"pattern": "t", "bounded": {0: 1}}, "by number alone"),
        ({"topics": "t", "start": {"t-0": 1}}, "no partition"),
        ({"topics": "t", "start": {0: -1}}, "no offset"),
        ({"topics": "t", "bounded": {0: "1"}}, "no offset"),
        ({"topics": "t", "bounded": "earliest"}, "bounded='earliest'"),
        ({"topics": "t", "isolation": "committed"}, "isolation='committed'"),
        ({"topics": "t", "discovery_interval": 0}, "discovery_interval=0"),
        ({"topics": "t", "group": ""}, "group=''"),
        ({"topics": "t", "on_lost_offsets": "latest"}, "on_lost_offsets='latest'"),
        ({"topics": "t", "settings": {"group.id": "g"}}, "group= instead"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_where_they_are_written(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidError) as refused:
        KafkaSource(BOOTSTRAP, **arguments)
    assert says in str(refused.value)


@pytest.mark.parametrize("bounded", [True, "latest", {}, {"t/0": 5}, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_bounded_source_looks_once(bounded: Any) -> None:
    source = KafkaSource(BOOTSTRAP, "t", bounded=bounded)
    assert (source.bounded, source.discovery_interval) == (True, None)


def test_an_unbounded_source_looks_again() -> None:
    source = KafkaSource(BOOTSTRAP, "t", discovery_interval=3)
    assert (source.bounded, source.discovery_interval, source.deserializer) == (False, 3, None)


def test_its_splits_are_partitions_of_a_topic() -> None:
    source = KafkaSource("here:9092", ["orders", "returns"])
    assert isinstance(source, PartitionedSource)
    assert source.partition_of("returns/12") == ("returns", 12)


def test_the_inspection_has_what_is_needed_and_no_secret() -> None:
    settings = {"sasl.username": "u", "sasl.password": "very secret"}
    spec = KafkaSource(BOOTSTRAP, "t", settings=settings, isolation="read_uncommitted").inspection_spec
    assert isinstance(spec, RecoverySpec)
    assert spec.arguments["isolation"] == "read_uncommitted"
    assert "very secret" not in str(spec)


@pytest.mark.parametrize(
    ("module_name", "package"), [("confluent_kafka", "confluent-kafka"), ("kafka", "kafka-python")]
)
def test_a_client_library_that_is_missing_is_named(
    module_name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module_name else find(name))
    monkeypatch.delitem(sys.modules, "tidegate.kafka", raising=False)
    with pytest.raises(InvalidError, match=f"needs {package}, ") as refused:
        importlib.import_module("tidegate.kafka")
    assert refused.value.failure.remedy == "pip install 'tidegate[kafka]'"


@pytest.mark.parametrize("package", ["aiokafka", "cramjam"])
def test_what_only_one_client_needs_is_wanted_by_that_one_alone(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(connection, "find_spec", lambda name: None if name == package else find(name))
    for make in (KafkaSource, KafkaSink):
        make(BOOTSTRAP, "t", client="librdkafka")
        with pytest.raises(InvalidError, match=f"'batches' needs {package}, which is not installed") as refused:
            make(BOOTSTRAP, "t")
        assert refused.value.failure.remedy == "pip install 'tidegate[kafka]', or use client='librdkafka'."


# ---- the reader ----------------------------------------------------------------------------------------------------


class ScriptedConsumer:
    """Brings the chunks that it was given, in order, and respects how many are asked for."""

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = deque(chunks)
        self.asked: list[int] = []
        self.reading: dict[TopicPartition, int] = {}
        self.committed: list[Mapping[TopicPartition, int]] = []

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self.reading.update(positions)

    def remove(self, partition: TopicPartition) -> None:
        del self.reading[partition]

    def fetch(self, max_records: int) -> list[Chunk]:
        self.asked.append(max_records)
        brought: list[Chunk] = []
        while self.chunks and sum(len(one.values) for one in brought) + len(self.chunks[0].values) <= max_records:
            brought.append(self.chunks.popleft())
        return brought

    def commit_group_offsets(self, positions: Mapping[TopicPartition, int]) -> None:
        self.committed.append(positions)

    def close(self) -> None:
        self.reading.clear()


class Trusting:
    """In place of the check of topic ids: every split may be read at once."""

    def __init__(self) -> None:
        self.splits: list[SplitState] = []

    def add(self, splits: Sequence[SplitState]) -> None:
        self.splits += splits

    def verified(self) -> list[SplitState]:
        splits, self.splits = self.splits, []
        return splits

    def remove(self, split: str) -> None:
        self.splits = [one for one in self.splits if one.id != split]


def chunk(partition: TopicPartition, first: int, count: int, size: int = 10) -> Chunk:
    offsets = list(range(first, first + count))
    return Chunk(partition, [b"%d" % offset + b"." * size for offset in offsets], first + count, offsets=offsets)


def reader(consumer: ScriptedConsumer, *splits: SplitState) -> KafkaSourceReader:
    made = KafkaSourceReader(consumer, Trusting())  # type: ignore[arg-type]
    made.add_splits(splits)
    return made


def polled(one: KafkaSourceReader, max_records: int) -> list[Fetched]:
    found: list[Fetched] = []
    while (fetched := one.poll(max_records)) is not None:
        found.append(fetched)
    return found


def test_partitions_take_turns_whatever_order_they_were_fetched_in() -> None:
    one = reader(ScriptedConsumer(chunk(A, 0, 300), chunk(B, 0, 300)), SplitState("t/0", 0), SplitState("t/1", 0))
    fetched = polled(one, 100)
    assert [(part.split, part.next_position) for part in fetched] == [
        ("t/0", 100), ("t/1", 100), ("t/0", 200), ("t/1", 200), ("t/0", 300), ("t/1", 300),
    ]  # fmt: skip


def test_what_is_fetched_ahead_is_bounded_in_records() -> None:
    consumer = ScriptedConsumer(*(chunk(A, number * 500, 500, size=1) for number in range(100)))
    one = reader(consumer, SplitState("t/0", 0))
    for expected in range(1, 200):
        assert one.poll(10) is not None
        fetched_ahead = 500 * (100 - len(consumer.chunks)) - 10 * expected
        assert fetched_ahead <= module.BUFFERED_RECORDS


def test_what_is_fetched_ahead_is_bounded_in_bytes() -> None:
    size = 1_000_000
    consumer = ScriptedConsumer(*(chunk(A, number, 1, size) for number in range(100)))
    one = reader(consumer, SplitState("t/0", 0))
    assert one.poll(1) is not None
    # Now it knows how large they are.
    consumer.chunks.extend(chunk(A, 10_000 + number, 1, size) for number in range(100))
    for _ in range(150):
        before = len(consumer.chunks)
        assert one.poll(1) is not None
        assert before - len(consumer.chunks) <= module.BUFFERED_BYTES // size + 1
    assert len(consumer.chunks) > 100 - 50 - module.BUFFERED_BYTES // size - 2


def test_S02_records_at_and_behind_the_stop_are_left_out_and_the_partition_is_let_go() -> None:
    consumer = ScriptedConsumer(chunk(A, 0, 4), chunk(A, 6, 4), chunk(A, 10, 3))
    one = reader(consumer, SplitState("t/0", 0, stop=8))
    (fetched,) = polled(one, 100)
    assert [value[:1] for value in fetched.values] == [b"0", b"1", b"2", b"3", b"6", b"7"]
    assert (fetched.next_position, fetched.finished) == (8, True)
    assert consumer.reading == {}


def test_S14_a_split_at_its_stop_is_finished_once_and_never_fetched() -> None:
    consumer = ScriptedConsumer()
    one = reader(consumer, SplitState("t/0", 7, stop=7), SplitState("t/1", 9, stop=3))
    assert [(part.split, part.next_position, part.finished) for part in polled(one, 5)] == [
        ("t/0", 7, True), ("t/1", 9, True),
    ]  # fmt: skip
    assert consumer.asked == []


def split_of(*found: Fetched) -> list[tuple[str, int]]:
    return [(one.split, one.next_position) for one in found]


def test_what_was_fetched_of_a_paused_partition_is_let_go_and_fetched_anew_from_behind_what_was_handed_out() -> None:
    consumer = ScriptedConsumer(chunk(A, 0, 30), chunk(B, 0, 10))
    one = reader(consumer, SplitState("t/0", 0), SplitState("t/1", 0))
    first = one.poll(10)
    assert first is not None
    assert split_of(first) == [("t/0", 10)]
    one.pause_or_resume_splits(["t/0"], [])
    assert consumer.reading == {B: 0}
    consumer.chunks.append(chunk(A, 30, 5))
    assert split_of(*polled(one, 100)) == [("t/1", 10)]
    one.pause_or_resume_splits([], ["t/0"])
    assert consumer.reading == {A: 10, B: 0}
    consumer.chunks.append(chunk(A, 10, 20))
    assert split_of(*polled(one, 100)) == [("t/0", 30)]


def test_what_was_fetched_of_paused_partitions_keeps_no_room_from_others() -> None:
    consumer = ScriptedConsumer(chunk(A, 0, module.BUFFERED_RECORDS, size=1))
    one = reader(consumer, SplitState("t/0", 0), SplitState("t/1", 0))
    assert one.poll(1) is not None
    one.pause_or_resume_splits(["t/0"], [])
    consumer.chunks.append(chunk(B, 0, module.BUFFERED_RECORDS, size=1))
    assert split_of(*polled(one, 100_000)) == [("t/1", module.BUFFERED_RECORDS)]


def test_S23_a_partition_whose_end_is_fetched_and_not_handed_out_may_be_paused() -> None:
    consumer = ScriptedConsumer(chunk(A, 0, 8))
    one = reader(consumer, SplitState("t/0", 0, stop=8), SplitState("t/1", 5, stop=5), SplitState("t/2", 3))
    assert split_of(one.poll(2) or Fetched("", [], 0)) == [("t/1", 5)]
    assert split_of(one.poll(2) or Fetched("", [], 0)) == [("t/0", 2)]
    assert consumer.reading == {TopicPartition("t", 2): 3}
    one.pause_or_resume_splits(["t/0", "t/1"], [])
    assert polled(one, 100) == []
    one.pause_or_resume_splits([], ["t/0", "t/1"])
    assert consumer.reading == {TopicPartition("t", 2): 3, A: 2}
    consumer.chunks.append(chunk(A, 2, 8))
    (fetched,) = polled(one, 100)
    assert (fetched.split, fetched.next_position, fetched.finished) == ("t/0", 8, True)
    assert consumer.reading == {TopicPartition("t", 2): 3}


def test_S23_a_partition_may_be_paused_before_its_topic_is_verified() -> None:
    consumer = ScriptedConsumer()
    one = reader(consumer, SplitState("t/0", 7), SplitState("t/1", 9, stop=9))
    one.pause_or_resume_splits(["t/0", "t/1"], [])
    assert polled(one, 100) == []
    assert consumer.reading == {}
    one.pause_or_resume_splits([], ["t/0"])
    assert consumer.reading == {A: 7}
    one.pause_or_resume_splits(["t/0"], ["t/1"])
    assert consumer.reading == {}
    assert [fetched.finished for fetched in polled(one, 100)] == [True]


def test_S04_a_position_moves_without_a_record_and_only_then() -> None:
    one = reader(ScriptedConsumer(Chunk(A, [], 5, offsets=[]), Chunk(A, [], 5, offsets=[])), SplitState("t/0", 3))
    (fetched,) = polled(one, 5)
    assert (fetched.values, fetched.next_position) == ([], 5)


def test_S01_only_own_splits_with_a_position_are_committed() -> None:
    consumer = ScriptedConsumer()
    one = reader(consumer, SplitState("t/0", 0), SplitState("t/1", 0))
    one.notify_checkpoint_complete([SplitState("t/0", 4), SplitState("t/1", -1), SplitState("u/0", 2)])
    one.notify_checkpoint_complete([SplitState("u/0", 2)])
    assert consumer.committed == [{A: 4}]
    silent = KafkaSourceReader(consumer, Trusting(), commits=False)  # type: ignore[arg-type]
    silent.add_splits([SplitState("t/0", 0)])
    silent.notify_checkpoint_complete([SplitState("t/0", 4)])
    assert consumer.committed == [{A: 4}]


gaps = st.lists(st.integers(1, 4), max_size=30)


@given(
    gaps,
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.lists(st.integers(1, 5), min_size=1),
    st.integers(0, 80),
)
def test_any_chunks_and_any_batches_give_every_record_before_the_stop_once(
    steps: list[int], lengths: list[int], batches: list[int], stop: int
) -> None:
    """Offsets have gaps, chunks any length, batches any size; each position leads to exactly what follows it."""
    offsets = [sum(steps[: number + 1]) for number in range(len(steps))]
    buffer = PartitionBuffer(SplitState("t/0", 0, stop=stop))
    taken: list[int] = []
    rest, turn = offsets, 0
    chunks: list[Chunk] = []
    while rest:
        part, rest = rest[: lengths[turn % len(lengths)]], rest[lengths[turn % len(lengths)] :]
        chunks.append(Chunk(A, list(map(_text, part)), part[-1] + 1, offsets=part, timestamps=part))
        turn += 1
    chunks.append(Chunk(A, [], 200, offsets=[], timestamps=[]))
    finished = 0
    for number, one in enumerate(chunks):
        if not buffer.is_complete:
            buffer.put(one, one.values)
        while buffer.has_more and (number % 2 or one is chunks[-1] or buffer.is_complete):
            fetched = buffer.take(batches[len(taken) % len(batches)])
            assert fetched.timestamps is None or [_text(time) for time in fetched.timestamps] == fetched.values
            taken += map(int, fetched.values)
            finished += fetched.finished
            following = [offset for offset in offsets if fetched.next_position <= offset < stop]
            assert taken + following == [offset for offset in offsets if offset < stop]
    assert finished == 1


def _text(offset: int) -> bytes:
    return b"%d" % offset
