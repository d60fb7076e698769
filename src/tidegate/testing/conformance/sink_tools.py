"""The part of the sink suite about what the engine and people ask besides the two phases: room, timeouts, descriptions.

`sink.TransactionalSinkConformance` includes it; nobody needs to derive from this alone.
"""

import pytest

from tidegate.checkpoint.protocol import AlreadyCommitted, Committed
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.contracts import TransactionInfo
from tidegate.testing.conformance.sink_kit import SinkKit


class SinkToolsConformance(SinkKit):
    """Each test is one promise."""

    def test_a_transaction_has_room_before_and_between_batches(self) -> None:
        writer = self.writer()
        txn = writer.begin(self.id())
        for number in range(3):
            self.eventually(lambda: writer.has_room(txn), True)
            writer.write(txn, Batch([f"a-{number}"]))
        committable = writer.prepare(txn)
        assert committable is not None
        self.commit(writer, committable)
        self.reads("a-0", "a-1", "a-2")

    def test_there_is_room_where_a_write_would_raise(self) -> None:
        """Otherwise nobody would ever learn of the error."""
        writer = self.writer()
        txn = writer.begin(self.id())
        self.recovery().abort(self.id())
        self.eventually(lambda: writer.has_room(txn), True)
        self.fails(writer, txn)

    def test_a_short_need_fits_into_the_timeout(self) -> None:
        self.recovery().check_timeout(0.001)

    def test_a_need_beyond_the_timeout_is_refused(self) -> None:
        if not self.has_timeout:
            pytest.skip("this sink's transactions never time out")
        with pytest.raises(InvalidError) as refused:
            self.recovery().check_timeout(1e9)
        assert refused.value.failure.remedy

    def test_an_id_that_nobody_used_has_no_description(self) -> None:
        assert self.recovery().describe(self.id(9)) is None

    def test_a_prepared_transaction_is_described_with_what_commits_it(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        described = self._described()
        assert described.id == self.id()
        assert described.committable is not None
        assert self.commit(self.recovery(), described.committable) == Committed()
        self.reads("a-1")
        assert self.commit(self.recovery(), committable) == AlreadyCommitted()

    def test_what_is_committed_or_aborted_is_described_as_not_committable(self) -> None:
        self.commit(self.writer(), self.prepared(self.id(0), "a-1"))
        self.eventually(lambda: self._described(0).committable, None)
        self.prepared(self.id(1), "a-2")
        self.recovery().abort(self.id(1))
        self.eventually(lambda: self._described(1).committable, None)

    def test_only_the_newest_use_of_an_id_is_described(self) -> None:
        writer = self.writer()
        self.commit(writer, self.prepared(self.id(), "a-1", writer=writer))
        second = self.prepared(self.id(), "a-2", writer=writer)
        described = self._described().committable
        assert described is not None
        self.commit(writer, described)
        self.reads("a-1", "a-2")
        assert self.commit(writer, second) == AlreadyCommitted()

    def _described(self, slot: int = 0) -> TransactionInfo:
        found = self.recovery().describe(self.id(slot))
        assert found is not None, "a transaction that was prepared is known"
        return found
