"""Leaves transactions open at a broker, with records, by the hundred: as if their producers had just died.

It speaks to the brokers by single requests, because a client of librdkafka for each transaction would take minutes.
"""

import time
from collections.abc import Iterable
from contextlib import closing

from kafka.protocol.producer import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.kafka.raw_requests import RawRequests
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.wire import Address, Brokers, address_of, name_of

INITIALISE_VERSION = 4
ADD_VERSION = 3
PRODUCE_VERSION = 9
BATCH_BYTES = 4096
PATIENCE = 30.0
TIMEOUT = 900.0
"""Seconds, the most that a broker allows by default: nobody but the job is to end them."""
LOADING = {"COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"}


def leave_open(bootstrap: str, ids: Iterable[str], topic: str, partitions: int) -> None:
    """One transaction under each id, with a record in each partition. A cluster of one node, so that it coordinates and
    leads everything."""
    address = address_of(bootstrap)
    with (
        closing(RawRequests(bootstrap)) as coordinator,
        closing(Brokers(bootstrap, Connection(bootstrap).kafka_python_config(), PATIENCE)) as brokers,
    ):
        for id in ids:
            # A new cluster makes the topic of its coordinators when somebody asks for one.
            coordinator.coordinator(id)
            producer_id, epoch = _initialise(brokers, address, id)
            _add(brokers, address, (id, producer_id, epoch), topic, partitions)
            _produce(brokers, address, (id, producer_id, epoch), topic, partitions)


def _initialise(brokers: Brokers, address: Address, id: str) -> tuple[int, int]:
    request = InitProducerIdRequest(
        transactional_id=id,
        transaction_timeout_ms=int(TIMEOUT * 1000),
        producer_id=-1,
        producer_epoch=-1,
        version=INITIALISE_VERSION,
    )
    deadline = time.monotonic() + PATIENCE
    while (response := brokers.send(address, request)).error_code:
        assert name_of(response.error_code) in LOADING, name_of(response.error_code)
        assert time.monotonic() < deadline, "the coordinator is still loading"
        time.sleep(0.05)
    return response.producer_id, response.producer_epoch


def _add(brokers: Brokers, address: Address, owner: tuple[str, int, int], topic: str, partitions: int) -> None:
    id, producer_id, epoch = owner
    entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
        name=topic, partitions=list(range(partitions)), version=ADD_VERSION
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[entry],
        version=ADD_VERSION,
    )
    (found,) = brokers.send(address, request).results_by_topic_v3_and_below
    codes = [row.partition_error_code for row in found.results_by_partition]
    assert not any(codes), codes


def _produce(brokers: Brokers, address: Address, owner: tuple[str, int, int], topic: str, partitions: int) -> None:
    id, producer_id, epoch = owner
    data = [
        ProduceRequest.TopicProduceData.PartitionProduceData(
            index=partition, records=_batch(id, producer_id, epoch), version=PRODUCE_VERSION
        )
        for partition in range(partitions)
    ]
    request = ProduceRequest(
        transactional_id=id,
        acks=-1,
        timeout_ms=int(PATIENCE * 1000),
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data, version=PRODUCE_VERSION)],
        version=PRODUCE_VERSION,
    )
    (found,) = brokers.send(address, request).responses
    codes = [row.error_code for row in found.partition_responses]
    assert not any(codes), codes


def _batch(id: str, producer_id: int, epoch: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, producer_id, epoch, 0, BATCH_BYTES)
    builder.append(0, int(time.time() * 1000), None, id.encode(), [])
    return bytes(builder.build())
