"""Fetching single batches and reading what their headers say of the producer. Records themselves are never decoded.

Pure: requests out of data, data out of responses.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.protocol.consumer import FetchRequest

from tidegate.connectors.kafka.client import TopicPartition

VERSION = 11
"""The last but one that names topics, and one that every broker since 3.0 has."""
BYTES_MAX = 8 * 1024 * 1024
FIRST_BYTES = 64 * 1024
"""Of one partition, when it is asked for the first time: a transaction mostly begins with a small batch."""
BATCH_BYTES_MAX = 1024 * 1024
"""The same, of those that sent nothing then. A batch that is larger comes as a whole when it is the first of a
response."""
NO_SESSION = -1

_SEQUENCE = struct.Struct(">i")
_SEQUENCE_AT = 53
"""Where a batch's header (format 2) has the sequence number of its first record."""


def request(offsets: Mapping[TopicPartition, int], most: int) -> Any:
    """For the batch at each offset. Not every partition needs to be in the response, at least one is: larger batches
    than `most` bytes are not, but for the first."""
    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=number,
                current_leader_epoch=-1,
                fetch_offset=offset,
                log_start_offset=-1,
                partition_max_bytes=most,
                version=VERSION,
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=BYTES_MAX,
        isolation_level=0,
        session_id=0,
        session_epoch=NO_SESSION,
        topics=[
            FetchRequest.FetchTopic(topic=topic, partitions=partitions, version=VERSION)
            for topic, partitions in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id="",
        version=VERSION,
    )


def first_sequences(response: Any) -> Iterator[tuple[TopicPartition, int, int | None]]:
    """Partition, error code, and the sequence number of its first batch; None where the response has none of it."""
    for topic in response.responses:
        for row in topic.partitions:
            partition = TopicPartition(topic.topic, row.partition_index)
            yield partition, row.error_code, _first_sequence(bytes(row.records or b""))


def _first_sequence(records: bytes) -> int | None:
    if len(records) < _SEQUENCE_AT + _SEQUENCE.size:
        return None
    sequence: int = _SEQUENCE.unpack_from(records, _SEQUENCE_AT)[0]
    return sequence
