"""Workers as child processes on this machine.

A worker is started by exec, never by fork of the user's process, from the main thread. Between parent and child is a
socket pair that carries nothing: its end means that the other side died. Only a process's exit counts as death.
"""

import os
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec
import zmq

from tidegate.checkpoint.log import Takeover
from tidegate.deploy.processes import describe_exit, kill_recorded, process_record
from tidegate.deploy.program import ProgramSpec
from tidegate.deploy.wires import ControlServer, RuntimeFolder
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime import control
from tidegate.runtime.control import ToWorker
from tidegate.runtime.link import Link
from tidegate.runtime.ports import Executor
from tidegate.scheduling import protocol as p

PARAMETERS_VARIABLE = "TIDEGATE_WORKER"


class WorkerParameters(msgspec.Struct, frozen=True):
    """What a worker process is started with, as JSON in its environment."""

    program: ProgramSpec
    attempt: Attempt
    worker: WorkerIndex
    control_address: str
    data_address: str
    life_fd: int
    parent: int


@dataclass
class _Child:
    """One worker process, seen from here."""

    attempt: Attempt
    worker: WorkerIndex
    process: "subprocess.Popen[bytes]"
    life: socket.socket
    link: Link = field(init=False)

    def __post_init__(self) -> None:
        self.link = Link(self.attempt)


class LocalCluster:
    """See `scheduling.performer.Cluster`. Events wait in `events` until the loop takes them."""

    def __init__(self, program: ProgramSpec, folder: RuntimeFolder, executor: Executor, host: str) -> None:
        self._program = program
        self._folder = folder
        self._executor = executor
        self._host = host
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._address = folder.address("control")
        self._server = ControlServer(self._context, self._address)
        self._children: dict[WorkerIndex, _Child] = {}
        self._ending: Attempt | None = None
        self._kill_at = 0.0
        self.events: deque[p.Event] = deque()
        self.poller = zmq.Poller()
        self.poller.register(self._server.socket, zmq.POLLIN)

    # -- the port --

    def spawn(self, attempt: Attempt, count: int) -> None:
        try:
            for i in range(count):
                self._children[WorkerIndex(i)] = self._start(attempt, WorkerIndex(i))
        except OSError as error:
            failure = Failure(ErrorKind.UNAVAILABLE, f"worker processes could not be started: {error}")
            self.events.append(p.StepFailed(failure))
            return
        records = tuple(process_record(child.process.pid) for child in self._children.values())
        self.events.append(p.WorkersSpawned(attempt, records, self._address))

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        child = self._children.get(worker)
        if child is not None and child.attempt == attempt:
            self._server.send(attempt, worker, child.link.send(control.encode(message), time.monotonic()))

    def end(self, attempt: Attempt, grace: float) -> None:
        self._ending = attempt
        self._kill_at = time.monotonic() + grace
        self._end_children()

    def end_recorded(self, takeover: Takeover) -> None:
        records = takeover.workers if takeover.host == self._host else ()

        def done(left: list[int], error: BaseException | None) -> None:
            if error is not None or left:
                text = f"workers of the last attempt could not be ended: {error or left}"
                self.events.append(p.StepFailed(Failure(ErrorKind.UNAVAILABLE, text)))
            else:
                self.events.append(p.OldWorkersEnded())

        self._executor.submit("old workers", lambda: kill_recorded(records), done)

    # -- the loop's --

    @property
    def wake_at(self) -> float | None:
        """When `step` has something to do even if nothing comes; monotonic seconds."""
        deadlines = [child.link.next_deadline for child in self._children.values()]
        if self._ending is not None:
            deadlines.append(self._kill_at)
        return min((at for at in deadlines if at is not None), default=None)

    def step(self) -> None:
        """Receive, notice deaths, send again what was not acknowledged."""
        self._receive()
        now = time.monotonic()
        for child in list(self._children.values()):
            if _has_ended(child.life):
                self._buried(child)
            else:
                self._server.send(child.attempt, child.worker, child.link.due(now))
        self._end_children()

    def kill_all(self) -> None:
        """At once, and wait for it."""
        for child in self._children.values():
            child.process.kill()
        for child in list(self._children.values()):
            child.process.wait()
            self._forget(child)

    def close(self) -> None:
        self.kill_all()
        self._server.close()
        self._context.destroy(linger=0)

    def _start(self, attempt: Attempt, worker: WorkerIndex) -> _Child:
        ours, theirs = socket.socketpair()
        parameters = WorkerParameters(
            program=self._program,
            attempt=attempt,
            worker=worker,
            control_address=self._address,
            data_address=self._folder.address(f"data-{attempt}-{worker}"),
            life_fd=theirs.fileno(),
            parent=os.getpid(),
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.worker"],
            stdin=subprocess.DEVNULL,
            env=os.environ | {PARAMETERS_VARIABLE: msgspec.json.encode(parameters).decode()},
            cwd=self._program.folder,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.poller.register(ours, zmq.POLLIN)
        return _Child(attempt, worker, process, ours)

    def _receive(self) -> None:
        while (found := self._server.receive()) is not None:
            attempt, worker, frame = found
            child = self._children.get(worker)
            if child is None or child.attempt != attempt:
                continue
            messages, frames = child.link.receive(frame, time.monotonic())
            self._server.send(attempt, worker, frames)
            for message in messages:
                self.events.append(p.Received(attempt, worker, control.decode_to_job_manager(message)))

    def _buried(self, child: _Child) -> None:
        code = child.process.wait()
        self._receive()
        self._forget(child)
        if self._ending != child.attempt:
            self.events.append(p.WorkerDied(child.attempt, child.worker, describe_exit(code)))

    def _forget(self, child: _Child) -> None:
        self.poller.unregister(child.life)
        child.life.close()
        del self._children[child.worker]

    def _end_children(self) -> None:
        if self._ending is None:
            return
        if self._children and time.monotonic() >= self._kill_at:
            self.kill_all()
        if not self._children:
            self.events.append(p.WorkersGone(self._ending))
            self._ending = None


def _has_ended(life: socket.socket) -> bool:
    """The other end is closed: the process that held it is dead. Nothing is ever sent."""
    life.setblocking(False)
    try:
        return life.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


