"""Workers as child processes on this machine.

A worker is started by exec, never by fork of the user's process, from the main thread. Between parent and child is a
socket pair that carries nothing: its end says that the other side may have died. Only a process's exit counts as death.
Nothing here blocks: the loop calls `step` when something came, and at `wake_at`.
"""

import json
import os
import socket
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zmq

from tidegate.checkpoint.log import Takeover
from tidegate.clock import Clock
from tidegate.deploy.curve import Context, WorkerKeys, hand_over, new_pair, worker_keys
from tidegate.deploy.processes import describe_exit, kill_recorded, process_record, without_interrupts
from tidegate.deploy.program import ProgramSpec
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.deploy.wires import ControlServer
from tidegate.errors import ErrorKind, Failure, InternalError
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime import control
from tidegate.runtime.control import ToWorker
from tidegate.runtime.link import Link
from tidegate.runtime.ports import Executor
from tidegate.scheduling import protocol as p

PARAMETERS_VARIABLE = "TIDEGATE_WORKER"
LOOK_SECONDS = 0.25
"""Between two looks whether a child has exited, beside what its socket tells: a child of a child may hold that open."""
EXIT_PATIENCE = 5.0
"""Seconds in which killed workers must be gone when everything ends."""


class WorkerParameters(msgspec.Struct, frozen=True):
    """What a worker process is started with, as JSON in its environment. Nothing in it is secret."""

    program: ProgramSpec
    max_parallelism: int
    attempt: Attempt
    worker: WorkerIndex
    control_address: str
    data_address: str
    life_fd: int
    """The child's end of the socket pair."""
    parent: int
    log_format: str = "text"
    keys_fd: int | None = None
    """The inherited file with its keys (`curve.take_keys`); None when no wire needs any."""
    profile: str | None = None
    """The folder for its part of a profile; None when none is wanted."""


def encode_parameters(parameters: WorkerParameters) -> str:
    """In ASCII: paths and arguments may hold bytes that are no UTF-8, and msgspec refuses those."""
    return json.dumps(msgspec.to_builtins(parameters))


def decode_parameters(text: str) -> WorkerParameters:
    """Raises InternalError for what `encode_parameters` did not make."""
    try:
        return msgspec.convert(json.loads(text), WorkerParameters)
    except (ValueError, RecursionError) as error:
        raise InternalError(f"a worker cannot read what it was started with: {error}") from error


@dataclass
class _Child:
    """One worker process, seen from here."""

    attempt: Attempt
    worker: WorkerIndex
    process: "subprocess.Popen[bytes]"
    life: socket.socket
    link: Link = field(init=False)
    is_polled: bool = True
    """`life` is among what the loop waits for."""

    def __post_init__(self) -> None:
        self.link = Link(self.attempt)
        self.life.setblocking(False)

    def has_hung_up(self) -> bool:
        """The other end is closed. Nothing is ever sent."""
        try:
            return self.life.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


class LocalCluster:
    """See `scheduling.performer.Cluster`. Events wait in `events` until the loop takes them.

    `host` is what takeovers record of this machine. `executor` waits for the end of workers of earlier attempts.
    tcp_host: the address of this machine at which wires are TCP with CURVE; None for sockets in `folder`. Raises
    InvalidError when this machine has no such address. profile: where workers put parts of a profile, if one is wanted.
    """

    def __init__(
        self,
        program: ProgramSpec,
        max_parallelism: int,
        folder: RuntimeFolder,
        executor: Executor,
        host: str,
        clock: Clock,
        log_format: str = "text",
        tcp_host: str | None = None,
        profile: Path | None = None,
    ) -> None:
        self._profile = profile
        self._program = program
        self._log_format = log_format
        self._max_parallelism = max_parallelism
        self._folder = folder
        self._executor = executor
        self._host = host
        self._clock = clock
        self._context = Context()
        self._tcp_host = tcp_host
        self._own = None if tcp_host is None else new_pair()
        self._server = ControlServer(self._context, self._address_of("control"), self._own)
        self._children: dict[WorkerIndex, _Child] = {}
        self._ending: Attempt | None = None
        self._kill_at: float | None = None
        self.events: deque[p.Event] = deque()
        self.poller = zmq.Poller()
        for source in self._server.sockets:
            self.poller.register(source, zmq.POLLIN)

    # -- the port --

    def spawn(self, attempt: Attempt, count: int) -> None:
        try:
            for i, keys in enumerate(self._new_keys(count)):
                self._children[WorkerIndex(i)] = self._start(attempt, WorkerIndex(i), keys)
        except OSError as error:
            failure = Failure(ErrorKind.UNAVAILABLE, f"worker processes could not be started: {error}")
            self.events.append(p.StepFailed(failure))
            return
        records = tuple(process_record(child.process.pid) for child in self._children.values())
        self.events.append(p.WorkersSpawned(attempt, records, self._server.address))

    def send(self, attempt: Attempt, worker: WorkerIndex, message: ToWorker) -> None:
        child = self._children.get(worker)
        if child is not None and child.attempt == attempt:
            self._server.send(attempt, worker, child.link.send(control.encode(message), self._now()))

    def end(self, attempt: Attempt, grace: float) -> None:
        self._ending = attempt
        self._kill_at = self._now() + grace
        self._go_on_ending()

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
        deadlines.append(self._kill_at)
        if self._children:
            deadlines.append(self._now() + LOOK_SECONDS)
        return min((at for at in deadlines if at is not None), default=None)

    def step(self) -> None:
        """Receive, notice deaths, send again what was not acknowledged."""
        self._receive()
        now = self._now()
        for child in list(self._children.values()):
            if self._has_exited(child):
                self._bury(child)
            else:
                self._server.send(child.attempt, child.worker, child.link.due(now))
        self._go_on_ending()

    def kill_all(self) -> None:
        for child in self._children.values():
            child.process.kill()

    def close(self) -> None:
        """Kill every worker and see it dead."""
        self.kill_all()
        for child in list(self._children.values()):
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(EXIT_PATIENCE)
            self._forget(child)
        self._server.close()
        self._context.destroy(linger=0)

    # -- children --

    def _address_of(self, name: str) -> str:
        if self._tcp_host is None:
            return self._folder.address(name)
        return f"tcp://[{self._tcp_host}]:*" if ":" in self._tcp_host else f"tcp://{self._tcp_host}:*"

    def _new_keys(self, count: int) -> list[WorkerKeys] | list[None]:
        """For the workers of an attempt. Those of earlier ones are let in no more."""
        if self._own is None:
            return [None] * count
        keys = worker_keys(self._own, count)
        self._server.admit([one.own.public for one in keys])
        return keys

    def _start(self, attempt: Attempt, worker: WorkerIndex, keys: WorkerKeys | None) -> _Child:
        with ExitStack() as handed:
            file = None if keys is None else handed.enter_context(hand_over(keys, self._folder.path))
            return self._start_with(attempt, worker, None if file is None else file.fileno())

    def _start_with(self, attempt: Attempt, worker: WorkerIndex, keys_fd: int | None) -> _Child:
        ours, theirs = socket.socketpair()
        parameters = WorkerParameters(
            program=self._program,
            max_parallelism=self._max_parallelism,
            attempt=attempt,
            worker=worker,
            control_address=self._server.address,
            data_address=self._address_of(f"data-{attempt}-{worker}"),
            life_fd=theirs.fileno(),
            parent=os.getpid(),
            log_format=self._log_format,
            keys_fd=keys_fd,
            profile=None if self._profile is None else str(self._profile),
        )
        try:
            with theirs, without_interrupts():
                # -P: what lies in the working folder must not hide modules of the standard library.
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tidegate.worker"],
                    stdin=subprocess.DEVNULL,
                    env=os.environ | {PARAMETERS_VARIABLE: encode_parameters(parameters)},
                    cwd=self._program.folder,
                    pass_fds=[theirs.fileno(), *([] if keys_fd is None else [keys_fd])],
                )
        except OSError:
            ours.close()
            raise
        self.poller.register(ours, zmq.POLLIN)
        return _Child(attempt, worker, process, ours)

    def _has_exited(self, child: _Child) -> bool:
        if child.process.poll() is not None:
            return True
        if child.is_polled and child.has_hung_up():
            # Dying, or it closed what it did not know; from here on it is only looked at.
            self._stop_polling(child)
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(LOOK_SECONDS)
        return child.process.poll() is not None

    def _bury(self, child: _Child) -> None:
        # What it said last came before its end.
        self._receive()
        self._forget(child)
        if self._ending != child.attempt:
            how = describe_exit(child.process.returncode)
            self.events.append(p.WorkerDied(child.attempt, child.worker, how))

    def _forget(self, child: _Child) -> None:
        self._stop_polling(child)
        child.life.close()
        del self._children[child.worker]

    def _stop_polling(self, child: _Child) -> None:
        if child.is_polled:
            child.is_polled = False
            self.poller.unregister(child.life)

    def _go_on_ending(self) -> None:
        if self._ending is None:
            return
        if self._kill_at is not None and self._now() >= self._kill_at:
            self._kill_at = None
            self.kill_all()
        if not self._children:
            self.events.append(p.WorkersGone(self._ending))
            self._ending = self._kill_at = None

    def _receive(self) -> None:
        while (found := self._server.receive()) is not None:
            attempt, worker, frame = found
            child = self._children.get(worker)
            if child is None or child.attempt != attempt:
                continue
            messages, frames = child.link.receive(frame, self._now())
            self._server.send(attempt, worker, frames)
            for message in messages:
                self.events.append(p.Received(attempt, worker, control.decode_to_job_manager(message)))

    def _now(self) -> float:
        return self._clock.now().monotonic
