"""What of librdkafka's settings means something to the client of whole record batches, in its own units.

A setting that is none of its, and that would change what a job does or may see, is refused; what only tunes the inside
of librdkafka has no counterpart and is refused just the same: a setting is never ignored in silence.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegate.connectors.kafka.batches.readings import Limits
from tidegate.connectors.kafka.batches.requests import FetchLimits
from tidegate.connectors.kafka.client import Isolation
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.settings import PRODUCER_ONLY
from tidegate.errors import InvalidError

REQUEST_TIMEOUT = 10.0
"""Seconds for one request, unless socket.timeout.ms says otherwise."""

READ = frozenset({
    "check.crcs", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms",
    "max.partition.fetch.bytes", "queued.max.messages.kbytes",
})  # fmt: skip
"""Of a consumer's settings."""
SHARED = frozenset({"client.id", "socket.timeout.ms", "allow.auto.create.topics"})
"""Of every client's, besides those of security."""
SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.")
"""The names of security settings begin so; `security.kafka_python_config` refuses those that it cannot follow."""
INSIDE = frozenset({
    "queued.min.messages", "fetch.queue.backoff.ms", "fetch.error.backoff.ms", "socket.keepalive.enable",
    "log_level", "debug", "log.connection.close", "socket.nagle.disable",
})  # fmt: skip
"""Of how librdkafka works inside and what it logs: here there is nothing that they could change."""


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
    partition_bytes = _number(texts, "max.partition.fetch.bytes", "fetch.message.max.bytes", 1_048_576)
    return ConsumerSettings(
        Limits(
            partition=partition_bytes,
            total=_number(texts, "queued.max.messages.kbytes", "", 32_768) * 1024,
            wait=_number(texts, "fetch.wait.max.ms", "", 100, lowest=0) / 1000,
        ),
        FetchLimits(
            max_bytes=_number(texts, "fetch.max.bytes", "", 16_777_216),
            partition_max_bytes=partition_bytes,
            min_bytes=_number(texts, "fetch.min.bytes", "", 1),
            isolation=isolation,
        ),
        checks=texts.get("check.crcs", "true").lower() != "false",
        timeout=_number(texts, "socket.timeout.ms", "", round(REQUEST_TIMEOUT * 1000)) / 1000,
        network=network,
    )


def _refuse(texts: Mapping[str, str], known: frozenset[str]) -> None:
    for name in sorted(texts):
        if name not in known | INSIDE and not name.startswith(SECURITY):
            raise InvalidError(
                f"settings: {name!r} means nothing to client='batches'",
                remedy="Leave it out, or use client='librdkafka'.",
            )


def _number(texts: Mapping[str, str], name: str, alias: str, usual: int, lowest: int = 1) -> int:
    text = texts.get(name, texts.get(alias, str(usual)))
    if not text.isdecimal() or int(text) < lowest:
        raise InvalidError(f"settings: {name}={text!r} is no whole number from {lowest} on")
    return int(text)
