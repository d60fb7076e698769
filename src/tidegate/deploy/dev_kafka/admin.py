"""What is asked of a running Kafka: whether all its brokers are there, and topics to be made.

Goes through confluent-kafka, which is imported when it is first needed.
"""

import socket
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.deploy.dev_kafka.settings import HOST, NodeAddress
from tidegate.errors import InvalidError

_REQUEST_PATIENCE = 5.0


def open_admin(bootstrap: str) -> Any:
    """confluent-kafka's AdminClient, which says nothing on standard error. Raises InvalidError where it is not
    installed."""
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise InvalidError(
            "a Kafka client is not installed", remedy="Install it: pip install 'tidegate[kafka]'."
        ) from error
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def is_ready(node: NodeAddress, cluster: Iterable[NodeAddress]) -> bool:
    """Whether `node` answers, and names all of `cluster` as brokers that are there."""
    # librdkafka waits ever longer between attempts to connect, so the first is made when somebody listens.
    try:
        for port in (node.client_port, node.internal_port):
            socket.create_connection((HOST, port), _REQUEST_PATIENCE).close()
    except OSError:
        return False
    return _brokers_by(f"{HOST}:{node.internal_port}").issuperset(other.id for other in cluster)


def _brokers_by(bootstrap: str) -> set[int]:
    from confluent_kafka import KafkaException

    try:
        return set(open_admin(bootstrap).list_topics(timeout=_REQUEST_PATIENCE).brokers)
    except KafkaException:
        return set()


def create_topics(bootstrap: str, topics: Mapping[str, int], copies: int) -> list[str]:
    """Make `topics` (name to partitions) that do not exist yet, and return which. Raises InvalidError for one that
    exists with another number of partitions or has a name that Kafka refuses."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    admin = open_admin(bootstrap)
    existing = admin.list_topics(timeout=_REQUEST_PATIENCE).topics
    for name, partitions in topics.items():
        if name in existing and len(existing[name].partitions) != partitions:
            raise InvalidError(
                f"topic {name} exists with {len(existing[name].partitions)} partitions, not {partitions}",
                remedy="Ask for it as it is, or take another name.",
            )
    missing = [name for name in topics if name not in existing]
    made = admin.create_topics([NewTopic(name, topics[name], copies) for name in missing]) if missing else {}
    for name, future in made.items():
        try:
            future.result(_REQUEST_PATIENCE)
        except KafkaException as error:
            raise InvalidError(f"topic {name} could not be made: {error.args[0].str()}") from error
    return missing
