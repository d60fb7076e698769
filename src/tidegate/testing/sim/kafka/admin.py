"""`TransactionAdmin` over the simulated cluster: what tools, recovery and the sink's own checks ask and do."""

from collections.abc import Mapping, Sequence

from tidegate.connectors.kafka.client import (
    EndAnswer,
    PartitionProducer,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.errors import Subject, of_code
from tidegate.connectors.kafka.transactions import end_version
from tidegate.errors import UnavailableError
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.kafka.line import Line

FENCE_TIMEOUT = 1000
"""Milliseconds: a timeout must be given, and no transaction follows."""
FENCE_PATIENCE = 2.0
"""Seconds for which the markers of what was aborted are waited for."""
REFUSED = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_TXN_STATE,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.PRODUCER_FENCED,
    }
)


class SimTransactionAdmin:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._cluster = line.cluster

    def describe(self, id: str) -> TransactionDescription | None:
        return self._line.ask(f"describes {id}", lambda: self._cluster.describe(id))

    def open_ids(self) -> list[str]:
        return self._line.ask("lists transactions", lambda: self._cluster.ids(TransactionState.ONGOING))

    def commit(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        what = f"ends {id} of {producer_id}/{epoch}"
        return self._line.ask(what, lambda: self._end(id, producer_id, epoch), can_land_later=True)

    def _end(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        version = end_version(epoch, self._cluster.limits.coordinator.transaction_version)
        try:
            self._cluster.end(id, producer_id, epoch, commit=True, version=version)
        except BrokerError as error:
            if error.code is Code.CONCURRENT_TRANSACTIONS:
                return EndAnswer.CONCURRENT
            if error.code in REFUSED:
                return EndAnswer.REFUSED
            raise
        return EndAnswer.DONE

    def fence(self, id: str) -> None:
        for pause in self._line.pauses(FENCE_PATIENCE):
            if self._is_fenced(id):
                return
            self._line.pause(pause)
        raise UnavailableError(f"fencing {id}: markers are still being written")

    def _is_fenced(self, id: str) -> bool:
        def initialise() -> bool:
            try:
                self._cluster.initialise(id, FENCE_TIMEOUT)
            except BrokerError as error:
                if error.code is Code.CONCURRENT_TRANSACTIONS:
                    return False
                raise
            return True

        return self._line.ask(f"fences {id}", initialise, can_land_later=True, subject=Subject(id=id))

    def producers(self, partitions: Sequence[TopicPartition]) -> list[PartitionProducer]:
        wanted = sorted(set(partitions))
        return self._line.ask(f"asks for the producers of {_brief(wanted)}", lambda: self._producers(wanted))

    def _producers(self, partitions: Sequence[TopicPartition]) -> list[PartitionProducer]:
        rows: list[PartitionProducer] = []
        for partition in partitions:
            try:
                rows += self._cluster.producers(partition)
            except BrokerError as error:
                if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return rows

    def first_sequences(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        def asked() -> dict[TopicPartition, int]:
            return {partition: self._cluster.sequence_at(partition, offset) for partition, offset in offsets.items()}

        return self._line.ask(f"reads the first batches of {_brief(sorted(offsets))}", asked)

    def write_markers(self, rows: Sequence[PartitionProducer], commit: bool) -> None:
        epoch = max(0, *(row.coordinator_epoch for row in rows))
        for row in rows:
            what = f"writes the end of {row.producer_id}/{row.epoch} into {row.partition}"
            try:
                self._line.request(what, lambda row=row: self._mark(row, commit, epoch), can_land_later=True)  # type: ignore[misc]
            except BrokerError as error:
                raise of_code(error.code, what, str(error), Subject(operation="CLUSTER_ACTION")) from None

    def _mark(self, row: PartitionProducer, commit: bool, coordinator_epoch: int) -> None:
        self._cluster.mark(row.partition, row.producer_id, row.epoch, commit, coordinator_epoch)

    def maximum_timeout(self) -> float:
        limits = self._cluster.coordinator.limits
        return self._line.ask("asks for the maximum timeout", lambda: limits.maximum_timeout / 1000)

    def close(self) -> None:
        """Nothing to release."""


def _brief(partitions: Sequence[TopicPartition]) -> str:
    return " ".join(map(str, partitions))
