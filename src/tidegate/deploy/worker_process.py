"""A worker process: imports the program, then steps a `Worker` until it is told to stop, is killed, or its parent is gone.

It ignores Ctrl-C: whether a job stops is the JobManager's to decide. It dies with its parent, twice over: by the kernel's
parent-death signal, and by a thread that waits for the end of the inherited socket, so that long user code cannot delay it.
"""

import gc
import math
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

import msgspec
import zmq

from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import SystemClock
from tidegate.deploy.cluster import PARAMETERS_VARIABLE, WorkerParameters
from tidegate.deploy.executor import ThreadExecutor, WakeUp
from tidegate.deploy.fail_points import arm_from
from tidegate.deploy.processes import die_with_parent
from tidegate.deploy.program import load
from tidegate.deploy.wires import ControlClient, DataWires
from tidegate.errors import ErrorKind, Failure, failure_of
from tidegate.ids import JobName
from tidegate.runtime import control
from tidegate.runtime.control import Deploy, TaskFailed, ToJobManager
from tidegate.runtime.link import Link
from tidegate.runtime.worker import Worker, WorkerPorts
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.resolve import open_storage

LONGEST_WAIT = 1.0
"""Seconds after which the loop looks around even if nothing comes."""


def main() -> NoReturn:
    """Run the worker that the environment describes. Does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parameters = msgspec.json.decode(os.environ.pop(PARAMETERS_VARIABLE), type=WorkerParameters)
    die_with_parent(parameters.parent)
    _watch_parent(parameters.life_fd)
    arm_from(os.environ, f"worker-{parameters.worker}")
    process = WorkerProcess(parameters)
    process.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads of libraries, and handles that close "cleanly", must have no say in what becomes of transactions.
    os._exit(0)


def _watch_parent(descriptor: int) -> None:
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
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._data = DataWires(self._context, parameters.data_address)
        self._control = ControlClient(
            self._context, parameters.control_address, parameters.attempt, parameters.worker
        )
        self._link = Link(parameters.attempt)
        self._wake_up = WakeUp()
        self._executor = ThreadExecutor(self._wake_up)
        self._worker: Worker | None = None
        self._poller = zmq.Poller()
        for source in (self._control.socket, self._data.inbox, *self._data.monitors, self._wake_up):
            self._poller.register(source, zmq.POLLIN)

    def run(self) -> None:
        """Until the worker is stopped. A failure of loading is told, and then waited on: the JobManager ends us."""
        try:
            self._worker = self._make_worker()
            self._worker.start()
        except Exception as error:
            self._send(TaskFailed(None, failure_of(error)))
        gc.collect()
        gc.freeze()
        while self._worker is None or not self._worker.is_stopped:
            self._round()

    def _make_worker(self) -> Worker:
        graph = load(self._parameters.program).graph()
        ports = WorkerPorts(
            executor=self._executor,
            send_data=self._data.send,
            send_control=self._send,
            open_store=open_store,
            clock=SystemClock(),
        )
        return Worker(self._parameters.worker, self._parameters.attempt, graph, self._parameters.data_address, ports)

    def _round(self) -> None:
        timeout = LONGEST_WAIT
        if self._worker is not None:
            progress = self._worker.step()
            now = time.monotonic()
            deadlines = [at for at in (progress.wake_at, self._link.next_deadline) if at is not None]
            timeout = 0.0 if progress.worked else max(0.0, min((at - now for at in deadlines), default=LONGEST_WAIT))
        elif self._link.next_deadline is not None:
            timeout = max(0.0, self._link.next_deadline - time.monotonic())
        ready = dict(self._poller.poll(math.ceil(min(timeout, LONGEST_WAIT) * 1000)))
        self._take_in(ready)

    def _take_in(self, ready: dict[object, int]) -> None:
        if any(monitor in ready for monitor in self._data.monitors):
            self._connection_broke()
        if self._wake_up.fileno() in ready:
            self._wake_up.clear()
        self._executor.drain()
        while (frame := self._control.receive()) is not None:
            self._control_frame(frame)
        if self._worker is not None:
            while (frame := self._data.receive()) is not None:
                self._worker.receive_frame(frame)
        self._control.send(self._link.due(time.monotonic()))

    def _control_frame(self, frame: bytes) -> None:
        messages, frames = self._link.receive(frame, time.monotonic())
        self._control.send(frames)
        for data in messages:
            message = control.decode_to_worker(data)
            if isinstance(message, Deploy):
                for monitor in self._data.connect(message.peers):
                    self._poller.register(monitor, zmq.POLLIN)
            if self._worker is not None:
                self._worker.receive(message)

    def _connection_broke(self) -> None:
        for monitor in self._data.monitors:
            while monitor.poll(0):
                monitor.recv_multipart()
        text = "a data connection to another worker broke; what was in flight on it is lost"
        self._send(TaskFailed(None, Failure(ErrorKind.UNAVAILABLE, text)))

    def _send(self, message: ToJobManager) -> None:
        self._control.send(self._link.send(control.encode(message), time.monotonic()))


def open_store(url: str, job: JobName) -> CheckpointStore:
    """The job's checkpoints, for a worker. With the `memory` preset they are in the JobManager, and nothing is stored here."""
    return CheckpointStore(MemoryStorage() if url == "memory:" else open_storage(url), job)
