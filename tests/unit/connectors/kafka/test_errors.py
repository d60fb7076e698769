"""What errors of both Kafka libraries become: the kind says what follows, the text names the thing and the remedy."""

import socket
import ssl

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import errors as kafka_python

from tidegate.connectors.kafka.errors import Subject, of_code, of_confluent, of_kafka_python
from tidegate.errors import (
    InternalError,
    InvalidError,
    LostDataError,
    SinkFencedError,
    TidegateError,
    UnavailableError,
)

SUBJECT = Subject(
    topic="totals", id="shop:1:2:totals:0:1", group="shop", operation="WRITE", size=2_000_000, timeout=3600, maximum=900
)

KINDS: list[tuple[type[TidegateError], list[str]]] = [
    (SinkFencedError, ["_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"]),
    (InvalidError, ["UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION"]),
    (InvalidError, ["MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"]),
    (InvalidError, ["_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"]),
    (InvalidError, ["TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"]),
    (InvalidError, ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_TRANSACTION_TIMEOUT", "_INVALID_ARG"]),
    (InvalidError, ["UNSUPPORTED_VERSION", "POLICY_VIOLATION", "UNSUPPORTED_COMPRESSION_TYPE"]),
    (LostDataError, ["OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"]),
    (InternalError, ["INVALID_REQUEST"]),
    (UnavailableError, ["_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE", "_DESTROY"]),
    (UnavailableError, ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"]),
    (UnavailableError, ["CONCURRENT_TRANSACTIONS", "NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "UNKNOWN"]),
    (UnavailableError, ["REQUEST_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED", "_PURGE_QUEUE", "_QUEUE_FULL", "_SSL"]),
]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS for name in names])
def test_each_code_has_its_kind(kind: type[TidegateError], name: str) -> None:
    error = KafkaError(getattr(KafkaError, name))
    for given in (error, KafkaException(error)):
        ours = of_confluent(given, "writing to totals at a:1")
        assert type(ours) is kind
        assert ours.failure.message.startswith("writing to totals at a:1: ")
        assert name.removeprefix("_") in ours.failure.message


def test_both_libraries_errors_mean_the_same() -> None:
    """Where kafka-python has a class for a code, it becomes what librdkafka's becomes."""
    for code in range(1, 128):
        theirs = kafka_python.for_code(code)
        if getattr(theirs, "errno", None) == code:
            ours = of_kafka_python(theirs("text"), "asking")
            assert type(ours) is type(of_confluent(KafkaError(code), "asking")), theirs


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "The user needs WRITE on the topic 'totals'."),
        ("GROUP_AUTHORIZATION_FAILED", "The user needs WRITE on the group 'shop'."),
        ("CLUSTER_AUTHORIZATION_FAILED", "The user needs WRITE on the cluster."),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "The user needs WRITE on the transactional id 'shop:1:2:totals:0:1'.",
        ),
        ("UNKNOWN_TOPIC_OR_PART", "Topic 'totals', or the partition, does not exist, or the user may not see it."),
        (
            "MSG_SIZE_TOO_LARGE",
            (
                "A record of 2,000,000 bytes is larger than topic 'totals' (max.message.bytes) or the sink "
                "(settings: message.max.bytes) allows."
            ),
        ),
        (
            "INVALID_TRANSACTION_TIMEOUT",
            "timeout=3600 is more than the brokers' transaction.max.timeout.ms of 900 s.",
        ),
        (
            "PRODUCER_FENCED",
            (
                "Transactional id 'shop:1:2:totals:0:1' was taken over by another producer, or its transaction ran "
                "into its timeout."
            ),
        ),
        (
            "INVALID_PRODUCER_ID_MAPPING",
            (
                "Transactional id 'shop:1:2:totals:0:1' is another producer's, or its coordinator has forgotten it "
                "because nothing was written under it for transactional.id.expiration.ms."
            ),
        ),
    ],
)
def test_the_remedy_names_what_it_is_about(name: str, remedy: str) -> None:
    assert of_confluent(KafkaError(getattr(KafkaError, name)), "writing", SUBJECT).failure.remedy == remedy


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS for name in names])
def test_there_is_a_text_when_nothing_is_known(kind: type[TidegateError], name: str) -> None:
    failure = of_code(getattr(KafkaError, name), "writing", name).failure
    assert "''" not in failure.remedy
    assert "None" not in failure.remedy


def test_a_fatal_error_of_a_fenced_producer_is_fenced() -> None:
    fatal = KafkaError(KafkaError._FATAL, "Fatal error: Local: This instance has been fenced by a newer instance")
    assert type(of_confluent(fatal, "writing")) is SinkFencedError
    other = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Out of order sequence number")
    assert type(of_confluent(other, "writing")) is UnavailableError


def test_a_misspelt_setting_is_named_with_the_nearest_one() -> None:
    with pytest.raises(KafkaException) as raised:
        Producer({"linger.mss": 1})
    error = of_confluent(raised.value, "writing")
    assert type(error) is InvalidError
    assert error.failure.message == "Kafka has no setting 'linger.mss'; is 'linger.ms' meant?"


@pytest.mark.parametrize("error", [ValueError("text"), KafkaException("text"), OSError(5, "text"), RuntimeError()])
def test_what_nobody_knows_may_pass(error: Exception) -> None:
    assert type(of_confluent(error, "writing")) is UnavailableError
    assert type(of_kafka_python(error, "writing")) is UnavailableError


def test_an_error_number_of_the_machine_is_no_code_of_kafka() -> None:
    refused = ConnectionRefusedError(90, "Connection refused")
    unresolved = socket.gaierror(3, "Temporary failure in name resolution")
    assert type(of_kafka_python(refused, "asking")) is UnavailableError
    assert type(of_kafka_python(unresolved, "asking")) is UnavailableError


def test_a_certificate_that_is_not_trusted_is_for_an_operator() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed: unable to get local issuer certificate")
    assert type(of_kafka_python(untrusted, "asking")) is InvalidError
    assert type(of_kafka_python(ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "asking")) is (
        UnavailableError
    )


def test_our_own_errors_stay_as_they_are() -> None:
    error = LostDataError("gone")
    assert of_kafka_python(error, "asking") is error
