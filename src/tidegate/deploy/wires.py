"""ZeroMQ wires on one machine: control frames between the JobManager and its workers, data frames between workers.

Sockets are Unix domain sockets in a private folder. Reconnecting is off: ZeroMQ reconnects silently and drops what was
in flight, so a connection that breaks ends the attempt. What is in flight is bounded by credit, not by a high-water mark.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import zmq

from tidegate.ids import Attempt, WorkerIndex

_PREFIX = "tidegate-"


class RuntimeFolder:
    """A private folder for sockets, with a short path: socket addresses hold about 100 bytes."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))

    def address(self, name: str) -> str:
        return f"ipc://{self.path}/{name}"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned_folders() -> None:
    """Remove what processes of this user left that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and folder.stat().st_uid == os.getuid() and not _is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    return socket


class ControlServer:
    """The JobManager's end: frames to and from workers of any attempt."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        self.socket = _socket(context, zmq.ROUTER)
        self.socket.bind(address)

    def send(self, attempt: Attempt, worker: WorkerIndex, frames: Sequence[bytes]) -> None:
        """To a worker that has not connected, or is gone, they are lost: the link sends them again."""
        for frame in frames:
            self.socket.send_multipart([_identity(attempt, worker), frame], zmq.NOBLOCK)

    def receive(self) -> tuple[Attempt, WorkerIndex, bytes] | None:
        try:
            identity, frame = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        attempt, _, worker = identity.decode().partition("-")
        return Attempt(int(attempt)), WorkerIndex(int(worker)), frame

    def close(self) -> None:
        self.socket.close()


class ControlClient:
    """A worker's end."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", address: str, attempt: Attempt, worker: WorkerIndex
    ) -> None:
        self.socket = _socket(context, zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, _identity(attempt, worker))
        self.socket.connect(address)

    def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.socket.send(frame)

    def receive(self) -> bytes | None:
        return _receive(self.socket)


class DataWires:
    """A worker's connections to its peers."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        self._context = context
        self.address = address
        self.inbox = _socket(context, zmq.PULL)
        self.monitors = [self.inbox.get_monitor_socket(zmq.EVENT_DISCONNECTED)]
        """Readable when a connection has broken."""
        self.inbox.bind(address)
        self._peers: tuple[str, ...] = ()
        self._outboxes: dict[WorkerIndex, zmq.Socket[bytes]] = {}

    def connect(self, peers: Sequence[str]) -> list["zmq.Socket[bytes]"]:
        """Learn the addresses of all workers, by index; returns the monitors of the new connections."""
        self._peers = tuple(peers)
        added: list[zmq.Socket[bytes]] = []
        for index, address in enumerate(self._peers):
            if address != self.address:
                outbox = self._outboxes[WorkerIndex(index)] = _socket(self._context, zmq.PUSH)
                added.append(outbox.get_monitor_socket(zmq.EVENT_DISCONNECTED))
                outbox.connect(address)
        self.monitors += added
        return added

    def send(self, worker: WorkerIndex, frame: bytes) -> None:
        self._outboxes[worker].send(frame)

    def receive(self) -> bytes | None:
        return _receive(self.inbox)


def _receive(socket: "zmq.Socket[bytes]") -> bytes | None:
    try:
        return socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None


def _identity(attempt: Attempt, worker: WorkerIndex) -> bytes:
    return f"{attempt}-{worker}".encode()
