"""Workers on a bench: real workers, tasks, state and storage; time, side work, control messages and frames move only
when a test says so."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tidegate as tg
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    Decline,
    OperatorSnapshot,
    SplitState,
    TriggerCheckpoint,
)
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import Now
from tidegate.connectors.collections import CollectionSink
from tidegate.errors import Failure
from tidegate.graph.physical import build_physical
from tidegate.ids import (
    Attempt,
    CheckpointId,
    JobName,
    LogInstance,
    OperatorName,
    SubtaskIndex,
    TaskId,
    VertexName,
    WorkerIndex,
)
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext, SourceReader
from tidegate.runtime.control import (
    AssignSplits,
    Deploy,
    RestoredOperator,
    RuntimeOptions,
    StopWorker,
    TaskFailed,
    ToJobManager,
    ToWorker,
)
from tidegate.runtime.ports import AsyncCalls
from tidegate.runtime.task import Progress, Task
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage

Message = TypeVar("Message")
MAX_PARALLELISM = 8
AT_ONCE = RuntimeOptions(linger=0.0)
"""Records do not wait for company: a bench comes to rest only when all have arrived."""


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> Now:
        return Now(self.time, 1_000_000.0 + self.time)


class HandExecutor:
    """Side work that waits until it is run; the oldest of a lane first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._waiting.append((lane, work, done))

    @property
    def lanes(self) -> list[str]:
        """Of all work that waits, oldest first."""
        return [lane for lane, _, _ in self._waiting]

    def run(self, kind: str) -> None:
        """Do the oldest work of a lane whose name begins so, and bring back what came of it."""
        _, work, done = self._take(kind)
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)

    def fail(self, kind: str, error: Exception) -> None:
        """Instead of `run`: it came to nothing."""
        self._take(kind)[2](None, error)

    def run_all(self, kind: str = "") -> bool:
        """Also what follows from it; False when there was nothing."""
        any_run = False
        while any(lane.startswith(kind) for lane in self.lanes):
            self.run(kind)
            any_run = True
        return any_run

    def _take(self, kind: str) -> tuple[str, Callable[[], Any], Callable[[Any, BaseException | None], None]]:
        place = next(i for i, lane in enumerate(self.lanes) if lane.startswith(kind))
        return self._waiting.pop(place)


class HandSource:
    """A source whose splits hold what a test has put into them."""

    bounded = False
    discovery_interval = None
    inspection_spec = None

    def __init__(self, deserializer: Deserializer | None = None) -> None:
        self.deserializer = deserializer
        self._records: dict[str, list[Any]] = {}
        self._ends: dict[str, bool] = {}
        self.polls = 0
        self.completed: list[dict[str, int]] = []
        """The positions of checkpoints of which a reader was told that they had completed."""

    def put(self, split: str, *values: Any, ends: bool = False) -> None:
        self._records.setdefault(split, []).extend(values)
        self._ends[split] = ends

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return [SplitState(id, 0) for id in self._records if id not in (known or ())]

    def open_reader(self, context: SourceContext) -> SourceReader:
        return HandReader(self)

    def read(self, split: str, position: int, most: int) -> Fetched | None:
        values = self._records[split][position : position + most]
        end = position + len(values)
        is_over = self._ends[split] and end == len(self._records[split])
        return Fetched(split, values, end, finished=is_over) if values or is_over else None


class HandReader:
    """Reads a `HandSource`, its splits in turn."""

    def __init__(self, source: HandSource) -> None:
        self._source = source
        self._positions: dict[str, int] = {}

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._positions |= {split.id: split.position for split in splits}

    def poll(self, max_records: int) -> Fetched | None:
        self._source.polls += 1
        for split in list(self._positions):
            fetched = self._source.read(split, self._positions[split], max_records)
            position = self._positions.pop(split)
            if fetched is None or not fetched.finished:
                self._positions[split] = position if fetched is None else fetched.next_position
            if fetched is not None:
                return fetched
        return None

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        self._source.completed.append({split.id: split.position for split in splits})

    def close(self) -> None:
        """Nothing is held."""


class Bench:
    """All workers of one attempt of `job`."""

    def __init__(
        self,
        job: tg.Job,
        parallelism: int = 1,
        *,
        options: RuntimeOptions = AT_ONCE,
        storage: Storage | None = None,
        attempt: int = 1,
        restored: Sequence[RestoredOperator] = (),
        last_checkpoint: int = 0,
        calls: AsyncCalls | None = None,
    ) -> None:
        self._calls = calls
        self.graph = job.graph(MAX_PARALLELISM)
        self.physical = build_physical(self.graph, parallelism, MAX_PARALLELISM)
        self.clock = HandClock()
        self.executor = HandExecutor()
        self.storage: Storage = MemoryStorage() if storage is None else storage
        self.attempt = Attempt(attempt)
        self.said: list[tuple[WorkerIndex, ToJobManager]] = []
        """What the JobManager heard, and from whom."""
        self._frames: deque[tuple[WorkerIndex, bytes]] = deque()
        self._deploy = Deploy(
            job=job.name,
            attempt=self.attempt,
            instance=LogInstance("log"),
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            restored=tuple(restored),
            peers=("",) * self.physical.workers,
            options=options,
            storage="memory:",
            last_checkpoint=CheckpointId(last_checkpoint),
        )
        self.workers = [self._worker(WorkerIndex(i)) for i in range(self.physical.workers)]

    def _worker(self, index: WorkerIndex) -> Worker:
        ports = WorkerPorts(
            executor=self.executor,
            send_data=lambda target, frame: self._frames.append((target, frame)),
            send_control=lambda message: self.said.append((index, message)),
            open_store=lambda _, job: CheckpointStore(self.storage, JobName(job)),
            clock=self.clock,
            calls=self._calls,
            stopwatch=self.clock,
        )
        return Worker(index, self.attempt, self.graph, "", ports)

    # -- what the JobManager does --

    def deploy(self) -> "Bench":
        """Restored, opened, and at rest."""
        self.begin_deploying()
        self.executor.run_all()
        self.settle()
        return self

    def begin_deploying(self) -> None:
        """The tasks are made; restoring and opening is side work that waits."""
        for worker in self.workers:
            worker.start()
            worker.receive(self._deploy)

    def task(self, vertex: str, subtask: int = 0) -> Task:
        return self.workers[subtask]._tasks[task(vertex, subtask)]

    def tell(self, message: ToWorker) -> None:
        for worker in self.workers:
            worker.receive(message)

    def read(self, source: str = "src", *, no_more: bool = True) -> None:
        """Hand out all splits of a source in turn."""
        node = self.graph.node(OperatorName(source))
        assert node.source is not None
        found = node.source.discover(None)
        self.assign(found, source, no_more=no_more)

    def assign(self, splits: Sequence[SplitState], source: str = "src", *, no_more: bool = True) -> None:
        vertex = next(vertex for vertex in self.physical.vertices if source in vertex.operators)
        for task in vertex.tasks:
            own = tuple(splits[task.subtask :: vertex.parallelism])
            worker = self.workers[task.subtask]
            worker.receive(AssignSplits(OperatorName(source), task, own, no_more))

    def trigger(self, checkpoint: int) -> None:
        self.tell(TriggerCheckpoint(CheckpointId(checkpoint)))

    def complete(self, checkpoint: int) -> None:
        self.tell(CheckpointCompleted(self.attempt, CheckpointId(checkpoint)))

    def abandon(self, checkpoint: int) -> None:
        self.tell(CheckpointAbandoned(CheckpointId(checkpoint)))

    def stop(self) -> None:
        self.tell(StopWorker())

    def checkpoint(self, number: int) -> None:
        """A whole one, from the trigger to the commits."""
        self.trigger(number)
        self.finish()
        self.complete(number)
        self.finish()

    # -- what moves --

    def lose_frame(self) -> None:
        """The oldest that is under way between workers."""
        self._frames.popleft()

    @property
    def frames_under_way(self) -> int:
        return len(self._frames)

    def step(self) -> Progress:
        """Frames arrive, and every worker makes one step."""
        carried = bool(self._frames)
        while self._frames:
            index, frame = self._frames.popleft()
            self.workers[index].receive_frame(frame)
        steps = [worker.step() for worker in self.workers]
        deadlines = [step.wake_at for step in steps if step.wake_at is not None]
        return Progress(carried or any(step.worked for step in steps), min(deadlines, default=None))

    def settle(self) -> None:
        """Step until nothing happens without time or side work."""
        for _ in range(10_000):
            progress = self.step()
            is_due = progress.wake_at is not None and progress.wake_at <= self.clock.time
            if not progress.worked and not is_due and not self._frames:
                return
        raise AssertionError("the workers do not come to rest")

    def finish(self) -> None:
        """Step and do side work until nothing happens without time."""
        self.settle()
        while self.executor.run_all():
            self.settle()

    # -- what was said --

    def heard(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.said if isinstance(message, kind)]

    @property
    def failure(self) -> Failure:
        """The only one."""
        (failed,) = self.heard(TaskFailed)
        return failed.failure

    def acknowledged(self, checkpoint: int) -> dict[TaskId, tuple[OperatorSnapshot, ...]]:
        return {ack.task: ack.operators for ack in self.heard(Acknowledge) if ack.checkpoint == checkpoint}

    def declined(self, checkpoint: int) -> list[TaskId]:
        return [decline.task for decline in self.heard(Decline) if decline.checkpoint == checkpoint]

    def snapshots(self, checkpoint: int, operator: str) -> list[OperatorSnapshot]:
        """Of all subtasks, by subtask."""
        acknowledged = self.acknowledged(checkpoint)
        return [s for task in sorted(acknowledged) for s in acknowledged[task] if s.name == operator]

    def snapshot(self, checkpoint: int, operator: str) -> OperatorSnapshot:
        (snapshot,) = self.snapshots(checkpoint, operator)
        return snapshot

    def positions(self, checkpoint: int, source: str = "src") -> dict[str, int]:
        return {split.id: split.position for s in self.snapshots(checkpoint, source) for split in s.splits}

    def restorable(self, checkpoint: int) -> list[RestoredOperator]:
        """What the next attempt restores: every snapshot to every worker."""
        found: dict[OperatorName, list[OperatorSnapshot]] = {node.name: [] for node in self.graph.nodes}
        for name, snapshots in found.items():
            snapshots.extend(self.snapshots(checkpoint, name))
        return [
            RestoredOperator(name, all(snapshot.ended for snapshot in snapshots), tuple(snapshots))
            for name, snapshots in found.items()
        ]


def task(vertex: str, subtask: int = 0) -> TaskId:
    return TaskId(VertexName(vertex), SubtaskIndex(subtask))


class Total(tg.KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Running totals by key."""

    total = tg.ValueState(int, default=0)

    def process_element(self, value: tuple[str, int], ctx: tg.KeyedContext[str]) -> list[tuple[str, int]]:
        self.total.update(self.total.value() + value[1])
        return [(ctx.key, self.total.value())]


def totals_job(source: Any, sink: CollectionSink) -> tg.Job:
    job = tg.Job("totals")
    job.source(source, name="src").key_by(lambda r: r[0]).process(Total(), name="total").sink(sink, name="out")
    return job


def totals_of(records: Sequence[tuple[str, int]]) -> Mapping[str, list[int]]:
    """What `Total` makes of them, by key and in order."""
    totals: dict[str, list[int]] = {}
    for key, number in records:
        so_far = totals.setdefault(key, [])
        so_far.append((so_far[-1] if so_far else 0) + number)
    return totals


def by_key(records: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each key, in order."""
    found: dict[str, list[int]] = {}
    for key, number in records:
        found.setdefault(key, []).append(number)
    return found
