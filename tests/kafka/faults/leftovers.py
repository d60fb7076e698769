"""Transactions that nobody holds any more, opened and ended by requests alone: hundreds in a second, where a producer
for each would take a minute."""

from collections.abc import Iterable

from kafka.protocol.producer import AddPartitionsToTxnRequest

from tests.kafka.brokers import Broker
from tests.kafka.raw_requests import ABORT, RawRequests
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.wire import Brokers, name_of

VERSION = 3
"""Of AddPartitionsToTxn: the last that clients send for one transaction."""
BUSY = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"}


class Leftovers:
    """Opens transactions in partition 0 of `topic`, without a record in them."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._raw = RawRequests(broker.bootstrap)
        self._brokers = Brokers(broker.bootstrap, Connection(broker.bootstrap).kafka_python_config(), 10)

    def open(self, ids: Iterable[str]) -> None:
        """Each is Ongoing afterwards."""
        for id in ids:
            self._open(id)

    def register_and_abort(self, id: str) -> None:
        """A partition hears of the end of a transaction that never wrote to it."""
        owner = self._open(id)
        answers = iter(lambda: self._raw.end(id, *owner, ABORT, VERSION), None)
        assert next(answer for answer in answers if answer not in BUSY) == "NO_ERROR"

    def _open(self, id: str) -> tuple[int, int]:
        answers = iter(lambda: self._raw.initialise(id), None)
        code, producer_id, epoch = next(answer for answer in answers if answer[0] not in BUSY)
        assert code == "NO_ERROR", code
        while (added := self._add(id, producer_id, epoch)) in BUSY:
            pass
        assert added == "NO_ERROR", added
        return producer_id, epoch

    def _add(self, id: str, producer_id: int, epoch: int) -> str:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._topic, partitions=[0], version=VERSION)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
            version=VERSION,
        )
        answer = self._brokers.send(self._raw.coordinator(id), request)
        (row,) = answer.results_by_topic_v3_and_below
        (partition,) = row.results_by_partition
        return name_of(partition.partition_error_code)

    def close(self) -> None:
        self._raw.close()
        self._brokers.close()
