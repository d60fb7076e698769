"""Whatever a broker answers, the administration of transactions says what it means or raises one of our errors: never
what a library raises, never more than the answer's length in memory, and never a wait without end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    DescribeConfigsResponse,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import EndTxnResponse, InitProducerIdResponse

from tests.unit.enemy.damage import JUNK, bombs
from tidegate.connectors.kafka import wire
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.outcomes import utc
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.errors import TidegateError, UnavailableError

ID = "app:5f2c:7:write:0:3"
PARTITION = TopicPartition("totals", 0)
HOST, PORT = "broker.example", 9092


def _cluster() -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], version=9
    )
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host=HOST, port=PORT, rack=None, version=9)
    topics = [
        topic(error_code=0, name=name, is_internal=False, partitions=[partition], version=9)
        for name in ("totals", "__transaction_state")
    ]
    return MetadataResponse(
        throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1, version=9, topics=topics
    )


def _transaction() -> DescribeTransactionsResponse:
    kind = DescribeTransactionsResponse.TransactionState
    state = kind(
        error_code=0,
        transactional_id=ID,
        transaction_state="Ongoing",
        transaction_timeout_ms=9000,
        transaction_start_time_ms=1_700_000_000_000,
        producer_id=4000,
        producer_epoch=5,
        topics=[kind.TopicData(topic="totals", partitions=[0], version=0)],
        version=0,
    )
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[state], version=0)


def _open_transactions() -> ListTransactionsResponse:
    kind = ListTransactionsResponse.TransactionState
    state = kind(transactional_id=ID, producer_id=4000, transaction_state="Ongoing", version=0)
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=[], version=0, transaction_states=[state]
    )


def _settings() -> DescribeConfigsResponse:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    setting = kind.DescribeConfigsResourceResult(
        name="transaction.max.timeout.ms",
        value="900000",
        read_only=False,
        config_source=1,
        is_sensitive=False,
        synonyms=[],
        config_type=1,
        documentation=None,
        version=4,
    )
    result = kind(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=[setting], version=4)
    return DescribeConfigsResponse(throttle_time_ms=0, version=4, results=[result])


def _producers() -> DescribeProducersResponse:
    kind = DescribeProducersResponse.TopicResponse
    producer = kind.PartitionResponse.ProducerState(
        producer_id=4000,
        producer_epoch=5,
        last_sequence=16,
        last_timestamp=0,
        coordinator_epoch=3,
        current_txn_start_offset=7,
        version=0,
    )
    row = kind.PartitionResponse(
        partition_index=0, error_code=0, error_message=None, version=0, active_producers=[producer]
    )
    topics = [kind(name="totals", partitions=[row], version=0)]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics, version=0)


def _fetched() -> FetchResponse:
    kind = FetchResponse.FetchableTopicResponse
    batch = kind.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=bytes(80),
        version=11,
    )
    topics = [kind(topic="totals", partitions=[batch], version=11)]
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, version=11, responses=topics)


def _structures() -> dict[int, Any]:
    """A right answer to each request, by its api key."""
    coordinator = FindCoordinatorResponse.Coordinator(
        key=ID, node_id=1, host=HOST, port=PORT, error_code=0, error_message="", version=4
    )
    versions = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=20, version=3) for key in range(70)
    ]
    return {
        1: _fetched(),
        3: _cluster(),
        10: FindCoordinatorResponse(throttle_time_ms=0, coordinators=[coordinator], version=4),
        18: ApiVersionsResponse(error_code=0, api_keys=versions, throttle_time_ms=0, version=3),
        22: InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=4000, producer_epoch=6, version=4),
        26: EndTxnResponse(throttle_time_ms=0, error_code=0, version=3),
        32: _settings(),
        61: _producers(),
        65: _transaction(),
        66: _open_transactions(),
    }


def _encoded(structure: Any) -> bytes:
    structure.with_header(correlation_id=0)
    return bytes(structure.encode(framed=False, header=True))


RIGHT = {key: _encoded(structure) for key, structure in _structures().items()}
QUESTIONS: dict[str, tuple[Callable[[KafkaTransactionAdmin], Any], tuple[int, ...]]] = {
    "describe": (lambda admin: admin.describe(ID), (18, 10, 65)),
    "commit": (lambda admin: admin.commit(ID, 4000, 5), (10, 26)),
    "fence": (lambda admin: admin.fence(ID), (22,)),
    "open ids": (lambda admin: admin.open_ids(), (3, 66)),
    "producers": (lambda admin: admin.producers([PARTITION]), (3, 61)),
    "first sequences": (lambda admin: admin.first_sequences({PARTITION: 7}), (3, 1)),
    "maximum timeout": (lambda admin: admin.maximum_timeout(), (32,)),
}
"""What is asked, and the answers that may be wrong."""


class Broker:
    """A socket with a broker behind it that answers at once. `answers`: by api key, from the correlation id on."""

    def __init__(self, answers: dict[int, bytes], length: int | None = None) -> None:
        self._answers = answers
        self._length = length
        self._unread = b""

    def sendall(self, frame: bytes) -> None:
        answer = self._answers[int.from_bytes(frame[4:6], "big")]
        answer = bytes(frame[8:12]) + answer[4:]
        length = len(answer) if self._length is None else self._length
        self._unread = length.to_bytes(4, "big", signed=True) + answer

    def recv(self, size: int) -> bytes:
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def setsockopt(self, *option: int) -> None: ...

    def settimeout(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def ask(question: str, answers: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, length: int | None = None) -> Any:
    monkeypatch.setattr("socket.create_connection", lambda address, timeout: Broker(answers, length))
    admin = KafkaTransactionAdmin(Connection(f"{HOST}:{PORT}"), patience=0, sleep=lambda seconds: None)
    found = QUESTIONS[question][0](admin)
    if question == "describe" and found is not None and found.started_at is not None:
        # It is told to people.
        assert utc(found.started_at)
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_right_answers_are_understood(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(question, RIGHT, monkeypatch)


@pytest.mark.parametrize("question", QUESTIONS)
def test_wrong_answers_are_errors_of_ours(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=50)
    @given(st.sampled_from(QUESTIONS[question][1]), st.data())
    def whatever_is_answered(key: int, data: st.DataObject) -> None:
        right = RIGHT[key]
        start = data.draw(st.integers(4, len(right)))
        junk = data.draw(st.sampled_from(JUNK) | st.binary(max_size=6))
        end = start + data.draw(st.sampled_from([0, 1, 4, 8, len(junk)]))
        with suppress(TidegateError):
            ask(question, {**RIGHT, key: right[:start] + junk + right[end:]}, monkeypatch)

    whatever_is_answered()


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_that_are_cut_off_are_errors_of_ours(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in QUESTIONS[question][1]:
        for length in range(4, len(RIGHT[key]), 3):
            with suppress(TidegateError):
                ask(question, {**RIGHT, key: RIGHT[key][:length]}, monkeypatch)


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1, wire.RESPONSE_BYTES_MAX + 1, wire.RESPONSE_BYTES_MAX])
def test_a_length_that_cannot_be_is_not_allocated(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match=r"no Kafka broker|closed the connection"):
        ask("describe", RIGHT, monkeypatch, length)


def test_bombs_as_answers_are_errors_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for bomb in bombs(5_000):
        for key in (18, 10, 65):
            with pytest.raises(TidegateError):
                ask("describe", {**RIGHT, key: RIGHT[key][:6] + bomb}, monkeypatch)


@pytest.mark.parametrize("milliseconds", [-(2**63), -2, 2**63 - 1, 253_402_300_800_000])
def test_a_moment_that_no_calendar_has_is_still_told(milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _structures()[65]
    state.transaction_states[0].transaction_start_time_ms = milliseconds
    ask("describe", {**RIGHT, 65: _encoded(state)}, monkeypatch)
