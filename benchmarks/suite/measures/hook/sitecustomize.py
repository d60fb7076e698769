"""Notes when a job's processes reach places that matter to its start, its recovery and its checkpoints: Python imports
this by its name at the start of every process whose PYTHONPATH has this folder, so that what runs is what users run.

Nothing is imported here that the process would not import by itself, nor earlier than it would: the places are wrapped
when their module has been loaded. None of them is reached for single records. Each process writes its marks to a file
of its own, a line at once, so that what was written survives SIGKILL. Times are of the monotonic clock, which is the
same for all processes of a machine.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

FOLDER_VARIABLE = "BENCH_MARKS"
FOLDER = os.environ.get(FOLDER_VARIABLE, "")
MOST_TAKES = 100
"""Of a task at one barrier that are marked, also where nothing is flushed."""


def started_at() -> float:
    """When the kernel made this process, to a hundredth of a second."""
    with open(f"/proc/{os.getpid()}/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


class Marks:
    """Where this process writes. `who`: 'job manager' or 'worker 0'."""

    def __init__(self, folder: str) -> None:
        worker = json.loads(os.environ.get("TIDEGATE_WORKER", "{}")).get("worker")
        self._who = "job manager" if worker is None else f"worker {worker}"
        path = f"{folder}/{os.getpid()}.marks"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, what: str, about: str = "", at: float | None = None) -> None:
        row = [time.monotonic() if at is None else at, os.getpid(), self._who, what, about]
        os.write(self._file, json.dumps(row).encode() + b"\n")


class WrappingFinder:
    """Finds nothing by itself: lets the others find, and wraps what has been loaded."""

    def __init__(self, after: dict[str, Callable[[Any], None]]) -> None:
        self._after = after

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        act = self._after.pop(name, None)
        if act is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._extend(spec.loader, act)
                return spec
        raise ImportError(f"{name} is to be measured, and is not there")

    def _extend(self, loader: Any, act: Callable[[Any], None]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            act(module)

        loader.exec_module = exec_module


def around(owner: Any, name: str, before: Callable[..., object], after: Callable[..., object]) -> None:
    """`before` and `after` are called with what the function is called with. A name that is gone is an error: a measure
    of nothing would look like a short time."""
    inner = getattr(owner, name)

    @wraps(inner)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        before(*arguments)
        result = inner(*arguments, **named)
        after(*arguments)
        return result

    setattr(owner, name, wrapped)


def nothing(*_: object) -> None:
    pass


class Places:
    """What is wrapped in which module."""

    def __init__(self, mark: Marks) -> None:
        self.mark = mark
        self._flushes = 0
        self._was_writable: dict[int, bool] = {}

    def all(self) -> dict[str, Callable[[Any], None]]:
        return {
            "tidegate.failpoints": self.fail_points,
            "tidegate.deploy.program": self.program,
            "tidegate.deploy.local": self.loop,
            "tidegate.deploy.worker_process": self.worker_process,
            "tidegate.deploy.cluster": self.cluster,
            "tidegate.scheduling.life": self.life,
            "tidegate.scheduling.performer": self.performer,
            "tidegate.runtime.worker": self.worker,
            "tidegate.runtime.task": self.task,
            "tidegate.runtime.sink_driver": self.sink,
            "tidegate.operators.source": self.source,
            "tidegate.connectors.kafka.producer": lambda module: self.flush(module.KafkaProducer),
            "tidegate.connectors.kafka.batches.producer": lambda module: self.flush(module.BatchProducer),
        }

    def between(self, owner: Any, name: str, what: str) -> None:
        around(owner, name, lambda *_: self.mark(what, "begins"), lambda *_: self.mark(what, "ends"))

    def fail_points(self, module: Any) -> None:
        """The places at which a test can kill the process are those of the protocol. The only ones that tell so; a
        process in which a test has armed one itself is not measured."""
        module.arm(lambda name: self.mark("place", name))

    def program(self, module: Any) -> None:
        self.between(module, "load", "load program")

    def loop(self, module: Any) -> None:
        self.mark("imported")

    def worker_process(self, module: Any) -> None:
        self.mark("imported")
        self.between(module.WorkerProcess, "__init__", "open wires")

    def cluster(self, module: Any) -> None:
        self.between(module.LocalCluster, "spawn", "spawn")

    def life(self, module: Any) -> None:
        around(module.JobLife, "_move", lambda _, phase: self.mark("phase", phase.value), nothing)

    def performer(self, module: Any) -> None:
        def delivered(_: Any, event: Any) -> None:
            about = type(event).__name__
            if about == "Received":
                about = type(event.message).__name__
            if about not in ("WorkerMetrics", "Wake", "WatermarkReported"):
                self.mark("event", about)

        around(module.JobManagerPerformer, "deliver", delivered, nothing)

    def worker(self, module: Any) -> None:
        self.between(module.Worker, "start", "report ready")
        around(module.Worker, "receive", lambda _, message: self.mark("message", type(message).__name__), nothing)
        self.between(module.Worker, "_deploy", "make tasks")
        self.between(module.Worker, "_restored", "open tasks")

    def task(self, module: Any) -> None:
        around(module.Task, "_capture", self.captures, self.captured)

    def captures(self, task: Any, checkpoint: int) -> None:
        self.mark("barrier", f"{task.id} {checkpoint}")

    def captured(self, task: Any, checkpoint: int) -> None:
        """Each time that this task takes records until its sink has flushed, and once more, or once where nothing is
        flushed. Only they go through what is put before the chain."""
        self.mark("captured", f"{task.id} {checkpoint}")
        chain, flushes, left = task._chain, self._flushes, MOST_TAKES if task._parts.sink_driver is not None else 1
        push = type(chain).push

        def takes(batch: Any) -> None:
            nonlocal left
            left = 0 if self._flushes > flushes else left - 1
            self.mark("goes on", f"{task.id} {checkpoint}")
            if left <= 0:
                del chain.push
            push(chain, batch)

        chain.push = takes

    def sink(self, module: Any) -> None:
        def handled(driver: Any, *_: object) -> None:
            transactions = driver._transactions
            is_writable = transactions.current is not None and transactions.is_writable
            if is_writable != self._was_writable.get(id(driver)):
                self._was_writable[id(driver)] = is_writable
                self.mark("sink", "writable" if is_writable else "holds back")

        around(module.SinkDriver, "_handle", nothing, handled)
        self.once(module.SinkDriver, "write", "first write", lambda result: True)

    def flush(self, owner: Any) -> None:
        def flushed(*_: object) -> None:
            self._flushes += 1
            self.mark("flushed")

        around(owner, "flush", nothing, flushed)

    def source(self, module: Any) -> None:
        self.once(module.SourceInput, "poll", "first records", lambda result: result is not None and result.values)

    def once(self, owner: Any, name: str, what: str, counts: Callable[[Any], object]) -> None:
        """A mark for the first call whose result counts. Whoever holds the wrapped function calls it for ever; once per
        batch."""
        inner = getattr(owner, name)
        is_marked = False

        @wraps(inner)
        def wrapped(*arguments: Any) -> Any:
            nonlocal is_marked
            result = inner(*arguments)
            if not is_marked and counts(result):
                is_marked = True
                self.mark(what)
            return result

        setattr(owner, name, wrapped)


def go_on_with_the_next() -> None:
    """Python imports only the first module of this name: another one on the path, as that of a system, has its turn
    after this."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if FOLDER:
    marks = Marks(FOLDER)
    marks("made", at=started_at())
    marks("python runs")
    sys.meta_path.insert(0, WrappingFinder(Places(marks).all()))
    go_on_with_the_next()
