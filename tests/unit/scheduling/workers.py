"""Simulated workers for the JobManager: the real `Participant` and `SinkTransactions`, and records that are numbers.

Worker i runs read[i], and totals[i] with the sink `write` at its end; totals[i] gets the records of read[i] only, and
a barrier passes the worker in one step. What takes time is queued in the world's lanes: it chooses what happens next.
"""

from functools import partial
from typing import TYPE_CHECKING

from tests.unit.scheduling.programs import READ, TOTALS, WRITE, task
from tidegate.checkpoint import participant as part
from tidegate.checkpoint import transactions as txn
from tidegate.checkpoint.participant import Participant
from tidegate.checkpoint.protocol import (
    CheckpointAbandoned,
    CheckpointCompleted,
    Lost,
    OperatorSnapshot,
    Retry,
    SplitState,
    StateHandle,
    TriggerCheckpoint,
)
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, LogInstance, SubtaskIndex, WorkerIndex
from tidegate.runtime.control import (
    AssignSplits,
    Deploy,
    Drain,
    StopWorker,
    TaskEnded,
    TaskFailed,
    TaskRunning,
    ToJobManager,
    ToWorker,
    WorkerReady,
)

if TYPE_CHECKING:
    from tests.unit.scheduling.world import World

POOL_LIMIT = 6
"""4, and 2 for each tolerable failure, of which there is 1."""


class SimulatedWorker:
    def __init__(self, world: "World", process: int, attempt: Attempt, index: WorkerIndex) -> None:
        self.world = world
        self.process, self.attempt, self.index = process, attempt, index
        self.is_alive = True
        self.splits: dict[str, SplitState] = {}
        self.no_more = self.is_drained = False
        self.has_ended = False
        self.read_task, self.sink_task = task(READ, index), task(TOTALS, index)
        self.reader = Participant(self.read_task, attempt, None)
        self.totals = Participant(self.sink_task, attempt, WRITE)
        self.sink: SinkTransactions | None = None

    def ready(self) -> None:
        self.send(WorkerReady(self.index, self.attempt, self.world.graph.fingerprint(), f"data-{self.index}"))

    def send(self, message: ToJobManager) -> None:
        self.world.to_job_manager(self, message)

    # -- messages of the JobManager --

    def receive(self, message: ToWorker) -> None:
        if not self.is_alive:
            return
        match message:
            case Deploy():
                self.deploy(message.instance)
            case AssignSplits(_, _, splits, no_more):
                for split in splits:
                    assert split.id not in self.splits, f"{split.id} is assigned twice"
                    self.splits[split.id] = split
                self.no_more = self.no_more or no_more
            case TriggerCheckpoint(checkpoint):
                self.barrier(checkpoint)
            case Drain():
                self.is_drained = True
            case CheckpointCompleted():
                assert message.checkpoint in self.world.completed, "completion is told before it is in the log"
                self.reader_do(message)
                self.totals_do(message)
            case CheckpointAbandoned():
                self.totals_do(message)
                self.reader.handle(message)
            case StopWorker():
                self.is_alive = False

    def deploy(self, instance: LogInstance) -> None:
        self.sink = SinkTransactions("orders", instance, self.attempt, WRITE, SubtaskIndex(self.index), POOL_LIMIT)
        self.sink_do(txn.Start())
        self.send(TaskRunning(self.read_task))
        self.send(TaskRunning(self.sink_task))

    def barrier(self, checkpoint: CheckpointId) -> None:
        splits, has_ended = tuple(self.splits.values()), self.has_ended
        self.reader.handle(part.BarrierAligned(checkpoint))
        self.totals_do(part.BarrierAligned(checkpoint))
        self.sink_do(txn.BarrierPassed(checkpoint))
        read = OperatorSnapshot(READ, ended=has_ended, splits=splits)
        self.world.on_side(self, "reader", lambda: self.reader_do(part.StateStored(checkpoint, (read,))))
        self.world.on_side(self, "state", lambda: self.store(checkpoint, has_ended))

    def store(self, checkpoint: CheckpointId, ended: bool) -> None:
        if self.world.chance("decline"):
            return self.totals_do(part.StateNotStored(checkpoint, "the file system is full"))
        path = f"chk-{self.attempt}-{checkpoint}/totals.{self.index}.x"
        self.world.outside.files.add(path)
        handle = StateHandle(self.index * 4, self.index * 4 + 3, 1, "", path)
        stored = (OperatorSnapshot(TOTALS, ended, "str", (), (handle,)), OperatorSnapshot(WRITE, ended))
        return self.totals_do(part.StateStored(checkpoint, stored))

    # -- records --

    def step(self) -> None:
        """Read one record and write it, or notice that all input has ended."""
        if self.sink is None or not self.sink.is_writable:
            return
        for split in self.splits.values():
            if not split.finished and not self.is_drained:
                assert self.sink.current is not None
                self.sink.has_written = True
                self.world.outside.transactions[self.sink.current].records.append((split.id, split.position))
                position = split.position + 1
                self.splits[split.id] = SplitState(split.id, position, split.stop, finished=position == split.stop)
                return
        if (self.no_more or self.is_drained) and not self.has_ended:
            self.has_ended = True
            self.send(TaskEnded(self.read_task))
            self.send(TaskEnded(self.sink_task))

    # -- the machines and their commands --

    def reader_do(self, event: part.Event) -> None:
        for command in self.reader.handle(event):
            if isinstance(command, part.Send):
                self.send(command.message)

    def totals_do(self, event: part.Event) -> None:
        for command in self.totals.handle(event):
            match command:
                case part.Send(message):
                    self.send(message)
                case part.PermitCommits(permit):
                    self.sink_do(txn.Permitted(permit))
                case part.AbandonInSink(checkpoint):
                    self.sink_do(CheckpointAbandoned(checkpoint))
                case part.CaptureAndForward():
                    pass

    def sink_do(self, event: txn.Event) -> None:
        assert self.sink is not None
        for command in self.sink.handle(event, self.world.now):
            match command:
                case txn.SinkReady(checkpoint, pending):
                    self.totals_do(part.SinkReady(checkpoint, pending))
                case txn.SinkCommitted(checkpoint):
                    self.totals_do(part.SinkCommitted(checkpoint))
                case txn.FailTask(failure):
                    self.fail(failure)
                case txn.WakeAt(at):
                    self.world.wake_later(at, self.wake)
                case _:
                    self.world.on_side(self, "sink", partial(self.side, command))

    def wake(self) -> None:
        if self.is_alive:
            self.sink_do(txn.Wake())

    def side(self, command: txn.Command) -> None:
        outside = self.world.outside
        match command:
            case txn.OpenTransaction(id):
                outside.open(id)
                self.sink_do(txn.Opened(id))
            case txn.PrepareTransaction(id):
                committable = outside.prepare(id)
                if committable is None:
                    return self.fail(Failure(ErrorKind.SINK_FENCED, f"{id} was taken away"))
                self.sink_do(txn.Prepared(id, committable))
            case txn.CheckPending(checkpoint):
                self.sink_do(txn.Checked(checkpoint))
            case txn.CommitTransaction(committable, permit):
                assert permit.checkpoint in self.world.completed
                outcome = Retry("busy") if self.world.chance("retry") else outside.commit(committable)
                if isinstance(outcome, Lost):
                    assert self.world.is_superseded(self), f"a transaction of a running attempt is lost: {outcome}"
                if not isinstance(outcome, Retry) and self.world.chance("retry"):
                    outcome = Retry("done, and the answer is lost")
                self.sink_do(txn.CommitAnswered(committable, outcome))
        return None

    def fail(self, failure: Failure) -> None:
        self.send(TaskFailed(self.sink_task, failure))
        self.is_alive = False
        self.world.died(self)
