"""What a node is told before it starts: addresses, `server.properties`, logging, command lines. Pure functions.

The caller's settings stand last and win, so that a test can make any time-out as small as it needs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tidegate.deploy.dev_kafka.jars import has_log4j_1
from tidegate.errors import InvalidError

HOST = "127.0.0.1"
SettingValue = str | int | float | bool
USERS = {"admin": "admin-secret", "app": "app-secret"}
"""With security "sasl": who may log in, with which password. `admin` may do everything, `app` what ACLs allow it."""
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files for a listener with TLS."""

    identity: Path
    """The server's private key (PKCS 8) and its certificate chain, in one file. Must be valid for 127.0.0.1."""
    client_authority: Path | None = None
    """With it, clients must show a certificate that this authority signed."""


Security = Literal["none", "sasl"] | TlsFiles
_PROTOCOLS = {"none": "PLAINTEXT", "sasl": "SASL_PLAINTEXT"}


class NodeAddress(msgspec.Struct, frozen=True):
    """A node and its ports on loopback: for clients, for the other brokers and administration, for the controllers."""

    id: int
    client_port: int
    internal_port: int
    controller_port: int
    advertised_port: int | None = None
    """Where clients are told to come, when that is not `client_port`."""

    @property
    def port_for_clients(self) -> int:
        return self.advertised_port or self.client_port


def server_properties(
    address: NodeAddress,
    cluster: Sequence[NodeAddress],
    folder: Path,
    security: Security = "none",
    settings: Mapping[str, SettingValue] = {},
) -> str:
    """The file with which one node, broker and controller, is started. Raises InvalidError for text that it cannot
    hold."""
    properties: dict[str, SettingValue] = {
        **_addresses(address, cluster, security),
        "log.dirs": str(folder),
        **_sizes(len(cluster)),
        **_security(security),
        **settings,
    }
    return "".join(f"{name}={property_text(name, value)}\n" for name, value in properties.items())


def property_text(name: str, value: SettingValue) -> str:
    """`value` as it stands behind `name=` in a properties file. Raises InvalidError when it is not one line."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "\n" in text or "\r" in text:
        raise InvalidError(f"the value of {name} has several lines", remedy="Give it in one line.")
    return text.replace("\\", "\\\\")


def _addresses(address: NodeAddress, cluster: Sequence[NodeAddress], security: Security) -> dict[str, SettingValue]:
    protocol = "SSL" if isinstance(security, TlsFiles) else _PROTOCOLS[security]
    internal = f"INTERNAL://{HOST}:{address.internal_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": address.id,
        "controller.quorum.voters": ",".join(f"{node.id}@{HOST}:{node.controller_port}" for node in cluster),
        "listeners": f"CLIENTS://{HOST}:{address.client_port},{internal},CONTROLLER://{HOST}:{address.controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{address.port_for_clients},{internal}",
        "listener.security.protocol.map": f"CLIENTS:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
    }


def _sizes(nodes: int) -> dict[str, SettingValue]:
    """Small, quick to start, and as safe as the number of nodes allows."""
    copies = min(nodes, 3)
    needed = max(copies - 1, 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": needed,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        "transaction.state.log.num.partitions": 4,
        # By default an expired transaction is looked for every ten seconds.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        # A broker that was killed is let in again when its session has expired: by default after nine seconds.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        "auto.create.topics.enable": False,
        # Retention goes by the records' own timestamps: events of last year would be gone in the first five minutes.
        "log.retention.ms": -1,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        # 128 MB by default, taken at once.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }


def _security(security: Security) -> dict[str, SettingValue]:
    if isinstance(security, TlsFiles):
        return _tls(security)
    if security == "none":
        return {}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{_PLAIN_LOGIN} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # ANONYMOUS is whoever comes through the listeners without a login: the nodes themselves, and administration.
        "super.users": "User:admin;User:ANONYMOUS",
    }


def _tls(files: TlsFiles) -> dict[str, SettingValue]:
    prefix = "listener.name.clients.ssl"
    settings: dict[str, SettingValue] = {
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.keystore.location": str(files.identity),
        f"{prefix}.client.auth": "none",
    }
    if files.client_authority is not None:
        settings |= {
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": str(files.client_authority),
            f"{prefix}.client.auth": "required",
        }
    return settings


# ---- command lines -------------------------------------------------------------------------------------------------

LOGGING_FILE = "logging.properties"
_LOG4J_2 = """\
status=WARN
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n%throwable
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""
_LOG4J_1 = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def logging_text(version: str) -> str:
    """Warnings and errors, to standard output."""
    return _LOG4J_1 if has_log4j_1(version) else _LOG4J_2


def java_command(java: str, jars: Path, version: str, logging: Path) -> list[str]:
    """What stands before the name of a class: few threads, little memory, quick to start."""
    option = "log4j.configuration" if has_log4j_1(version) else "log4j2.configurationFile"
    return [
        java,
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-D{option}={logging.as_uri()}",
        "-cp",
        f"{jars}/*",
    ]


def server_arguments(properties: Path) -> list[str]:
    return ["kafka.Kafka", str(properties)]


def format_arguments(properties: Path, cluster_id: str) -> list[str]:
    """Make the folder of a node that is started the first time."""
    # In one word: an id may begin with '-'.
    return ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties)]
