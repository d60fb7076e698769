"""A sink's transaction machine, and short words for what tests do to it."""

from tidegate.checkpoint import transactions as t
from tidegate.checkpoint.protocol import CheckpointCompleted, CommitPermit, Committable, Outcome, PendingTransaction
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.clock import Now
from tidegate.ids import Attempt, CheckpointId, LogInstance, OperatorName, SubtaskIndex, TransactionalId

ATTEMPT = Attempt(2)


def slot(number: int) -> TransactionalId:
    return TransactionalId("app", LogInstance("5f2c"), ATTEMPT, OperatorName("write"), SubtaskIndex(0), number)


def committable(number: int) -> Committable:
    return Committable(str(slot(number)))


def permit(checkpoint: int) -> CommitPermit:
    return CommitPermit(CheckpointCompleted(ATTEMPT, CheckpointId(checkpoint)))


def pending(checkpoint: int, number: int) -> PendingTransaction:
    return PendingTransaction(CheckpointId(checkpoint), committable(number))


class Driven:
    """The machine, with time."""

    def __init__(self, limit: int = 10) -> None:
        self.sink = SinkTransactions("app", LogInstance("5f2c"), ATTEMPT, OperatorName("write"), SubtaskIndex(0), limit)
        self.now = 0.0

    def do(self, event: t.Event) -> list[t.Command]:
        return self.sink.handle(event, Now(self.now, self.now))

    def started(self) -> "Driven":
        """With slot 0 open and slot 1 ahead."""
        assert self.do(t.Start()) == [t.OpenTransaction(slot(0))]
        assert self.do(t.Opened(slot(0))) == [t.OpenTransaction(slot(1))]
        assert self.do(t.Opened(slot(1))) == []
        return self

    def write(self) -> None:
        assert self.sink.is_writable
        self.sink.has_written = True

    def barrier(self, checkpoint: int) -> list[t.Command]:
        return self.do(t.BarrierPassed(CheckpointId(checkpoint)))

    def prepared(self, number: int) -> list[t.Command]:
        return self.do(t.Prepared(slot(number), committable(number)))

    def answer(self, number: int, outcome: Outcome) -> list[t.Command]:
        return self.do(t.CommitAnswered(committable(number), outcome))
