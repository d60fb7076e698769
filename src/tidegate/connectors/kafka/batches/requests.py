"""Requests of data and data of responses, for reading. Pure: nothing is sent here.

Each version is named here. All of them are there in every broker since Kafka 3.0, and name topics by name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from tidegate.connectors.kafka.batches.visibility import Aborted
from tidegate.connectors.kafka.client import Isolation, TopicPartition
from tidegate.connectors.kafka.wire import Address

FETCH_VERSION = 12
"""The first in which a broker says that the log has become another one behind the reader's back."""
LIST_OFFSETS_VERSION = 6
METADATA_VERSION = 9
FIND_COORDINATOR_VERSION = 4
OFFSET_COMMIT_VERSION = 8

CONSUMER = -1
"""As the id of a replica: none."""
NO_SESSION = -1
NO_EPOCH = -1
EARLIEST, LATEST = -2, -1
GROUP_KEY = 0
NO_GENERATION = -1
ISOLATION_LEVELS: Mapping[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}


class FetchRow(NamedTuple):
    """What is asked of one partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    """Of the leader that is asked, so that one that is none any more says so."""
    last_epoch: int
    """Of the leader that wrote the last batch before `offset`; -1 where nothing is known of it."""


class FetchLimits(NamedTuple):
    max_bytes: int
    partition_max_bytes: int
    min_bytes: int
    isolation: Isolation
    rack: str = ""
    """Where the reader is: a leader may name a replica that is nearer."""


class FetchedRow(NamedTuple):
    """What is answered of one partition."""

    partition: TopicPartition
    code: int
    records: bytes
    aborted: tuple[Aborted, ...]
    diverged_at: int
    """Where the log that was read ends to be the one that is there; -1 where it is the same."""
    nearer: int = -1
    """The replica to ask instead, as there are no records; -1 for none."""


def fetch(rows: Sequence[FetchRow], limits: FetchLimits, wait: float, itself: bool = False) -> Any:
    """`wait`: seconds within which there must be `min_bytes`, or the answer is empty. `itself`: as in `Fetch`."""
    topics: dict[str, list[Any]] = {}
    for row in rows:
        topics.setdefault(row.partition.topic, []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=row.partition.partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                last_fetched_epoch=row.last_epoch,
                log_start_offset=-1,
                partition_max_bytes=limits.partition_max_bytes,
                version=FETCH_VERSION,
            )
        )
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=round(wait * 1000),
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=ISOLATION_LEVELS[limits.isolation],
        session_id=0,
        session_epoch=NO_SESSION,
        topics=[
            FetchRequest.FetchTopic(topic=topic, partitions=partitions, version=FETCH_VERSION)
            for topic, partitions in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id="" if itself else limits.rack,
        version=FETCH_VERSION,
    )


def fetched_rows(response: Any) -> list[FetchedRow]:
    return [
        FetchedRow(
            TopicPartition(topic.topic, row.partition_index),
            row.error_code,
            row.records or b"",
            tuple(Aborted(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()),
            -1 if row.diverging_epoch is None else row.diverging_epoch.end_offset,
            row.preferred_read_replica,
        )
        for topic in response.responses
        for row in topic.partitions
    ]


def list_offsets(partition: TopicPartition, leader_epoch: int, at: int) -> Any:
    """`at`: EARLIEST or LATEST. The latest is the high watermark, also for who reads committed records."""
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=ISOLATION_LEVELS["read_uncommitted"],
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=partition.topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                        partition_index=partition.partition,
                        current_leader_epoch=leader_epoch,
                        timestamp=at,
                        version=LIST_OFFSETS_VERSION,
                    )
                ],
                version=LIST_OFFSETS_VERSION,
            )
        ],
        version=LIST_OFFSETS_VERSION,
    )


def listed_offset(response: Any) -> tuple[int, int]:
    """Error code and offset."""
    ((row,),) = ([*topic.partitions] for topic in response.topics)
    return row.error_code, row.offset


def metadata(topics: Sequence[str], creates: bool = False) -> Any:
    """`creates`: brokers that make topics when they are asked for some make these."""
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic, version=METADATA_VERSION) for topic in topics],
        allow_auto_topic_creation=creates,
        version=METADATA_VERSION,
    )


def find_group_coordinator(group: str) -> Any:
    return FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group], version=FIND_COORDINATOR_VERSION)


def coordinator(response: Any) -> tuple[int, Address]:
    """Error code and address."""
    (row,) = response.coordinators
    return row.error_code, Address(row.host, row.port)


def offset_commit(group: str, positions: Mapping[TopicPartition, int]) -> Any:
    """By somebody who is no member of the group."""
    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in positions.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=NO_EPOCH,
                committed_metadata="",
                version=OFFSET_COMMIT_VERSION,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        group_instance_id=None,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows, version=OFFSET_COMMIT_VERSION)
            for topic, rows in topics.items()
        ],
        version=OFFSET_COMMIT_VERSION,
    )


def commit_codes(response: Any) -> list[int]:
    """Of all partitions."""
    return [row.error_code for topic in response.topics for row in topic.partitions]
