"""Both sinks of the package keep the promises of a transactional sink, and the kit finds sinks that break one."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.unit.connectors.children import call_and_kill
from tests.unit.connectors.clocks import HandClock
from tidegate.checkpoint.protocol import CommitPermit, Committable, Committed, Outcome
from tidegate.connectors import collections
from tidegate.connectors.collections import CollectionSink, CollectionSinkWriter, CollectionTransaction
from tidegate.elements import Batch
from tidegate.errors import LostDataError
from tidegate.formats import String
from tidegate.ids import OperatorName, TransactionalId
from tidegate.local import LocalLog, LocalSink
from tidegate.operators.contracts import Sink, SinkContext, TransactionalSink, TransactionRecovery
from tidegate.testing.conformance.sink import TransactionalSinkConformance

T = TypeVar("T")


def before_the_dash(text: str) -> str:
    return text.partition("-")[0]


class TestLocalSink(TransactionalSinkConformance):
    has_timeout = True
    unwritable = 5

    def set_up(self, directory: Path) -> None:
        super().set_up(directory)
        self.clock = HandClock()

    def sink(self) -> Sink:
        return LocalSink(
            self.directory, "output", value=String(), key=before_the_dash, partitions=3, timeout=60, clock=self.clock
        )

    def read_committed(self) -> list[str]:
        with LocalLog(self.directory, clock=self.clock) as log:
            if "output" not in log.topics():
                return []
            return [
                str(record.value, "utf-8") for part in range(3) for record in log.read("output", part) if record.value
            ]

    def read_everything(self) -> list[str]:
        with LocalLog(self.directory, clock=self.clock) as log:
            records = [log.read("output", part, isolation="read_uncommitted") for part in range(3)]
        return [str(record.value, "utf-8") for part in records for record in part if record.value]

    def in_child(self, function: Callable[..., T], *arguments: Any) -> T:
        return call_and_kill(function, *arguments)

    def time_out(self) -> None:
        self.clock.seconds += 61

    def pause(self) -> None:
        time.sleep(0.01)


class TestCollectionSink(TransactionalSinkConformance):
    def set_up(self, directory: Path) -> None:
        super().set_up(directory)
        self.kept = self.made()

    def made(self) -> CollectionSink:
        return CollectionSink()

    def sink(self) -> Sink:
        return self.kept

    def read_committed(self) -> list[str]:
        return self.kept.committed

    def read_everything(self) -> list[str]:
        return self.kept.committed + [text for texts in self.kept.open.values() for text in texts]


def test_a_collection_sink_says_that_it_is_for_one_process() -> None:
    assert CollectionSink.in_process_only


def test_collection_sinks_share_their_memory_by_name() -> None:
    assert CollectionSink("shared")._store is CollectionSink("shared")._store
    assert CollectionSink()._store is not CollectionSink()._store


class WrongSink(CollectionSink):
    """A sink whose writers or recovery break one promise."""

    def __init__(self, writer: type["CollectionSinkWriter"], recovery: type["collections.CollectionRecovery"]) -> None:
        super().__init__()
        self._writer = writer
        self._recovery = recovery

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        return self._writer(self._store)

    def open_recovery(self) -> TransactionRecovery:
        return self._recovery(self._store)


class AbortsOnClose(CollectionSinkWriter):
    def close(self) -> None:
        for id in self._store.transactions:
            self._store.abort_open(id)


class AbortsOnAbandon(CollectionSinkWriter):
    def abandon(self, txn: CollectionTransaction) -> None:
        self._store.abort_open(txn.id)


class CommitsAtPrepare(CollectionSinkWriter):
    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        committable = super().prepare(txn)
        if committable is not None:
            self._store.commit(committable)
        return committable


class TakesAnyOutcomeForSuccess(CollectionSinkWriter):
    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        super().commit(committable, permit)
        return Committed()


class LosesARecord(CollectionSinkWriter):
    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        super().write(txn, Batch(batch.values[:1] + batch.values[2:]))


class DoublesARecord(CollectionSinkWriter):
    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        super().write(txn, Batch(batch.values[:1] + batch.values))


class ChecksNothing(CollectionSinkWriter):
    def check(self, committables: Any) -> None:
        pass


class DoesNotFence(CollectionSinkWriter):
    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        txn.values += batch.values

    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        return Committable(txn.id, {"epoch": txn.epoch})


class NeedsNoPermit(CollectionSinkWriter):
    def commit(self, committable: Committable, permit: CommitPermit | None = None) -> Outcome:
        return self._store.commit(committable)


class ReusesTheEpoch(CollectionSinkWriter):
    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        committable = super().prepare(txn)
        if committable is not None:
            self._store.transactions[txn.id] = [txn]
            return Committable(txn.id, {"epoch": 0})
        return None


class MatchesByBeginning(collections.CollectionRecovery):
    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        found = [TransactionalId.parse(transaction.id) for transaction in self._store.with_records()]
        return sorted(id for id in found if id is not None and str(id).startswith(prefix) and id.sink == sink)


class AbortsNothing(collections.CollectionRecovery):
    def abort(self, id: TransactionalId) -> None:
        pass


RIGHT_WRITER = CollectionSinkWriter
RIGHT_RECOVERY = collections.CollectionRecovery
WRONG: dict[str, tuple[Any, Any, str]] = {
    "aborts on close": (AbortsOnClose, RIGHT_RECOVERY, "test_closing_aborts_nothing_and_commits_nothing"),
    "aborts on abandon": (AbortsOnAbandon, RIGHT_RECOVERY, "test_an_abandoned_transaction_stays_committable"),
    "commits at prepare": (
        CommitsAtPrepare,
        RIGHT_RECOVERY,
        "test_nothing_is_visible_before_the_commit_and_all_of_it_after",
    ),
    "takes any outcome for success": (
        TakesAnyOutcomeForSuccess,
        RIGHT_RECOVERY,
        "test_a_transaction_that_was_aborted_is_lost",
    ),
    "loses a record": (LosesARecord, RIGHT_RECOVERY, "test_the_order_within_a_partition_is_the_order_of_writing"),
    "doubles a record": (DoublesARecord, RIGHT_RECOVERY, "test_a_large_transaction_is_there_as_a_whole"),
    "checks nothing": (ChecksNothing, RIGHT_RECOVERY, "test_check_passes_what_is_pending_and_nothing_else"),
    "does not fence": (
        DoesNotFence,
        RIGHT_RECOVERY,
        "test_begin_aborts_what_is_open_under_its_id_and_fences_the_producer",
    ),
    "needs no permit": (NeedsNoPermit, RIGHT_RECOVERY, "test_committing_needs_a_permit"),
    "reuses the epoch": (
        ReusesTheEpoch,
        RIGHT_RECOVERY,
        "test_an_old_committable_never_commits_a_later_transaction_of_its_id",
    ),
    "matches by beginning": (
        RIGHT_WRITER,
        MatchesByBeginning,
        "test_open_transactions_are_found_by_the_parts_of_their_ids",
    ),
    "aborts nothing": (RIGHT_WRITER, AbortsNothing, "test_what_was_committed_or_aborted_is_not_open"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("right", [False, True])
def test_the_kit_finds_a_sink_that_breaks_a_promise(name: str, right: bool, tmp_path: Path) -> None:
    writer, recovery, test = WRONG[name]

    class Kit(TestCollectionSink):
        __test__ = False
        patience = 0.05

        def made(self) -> CollectionSink:
            return WrongSink(RIGHT_WRITER, RIGHT_RECOVERY) if right else WrongSink(writer, recovery)

    kit = Kit()
    kit.set_up(tmp_path)
    if right:
        getattr(kit, test)()
        return
    with pytest.raises((AssertionError, pytest.fail.Exception, LostDataError)):
        getattr(kit, test)()
