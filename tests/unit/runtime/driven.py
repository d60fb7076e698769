"""A sink's driver, its sink and what it said, for tests that look at every call."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.runtime.harness import HandClock, HandExecutor
from tidegate.checkpoint.participant import SinkCommitted, SinkReady
from tidegate.checkpoint.protocol import CheckpointCompleted, CommitPermit, Committable, Outcome
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.connectors.collections import CollectionSink, CollectionTransaction
from tidegate.elements import Batch
from tidegate.errors import Failure
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import SinkContext
from tidegate.runtime.sink_driver import SinkDriver

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)


class Troubled:
    """The writer of a `CollectionSink` in front of which trouble may stand, by the name of the call."""

    def __init__(self, sink: CollectionSink) -> None:
        context = SinkContext(JobName("job"), OperatorName("out"), SubtaskIndex(0), 1, Attempt(1))
        self._inner = sink.open_writer(context)
        self.trouble: dict[str, Callable[[], Any]] = {}
        self.calls: list[str] = []

    def begin(self, id: TransactionalId) -> CollectionTransaction:
        transaction: CollectionTransaction = self._call("begin", lambda: self._inner.begin(id))
        return transaction

    def has_room(self, txn: CollectionTransaction) -> bool:
        has_room: bool = self.trouble["has_room"]() if "has_room" in self.trouble else self._inner.has_room(txn)
        return has_room

    def write(self, txn: CollectionTransaction, batch: Batch) -> None:
        self._call("write", lambda: self._inner.write(txn, batch))

    def prepare(self, txn: CollectionTransaction) -> Committable | None:
        committable: Committable | None = self._call("prepare", lambda: self._inner.prepare(txn))
        return committable

    def check(self, committables: Sequence[Committable]) -> None:
        self._call("check", lambda: self._inner.check(committables))

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        outcome: Outcome = self._call("commit", lambda: self._inner.commit(committable, permit))
        return outcome

    def abandon(self, txn: CollectionTransaction) -> None:
        self._call("abandon", lambda: self._inner.abandon(txn))

    def close(self) -> None:
        self._call("close", self._inner.close)

    def _call(self, name: str, act: Callable[[], Any]) -> Any:
        self.calls.append(name)
        return self.trouble[name]() if name in self.trouble else act()


class Flushing(Troubled):
    """One that can say when nothing can overtake any more what was written."""

    def flush(self, txn: CollectionTransaction) -> None:
        self._call("flush", lambda: None)


class Driven:
    """A driver, its sink and what it said."""

    def __init__(self, writer: type[Troubled] = Troubled) -> None:
        self.sink = CollectionSink()
        self.writer = writer(self.sink)
        self.clock = HandClock()
        self.executor = HandExecutor()
        self.told: list[SinkReady | SinkCommitted] = []
        self.failures: list[Failure] = []
        transactions = SinkTransactions(
            "job", LogInstance("log"), Attempt(1), OperatorName("out"), SubtaskIndex(0), pool_limit=4
        )
        self.driver = SinkDriver(
            self.writer, transactions, "sink", self.executor, self.clock, self.told.append, self.failures.append
        )
        self.driver.start()

    @classmethod
    def opened(cls, writer: type[Troubled] = Troubled) -> "Driven":
        it = cls(writer)
        it.executor.run_all()
        return it

    def prepared(self, checkpoint: CheckpointId, *values: int) -> "Driven":
        self.driver.write(Batch(list(values)))
        self.driver.barrier(checkpoint)
        self.executor.run_all()
        return self

    def permit(self, checkpoint: CheckpointId) -> None:
        self.driver.permit(CommitPermit(CheckpointCompleted(Attempt(1), checkpoint)))

    def fail_with(self, call: str, error: Exception) -> None:
        def trouble() -> None:
            raise error

        self.writer.trouble[call] = trouble

    @property
    def pending(self) -> list[tuple[int, str]]:
        """Checkpoint and slot of what the last `SinkReady` listed."""
        ready = [event for event in self.told if isinstance(event, SinkReady)][-1]
        return [(pending.checkpoint, pending.committable.id[-1]) for pending in ready.pending]
