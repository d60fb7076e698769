"""Requests of data and data of responses, for what concerns transactions. Pure: nothing is sent here."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from tidegate.connectors.kafka.client import (
    PartitionProducer,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.wire import Address

FIRST_VERSION = 0
CONFIGS_VERSION = 4
MAXIMUM_TIMEOUT_SETTING = "transaction.max.timeout.ms"
BROKER_RESOURCE = 4
MARKERS_VERSION = 1
"""It does not say which protocol the transaction follows; leaders then take it for that of librdkafka's."""


class Cluster(NamedTuple):
    """One answer to Metadata."""

    brokers: dict[int, Address]
    leaders: dict[TopicPartition, tuple[int, int]]
    """Broker and leader epoch; a broker of -1 where there is none."""
    errors: dict[str, int]
    """Topics that could not be told, with the reason's code."""


def cluster_of(response: Any) -> Cluster:
    return Cluster(
        {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers},
        {
            TopicPartition(topic.name, partition.partition_index): (partition.leader_id, partition.leader_epoch)
            for topic in response.topics
            for partition in topic.partitions
        },
        {topic.name: topic.error_code for topic in response.topics if topic.error_code},
    )


def description(row: Any) -> TransactionDescription:
    states = {state.value: state for state in TransactionState}
    return TransactionDescription(
        id=row.transactional_id,
        state=states.get(row.transaction_state, TransactionState.UNKNOWN),
        producer_id=row.producer_id,
        epoch=row.producer_epoch,
        timeout=row.transaction_timeout_ms / 1000,
        started_at=row.transaction_start_time_ms / 1000 if row.transaction_start_time_ms >= 0 else None,
        partitions=tuple(sorted(TopicPartition(t.topic, number) for t in row.topics for number in t.partitions)),
    )


def producers_request(partitions: Sequence[TopicPartition]) -> Any:
    topics = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers, version=FIRST_VERSION)
        for topic, numbers in _numbers_by_topic(partitions).items()
    ]
    return DescribeProducersRequest(topics=topics, version=FIRST_VERSION)


def partition_answers(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def partition_producer(partition: TopicPartition, row: Any) -> PartitionProducer:
    start = row.current_txn_start_offset
    return PartitionProducer(
        partition,
        row.producer_id,
        row.producer_epoch,
        row.last_sequence + 1,
        start if start >= 0 else None,
        row.coordinator_epoch,
    )


def configs_request(node: int) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name=str(node),
        configuration_keys=[MAXIMUM_TIMEOUT_SETTING],
        version=CONFIGS_VERSION,
    )
    return DescribeConfigsRequest(resources=[resource], version=CONFIGS_VERSION)


def _numbers_by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def markers_request(rows: Sequence[PartitionProducer], commit: bool) -> Any:
    """The end of the transaction that one producer has open in the partitions of `rows`."""
    partitions = [row.partition for row in rows]
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [
        marker.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers, version=MARKERS_VERSION)
        for topic, numbers in _numbers_by_topic(partitions).items()
    ]
    written = marker(
        producer_id=rows[0].producer_id,
        producer_epoch=rows[0].epoch,
        transaction_result=commit,
        topics=topics,
        # A leader refuses markers of a coordinator older than that of the producer's last marker there.
        coordinator_epoch=max(0, *(row.coordinator_epoch for row in rows)),
        version=MARKERS_VERSION,
    )
    return WriteTxnMarkersRequest(markers=[written], version=MARKERS_VERSION)


def marker_answers(response: Any) -> Iterator[tuple[TopicPartition, int]]:
    """Each partition and the code of its error."""
    for marker in response.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                yield TopicPartition(topic.name, row.partition_index), row.error_code
