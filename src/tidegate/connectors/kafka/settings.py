"""The names of librdkafka's settings: which are whose, which are secret, and which Tidegate decides itself.

The tables follow librdkafka 2.16's CONFIGURATION.md. They decide who gets a setting and what is suggested for a
misspelt name, never whether a name exists: librdkafka itself says that, so a newer one may know more names.
"""

import difflib
import re
from collections.abc import Mapping

from tidegate.errors import InvalidError

_QUOTED = re.compile(r'"([a-z0-9._]+)"')
Setting = str | int | float | bool

PRODUCER_ONLY = frozenset({
    "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
    "delivery.timeout.ms", "enable.gapless.guarantee", "linger.ms", "message.send.max.retries", "message.timeout.ms",
    "produce.offset.report", "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
    "queue.buffering.max.messages", "queue.buffering.max.ms", "queuing.strategy", "request.timeout.ms", "retries",
    "sticky.partitioning.linger.ms",
})  # fmt: skip
"""librdkafka warns when anybody but a producer gets one of these."""

CONSUMER_ONLY = frozenset({
    "check.crcs", "consume.callback.max.messages", "coordinator.query.interval.ms", "fetch.error.backoff.ms",
    "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "heartbeat.interval.ms", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "queued.max.messages.kbytes", "queued.min.messages", "session.timeout.ms",
})  # fmt: skip
"""librdkafka warns when anybody but a consumer gets one of these."""

SHARED = frozenset({
    "allow.auto.create.topics", "api.version.fallback.ms", "api.version.request", "api.version.request.timeout.ms",
    "broker.address.family", "broker.address.ttl", "broker.version.fallback", "client.dns.lookup", "client.id",
    "client.rack", "connections.max.idle.ms", "debug", "enable.metrics.push", "enable.random.seed",
    "enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification", "https.ca.location", "https.ca.pem",
    "log.connection.close", "log.thread.name", "log_level", "max.in.flight", "max.in.flight.requests.per.connection",
    "message.copy.max.bytes", "message.max.bytes", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "plugin.library.paths", "receive.message.max.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal",
    "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type", "sasl.oauthbearer.metadata.authentication.type", "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "sasl.password", "sasl.username", "security.protocol", "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable", "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes", "socket.timeout.ms", "ssl.ca.certificate.stores", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
    "ssl.endpoint.identification.algorithm", "ssl.engine.id", "ssl.engine.location", "ssl.key.location",
    "ssl.key.password", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password", "ssl.providers",
    "ssl.sigalgs.list", "statistics.interval.ms", "topic.blacklist", "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms", "topic.metadata.refresh.sparse",
})  # fmt: skip

ALIASES: Mapping[str, str] = {
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight.requests.per.connection": "max.in.flight",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "sasl.mechanisms": "sasl.mechanism",
}
"""librdkafka's messages name a setting by the first of its two names, whichever the user took."""

_GROUP = "Tidegate assigns partitions to the source's subtasks itself"
_OFFSETS = "offsets are kept in checkpoints; what goes to the group besides is the source's commit_group_offsets="
_BOOTSTRAP = "give bootstrap= instead"
_ACKNOWLEDGEMENT = "it follows from the sink's delivery="
_REPORTS = "Tidegate looks at every delivery report itself"
_CALLBACK = "it is a callback, and settings are plain values"

DECIDED: Mapping[str, str] = {
    "bootstrap.servers": _BOOTSTRAP,
    "metadata.broker.list": _BOOTSTRAP,
    "group.id": "give the source's group= instead",
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.protocol.type": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "share.acknowledgement.mode": _GROUP,
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "auto.offset.reset": "give the source's start= and on_lost_offsets= instead",
    "isolation.level": "give the source's isolation= instead",
    "enable.partition.eof": "give the source's bounded= instead",
    "transactional.id": "give the sink's transaction_prefix= instead",
    "transaction.timeout.ms": "give the sink's timeout= (seconds) instead",
    "enable.idempotence": _ACKNOWLEDGEMENT,
    "acks": _ACKNOWLEDGEMENT,
    "request.required.acks": _ACKNOWLEDGEMENT,
    "partitioner": "give the sink's partition= instead; without it keys land where Java's client puts them",
    "delivery.report.only.error": _REPORTS,
    "on_delivery": _REPORTS,
    "logger": "the logs go to the Python logger tidegate.kafka",
    "log.queue": "the logs go to the Python logger tidegate.kafka",
    "oauth_cb": f"{_CALLBACK}; sasl.oauthbearer.method=oidc needs none",
    "builtin.features": "it can only be read",
    "default.topic.config": "topic settings stand beside the others",
    "enabled_events": _CALLBACK,
    "interceptors": _CALLBACK,
    "internal.termination.signal": "Tidegate handles signals itself",
    "opaque": _CALLBACK,
}
"""What a user may not set, and what to do instead."""


_SECRET_WORDS = (
    "password", "passphrase", "secret", "credential", "token", "jaas", "key.pem", "ssl_key", "oauthbearer.config",
)  # fmt: skip
_PUBLIC = frozenset({"sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.token.endpoint.url"})


def is_secret(name: str) -> bool:
    """Whether the setting's value must never be shown, logged or stored. Also for names that librdkafka does not have:
    Java's, misspelt ones, those of a newer version."""
    small = name.lower()
    return small not in _PUBLIC and any(word in small for word in _SECRET_WORDS)


def exists(name: str) -> bool:
    """As far as these tables go."""
    return name in PRODUCER_ONLY | CONSUMER_ONLY | SHARED


def nearest(name: str) -> str | None:
    """The existing name that looks most like this one, if one does."""
    close = difflib.get_close_matches(name, sorted(PRODUCER_ONLY | CONSUMER_ONLY | SHARED), 1, 0.7)
    return close[0] if close else None


def unknown(name: str) -> InvalidError:
    """What to say about a name that librdkafka does not have."""
    close = nearest(name)
    return InvalidError(
        f"Kafka has no setting {name!r}" + (f"; is {close!r} meant?" if close else ""),
        remedy="settings= takes librdkafka's names, with dots; see its CONFIGURATION.md.",
    )


def with_aliases(text: str) -> str:
    """A message of librdkafka's with the other name behind each setting that has two."""
    return _QUOTED.sub(lambda match: f"{match[0]} ({ALIASES[match[1]]})" if match[1] in ALIASES else match[0], text)


def text_of(name: str, value: object) -> str:
    """A setting as librdkafka's text. Raises InvalidError for a setting that Tidegate decides and for another type."""
    if name in DECIDED:
        raise InvalidError(f"settings: {name!r} is not yours to set: {DECIDED[name]}")
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case str() | int() | float():
            return str(value)
    kind = type(value).__name__
    reason = f"; {_CALLBACK}" if callable(value) else ""
    raise InvalidError(f"settings: {name!r} must be a str, an int, a float or a bool, not a {kind}{reason}")
