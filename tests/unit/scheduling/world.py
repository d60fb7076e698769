"""A job in a simulated world: real JobManagers, one process after another, and a seed that chooses what happens next.

Whatever the JobManager asks for is checked against what is true outside, and answered late, in any order, or with a
failure. `fault` says how likely each kind of failure is.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.unit.scheduling import programs
from tests.unit.scheduling.outside import Outside
from tests.unit.scheduling.workers import SimulatedWorker
from tidegate.checkpoint import recovery
from tidegate.checkpoint.log import Completed, Entry, ProcessRecord, Takeover
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import Retry, SplitState, TriggerCheckpoint
from tidegate.checkpoint.recovery import named_by
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, LogPosition, TransactionalId, WorkerIndex
from tidegate.runtime.control import Deploy, ToJobManager
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.scheduling.job_manager import JobManager

RECORDS = 6
SPLITS = ("a", "b", "c")
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "no answer")


class ObservedJobManager(JobManager):
    """Remembers every move."""

    moves: set[tuple[Phase, Phase]]

    def _move(self, phase: Phase) -> list[p.Command]:
        self.moves.add((self.phase, phase))
        return super()._move(phase)


class World:
    """`stop`: None for finite input."""

    def __init__(self, seed: int, fault: dict[str, float], stop: int | None = RECORDS) -> None:
        self.random = random.Random(seed)
        self.fault = fault
        self.stop = stop
        self.outside = Outside()
        self.now = Now(0.0, 0.0)
        self.graph = programs.graph(programs.Splits(bounded=stop is not None))
        self.physical = programs.physical(self.graph)
        self.workers: list[SimulatedWorker] = []
        self.lanes: dict[str, deque[Callable[[], object]]] = {}
        self.wakes: list[tuple[float, Callable[[], object]]] = []
        self.completed: set[CheckpointId] = set()
        self.moves: set[tuple[Phase, Phase]] = set()
        self.process = -1
        self.has_exited = False
        self.exit: Failure | None = None
        self.undecided: Entry | None = None
        self.recovered: set[Attempt] = set()
        self.command: dict[str, Any] = {}
        """What the supervisor repeats."""
        self.requests = 0
        self.asked: list[str] = []
        """Requests that the process has not answered."""
        self.replies: dict[str, p.Reply] = {}
        self.manager: ObservedJobManager

    def chance(self, kind: str) -> bool:
        return self.random.random() < self.fault.get(kind, 0.0)

    # -- processes --

    def start(self, **settings: Any) -> None:
        """A new JobManager process, whatever became of the last one, by a command that may go back."""
        self.outside.may_repeat = self.outside.may_repeat or bool(settings.keys() & {"fresh", "from_checkpoint"})
        self.process += 1
        self.outside.exporting.clear()
        self.has_exited, self.exit, self.undecided = False, None, None
        self.asked = []
        self.manager = ObservedJobManager(
            self.graph,
            self.physical,
            programs.job_settings(**settings),
            programs.identity(self.process),
            self.random.random,
        )
        self.manager.moves = self.moves
        self.deliver(p.Start())

    def crash(self) -> None:
        """The JobManager is killed. Its workers die with it, or live on for a while."""
        self.has_exited = True
        if not self.chance("zombies"):
            for worker in self.workers:
                worker.is_alive = False

    def ask(self, *, stops: bool = False, savepoint: bool = True, path: str | None = None, drain: bool = False) -> str:
        """A savepoint, or a stop with a last checkpoint. Returns the request."""
        self.requests += 1
        request = f"r{self.requests}"
        self.asked.append(request)
        wanted = p.StopWithCheckpointWanted(request, savepoint, path, drain) if stops else None
        self.deliver(wanted or p.SavepointWanted(request, path))
        return request

    def own_workers(self) -> list[SimulatedWorker]:
        return [worker for worker in self.workers if worker.process == self.process and worker.is_alive]

    def writes_on(self) -> bool:
        """Whether an entry of a process that is gone may still land."""
        return any(waiting for lane, waiting in self.lanes.items() if lane.startswith("log "))

    def is_superseded(self, worker: SimulatedWorker) -> bool:
        return self.has_exited or (worker.process, worker.attempt) != (self.process, self.manager._attempt)

    # -- time and order --

    def on(self, lane: str, action: Callable[[], object]) -> None:
        self.lanes.setdefault(lane, deque()).append(action)

    def on_side(self, worker: SimulatedWorker, lane: str, action: Callable[[], object]) -> None:
        self.on(f"{lane} {worker.attempt} {worker.index}", lambda: worker.is_alive and action())

    def wake_later(self, at: float, action: Callable[[], object]) -> None:
        self.wakes.append((at, action))

    def answer(self, lane: str, work: Callable[[], p.Event | None]) -> None:
        """Do `work` some time, and tell the process that asked, if it is still there."""
        process = self.process

        def act() -> None:
            event = work()
            if event is not None:
                self.on(f"{lane} answers {process}", lambda: self.tell(process, event))

        self.on(f"{lane} {process}", act)

    def to_job_manager(self, worker: SimulatedWorker, message: ToJobManager) -> None:
        event = p.Received(worker.attempt, worker.index, message)
        self.on(f"up {worker.attempt} {worker.index}", lambda: self.tell(worker.process, event))

    def died(self, worker: SimulatedWorker) -> None:
        event = p.WorkerDied(worker.attempt, worker.index, "killed by SIGKILL")
        self.on(f"up {worker.attempt} {worker.index}", lambda: self.tell(worker.process, event))

    def step(self) -> None:
        """One thing happens."""
        living = [worker for worker in self.workers if worker.is_alive]
        if self.chance("worker death") and living:
            victim = self.random.choice(living)
            victim.is_alive = False
            self.died(victim)
        lanes = [lane for lane, waiting in self.lanes.items() if waiting and not self.is_held_up(lane)]
        choice = self.random.randrange(len(lanes) + len(living) + 1)
        if choice < len(lanes):
            self.lanes[lanes[choice]].popleft()()
        elif choice < len(lanes) + len(living):
            living[choice - len(lanes)].step()
        if not lanes or self.chance("time"):
            self.pass_time()

    def is_held_up(self, lane: str) -> bool:
        return lane.startswith("savepoints") and self.chance("savepoints late")

    def pass_time(self) -> None:
        if self.wakes:
            at = max(self.now.monotonic, min(at for at, _ in self.wakes))
            self.now = Now(at, at)
            due = [action for when, action in self.wakes if when <= at]
            self.wakes = [(when, action) for when, action in self.wakes if when > at]
            for action in due:
                action()

    # -- what the JobManager wants --

    def tell(self, process: int, event: p.Event) -> None:
        """What is meant for a process that is gone gets lost."""
        if process == self.process:
            self.deliver(event)

    def deliver(self, event: p.Event) -> None:
        if not self.has_exited:
            for command in self.manager.handle(event, self.now):
                self.perform(command)

    def perform(self, command: p.Command) -> None:  # noqa: C901
        assert not self.has_exited, f"{command} after the end"
        match command:
            case p.ReadLog():
                self.answer("log", self.read_log)
            case p.Append(entry):
                self.check_append(entry)
                self.answer("log", lambda: self.append(entry))
            case p.SpawnWorkers(attempt, count):
                assert not self.own_workers(), "workers are started before the last attempt's are gone"
                assert self.undecided is None
                process = self.process
                self.answer("cluster", lambda: self.spawn(process, attempt, count))
            case p.EndWorkers(attempt):
                process = self.process
                self.answer("cluster", lambda: self.end(process, attempt))
            case p.EndOldWorkers(takeover):
                self.answer("cluster", lambda: self.end_old(takeover))
            case p.SendToWorker(attempt, index, message):
                self.check_message(attempt, message)
                for worker in self.workers:
                    if (worker.process, worker.attempt, worker.index) == (self.process, attempt, index):
                        self.on(f"down {attempt} {index}", partial(worker.receive, message))
            case p.Discover():
                self.answer("discovery", lambda: self.discover(command))
            case p.Recover(attempt, run, step):
                self.answer("sinks", lambda: p.RecoveryAnswered(attempt, run, self.recover(step)))
            case p.CleanUp(positions, files):
                self.clean_up(positions, files)
                self.answer("clean-up", lambda: p.CleanedUp(positions, files))
            case p.CleanUpOrphans(before, keep):
                assert keep >= self.outside.used(), "a file that is needed counts as an orphan"
                self.outside.files = {f for f in self.outside.files if f in keep or _attempt_of(f) >= before}
            case p.ExportSavepoint() | p.ReadSavepoint() | p.ImportSavepoint():
                self.outside.exporting += [command.manifest] if isinstance(command, p.ExportSavepoint) else []
                self.answer("savepoints", lambda: self.savepoint(command))
            case p.DropSavepoint(origin):
                assert self.outside.newest is not None, "a savepoint is dropped before its state is in the log"
                self.outside.savepoints.pop(origin.path, None)
            case p.Reply(request):
                self.asked.remove(request)
                self.replies[request] = command
            case p.WakeAt(at):
                process = self.process
                self.wake_later(at, lambda: self.tell(process, p.Wake()))
            case p.Exit(failure):
                assert not self.own_workers(), "it exits and leaves workers behind"
                assert self.asked == [], "it exits without having answered"
                self.has_exited, self.exit = True, failure
                self.outside.exporting.clear()
            case p.Tell():
                pass

    def discover(self, wanted: p.Discover) -> p.Event:
        if self.chance("discovery"):
            return p.DiscoveryFailed(wanted.attempt, wanted.operator, UNAVAILABLE)
        found = tuple(SplitState(id, 0, self.stop) for id in SPLITS if id not in (wanted.known or ()))
        return p.SplitsFound(wanted.attempt, wanted.operator, found)

    def savepoint(self, wanted: p.ExportSavepoint | p.ReadSavepoint | p.ImportSavepoint) -> p.Event:
        fails = self.chance("savepoints")
        match wanted:
            case p.ExportSavepoint(manifest, path):
                written = path or f"savepoints/{self.process}-{manifest.attempt}-{manifest.checkpoint}"
                self.outside.exporting = [each for each in self.outside.exporting if each is not manifest]
                if fails or written in self.outside.savepoints:
                    return p.SavepointNotExported(manifest.checkpoint, path, UNAVAILABLE)
                self.outside.export(manifest, written)
                return p.SavepointExported(manifest.checkpoint, path, written)
            case _ if fails:
                return p.StepFailed(UNAVAILABLE)
            case p.ReadSavepoint(path):
                if path not in self.outside.savepoints:
                    return p.StepFailed(Failure(ErrorKind.INVALID, f"there is no savepoint in {path}"))
                return p.SavepointRead(path, self.outside.savepoints[path])
            case p.ImportSavepoint(origin, attempt, checkpoint, instance):
                if origin.path not in self.outside.savepoints:
                    return p.StepFailed(Failure(ErrorKind.INVALID, f"there is no savepoint in {origin.path}"))
                return p.SavepointImported(attempt, self.outside.take_in(origin.path, attempt, checkpoint, instance))

    # -- the log --

    def read_log(self) -> p.Event:
        if self.chance("read"):
            return p.StepFailed(UNAVAILABLE)
        return p.LogRead(tuple(self.outside.entries.values()))

    def check_append(self, entry: Entry) -> None:
        assert self.undecided in (None, entry), "something else is appended while an append is undecided"
        self.undecided = entry
        if isinstance(entry.body, Completed):
            check_ends(entry.body.manifest)
        if isinstance(entry.body, Takeover):
            assert len(self.own_workers()) <= self.physical.workers

    def append(self, entry: Entry) -> p.Event:
        if self.chance("usurper"):
            # Another JobManager wrote it.
            stranger = Entry(entry.position, "stranger", entry.instance, Attempt(entry.attempt + 1), 0.0, entry.body)
            body = Takeover("elsewhere", ProcessRecord(1, 1), options=self.outside.view.options)
            self.outside.put(Entry(stranger.position, "stranger", stranger.instance, stranger.attempt, 0.0, body))
        if self.chance("append unanswered"):
            return p.AppendUnanswered(entry.position, "no answer")
        holder = self.outside.put(entry)
        if holder is None and isinstance(entry.body, Completed):
            self.completed.add(entry.body.manifest.checkpoint)
        if self.chance("append unanswered"):
            return p.AppendUnanswered(entry.position, "no answer, and it is there")
        if holder is not None:
            return p.AppendRefused(entry.position, holder)
        if self.undecided == entry:
            self.undecided = None
        return p.AppendWon(entry.position)

    def clean_up(self, positions: tuple[LogPosition, ...], files: tuple[str, ...]) -> None:
        view = self.outside.view
        kept = view.completed or tuple(e for e in view.entries if e == view.beginning)
        newest = kept[-1].position
        for position in positions:
            assert 0 < position < newest, f"{position} is pruned, the newest checkpoint is at {newest}"
            self.outside.entries.pop(position, None)
        assert not self.outside.used() & set(files), "a file of a retained checkpoint is deleted"
        self.outside.files -= set(files)

    # -- workers --

    def spawn(self, process: int, attempt: Attempt, count: int) -> p.Event | None:
        if self.process != process or self.has_exited:
            return None
        if self.chance("spawn"):
            return p.StepFailed(UNAVAILABLE)
        made = [SimulatedWorker(self, process, attempt, WorkerIndex(i)) for i in range(count)]
        self.workers += made
        for worker in made:
            worker.ready()
        return p.WorkersSpawned(attempt, tuple(ProcessRecord(process * 100 + i, 1) for i in range(count)), "ipc")

    def end(self, process: int, attempt: Attempt) -> p.Event:
        for worker in self.workers:
            if (worker.process, worker.attempt) == (process, attempt):
                worker.is_alive = False
        return p.WorkersGone(attempt)

    def end_old(self, takeover: Takeover) -> p.Event:
        pids = {process.pid for process in takeover.workers}
        for worker in self.workers:
            if worker.process * 100 + worker.index in pids and worker.process < self.process:
                worker.is_alive = False
        return p.OldWorkersEnded()

    def check_message(self, attempt: Attempt, message: object) -> None:
        match message:
            case Deploy():
                own = [
                    e
                    for e in self.outside.entries.values()
                    if (e.nonce, e.attempt) == (f"nonce-{self.process}", attempt)
                ]
                assert any(isinstance(e.body, Takeover) for e in own), "tasks are deployed before the takeover is won"
                newest = self.outside.newest
                for name in sorted(named_by(newest)):
                    id = TransactionalId.parse(name)
                    assert id is not None
                    assert self.outside.transactions[id].state == "committed", f"{id} is not committed yet"
                files = {h.path for r in message.restored for s in r.snapshots for h in s.handles}
                assert files <= self.outside.files, "a file to restore is missing"
                if not any(worker.is_alive and worker.process < self.process for worker in self.workers):
                    still = self.outside.list_open("orders", programs.WRITE)
                    assert all(id.attempt >= attempt for id in still), f"{still} are open"
            case TriggerCheckpoint():
                assert self.undecided is None
                assert self.uncommitted() == [], "a checkpoint is triggered before the last one's commits are done"

    def uncommitted(self) -> list[str]:
        states = {str(id): present.state for id, present in self.outside.transactions.items()}
        return [name for name in sorted(named_by(self.outside.newest)) if states[name] != "committed"]

    # -- transactions --

    def recover(self, step: recovery.ListOpen | recovery.Commit | recovery.Abort) -> recovery.Event:
        if self.chance("recover"):
            return recovery.NoAnswer(UNAVAILABLE)
        event: recovery.Event
        match step:
            case recovery.ListOpen(target):
                event = recovery.Listed(target, self.outside.list_open(target.record.prefix, target.sink))
            case recovery.Commit(_, committable):
                event = recovery.CommitAnswered(committable, self.outside.commit(committable))
                if self.chance("recover"):
                    event = recovery.CommitAnswered(committable, Retry("busy"))
            case recovery.Abort(_, id):
                self.outside.abort(id)
                event = recovery.Aborted(id)
        return recovery.NoAnswer(UNAVAILABLE) if self.chance("recover") else event


def check_ends(manifest: Manifest) -> None:
    """What has ended in a checkpoint has ended for ever: there is nothing left to read."""
    source = manifest.operator(programs.READ)
    assert source is not None
    has_all = len(source.splits) == len(SPLITS) and all(split.finished for split in source.splits)
    for record in manifest.operators:
        assert has_all or not record.ended, f"{record.name} is not at its end"


def _attempt_of(path: str) -> int:
    return int(path.removeprefix("chk-").split("-")[0])
