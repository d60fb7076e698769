"""What of librdkafka's settings means something to the client of whole record batches, in its own units.

A setting that is none of its, and that would change what a job does or may see, is refused; what only tunes the inside
of librdkafka has no counterpart and is refused just the same: a setting is never ignored in silence.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegate.connectors.kafka.batches.building import CODECS, Compression
from tidegate.connectors.kafka.batches.readings import Limits
from tidegate.connectors.kafka.batches.requests import FetchLimits
from tidegate.connectors.kafka.client import Isolation
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.settings import CONSUMER_ONLY, PRODUCER_ONLY, exists, nearest
from tidegate.errors import InvalidError

REQUEST_TIMEOUT = 10.0
"""Seconds for one request, unless socket.timeout.ms says otherwise."""

READ = frozenset({
    "check.crcs", "client.rack", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms",
    "max.partition.fetch.bytes", "queued.max.messages.kbytes",
})  # fmt: skip
"""Of a consumer's settings."""
WRITTEN = frozenset({
    "batch.size", "compression.codec", "compression.level", "compression.type", "delivery.timeout.ms", "linger.ms",
    "message.timeout.ms", "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms",
    "request.timeout.ms",
})  # fmt: skip
"""Of a producer's settings."""
SHARED = frozenset({"client.id", "socket.timeout.ms"})
"""Of every client's, besides those of security."""
SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.")
"""The names of security settings begin so; `security.kafka_python_config` refuses those that it cannot follow."""
INSIDE = frozenset({
    "allow.auto.create.topics", "batch.num.messages", "client.rack", "debug", "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms", "log.connection.close", "log_level", "max.in.flight",
    "max.in.flight.requests.per.connection", "message.max.bytes", "message.send.max.retries", "queued.min.messages",
    "retries", "retry.backoff.max.ms", "retry.backoff.ms", "socket.keepalive.enable", "socket.nagle.disable",
    "sticky.partitioning.linger.ms",
})  # fmt: skip
"""Of how librdkafka works inside and what it logs: here there is nothing that they could change."""


class ProducerSettings(NamedTuple):
    batch_bytes: int
    """Of a batch before it is compressed."""
    buffer_bytes: int
    """That no broker has taken yet, before there is no more room."""
    buffer_records: int
    """The same, in records."""
    linger: float | None
    """Seconds for which a batch that is not full waits for more; None where nothing was said."""
    compression: Compression
    delivery: float | None
    """Seconds for which a record is tried to be delivered; None where nothing was said."""
    acknowledgement: float
    """Seconds within which the other replicas must have a batch."""
    timeout: float
    """Seconds for one request."""
    network: Mapping[str, Any]
    """As `wire` takes it."""


PARTITION_BYTES = 4_194_304
"""Of one partition in one answer, unless the user says so: with less a fast reader waits for the next."""


class ConsumerSettings(NamedTuple):
    limits: Limits
    """What is held ahead."""
    fetch: FetchLimits
    checks: bool
    """Whether checksums are."""
    timeout: float
    """Seconds for one request."""
    network: Mapping[str, Any]
    """As `wire` takes it."""


def of_consumer(connection: Connection, isolation: Isolation) -> ConsumerSettings:
    """Raises InvalidError for a setting that has no counterpart, or no sense."""
    network = connection.kafka_python_config()
    texts = {name: str(value) for name, value in connection.settings.items() if name not in PRODUCER_ONLY}
    _refuse(texts, READ | SHARED)
    partition_bytes = _number(texts, "max.partition.fetch.bytes", "fetch.message.max.bytes", PARTITION_BYTES)
    return ConsumerSettings(
        Limits(
            # While one answer is used up, the next is on its way.
            partition=2 * partition_bytes,
            total=_number(texts, "queued.max.messages.kbytes", "", 32_768) * 1024,
            wait=_number(texts, "fetch.wait.max.ms", "", 500, lowest=0) / 1000,
        ),
        FetchLimits(
            max_bytes=_number(texts, "fetch.max.bytes", "", 16_777_216),
            partition_max_bytes=partition_bytes,
            min_bytes=_number(texts, "fetch.min.bytes", "", 1),
            isolation=isolation,
            rack=texts.get("client.rack", ""),
        ),
        checks=texts.get("check.crcs", "true").lower() != "false",
        timeout=_number(texts, "socket.timeout.ms", "", round(REQUEST_TIMEOUT * 1000)) / 1000,
        network=network,
    )


def of_producer(connection: Connection) -> ProducerSettings:
    """Raises InvalidError for a setting that has no counterpart, or no sense."""
    network = connection.kafka_python_config()
    texts = {name: str(value) for name, value in connection.settings.items() if name not in CONSUMER_ONLY}
    _refuse(texts, WRITTEN | SHARED)
    codec = texts.get("compression.type", texts.get("compression.codec", "none"))
    if codec not in ("none", *CODECS):
        raise InvalidError(f"settings: compression.type={codec!r} is none of none, {', '.join(CODECS)}")
    linger = next((name for name in ("linger.ms", "queue.buffering.max.ms") if name in texts), None)
    delivery = _number(texts, "delivery.timeout.ms", "message.timeout.ms", 0, lowest=0)
    return ProducerSettings(
        batch_bytes=_number(texts, "batch.size", "", 1_000_000),
        buffer_bytes=_number(texts, "queue.buffering.max.kbytes", "", 32_768) * 1024,
        buffer_records=_number(texts, "queue.buffering.max.messages", "", 1_000_000),
        linger=None if linger is None else _number(texts, linger, "", 0, lowest=0) / 1000,
        compression=Compression(codec, _level(texts)),
        delivery=delivery / 1000 if delivery else None,
        acknowledgement=_number(texts, "request.timeout.ms", "", round(REQUEST_TIMEOUT * 1000)) / 1000,
        timeout=_number(texts, "socket.timeout.ms", "", round(REQUEST_TIMEOUT * 1000)) / 1000,
        network=network,
    )


def _refuse(texts: Mapping[str, str], known: frozenset[str]) -> None:
    for name in sorted(texts):
        if name not in known | INSIDE and not name.startswith(SECURITY):
            close = None if exists(name) else nearest(name)
            raise InvalidError(
                f"settings: {name!r} means nothing to client='batches'" + (f"; is {close!r} meant?" if close else ""),
                remedy="Leave it out, or use client='librdkafka'.",
            )


def _level(texts: Mapping[str, str]) -> int:
    text = texts.get("compression.level", "-1")
    if not text.removeprefix("-").isdecimal():
        raise InvalidError(f"settings: compression.level={text!r} is no whole number")
    return int(text)


def _number(texts: Mapping[str, str], name: str, alias: str, usual: int, lowest: int = 1) -> int:
    text = texts.get(name, texts.get(alias, str(usual)))
    if not text.isdecimal() or int(text) < lowest:
        raise InvalidError(f"settings: {name}={text!r} is no whole number from {lowest} on")
    return int(text)
