"""Requests of data and data of responses, for writing. Pure: nothing is sent here.

Each version is named here. They are those of the transactions in which a producer adds each partition by a request and
keeps its epoch: `TransactionAdmin` finds and finishes those, whoever opened them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest

from tidegate.connectors.kafka.batches.building import Sealed
from tidegate.connectors.kafka.batches.requests import FIND_COORDINATOR_VERSION, coordinator
from tidegate.connectors.kafka.client import TopicPartition

__all__ = ["coordinator"]

PRODUCE_VERSION = 9
"""From 12 on a broker adds partitions by itself, in transactions of the newer kind."""
INITIALISE_VERSION = 4
ADD_PARTITIONS_VERSION = 3
TRANSACTION_KEY = 1
NO_TRANSACTION_TIMEOUT = -1
ALL_IN_SYNC, LEADER_ALONE = -1, 1


def find_transaction_coordinator(id: str) -> Any:
    return FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[id], version=FIND_COORDINATOR_VERSION)


def initialise(id: str | None, timeout: float) -> Any:
    """`timeout` in seconds, of the transactions; nothing without an id."""
    return InitProducerIdRequest(
        transactional_id=id,
        transaction_timeout_ms=NO_TRANSACTION_TIMEOUT if id is None else round(timeout * 1000),
        producer_id=-1,
        producer_epoch=-1,
        version=INITIALISE_VERSION,
    )


def add_partitions(id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> Any:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                name=topic, partitions=found, version=ADD_PARTITIONS_VERSION
            )
            for topic, found in numbers.items()
        ],
        version=ADD_PARTITIONS_VERSION,
    )


def added_codes(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def produce(id: str | None, acks: int, timeout: float, batches: Mapping[TopicPartition, Sealed]) -> Any:
    """`timeout`: seconds within which the other replicas must have them."""
    topics: dict[str, list[Any]] = {}
    for partition, batch in batches.items():
        topics.setdefault(partition.topic, []).append(
            ProduceRequest.TopicProduceData.PartitionProduceData(
                index=partition.partition, records=batch.data, version=PRODUCE_VERSION
            )
        )
    return ProduceRequest(
        transactional_id=id,
        acks=acks,
        timeout_ms=round(timeout * 1000),
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, partition_data=rows, version=PRODUCE_VERSION)
            for topic, rows in topics.items()
        ],
        version=PRODUCE_VERSION,
    )


def produced_codes(response: Any) -> dict[TopicPartition, tuple[int, str]]:
    """With the words that came with each."""
    return {
        TopicPartition(topic.name, row.index): (row.error_code, row.error_message or "")
        for topic in response.responses
        for row in topic.partition_responses
    }
