"""How to reach a Kafka cluster: bootstrap servers and librdkafka's settings, checked, and as each library wants them.

A secret leaves a Connection only in the configuration of a client. It is never in a text, a log or what is stored.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, get_args

import msgspec

from tidegate.connectors.kafka import errors, security
from tidegate.connectors.kafka.settings import CONSUMER_ONLY, PRODUCER_ONLY, Setting, is_secret, text_of
from tidegate.errors import CorruptError, InvalidError

LOGGER = logging.getLogger("tidegate.kafka.librdkafka")

HIDDEN = "***"
CLIENT_ID = "tidegate"
PORT_MAX = 65_535
ENVIRONMENT_PREFIX = "TIDEGATE_KAFKA_"

Client = Literal["librdkafka", "batches"]
"""Who moves the records: librdkafka, or Tidegate's own client, which moves whole record batches."""
DEFAULT_CLIENT: Client = "batches"
CODEC_PACKAGES = ("aiokafka", "cramjam")
"""What the second needs besides what all of Kafka needs."""

_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/,]+):(?P<port>[0-9]{1,9})")


class LibraryLog:
    """Takes librdkafka's messages, when a client is polled, as news for who looks for them (at DEBUG): several a second
    come from each client while a broker is away, and what matters of them is also told as an error."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        LOGGER.debug(message, *arguments)


LIBRARY_LOG = LibraryLog()


@dataclass(frozen=True, repr=False)
class Connection:
    """Never changes after it is made.

    bootstrap: 'HOST:PORT', several with commas between. settings: librdkafka's, as text after construction; one that
    concerns only producers or only consumers goes to these. Raises InvalidError for a malformed server, a setting that
    Tidegate decides itself, and a value that is no plain one. Whether librdkafka knows the names and takes the values
    says `check`, or the first client. client: who moves records; by default `DEFAULT_CLIENT`. It is not stored:
    whoever finishes a transaction needs no records.
    """

    bootstrap: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    client: Client | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap", ",".join(_servers(self.bootstrap)))
        texts = {name: text_of(name, value) for name, value in self.settings.items()}
        object.__setattr__(self, "settings", texts)
        if self.client is not None and self.client not in get_args(Client):
            known = ", ".join(map(repr, get_args(Client)))
            raise InvalidError(f"client={self.client!r} is not known", remedy=f"Known are {known}.")

    @property
    def moves_batches(self) -> bool:
        """Whether records go through Tidegate's own client."""
        return (self.client or DEFAULT_CLIENT) == "batches"

    @staticmethod
    def for_records(bootstrap: str, settings: Mapping[str, Setting], client: Client | None) -> "Connection":
        """One through which records shall go. Raises InvalidError also where what moves them is not installed."""
        made = Connection(bootstrap, settings, client)
        missing = [name for name in CODEC_PACKAGES if made.moves_batches and find_spec(name) is None]
        if missing:
            raise InvalidError(
                f"client='batches' needs {' and '.join(missing)}, which is not installed",
                remedy="pip install 'tidegate[kafka]', or use client='librdkafka'.",
            )
        return made

    def __repr__(self) -> str:
        shown = {name: HIDDEN if is_secret(name) else value for name, value in self.settings.items()}
        return f"Connection({self.bootstrap!r}, {shown!r})"

    # ---- for confluent-kafka ---------------------------------------------------------------------------------------

    def consumer_config(self) -> dict[str, Any]:
        """For confluent_kafka.Consumer; group, offsets and isolation are the caller's to add."""
        return self._config(PRODUCER_ONLY)

    def producer_config(self) -> dict[str, Any]:
        """For confluent_kafka.Producer; transactions and delivery reports are the caller's to add."""
        return self._config(CONSUMER_ONLY)

    def admin_config(self) -> dict[str, Any]:
        """For confluent_kafka.admin.AdminClient."""
        return self._config(PRODUCER_ONLY | CONSUMER_ONLY)

    def _config(self, without: frozenset[str]) -> dict[str, Any]:
        chosen = {name: value for name, value in self.settings.items() if name not in without}
        return {"client.id": CLIENT_ID, **chosen, "bootstrap.servers": self.bootstrap, "logger": LIBRARY_LOG}

    def check(self) -> None:
        """Let librdkafka look at every name and value, without connecting. Raises InvalidError."""
        from confluent_kafka import Consumer, KafkaException, Producer

        for make, config in (
            (Producer, self.producer_config()),
            (Consumer, self.consumer_config() | {"group.id": CLIENT_ID}),
        ):
            del config["bootstrap.servers"]
            try:
                client = make(config)
            except KafkaException as error:
                raise errors.of_confluent(error, f"setting up {self.bootstrap}") from None
            if isinstance(client, Consumer):
                client.close()

    # ---- for kafka-python ------------------------------------------------------------------------------------------

    def kafka_python_config(self) -> dict[str, Any]:
        """The keyword arguments of kafka-python's clients, for the administration of transactions.

        Raises InvalidError for a security setting that has no counterpart there, and for files that cannot be read.
        """
        texts = {name: str(value) for name, value in self.settings.items()}
        config: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "client_id": texts.get("client.id", CLIENT_ID),
            **security.kafka_python_config(texts),
        }
        if "socket.timeout.ms" in texts:
            config["request_timeout_ms"] = int(texts["socket.timeout.ms"])
        return config

    # ---- for checkpoints -------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, str]:
        """What of this may be stored, for `of_arguments`: of a secret only its name."""
        kept = {name: None if is_secret(name) else value for name, value in sorted(self.settings.items())}
        return {"bootstrap": self.bootstrap, "settings": json.dumps(kept)}

    @staticmethod
    def of_arguments(bootstrap: str, settings: str) -> "Connection":
        """The connection that `arguments` described; its secrets come from the environment, each from the variable
        `environment_variable(name)`. Raises InvalidError when one is missing."""
        kept = _stored_settings(bootstrap, settings)
        texts = {name: _from_environment(bootstrap, name) if text is None else text for name, text in kept.items()}
        return Connection(bootstrap, texts)


def _stored_settings(bootstrap: str, settings: str) -> dict[str, str | None]:
    try:
        return msgspec.json.decode(settings, type=dict[str, str | None])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError(f"the settings stored for Kafka at {bootstrap} cannot be read: {error}") from error


def environment_variable(name: str) -> str:
    """Where the secret setting is looked for: 'sasl.password' in TIDEGATE_KAFKA_SASL_PASSWORD."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def _from_environment(bootstrap: str, name: str) -> str:
    variable = environment_variable(name)
    try:
        return os.environ[variable]
    except KeyError:
        raise InvalidError(
            f"Kafka at {bootstrap} was written to with a {name!r}, which is secret and therefore not in the checkpoint",
            remedy=f"Set the environment variable {variable} to it.",
        ) from None


def _servers(bootstrap: str) -> list[str]:
    servers = [part.strip() for part in bootstrap.split(",")]
    for server in servers:
        problem = _server_problem(server)
        if problem:
            raise InvalidError(f"bootstrap={bootstrap!r}: {problem}", remedy="Give HOST:PORT, several with commas.")
    return servers


def _server_problem(server: str) -> str:
    if not server:
        return "a server is empty"
    if "://" in server:
        return f"{server!r} begins with a protocol; that is the setting security.protocol"
    if ":" not in server.rpartition("]")[2]:
        return f"{server!r} has no port"
    match = _SERVER.fullmatch(server)
    if match is None:
        return f"{server!r} is not HOST:PORT"
    if not 0 < int(match["port"]) <= PORT_MAX:
        return f"the port of {server!r} is not between 1 and {PORT_MAX}"
    return ""
