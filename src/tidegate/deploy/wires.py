"""ZeroMQ wires on one machine: control frames between the JobManager and its workers, data frames between workers.

Sockets are Unix domain sockets in a private folder. A control wire may lose frames and connect again: the links on its
ends mend that. A data wire must not: ZeroMQ would reconnect silently and drop what was in flight, so reconnecting is
off and a connection that breaks ends the attempt. What is in flight is bounded by credit, not by a high-water mark.
"""

from collections.abc import Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from tidegate.ids import Attempt, WorkerIndex

_BROKEN = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CLOSE_FAILED
_KEEP_TRYING, _NEVER = 50, -1
"""Milliseconds between two tries to connect."""

Context = zmq.Context["zmq.Socket[bytes]"]
Socket = zmq.Socket[bytes]


def _socket(context: Context, kind: int, reconnect: int) -> Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, reconnect)
    return socket


class ControlServer:
    """The JobManager's end: frames to and from workers of any attempt."""

    def __init__(self, context: Context, address: str) -> None:
        self.socket = _socket(context, zmq.ROUTER, _KEEP_TRYING)
        # A worker that connects again takes its place, also when its old connection is not known to be dead.
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
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

    def __init__(self, context: Context, address: str, attempt: Attempt, worker: WorkerIndex) -> None:
        self.socket = _socket(context, zmq.DEALER, _KEEP_TRYING)
        self.socket.setsockopt(zmq.IDENTITY, _identity(attempt, worker))
        self.socket.connect(address)

    def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.socket.send(frame, zmq.NOBLOCK)

    def receive(self) -> bytes | None:
        return _receive(self.socket)

    def close(self, linger: float) -> None:
        """Wait at most `linger` seconds for what was sent to leave."""
        self.socket.close(linger=int(linger * 1000))


class DataWires:
    """A worker's connections to its peers. `inbox` and `monitors` are what a loop waits on."""

    def __init__(self, context: Context, address: str) -> None:
        self._context = context
        self.address = address
        self.inbox = _socket(context, zmq.PULL, _NEVER)
        self.monitors = [self.inbox.get_monitor_socket(zmq.EVENT_DISCONNECTED)]
        self.inbox.bind(address)
        self._outboxes: dict[WorkerIndex, Socket] = {}
        self._has_lost = False

    def connect(self, peers: Sequence[str]) -> list[Socket]:
        """Connect to all workers, whose addresses these are by index; returns the monitors of the new connections."""
        added: list[Socket] = []
        for index, address in enumerate(peers):
            if address != self.address:
                outbox = self._outboxes[WorkerIndex(index)] = _socket(self._context, zmq.PUSH, _NEVER)
                added.append(outbox.get_monitor_socket(_BROKEN))
                outbox.connect(address)
        self.monitors += added
        return added

    def send(self, worker: WorkerIndex, frame: bytes) -> None:
        """Where there is no connection any more the frame is lost, and `has_broken` says so.

        Nothing that is sent later arrives either, no barrier of a checkpoint among it, so there is time to learn that
        the peer has died, which explains it.
        """
        try:
            self._outboxes[worker].send(frame, zmq.NOBLOCK)
        except zmq.Again:
            self._has_lost = True

    def receive(self) -> bytes | None:
        return _receive(self.inbox)

    def has_broken(self) -> bool:
        """Whether a connection broke since this was last asked. What was in flight on it is lost."""
        broken, self._has_lost = self._has_lost, False
        for monitor in self.monitors:
            while monitor.poll(0):
                event = parse_monitor_message(monitor.recv_multipart())["event"]
                broken = broken or bool(event & _BROKEN)
        return broken

    def close(self) -> None:
        for socket in (self.inbox, *self._outboxes.values()):
            socket.disable_monitor()
        for socket in (self.inbox, *self._outboxes.values(), *self.monitors):
            socket.close()


def _receive(socket: Socket) -> bytes | None:
    try:
        return socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None


def _identity(attempt: Attempt, worker: WorkerIndex) -> bytes:
    return f"{attempt}-{worker}".encode()
