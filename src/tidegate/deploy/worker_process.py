"""A worker process: imports the program, then steps a `Worker` until it is told to stop, is killed, or has no parent.

It ignores Ctrl-C and SIGTERM: whether a job stops is the JobManager's to decide. It dies with its parent, twice over:
by the kernel's parent-death signal, and by a thread that waits for the end of the inherited socket, whatever user code
does.
"""

import io
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import zmq

from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import SystemClock
from tidegate.deploy.calls import LoopAndThreads
from tidegate.deploy.cluster import PARAMETERS_VARIABLE, WorkerParameters, decode_parameters
from tidegate.deploy.curve import Context, take_keys
from tidegate.deploy.executor import ThreadExecutor, WakeUp
from tidegate.deploy.fail_points import arm_from
from tidegate.deploy.garbage import begin_collecting
from tidegate.deploy.logs import telling_logs, worker_tell
from tidegate.deploy.processes import die_with_parent, failure_of_exit, ignore_interrupts
from tidegate.deploy.program import load
from tidegate.deploy.wires import ControlClient, DataWires
from tidegate.errors import ErrorKind, Failure, failure_of, place
from tidegate.ids import JobName
from tidegate.runtime import control
from tidegate.runtime.control import Deploy, StopWorker, TaskFailed, ToJobManager
from tidegate.runtime.link import Link
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.storage.resolve import open_storage

LONGEST_WAIT = 1.0
"""Seconds after which the loop looks around even if nothing comes."""
BREAK_PATIENCE = 2.0
"""Seconds from a broken data connection to the failure of the attempt: the death of the peer, which explains it, is
seen by the JobManager first."""
LAST_WORDS = 5.0
"""Seconds in which the JobManager must have taken in why this worker failed."""


def main() -> NoReturn:
    """Run the worker that the environment describes. Does not return."""
    ignore_interrupts()
    if PARAMETERS_VARIABLE not in os.environ:
        sys.exit("A worker is started by the JobManager: start the job with `tidegate run`.")
    parameters = decode_parameters(os.environ.pop(PARAMETERS_VARIABLE))
    die_with_parent(parameters.parent)
    watch_parent(parameters.life_fd)
    arm_from(os.environ, f"worker-{parameters.worker}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # It is killed when its attempt fails: what user code said until then must be out.
        sys.stdout.reconfigure(line_buffering=True)
    with telling_logs(worker_tell(parameters.worker, parameters.log_format)), _profiling(parameters):
        code = WorkerProcess(parameters).run()
    for stream in (sys.stdout, sys.stderr):
        # None when it was closed from the start. Where its reader is gone, nobody misses what it holds.
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    # Not sys.exit: threads of libraries and handles that close "cleanly" have no say in what becomes of transactions.
    os._exit(code)


def _profiling(parameters: WorkerParameters) -> AbstractContextManager[None]:
    if parameters.profile is None:
        return nullcontext()
    from tidegate.deploy.profiling.run import sampling

    part = f"worker-{parameters.attempt}-{parameters.worker}"
    return sampling(Path(parameters.profile), part, parameters.worker)


def watch_parent(descriptor: int) -> None:
    """From now on a thread ends this process when the other side of this inherited socket is closed."""
    os.set_inheritable(descriptor, False)
    life = socket.socket(fileno=descriptor)

    def watch() -> None:
        while life.recv(1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


class WorkerProcess:
    """The loop of one worker, and its wires."""

    def __init__(self, parameters: WorkerParameters) -> None:
        self._parameters = parameters
        self._context = Context()
        keys = None if parameters.keys_fd is None else take_keys(parameters.keys_fd)
        self._data = DataWires(self._context, parameters.data_address, keys)
        self._control = ControlClient(
            self._context, parameters.control_address, parameters.attempt, parameters.worker, keys
        )
        self._link = Link(parameters.attempt)
        self._wake_up = WakeUp()
        self._executor = ThreadExecutor(self._wake_up)
        self._calls = LoopAndThreads(self._wake_up.set)
        self._worker: Worker | None = None
        self._broke_at: float | None = None
        self._is_collecting = False
        """Garbage: from the moment on when the tasks are restored."""
        self._is_deployed = False
        """Until then frames of peers that were deployed earlier stay in the socket: there is nobody to take them."""
        self._held: list[control.ToWorker] = []
        """Messages that wait until all peers are connected: user code that runs might keep them out."""
        self._poller = zmq.Poller()
        for source in (self._control.socket, *self._data.monitors, self._wake_up):
            self._poller.register(source, zmq.POLLIN)

    def run(self) -> int:
        """Until the worker is stopped, or fails as a whole. Returns what the process ends with."""
        try:
            self._worker = self._make_worker()
            self._worker.start()
            while not self._worker.is_stopped:
                self._round(self._worker)
        # Also SystemExit, which is no Exception: `sys.exit()` in user code must not look like a worker's good end.
        except BaseException as error:
            self._tell_and_end(failure_of(error) if isinstance(error, Exception) else failure_of_exit(error))
            return 1
        self._data.close()
        self._control.close(linger=LONGEST_WAIT)
        self._context.term()
        return 0

    def _make_worker(self) -> Worker:
        parameters = self._parameters
        graph = load(parameters.program).graph(parameters.max_parallelism)
        ports = WorkerPorts(
            executor=self._executor,
            send_data=self._data.send,
            send_control=self._send,
            open_store=open_store,
            clock=SystemClock(),
            calls=self._calls,
            stopwatch=SystemClock(),
        )
        return Worker(parameters.worker, parameters.attempt, graph, self._data.address, ports)

    def _round(self, worker: Worker) -> None:
        progress = worker.step()
        seconds = 0.0 if progress.worked else self._seconds_until(progress.patient_at)
        if self._wait(seconds, progress.watched):
            worker.arrived()
        self._look_at_connections()
        self._executor.drain()
        self._calls.drain()
        if worker.is_open and not self._is_collecting:
            self._is_collecting = True
            begin_collecting()
        self._control_round()
        self._hand_on(worker)
        while self._is_deployed and (frame := self._data.receive()) is not None:
            worker.receive_frame(frame)

    def _wait(self, seconds: float, watched: Sequence[int] = ()) -> bool:
        """Whether one of `watched` has something, which may also be its end."""
        for descriptor in watched:
            self._poller.register(descriptor, zmq.POLLIN)
        ready = dict(self._poller.poll(math.ceil(seconds * 1000)))
        for descriptor in watched:
            self._poller.unregister(descriptor)
        if self._wake_up.fileno() in ready:
            self._wake_up.clear()
        return any(descriptor in ready for descriptor in watched)

    def _seconds_until(self, wake_at: float | None) -> float:
        """Until then, or until something of this loop's own is due."""
        deadlines = [at for at in (wake_at, self._link.next_deadline, self._broke_at) if at is not None]
        until = min(deadlines, default=math.inf) - time.monotonic()
        return min(max(until, 0.0), LONGEST_WAIT)

    def _control_round(self) -> None:
        while (frame := self._control.receive()) is not None:
            messages, frames = self._link.receive(frame, time.monotonic())
            self._control.send(frames)
            for data in messages:
                self._take(control.decode_to_worker(data))
        self._control.send(self._link.due(time.monotonic()))

    def _take(self, message: control.ToWorker) -> None:
        if isinstance(message, Deploy):
            for source in self._data.connect(message.peers):
                self._poller.register(source, zmq.POLLIN)
        self._held.append(message)

    def _hand_on(self, worker: Worker) -> None:
        """What was held, in order, as soon as nobody can be kept waiting at the door, or nothing will run any more."""
        if not self._data.is_complete and not any(isinstance(message, StopWorker) for message in self._held):
            return
        held, self._held = self._held, []
        for message in held:
            if isinstance(message, Deploy):
                self._is_deployed = True
                self._poller.register(self._data.inbox, zmq.POLLIN)
            worker.receive(message)

    def _look_at_connections(self) -> None:
        now = time.monotonic()
        self._data.let_peers_in()
        if self._data.has_broken() and self._broke_at is None:
            self._broke_at = now + BREAK_PATIENCE
        if self._broke_at is not None and now >= self._broke_at:
            self._broke_at = math.inf
            text = "a data connection to another worker broke; what was in flight on it is lost"
            self._send(TaskFailed(None, Failure(ErrorKind.UNAVAILABLE, text, where=self._place)))

    def _tell_and_end(self, failure: Failure) -> None:
        """The JobManager ends this process when it has heard; if it does not, the process ends by itself."""
        where = failure.where or self._place
        self._send(TaskFailed(None, msgspec.structs.replace(failure, where=where)))
        end = time.monotonic() + LAST_WORDS
        while not self._link.all_acknowledged and time.monotonic() < end:
            self._wait(self._seconds_until(end))
            self._control_round()

    @property
    def _place(self) -> str:
        return f"worker {self._parameters.worker}, {place(attempt=self._parameters.attempt)}"

    def _send(self, message: ToJobManager) -> None:
        self._control.send(self._link.send(control.encode(message), time.monotonic()))


def open_store(url: str, job: JobName) -> CheckpointStore:
    """The job's checkpoints, for a worker; with the `memory` preset they are in the JobManager, and nothing is here."""
    return CheckpointStore(open_storage(url), job)
