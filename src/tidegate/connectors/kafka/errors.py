"""What Kafka's errors mean: which kind each is, and a text that names the resource, the place and the remedy.

Works on error codes, which both libraries share, and imports neither. No text made here contains a setting's value.
"""

import re
import ssl
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.kafka import settings
from tidegate.errors import InternalError, InvalidError, LostDataError, SinkFencedError, TidegateError, UnavailableError

# librdkafka's own codes are negative; those of brokers are in Kafka's protocol guide.
INVALID_ARGUMENT = -186
FATAL = -150
INVALID_PRODUCER_ID_MAPPING = 49
FENCED = frozenset({-144, 47, INVALID_PRODUCER_ID_MAPPING, 90})
"""_FENCED, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
UNKNOWN_TOPIC = frozenset({-190, -188, 3, 17})
"""_UNKNOWN_PARTITION, _UNKNOWN_TOPIC, UNKNOWN_TOPIC_OR_PART, TOPIC_EXCEPTION."""
TOO_LARGE = frozenset({10, 18})
"""MSG_SIZE_TOO_LARGE, RECORD_LIST_TOO_LARGE."""
AUTHENTICATION = frozenset({-169, 33, 34, 58})
"""_AUTHENTICATION, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED."""
AUTHORIZATION = frozenset({29, 30, 31, 53})
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
INVALID_TIMEOUT = 50
LOST = frozenset({-140, 1})
"""_AUTO_OFFSET_RESET, OFFSET_OUT_OF_RANGE."""
TLS = -181
UNSUPPORTED_VERSION = 35
INVALID = frozenset({INVALID_ARGUMENT, -165, 21, 32, 40, 43, 44, 54, 76, 87, 93, 128})
"""_INVALID_ARG, _UNSUPPORTED_FEATURE, INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP, INVALID_CONFIG,
UNSUPPORTED_FOR_MESSAGE_FORMAT, POLICY_VIOLATION, SECURITY_DISABLED, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD,
UNACCEPTABLE_CREDENTIAL, INVALID_REGULAR_EXPRESSION: the same again would be refused again."""
INVALID_REQUEST = 42

_NO_SUCH_SETTING = re.compile(r'No such configuration property: "([^"]+)"')
_HANDSHAKE_REFUSED = re.compile(r"certificate|alert|wrong version number", re.IGNORECASE)
_FENCED_TEXT = re.compile(r"fenced", re.IGNORECASE)


@dataclass(frozen=True)
class Subject:
    """What a request was about, as far as known; it makes the text of an error better.

    operation: the ACL operation that the request needs, 'WRITE'. size: bytes of the record. timeout and maximum:
    seconds, of a transaction that was asked for, and what the brokers allow.
    """

    topic: str = ""
    id: str = ""
    group: str = ""
    operation: str = ""
    size: int | None = None
    timeout: float | None = None
    maximum: float | None = None


NOTHING_KNOWN = Subject()


def of_confluent(error: object, doing: str, subject: Subject = NOTHING_KNOWN) -> TidegateError:
    """A confluent_kafka.KafkaException or KafkaError as ours. `doing`: 'writing to topic totals at host:9092'."""
    inner: Any = next(iter(getattr(error, "args", ())), error)
    if not callable(getattr(inner, "code", None)):
        return UnavailableError(f"{doing}: {type(error).__name__}: {error}")
    code = inner.code()
    text = str(inner.str())
    unknown = _NO_SUCH_SETTING.search(text) if code == INVALID_ARGUMENT else None
    if unknown:
        return settings.unknown(unknown[1])
    if code == INVALID_ARGUMENT:
        text = settings.with_aliases(text)
    if code == FATAL and _FENCED_TEXT.search(text):
        code = min(FENCED)
    return of_code(code, doing, f"{text} ({inner.name()})", subject)


def of_kafka_python(error: Exception, doing: str, subject: Subject = NOTHING_KNOWN) -> TidegateError:
    """What kafka-python, a socket or TLS raised, as ours."""
    if isinstance(error, TidegateError):
        return error
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    code = getattr(error, "errno", None)
    if isinstance(error, ssl.SSLError):
        return of_code(TLS, doing, text, subject)
    if isinstance(error, OSError) or not isinstance(code, int):
        return UnavailableError(f"{doing}: {text}")
    return of_code(code, doing, text, subject)


def of_code(code: int, doing: str, text: str, subject: Subject = NOTHING_KNOWN) -> TidegateError:
    """An error code of a broker or of librdkafka, with the text that came with it, as ours."""
    what = f"{doing}: {text}"
    if code in FENCED:
        return SinkFencedError(what, remedy=_fenced_remedy(code, subject))
    if code in AUTHORIZATION:
        return InvalidError(what, remedy=_needed(code, subject))
    if code in AUTHENTICATION or (code == TLS and _HANDSHAKE_REFUSED.search(text)):
        return InvalidError(what, remedy="Look at security.protocol and the sasl.* and ssl.* settings.")
    if code in LOST:
        return LostDataError(what, remedy="The records at these offsets are gone from the topic.")
    return _invalid(code, what, subject) or UnavailableError(what)


def _invalid(code: int, what: str, subject: Subject) -> TidegateError | None:
    if code in UNKNOWN_TOPIC:
        topic = f"Topic {subject.topic!r}" if subject.topic else "The topic"
        return InvalidError(what, remedy=f"{topic}, or the partition, does not exist, or the user may not see it.")
    if code in TOO_LARGE:
        return InvalidError(what, remedy=_too_large_remedy(subject))
    if code == INVALID_TIMEOUT:
        return InvalidError(what, remedy=_timeout_remedy(subject))
    if code == UNSUPPORTED_VERSION:
        return InvalidError(what, remedy="The brokers are too old: Kafka 3.0 or newer is needed.")
    if code == INVALID_REQUEST:
        return InternalError(what)
    return InvalidError(what) if code in INVALID else None


def _needed(code: int, subject: Subject) -> str:
    resource, operation = {
        29: (f"topic {subject.topic!r}" if subject.topic else "topic", "READ to read it, WRITE to write to it"),
        30: (f"group {subject.group!r}" if subject.group else "group", "READ"),
        31: ("cluster", "the ACL"),
        53: (f"transactional id {subject.id!r}" if subject.id else "transactional ids", "WRITE and DESCRIBE"),
    }[code]
    return f"The user needs {subject.operation or operation} on the {resource}."


def _fenced_remedy(code: int, subject: Subject) -> str:
    owner = f"Transactional id {subject.id!r}" if subject.id else "The transactional id"
    if code == INVALID_PRODUCER_ID_MAPPING:
        return (
            f"{owner} is another producer's, or its coordinator has forgotten it because nothing was written under it "
            "for transactional.id.expiration.ms."
        )
    return f"{owner} was taken over by another producer, or its transaction ran into its timeout."


def _too_large_remedy(subject: Subject) -> str:
    record = f"A record of {subject.size:,} bytes" if subject.size is not None else "A record"
    topic = f"topic {subject.topic!r}" if subject.topic else "the topic"
    return f"{record} is larger than {topic} (max.message.bytes) or the sink (settings: message.max.bytes) allows."


def _timeout_remedy(subject: Subject) -> str:
    asked = f"timeout={subject.timeout:g}" if subject.timeout is not None else "The sink's timeout="
    allowed = f" of {subject.maximum:g} s" if subject.maximum is not None else ""
    return f"{asked} is more than the brokers' transaction.max.timeout.ms{allowed}."
