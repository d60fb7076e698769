"""Records reach librdkafka in order and none is forgotten: when its queue is full, when one is refused, when one fails.

The librdkafka is real; no broker is there, so that queues fill and records time out.
"""

import ast
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.connectors.kafka import producer as module
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.parcels import parcels
from tidegate.connectors.kafka.producer import KafkaProducer, KafkaProducerFactory, Reports, by_error
from tidegate.errors import ErrorKind, InternalError, InvalidError, SinkFencedError, TidegateError, UnavailableError


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which connections are taken and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def opened(bootstrap: str, **settings: Any) -> KafkaProducer:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaProducerFactory(Connection(bootstrap, names)).open_plain()


class QueueClient:
    """Takes as many records as there is room, as librdkafka's queue does, and keeps them."""

    def __init__(self, room: int, refused: Sequence[bytes] = ()) -> None:
        self.room = room
        self.refused = refused
        self.taken: list[tuple[str, int, Any]] = []
        self.raises: BaseException | None = None

    def __len__(self) -> int:
        return 0

    def poll(self, timeout: float) -> int:
        if self.raises is not None:
            raise self.raises
        return 0

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> int:
        taken = 0
        for message in messages:
            assert "_error" not in message
            if message["value"] in self.refused:
                message["_error"] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
            elif not self.room:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            else:
                self._take(topic, partition, message["value"])
                taken += 1
        return taken

    def produce(self, topic: str, value: Any, key: Any, partition: int, *others: Any) -> None:
        if value in self.refused:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if not self.room:
            raise BufferError("full")
        self._take(topic, partition, value)

    def _take(self, topic: str, partition: int, value: Any) -> None:
        self.room -= 1
        self.taken.append((topic, partition, value))

    @property
    def values(self) -> list[Any]:
        return [value for _, _, value in self.taken]


def producing(client: QueueClient, on_failure: Any = None) -> KafkaProducer:
    return KafkaProducer(client, Reports(), "a transaction", 1.0, on_failure=on_failure)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


# ---- a full queue --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamps", [False, True])
def test_what_a_full_queue_does_not_take_is_kept_in_order(timestamps: bool) -> None:
    client = QueueClient(room=3)
    producer = producing(client)
    for start in (0, 10):
        producer.send("totals", numbered(start, start + 10), timestamps=[5] * 10 if timestamps else None)
    assert client.values == numbered(0, 3)
    while not producer.has_room:
        client.room = 4
    assert client.values == numbered(0, 20)
    assert producer.sent == 20


def test_flush_brings_the_rest_into_the_queue() -> None:
    client = QueueClient(room=3)
    producer = producing(client)
    producer.send("totals", numbered(0, 10))
    client.room = 100
    producer.flush()
    assert client.values == numbered(0, 10)


def test_there_is_no_room_while_records_wait() -> None:
    client = QueueClient(room=10)
    producer = producing(client)
    producer.send("totals", numbered(0, 10))
    assert producer.has_room
    producer.send("totals", numbered(10, 11))
    assert not producer.has_room


def test_records_taken_behind_one_that_found_no_place_fail_the_producer() -> None:
    class Reordering(QueueClient):
        def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> int:
            messages[0]["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            return len(messages) - 1

    with pytest.raises(InternalError, match="order"):
        producing(Reordering(room=9)).send("totals", numbered(0, 3))


def test_explicit_partitions_go_in_one_call_each_and_keep_their_order() -> None:
    client = QueueClient(room=100)
    producing(client).send("totals", numbered(0, 6), partitions=[1, 0, 1, 0, 2, 1])
    assert [part for _, part, _ in client.taken] == [1, 1, 1, 0, 0, 2]
    assert client.values == [b"0", b"2", b"5", b"1", b"3", b"4"]


def test_columns_of_another_length_are_refused() -> None:
    for columns in ({"keys": [b"a"]}, {"partitions": [1]}, {"timestamps": [1]}, {"headers": [None]}):
        everything: dict[str, Any] = {"keys": None, "partitions": None, "timestamps": None, "headers": None, **columns}
        with pytest.raises(ValueError, match="argument"):
            parcels("totals", numbered(0, 2), **everything)


def test_a_full_queue_of_librdkafka_never_blocks_and_loses_nothing(nobody: str) -> None:
    producer = opened(nobody, queue_buffering_max_messages=100)
    began = time.monotonic()
    producer.send("totals", numbered(0, 150))
    assert not producer.has_room
    assert producer.sent == 150
    assert time.monotonic() - began < 1.0
    assert len(producer._client) == 100
    assert len(producer._waiting) == 1
    producer.drop()


# ---- records that are refused or fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [False, True])
def test_T21_a_record_too_large_for_the_client_names_its_size_and_topic_and_is_never_forgotten(
    nobody: str, headers: bool
) -> None:
    producer = opened(nobody)
    values = [b"small", b"x" * 2_000_000, b"small"]
    with pytest.raises(InvalidError, match=r"2,000,000 bytes.*totals"):
        producer.send("totals", values, headers=[None] * 3 if headers else None)
    assert producer.has_room
    for again in (producer.flush, lambda: producer.send("totals", [b"small"])):
        with pytest.raises(InvalidError, match="2,000,000 bytes"):
            again()


def test_T21_records_that_nobody_took_in_time_fail_the_flush_and_all_that_follows(nobody: str) -> None:
    producer = opened(nobody, message_timeout_ms=300)
    producer.send("totals", [b"a", b"b"])
    with pytest.raises(UnavailableError, match=r"topic totals.*timed out"):
        producer.flush()
    assert producer.has_room
    with pytest.raises(UnavailableError):
        producer.send("totals", [b"c"])
    with pytest.raises(UnavailableError):
        producer.flush()


def test_T21_an_error_that_polling_finds_is_seen_by_the_next_send(nobody: str) -> None:
    producer = opened(nobody, message_timeout_ms=300)
    producer.send("totals", [b"a"])
    deadline = time.monotonic() + 10
    while producer._failure is None and time.monotonic() < deadline:
        assert producer.has_room
        time.sleep(0.02)
    with pytest.raises(UnavailableError):
        producer.send("totals", [b"b"])


def test_a_flush_that_takes_too_long_ends_as_unavailable(nobody: str) -> None:
    producer = opened(nobody)
    producer._patience = 0.2
    producer.send("totals", [b"a"])
    with pytest.raises(UnavailableError, match=r"within 0\.2 s"):
        producer.flush()


def test_values_that_are_no_bytes_fail_the_producer(nobody: str) -> None:
    producer = opened(nobody)
    wrong: Any = [5]
    with pytest.raises(InvalidError):
        producer.send("totals", wrong)
    with pytest.raises(InvalidError):
        producer.flush()


def test_a_fatal_error_wins_over_what_it_does_to_records() -> None:
    client = QueueClient(room=9)
    producer = producing(client)
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    client.raises = SystemError("returned a result with an exception set")
    client.raises.__cause__ = fenced
    producer._reports.delivered(KafkaError(KafkaError._PURGE_QUEUE), FailedMessage("totals", b"a"))
    assert producer.has_room
    with pytest.raises(SinkFencedError):
        producer.send("totals", [b"a"])


def test_a_broken_binding_is_not_hidden() -> None:
    client = QueueClient(room=9)
    client.raises = SystemError("something else")
    producer = producing(client)
    assert producer.has_room
    with pytest.raises(InternalError, match="something else"):
        producer.flush()


class FailedMessage:
    def __init__(self, topic: str, value: bytes | None) -> None:
        self.topic = lambda: topic
        self.value = lambda: value


def test_failures_are_told_by_kind_with_the_largest_record() -> None:
    large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    failed = [(large, FailedMessage("totals", value)) for value in (b"a", b"x" * 500, None)]
    found = by_error([*failed, (KafkaError(KafkaError._MSG_TIMED_OUT), FailedMessage("totals", b"abc"))])
    assert [(one.size, one.records) for one in found] == [(500, 3), (3, 1)]


def test_without_guarantee_refused_records_are_counted_and_the_others_written() -> None:
    for timestamps in (None, [5] * 6):
        told: list[tuple[TidegateError, int]] = []
        client = QueueClient(room=2, refused=[b"1", b"3"])
        producer = producing(client, lambda error, records, told=told: told.append((error, records)))
        producer.send("totals", numbered(0, 6), timestamps=timestamps)
        client.room = 9
        producer.flush()
        assert client.values == [b"0", b"2", b"4", b"5"]
        assert sum(records for _, records in told) == 2
        assert {error.kind for error, _ in told} == {ErrorKind.INVALID}


def test_without_guarantee_records_that_fail_later_are_counted(nobody: str) -> None:
    told: list[int] = []
    settings = {"message.timeout.ms": 300}
    factory = KafkaProducerFactory(Connection(nobody, settings))
    producer = factory.open_plain(lambda error, records: told.append(records))
    producer.send("totals", [b"a", b"b"])
    producer.flush()
    producer.send("totals", [b"c"])
    assert sum(told) == 2
    assert producer.sent == 3


# ---- opening and letting go ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["producer.py", "parcels.py"])
def test_T02_what_ends_a_transaction_is_not_even_called(name: str) -> None:
    tree = ast.parse(Path(module.__file__).with_name(name).read_text())
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & {"abort_transaction", "commit_transaction", "send_offsets_to_transaction", "close", "purge"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.With)]


def producer_threads() -> int:
    return sum(path.read_text().startswith("rdk:") for path in Path("/proc/self/task").glob("*/comm"))


def test_a_dropped_producer_is_gone_with_its_threads_and_says_so(nobody: str) -> None:
    before = producer_threads()
    producer = opened(nobody)
    producer.send("totals", numbered(0, 1000))
    assert producer_threads() > before
    began = time.monotonic()
    producer.drop()
    assert time.monotonic() - began < 2.0
    assert producer_threads() == before
    for used in (lambda: producer.send("totals", [b"a"]), producer.flush, lambda: producer.has_room):
        with pytest.raises(InternalError, match="dropped"):
            used()


def test_a_transaction_that_cannot_be_opened_leaves_no_thread(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_PATIENCE", 0.3)
    monkeypatch.setattr(module, "CONNECT_PATIENCE", 0.3)
    before = producer_threads()
    with pytest.raises(UnavailableError, match="app:log:1:out:0:0"):
        KafkaProducerFactory(Connection(nobody)).open_transaction("app:log:1:out:0:0", 5.0)
    assert producer_threads() == before


class Captured(Exception):
    pass


def config_of(monkeypatch: pytest.MonkeyPatch, timeout: float, **settings: Any) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def capture(config: dict[str, Any]) -> None:
        found.append(config)
        raise Captured

    monkeypatch.setattr(module, "Client", capture)
    names = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(Captured):
        KafkaProducerFactory(Connection("localhost:9092", names)).open_transaction("id", timeout)
    return found[0]


def test_no_record_is_tried_for_longer_than_its_transaction_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, 900.0)
    assert (config["transaction.timeout.ms"], config["message.timeout.ms"]) == (900_000, 300_000)
    short = config_of(monkeypatch, 20.0)
    assert (short["message.timeout.ms"], short["socket.timeout.ms"]) == (20_000, 20_000)
    assert config_of(monkeypatch, 20.0, message_timeout_ms=0)["message.timeout.ms"] == 20_000
    assert config_of(monkeypatch, 20.0, delivery_timeout_ms=7000)["message.timeout.ms"] == 7000
    assert "delivery.timeout.ms" not in config_of(monkeypatch, 20.0, delivery_timeout_ms=7000)


def test_the_users_settings_win_over_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = config_of(monkeypatch, 60.0)
    assert (usual["partitioner"], usual["enable.idempotence"]) == ("murmur2_random", True)
    assert usual["queue.buffering.max.kbytes"] == 65_536
    config = config_of(monkeypatch, 60.0, linger_ms=0, compression_type="lz4")
    assert (config["linger.ms"], config["compression.type"]) == ("0", "lz4")
