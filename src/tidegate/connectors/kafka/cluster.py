"""Questions to the brokers about topics and offsets: what there is, never what to do about it.

It keeps nothing. Every question ends within `ANSWER_WITHIN`; none may wait for ever.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tidegate.connectors.kafka.client import At, Isolation, Topic, TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.errors import UNKNOWN_TOPIC, Subject, of_confluent
from tidegate.errors import UnavailableError

ANSWER_WITHIN = 10.0
"""Seconds for all questions of one `Cluster` together."""
UNKNOWN_WITHIN = 2.0
"""Seconds for which a topic that a broker does not know is asked for again: brokers learn of a new one one by one."""
ASK_AGAIN_AFTER = 0.2
"""Seconds."""
GRACE = 2.0
"""Seconds that librdkafka gets to report a time-out that has passed."""


_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Cluster:
    """Questions to a cluster, all to be answered within `ANSWER_WITHIN` of its making. Drop it afterwards.

    Raises UnavailableError where no answer comes, InvalidError where the user may not ask.
    """

    def __init__(self, connection: Connection) -> None:
        self.bootstrap = connection.bootstrap
        self._deadline = time.monotonic() + ANSWER_WITHIN
        # Futures that are pending when the client is collected fail: whoever waits for one keeps it.
        self._admin = admin_client(connection)

    @property
    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def names(self) -> list[str]:
        """Of all topics that the user may see."""
        try:
            return sorted(self._admin.list_topics(timeout=self._left).topics)
        except KafkaException as error:
            raise of_confluent(error, f"listing the topics of {self.bootstrap}") from None

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that exist."""
        found: dict[str, Topic] = {}
        patience = time.monotonic() + UNKNOWN_WITHIN
        while True:
            found |= self._described([name for name in names if name not in found])
            if len(found) == len(names) or time.monotonic() > patience:
                return found
            time.sleep(ASK_AGAIN_AFTER)

    def _described(self, names: Sequence[str]) -> dict[str, Topic]:
        return _topics(_describe(self._admin, names, self._left), self.bootstrap, self._left + GRACE)

    def offsets(self, partitions: Iterable[TopicPartition], at: At, isolation: Isolation) -> dict[TopicPartition, int]:
        """Of the partitions that exist; -1 where there is no record of that time."""
        spec, found = _spec(at), dict[TopicPartition, int]()
        asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        level = IsolationLevel[isolation.upper()]
        while asked:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._left)
            asked = {}
            for one, future in futures.items():
                partition = TopicPartition(one.topic, one.partition)
                doing = f"asking {self.bootstrap} for offsets of {partition}"
                try:
                    answer = _result(future, self._left + GRACE, doing, partition.topic)
                except UnavailableError:
                    # A partition may have no leader for a moment, when it is new or moves to another broker.
                    if self._left <= ASK_AGAIN_AFTER:
                        raise
                    asked[one] = spec
                else:
                    found |= {} if answer is None else {partition: answer.offset}
            time.sleep(ASK_AGAIN_AFTER if asked else 0)
        return found


class TopicQuestion:
    """Which of these topics exist, asked without waiting for the answer. `admin` must outlive it."""

    def __init__(self, admin: AdminClient, names: Sequence[str], bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._futures = _describe(admin, names, ANSWER_WITHIN)

    def answer(self) -> dict[str, Topic] | None:
        """Those that exist; None while there is no answer. Raises UnavailableError, InvalidError."""
        if not all(future.done() for future in self._futures.values()):
            return None
        return _topics(self._futures, self._bootstrap, 0)


def admin_client(connection: Connection) -> AdminClient:
    """Raises InvalidError for a setting that librdkafka refuses."""
    try:
        return AdminClient(connection.admin_config())
    except KafkaException as error:
        raise of_confluent(error, f"setting up a client of {connection.bootstrap}") from None


def _describe(admin: AdminClient, names: Sequence[str], timeout: float) -> "dict[str, Future[Any]]":
    return admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout) if names else {}


def _topics(described: "Mapping[str, Future[Any]]", bootstrap: str, within: float) -> dict[str, Topic]:
    found: dict[str, Topic] = {}
    for name, future in described.items():
        one = _result(future, within, f"describing topic {name} of {bootstrap}", name)
        if one is not None:
            partitions = tuple(sorted(partition.id for partition in one.partitions))
            found[name] = Topic(name, str(one.topic_id), partitions, one.is_internal)
    return found


def _result(future: "Future[Any]", within: float, doing: str, topic: str) -> Any:
    """None for a topic or partition that does not exist."""
    try:
        return future.result(within)
    except KafkaException as error:
        if error.args[0].code() in UNKNOWN_TOPIC:
            return None
        raise of_confluent(error, doing, Subject(topic=topic, operation="READ")) from None
    except TimeoutError as error:
        raise of_confluent(error, doing) from None


def _spec(at: At) -> Any:
    match at:
        case "earliest":
            return _EARLIEST
        case "latest":
            return _LATEST
        case int():
            return OffsetSpec.for_timestamp(at)
