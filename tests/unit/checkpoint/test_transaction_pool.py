"""Random lives of a sink's transactions: a bounded pool, no listed id opened again, commits once and in order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.sinks import Driven, permit
from tidegate.checkpoint import transactions as t
from tidegate.checkpoint.protocol import CheckpointAbandoned, Committable, Committed, PendingTransaction, Retry
from tidegate.ids import CheckpointId, TransactionalId


class RandomRun:
    """Checkpoints within the limit of the rules: completed, or abandoned at most `tolerable` times in a row."""

    def __init__(self, seed: int, tolerable: int, flushes: bool) -> None:
        self.random = random.Random(seed)
        self.flushes = flushes
        self.flushed: TransactionalId | None = None
        self.tolerable = tolerable
        self.found = Driven(limit=4 + 2 * tolerable)
        self.side: list[t.Command] = []
        self.listed: frozenset[str] = frozenset()
        """By the newest completed checkpoint."""
        self.snapshot: tuple[PendingTransaction, ...] | None = None
        self.commits: list[Committable] = []
        self.reported = 0
        self.highest_slot = 0

    def do(self, event: t.Event) -> None:
        for command in self.found.do(event):
            match command:
                case t.SinkReady(_, listed):
                    self.snapshot = listed
                case t.SinkCommitted(checkpoint):
                    self.reported = checkpoint
                case t.WakeAt(at):
                    self.found.now = at
                    self.side.append(command)
                case t.FailTask(failure):
                    raise AssertionError(failure.message)
                case _:
                    self.side.append(command)

    def step(self) -> None:
        """One command of the side thread; it works in order."""
        command = self.side.pop(0)
        match command:
            case t.OpenTransaction(id):
                assert str(id) not in self.listed, f"{id} is opened while the newest checkpoint lists it"
                assert str(id) not in {p.committable.id for p in self.found.sink.pending}
                self.highest_slot = max(self.highest_slot, id.slot)
                self.do(t.Opened(id))
            case t.PrepareTransaction(id) if self.flushes and self.flushed != id:
                self.flushed = id
                self.side.insert(0, command)
                self.do(t.Flushed(id))
            case t.PrepareTransaction(id):
                empty = self.random.random() < 0.1
                self.do(t.Prepared(id, None if empty else Committable(str(id), {"n": self.random.random()})))
            case t.CheckPending(checkpoint):
                self.do(t.Checked(checkpoint))
            case t.CommitTransaction(committable):
                retries = self.random.random() < 0.3
                self.commits += [] if retries else [committable]
                self.do(t.CommitAnswered(committable, Retry("busy") if retries else Committed()))
            case t.WakeAt():
                self.do(t.Wake())

    def drain(self, chance: float) -> None:
        while self.side and self.random.random() < chance:
            self.step()

    def run(self) -> None:
        self.do(t.Start())
        failures = 0
        for number in range(1, 40):
            checkpoint = CheckpointId(number)
            self.drain(0.7)
            if self.found.sink.is_writable and self.random.random() < 0.8:
                self.found.sink.has_written = True
            self.snapshot = None
            self.do(t.BarrierPassed(checkpoint))
            if failures < self.tolerable and self.random.random() < 0.5:
                failures += 1
                self.drain(0.7)
                self.do(CheckpointAbandoned(checkpoint))
                continue
            failures = 0
            self.complete(checkpoint)

    def complete(self, checkpoint: CheckpointId) -> None:
        self.drain(1.1)
        assert self.snapshot is not None, "the sink never got ready"
        self.listed = frozenset(pending.committable.id for pending in self.snapshot)
        expected = tuple(pending.committable for pending in self.snapshot)
        self.commits = []
        self.do(t.Permitted(permit(checkpoint)))
        self.drain(1.1)
        assert self.reported == checkpoint
        assert tuple(self.commits) == expected, "all of them, once, in order"
        assert self.found.sink.pending == ()


@given(seed=st.integers(0, 2**32), tolerable=st.integers(0, 3), flushes=st.booleans())
def test_the_pool_stays_within_its_bound_whatever_is_abandoned(seed: int, tolerable: int, flushes: bool) -> None:
    run = RandomRun(seed, tolerable, flushes)
    run.run()
    assert run.highest_slot < 4 + 2 * tolerable
