"""What a thread is at, read from its frames: worker, task, operator or part of the engine, then Python functions.

Only code objects are compared, and of one frame a local variable is read: which task is stepped. That a name here is
the name of a function there is what a test looks after.
"""

from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from tidegate.graph.physical import worker_of
from tidegate.runtime.chain import Chain
from tidegate.runtime.task import Task

STEP = Task.step.__code__
CHAIN_FILE = Chain.push.__code__.co_filename
ENGINE = CHAIN_FILE.removesuffix("runtime/chain.py")
"""The folder of the engine's own files."""
WAITING = ("WorkerProcess._wait", "InProcessLoop._wait")
"""Nothing is to be done, or the loop looks at its sockets."""
RESTING = {
    "threading.py": ("Condition.wait", "Event.wait", "Thread._wait_for_tstate_lock", "Thread.join"),
    "selectors.py": ("EpollSelector.select", "PollSelector.select", "SelectSelector.select", "KqueueSelector.select"),
    "thread.py": ("_worker",),
    "queue.py": ("Queue.get",),
    "executor.py": ("ThreadExecutor._run",),
    "worker_process.py": ("watch_parent.<locals>.watch",),
}
"""By file: where a thread stands that has nothing to do."""
OF_SOURCE = {"SourceInput.poll": "reading"}
"""In a task but not in its chain: what belongs to its first operator, a source."""
OF_TASK = {
    "InputGate.poll": "receiving",
    "AsyncStage.poll": "receiving",
    "AsyncStage.step": "asynchronous calls",
    "Output.push": "sending",
    "Output.flush_due": "sending",
    "Task._tell": "checkpoints",
    "Output.broadcast": "sending",
    "SinkDriver.wake": "transactions",
}
"""In a task but not in its chain."""
IN_CHAIN = {"SourceOperator.process": "decoding", "SinkOperator.process": "writing"}
"""In an operator."""
OF_WORKER = {
    "Worker.receive": "control",
    "Worker.receive_frame": "receiving",
    "WorkerProcess._control_round": "control",
    "WorkerProcess._make_worker": "starting",
    "ThreadExecutor.drain": "control",
    "InlineExecutor.drain": "checkpoints",
    "LoopAndThreads.drain": "asynchronous calls",
}
"""In no task."""
REST = "other"
OPERATOR, PART, THREAD = "operator ", "engine: ", "thread "


class Stack(NamedTuple):
    """Where a thread was: labels from the root, then functions, outermost first. Hashable, and cheap to compare."""

    worker: int | None
    """None: no worker's, but the JobManager's in the same process."""
    labels: tuple[str, ...]
    functions: tuple[CodeType, ...]


def stack_of(frame: FrameType, worker: int | None) -> Stack | None:
    """Of the main thread, which steps tasks; None while it waits. `worker`: whose process it is, if it is one's."""
    stepped, functions = None, []
    above: FrameType | None = frame
    while above is not None:
        if above.f_code is STEP:
            stepped = above
        functions.append(above.f_code)
        above = above.f_back
    functions.reverse()
    if stepped is None:
        if any(code.co_qualname in WAITING for code in functions):
            return None
        found, part = _first(functions, OF_WORKER)
        return Stack(worker, (PART + (part or REST),), tuple(functions[found:]))
    task = stepped.f_locals["self"]
    return _in_task(task, functions[functions.index(STEP) + 1 :], worker_of(task.id) if worker is None else worker)


def _in_task(task: Task, functions: list[CodeType], worker: int) -> Stack:
    label = f"task {task.id.vertex}"
    in_chain = [position for position, code in enumerate(functions) if code.co_filename == CHAIN_FILE]
    if in_chain:
        own = functions[in_chain[-1] + 1 :]
        found, part = _first(own, IN_CHAIN)
        return Stack(worker, (label, OPERATOR + task.busyness.at_work, *([part] if part else [])), tuple(own[found:]))
    found, part = _first(functions, OF_SOURCE)
    if part:
        return Stack(worker, (label, OPERATOR + task.id.vertex, part), tuple(functions[found:]))
    found, part = _first(functions, OF_TASK)
    return Stack(worker, (label, PART + (part or REST)), tuple(functions[found:]))


def _first(functions: list[CodeType], parts: dict[str, str]) -> tuple[int, str | None]:
    """The outermost function that has a part of the engine for itself, and which; the first function otherwise."""
    for position, code in enumerate(functions):
        if code.co_qualname in parts and code.co_filename.startswith(ENGINE):
            return position, parts[code.co_qualname]
    return 0, None


def thread_stack(frame: FrameType, name: str, worker: int | None) -> Stack | None:
    """Of any other thread; None while it has nothing to do. Numbers in brackets, of subtasks, are left out."""
    leaf = frame.f_code
    if leaf.co_qualname in RESTING.get(leaf.co_filename.rpartition("/")[2], ()):
        return None
    functions = [each.f_code for each in _outwards(frame)]
    return Stack(worker, (THREAD + name.partition("[")[0],), tuple(reversed(functions)))


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    at: FrameType | None = frame
    while at is not None:
        yield at
        at = at.f_back
