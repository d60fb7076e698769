"""Records on their way into librdkafka's queue, and what is left of them when it is full.

Nothing here may be dropped or change its order within a partition: a parcel gives its records one after the other, and
when the queue has no place it keeps the rest for the next time.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from tidegate.connectors.kafka.client import Header
from tidegate.errors import InternalError

QUEUE_FULL = KafkaError._QUEUE_FULL


class Refused(Exception):
    """librdkafka did not take some records, or could not deliver them. `size`: bytes of the largest."""

    def __init__(self, error: Any, topic: str = "", size: int = 0, records: int = 0) -> None:
        super().__init__(str(error))
        self.error = error
        self.topic = topic
        self.size = size
        self.records = records


class Parcel(Protocol):
    """Records of one `send`, or what is left of them."""

    def put(self, client: Any) -> bool:
        """Give them to the client, in order; False when the queue is full and some are left for the next time."""
        ...


class Batch:
    """Records for one topic and, when it is not the key that decides, one partition: `produce_batch` takes the
    partition of the call and ignores that of a record."""

    def __init__(self, topic: str, partition: int | None, messages: list[dict[str, Any]]) -> None:
        self._topic = topic
        self._where = {} if partition is None else {"partition": partition}
        self._messages = messages

    def put(self, client: Any) -> bool:
        messages = self._messages
        taken = client.produce_batch(self._topic, messages, **self._where)
        if taken == len(messages):
            return True
        failed = [message for message in messages if "_error" in message]
        refused = [message for message in failed if message["_error"].code() != QUEUE_FULL]
        if not refused and failed[0] is not messages[taken]:
            raise InternalError("librdkafka took records behind one for which its queue was full: order is lost")
        self._messages = [message for message in failed if message["_error"].code() == QUEUE_FULL]
        error = refused[0]["_error"] if refused else None
        size = max((len(message["value"] or b"") for message in refused), default=0)
        for message in failed:
            del message["_error"]
        if error is not None:
            raise Refused(error, self._topic, size, len(refused))
        return False


class Singles:
    """Records one by one: `produce_batch` takes neither headers nor timestamps."""

    def __init__(self, topic: str, calls: list[tuple[Any, ...]]) -> None:
        self._topic = topic
        self._calls = calls
        self._next = 0

    def put(self, client: Any) -> bool:
        produce = client.produce
        calls = self._calls
        while self._next < len(calls):
            value, key, partition, timestamp, headers = calls[self._next]
            try:
                produce(self._topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                return False
            except KafkaException as error:
                self._next += 1
                raise Refused(error.args[0], self._topic, len(value or b""), 1) from None
            self._next += 1
        return True


def parcels(
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int] | None,
    timestamps: Sequence[int] | None,
    headers: Sequence[Sequence[Header] | None] | None,
) -> list[Parcel]:
    """Columns as parcels: few large ones where librdkafka takes batches."""
    if timestamps is None and headers is None:
        return _batches(topic, values, keys, partitions)
    return [_singles(topic, values, keys, partitions, timestamps, headers)]


def _batches(
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int] | None,
) -> list[Parcel]:
    messages: list[dict[str, Any]]
    if keys is None:
        messages = [{"value": value} for value in values]
    else:
        messages = [{"value": value, "key": key} for value, key in zip(values, keys, strict=True)]
    if partitions is None:
        return [Batch(topic, None, messages)]
    by_partition: dict[int, list[dict[str, Any]]] = {}
    for partition, message in zip(partitions, messages, strict=True):
        by_partition.setdefault(partition, []).append(message)
    return [Batch(topic, partition, part) for partition, part in by_partition.items()]


def _singles(
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int] | None,
    timestamps: Sequence[int] | None,
    headers: Sequence[Sequence[Header] | None] | None,
) -> Singles:
    count = len(values)
    columns = (
        values,
        keys if keys is not None else [None] * count,
        partitions if partitions is not None else [-1] * count,
        # 0 lets librdkafka put the time of sending, as it does for a record without a timestamp.
        [max(timestamp, 0) for timestamp in timestamps] if timestamps is not None else [0] * count,
        [list(one) if one else None for one in headers] if headers is not None else [None] * count,
    )
    return Singles(topic, list(zip(*columns, strict=True)))
