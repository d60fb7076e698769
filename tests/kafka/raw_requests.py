"""Requests that the connector never sends, or not in this version; and transactions that dead producers left."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest

from tests.kafka.brokers import Broker, unique
from tidegate.connectors.kafka.batches import produce_requests
from tidegate.connectors.kafka.client import (
    EndAnswer,
    TopicPartition,
    TransactionAdmin,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.wire import Address, Brokers, name_of

COMMIT, ABORT = True, False
PATIENCE = 30.0


class Left(NamedTuple):
    """A prepared transaction whose producer is dead."""

    id: str
    topic: str
    description: TransactionDescription

    @property
    def owner(self) -> tuple[str, int, int]:
        """What `commit` takes."""
        return self.id, self.description.producer_id, self.description.epoch


def leave_transaction(kafka: Broker, admin: TransactionAdmin, records: int = 20, timeout: float = 60.0) -> Left:
    """A child process writes it into two partitions of a new topic and dies by SIGKILL."""
    transactional_id, topic = unique("left"), kafka.create_topic(partitions=2)
    script = Path(__file__).with_name("dead_producer.py")
    arguments = [kafka.bootstrap, transactional_id, topic, str(records), str(int(timeout * 1000))]
    child = subprocess.run([sys.executable, str(script), *arguments], check=False)
    assert child.returncode == -signal.SIGKILL
    description = admin.describe(transactional_id)
    assert description is not None
    return Left(transactional_id, topic, description)


class RawRequests:
    """Sends one request and returns the name of the error code that comes back."""

    def __init__(self, bootstrap: str) -> None:
        self._brokers = Brokers(bootstrap, Connection(bootstrap).kafka_python_config(), 10)
        self._coordinators: dict[str, Address] = {}

    def coordinator(self, transactional_id: str) -> Address:
        """Waits while a new cluster makes the topic of its coordinators."""
        while transactional_id not in self._coordinators:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id], version=4)
            (row,) = self._brokers.send_any(request).coordinators
            if not row.error_code:
                self._coordinators[transactional_id] = Address(row.host, row.port)
        return self._coordinators[transactional_id]

    def end(self, id: str, producer_id: int, epoch: int, commit: bool, version: int) -> str:
        request = EndTxnRequest(
            transactional_id=id, producer_id=producer_id, producer_epoch=epoch, committed=commit, version=version
        )
        return name_of(self._brokers.send(self.coordinator(id), request).error_code)

    def add_partitions(self, id: str, producer_id: int, epoch: int, partition: TopicPartition) -> str:
        request = produce_requests.add_partitions(id, producer_id, epoch, [partition])
        while True:
            response = self._brokers.send(self.coordinator(id), request)
            code = name_of(produce_requests.added_codes(response)[partition])
            if code != "CONCURRENT_TRANSACTIONS":
                return code

    def initialise(self, id: str) -> tuple[str, int, int]:
        """The error, the producer id and the epoch; waits while the coordinator is loading."""
        while True:
            response = self._brokers.send(self.coordinator(id), initialise_request(id))
            code = name_of(response.error_code)
            if code not in {"COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"}:
                return code, response.producer_id, response.producer_epoch

    def write_abort_marker(self, leader: Address, partition: TopicPartition, producer_id: int, epoch: int) -> str:
        """What `kafka-transactions.sh abort` does."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition], version=1)
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    transaction_result=False,
                    topics=[topic],
                    coordinator_epoch=-1,
                    version=1,
                )
            ],
            version=1,
        )
        response = self._brokers.send(leader, request)
        return name_of(response.markers[0].topics[0].partitions[0].error_code)

    def close(self) -> None:
        self._brokers.close()


def initialise_request(id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, version=4
    )


# ---- waiting --------------------------------------------------------------------------------------------------------


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def described(admin: TransactionAdmin, id: str) -> TransactionDescription:
    description = admin.describe(id)
    assert description is not None
    return description


def commit(admin: TransactionAdmin, left: Left) -> EndAnswer:
    """The answer that is not `CONCURRENT`."""
    answers = iter(lambda: admin.commit(*left.owner), None)
    return next(answer for answer in answers if answer is not EndAnswer.CONCURRENT)


def await_state(admin: TransactionAdmin, id: str, state: TransactionState) -> TransactionDescription:
    until(lambda: described(admin, id).state is state)
    return described(admin, id)
