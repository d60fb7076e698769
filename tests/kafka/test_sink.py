"""What the Kafka sink writes is what was given to it: partitions, keys, headers, timestamps and order."""

import gc
import time
from collections import defaultdict

import pytest

from tests.kafka.brokers import Broker, unique
from tests.kafka.conftest import OwnKafka
from tests.kafka.sinks import SinkGround, client_threads, committed, resident_megabytes, sockets, until
from tidegate.checkpoint.protocol import AlreadyCommitted, Committed
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.formats import Bytes

pytestmark = pytest.mark.usefixtures("each_client_of_faults")

MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From the tests of Java's client."""


def test_keys_land_in_the_partitions_where_javas_client_puts_them(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=7)
    writer = ground.writer(value=Bytes(), key=lambda value: value)
    ground.write_and_commit(writer, Batch(list(MURMUR2)))
    found = {record.key: record.partition for record in kafka.read(ground.topic)}
    assert found == {key: (number & 0x7FFFFFFF) % 7 for key, number in MURMUR2.items()}


def test_records_without_a_key_are_spread(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=3)
    writer = ground.writer(settings={"sticky.partitioning.linger.ms": 0})
    ground.write_and_commit(writer, Batch([str(number) for number in range(300)]))
    partitions = [record.partition for record in kafka.read(ground.topic)]
    assert {partitions.count(partition) > 30 for partition in range(3)} == {True}


def test_explicit_partitions_are_obeyed_and_their_order_kept(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=3)
    counts = set()

    def partition(text: str, count: int) -> int:
        counts.add(count)
        return int(text) % count

    writer = ground.writer(partition=partition, key=lambda text: "same")
    numbers = [str(number) for number in range(1000)]
    ground.write_and_commit(writer, *(Batch(numbers[start : start + 70]) for start in range(0, 1000, 70)))
    found = defaultdict(list)
    for record in kafka.read(ground.topic):
        assert record.value is not None
        found[record.partition].append(int(record.value))
    assert dict(found) == {part: list(range(part, 1000, 3)) for part in range(3)}
    assert counts == {3}


def test_partitions_that_a_topic_gets_are_used_from_the_next_transaction_on(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=1)
    writer = ground.writer(partition=lambda text, count: count - 1)
    ground.write_and_commit(writer, Batch(["a"]))
    kafka.add_partitions(ground.topic, 2)
    ground.write_and_commit(writer, Batch(["b"]), slot=1)
    assert [(record.partition, record.value) for record in kafka.read(ground.topic)] == [(0, b"a"), (1, b"b")]


def test_headers_timestamps_and_tombstones_are_written_as_given(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer(
        key=lambda text: "deleted" if text is None else text,
        headers=lambda text: [("a", b"1"), ("a", None), ("b", b"")] if text == "full" else [],
        timestamp=lambda text: 1_700_000_000_000 if text == "full" else 1_600_000_000_000,
    )
    ground.write_and_commit(writer, Batch(["full", None, "plain"]))
    full, deleted, plain = kafka.read(ground.topic)
    assert (full.key, full.value, full.timestamp) == (b"full", b"full", 1_700_000_000_000)
    assert full.headers == [("a", b"1"), ("a", None), ("b", b"")]
    assert (deleted.key, deleted.value, deleted.headers) == (b"deleted", None, [])
    assert (plain.timestamp, plain.headers) == (1_600_000_000_000, [])


def test_the_records_own_timestamps_are_kept_and_a_missing_one_is_now(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    before = time.time() * 1000 - 1000
    ground.write_and_commit(ground.writer(), Batch(["a", "b"], timestamps=[1_700_000_000_000, -1]))
    first, second = kafka.read(ground.topic)
    assert first.timestamp == 1_700_000_000_000
    assert before < second.timestamp < time.time() * 1000 + 1000


def test_each_record_can_have_its_own_topic_in_one_transaction(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    topics = [kafka.create_topic(unique("even")), kafka.create_topic(unique("odd"))]
    writer = ground.writer(topic=lambda text: topics[int(text) % 2], partition=lambda text, count: 0)
    ground.write_and_commit(writer, Batch([str(number) for number in range(10)]), Batch(["11"]))
    assert kafka.values(topics[0]) == [b"0", b"2", b"4", b"6", b"8"]
    assert kafka.values(topics[1]) == [b"1", b"3", b"5", b"7", b"9", b"11"]
    ground.write_and_commit(writer, Batch(["12"]), slot=1)
    assert kafka.values(topics[0])[-1:] == [b"12"]


def test_large_records_go_through_and_larger_ones_with_the_settings_for_them(kafka: Broker) -> None:
    ground = SinkGround(kafka, max_message_bytes="6000000")
    texts = [letter * 900_000 for letter in "abcdefgh"]
    ground.write_and_commit(ground.writer(), Batch(texts))
    larger = "x" * 5_000_000
    ground.write_and_commit(ground.writer(settings={"message.max.bytes": 6_000_000}), Batch([larger]), slot=1)
    assert [len(text or "") for text in ground.texts()] == [900_000] * 8 + [5_000_000]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip", "snappy"])
def test_compression_is_the_users_choice_and_changes_nothing(kafka: Broker, compression: str) -> None:
    ground = SinkGround(kafka)
    texts = [f"text {number}" for number in range(5000)]
    ground.write_and_commit(ground.writer(settings={"compression.type": compression}), Batch(texts))
    assert ground.texts() == texts


def test_a_topic_that_does_not_exist_is_named_before_anything_is_written(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    missing = unique("missing")
    before = client_threads()
    with pytest.raises(InvalidError, match=missing):
        ground.writer(topic=missing).begin(ground.id())
    assert client_threads() == before


def test_T13_subtasks_without_records_have_nothing_to_commit_and_begin_their_id_anew(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writers = [ground.writer() for _ in range(3)]
    for number in range(10):
        for subtask, writer in enumerate(writers):
            txn = writer.begin(ground.id(subtask=subtask))
            if subtask == 1:
                writer.write(txn, Batch([str(number)]))
            committable = writer.prepare(txn)
            assert (committable is not None) == (subtask == 1)
            if committable is not None:
                assert committed(writer, committable) == Committed()
    assert until(ground.texts, lambda texts: len(texts) == 10) == [str(number) for number in range(10)]


def test_T30_an_id_is_begun_again_right_after_its_commit_was_answered(kafka: Broker) -> None:
    ground = SinkGround(kafka, partitions=5)
    writer = ground.writer(partition=lambda text, count: int(text) % count)
    for number in range(10):
        committable = ground.prepared(writer, 0, *(str(5 * number + part) for part in range(5)))
        assert committed(writer, committable) == Committed()
    found = until(ground.texts, lambda texts: len(texts) == 50)
    assert sorted(map(int, found)) == list(range(50))


def test_opening_a_transaction_never_waits_for_librdkafkas_second_try(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    writer.abandon(writer.begin(ground.id()))
    seconds = []
    for _ in range(20):
        began = time.monotonic()
        txn = writer.begin(ground.id())
        seconds.append(time.monotonic() - began)
        writer.abandon(txn)
    assert sorted(seconds)[15] < 0.4, "the second try comes after half a second"


# ---- a broker that does not answer --------------------------------------------------------------------------------


def test_a_paused_broker_takes_the_room_away_blocks_nobody_and_loses_nothing(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    ground = SinkGround(broker)
    writer = ground.writer(settings={"queue.buffering.max.messages": 5000})
    txn = writer.begin(ground.id())
    writer.write(txn, Batch(["first"]))
    txn.producer.flush()
    broker.kafka.pause()
    written, longest = 0, 0.0
    while writer.has_room(txn):
        began = time.monotonic()
        writer.write(txn, Batch([str(number) for number in range(written, written + 1000)]))
        longest = max(longest, time.monotonic() - began)
        written += 1000
        assert written < 50_000
    assert written > 5000 - 1000
    assert longest < 0.5
    assert not writer.has_room(txn)
    broker.kafka.resume()
    until(lambda: writer.has_room(txn), bool)
    committable = writer.prepare(txn)
    assert committable is not None
    assert committed(writer, committable) == Committed()
    expected = ["first", *(str(number) for number in range(written))]
    assert until(ground.texts, lambda texts: len(texts) == len(expected)) == expected


def test_abandoning_with_a_full_queue_and_a_paused_broker_takes_no_time(own_kafka: OwnKafka) -> None:
    broker = own_kafka()
    ground = SinkGround(broker)
    before = client_threads()
    writer = ground.writer()
    txn = writer.begin(ground.id())
    broker.kafka.pause()
    for _ in range(20):
        writer.write(txn, Batch(["x" * 100] * 5000))
    began = time.monotonic()
    writer.abandon(txn)
    writer.close()
    assert time.monotonic() - began < 2.0
    assert client_threads() == before


# ---- letting go ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_transactions_leave_no_thread_no_socket_and_no_memory_behind(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    cycles = 100

    def cycle(number: int) -> None:
        ground.write_and_commit(writer, Batch([f"{number}-{part}" for part in range(100)]), slot=number % 4)

    for number in range(20):
        cycle(number)
    gc.collect()
    gc.disable()
    try:
        before = (client_threads(), sockets(), resident_megabytes())
        for number in range(20, 20 + cycles):
            cycle(number)
            assert client_threads() == before[0], "a producer outlived its transaction"
        after = (client_threads(), sockets(), resident_megabytes())
    finally:
        gc.enable()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 10, f"{before[2]:.0f} MB became {after[2]:.0f} MB"


# ---- without transactions -----------------------------------------------------------------------------------------


def test_at_least_once_shows_its_records_after_the_barrier_and_commits_nothing(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    before = client_threads()
    writer = ground.writer(delivery="at-least-once", timeout=None)
    for number in range(3):
        handle = writer.begin(ground.id(number))
        writer.write(handle, Batch([f"{number}-{part}" for part in range(1000)]))
        assert writer.prepare(handle) is None
    assert ground.texts() == [f"{number}-{part}" for number in range(3) for part in range(1000)]
    writer.close()
    assert client_threads() == before


def test_at_least_once_fails_the_barrier_for_a_record_that_the_broker_refused(kafka: Broker) -> None:
    ground = SinkGround(kafka, max_message_bytes="1000")
    writer = ground.writer(delivery="at-least-once", timeout=None)
    handle = writer.begin(ground.id())
    writer.write(handle, Batch(["x" * 5000]))
    with pytest.raises(InvalidError, match=r"5,000 bytes"):
        writer.prepare(handle)
    writer.close()


def test_without_guarantee_the_good_records_arrive_and_the_others_are_counted(kafka: Broker) -> None:
    ground = SinkGround(kafka, max_message_bytes="1000")
    writer = ground.writer(delivery="none", timeout=None, settings={"linger.ms": 0, "batch.num.messages": 1})
    for number in range(3):
        handle = writer.begin(ground.id(number))
        writer.write(handle, Batch([f"{number}", "x" * 5000]))
        assert writer.prepare(handle) is None
    writer.close()
    assert ground.texts() == ["0", "1", "2"]
    assert writer.lost_records == 3  # type: ignore[attr-defined]


def test_an_earlier_exactly_once_run_is_finished_by_a_sink_without_transactions(kafka: Broker) -> None:
    ground = SinkGround(kafka)
    writer = ground.writer()
    committable = ground.prepared(writer, 0, "prepared")
    ground.written(writer, 1, "left open")
    recovery = ground.recovery(delivery="at-least-once", timeout=None)
    assert committed(recovery, committable) == Committed()
    assert committed(recovery, committable) == AlreadyCommitted()
    (left,) = until(lambda: recovery.open_transactions(ground.prefix, ground.id().sink), lambda ids: len(ids) == 1)
    recovery.abort(left)
    assert until(ground.texts, bool) == ["prepared"]
