"""ZeroMQ wires: control frames between the JobManager and its workers, data frames between workers.

Sockets are Unix domain sockets in a private folder, or TCP with CURVE, and never TCP without it. A control wire may
lose frames and connect again: the links on its ends mend that. A data wire must not: ZeroMQ would reconnect silently
and drop what was in flight, so reconnecting is off and a connection that breaks ends the attempt. What is in flight is
bounded by credit, not by a high-water mark.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from tidegate.deploy.curve import Context, Doorkeeper, KeyPair, Socket, WorkerKeys, call_on, serve
from tidegate.errors import InternalError, InvalidError
from tidegate.ids import Attempt, WorkerIndex

_BROKEN = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CLOSE_FAILED
_KEEP_TRYING, _NEVER = 50, -1
"""Milliseconds between two tries to connect."""
_ARRIVALS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_IDENTITY = re.compile(rb"(\d{1,18})-(\d{1,18})")
_KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 30),
    (zmq.TCP_KEEPALIVE_INTVL, 10),
    (zmq.TCP_KEEPALIVE_CNT, 3),
)
"""A machine that is gone is noticed within a minute. The kernel answers, so that a process may stand still."""


def _socket(context: Context, kind: int, reconnect: int) -> Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, reconnect)
    return socket


def _bind(socket: Socket, address: str, own: KeyPair | None) -> str:
    """Returns where it is bound. Raises InvalidError when this machine has no such address."""
    _check_keys(address, own)
    if own is None:
        socket.bind(address)
        return address
    serve(socket, own)
    _set_up_tcp(socket, address)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise InvalidError(
            f"a socket cannot be bound to {address}: {zmq.strerror(error.errno or 0)}",
            remedy="Set network.host to an address of this machine.",
        ) from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _connect(socket: Socket, address: str, own: KeyPair | None, server: str) -> None:
    _check_keys(address, own)
    if own is not None:
        call_on(socket, own, server)
        _set_up_tcp(socket, address)
    socket.connect(address)


def _check_keys(address: str, own: KeyPair | None) -> None:
    """Raise InternalError for TCP without keys, which there is not, and for keys that would not be used."""
    is_ipc = address.startswith("ipc://")
    if is_ipc == (own is not None):
        raise InternalError(f"a wire at {address} {'takes no keys' if is_ipc else 'needs keys'}")


def _set_up_tcp(socket: Socket, address: str) -> None:
    socket.setsockopt(zmq.IPV6, int("[" in address))
    for option, value in _KEEPALIVE:
        socket.setsockopt(option, value)


class ControlServer:
    """The JobManager's end: frames to and from workers of any attempt. `sockets` are what a loop waits on.

    own: the JobManager's keys, for an `address` that is TCP. Nobody may come in there before `admit`.
    """

    def __init__(self, context: Context, address: str, own: KeyPair | None = None) -> None:
        self._door = None if own is None else Doorkeeper(context)
        self._socket = _socket(context, zmq.ROUTER, _KEEP_TRYING)
        # A worker that connects again takes its place, also when its old connection is not known to be dead.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.address = _bind(self._socket, address, own)
        self.sockets = [self._socket] if self._door is None else [self._socket, self._door.socket]

    def admit(self, keys: Sequence[str]) -> None:
        """From now on the workers with these public keys, and no others."""
        if self._door is not None:
            self._door.admit(keys)

    def send(self, attempt: Attempt, worker: WorkerIndex, frames: Sequence[bytes]) -> None:
        """To a worker that has not connected, or is gone, they are lost: the link sends them again."""
        for frame in frames:
            self._socket.send_multipart([_identity(attempt, worker), frame], zmq.NOBLOCK)

    def receive(self) -> tuple[Attempt, WorkerIndex, bytes] | None:
        """The next frame of a worker, if there is one. What cannot be from a worker is dropped."""
        if self._door is not None:
            self._door.answer()
        while self._socket.poll(0):
            identity, *frames = self._socket.recv_multipart()
            match = _IDENTITY.fullmatch(identity)
            if match and len(frames) == 1:
                return Attempt(int(match[1])), WorkerIndex(int(match[2])), frames[0]
        return None

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()


class ControlClient:
    """A worker's end."""

    def __init__(
        self, context: Context, address: str, attempt: Attempt, worker: WorkerIndex, keys: WorkerKeys | None = None
    ) -> None:
        self.socket = _socket(context, zmq.DEALER, _KEEP_TRYING)
        self.socket.setsockopt(zmq.IDENTITY, _identity(attempt, worker))
        _connect(self.socket, address, keys.own if keys else None, keys.job_manager if keys else "")

    def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.socket.send(frame, zmq.NOBLOCK)

    def receive(self) -> bytes | None:
        return _receive(self.socket)

    def close(self, linger: float) -> None:
        """Wait at most `linger` seconds for what was sent to leave."""
        self.socket.close(linger=int(linger * 1000))


@dataclass
class _Arrivals:
    """Tells the end of a peer's connection from that of a stranger, whom an event does not tell apart: connections of
    both are open, but only peers were let in. While a stranger tries, a break may be noticed later, but never wrongly;
    the peer at the other end notices it by itself."""

    open: int = 0
    let_in: int = 0

    def take(self, event: int) -> bool:
        """Whether one that was let in has gone."""
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.let_in += 1
        else:
            self.open += 1 if event == zmq.EVENT_ACCEPTED else -1
        has_gone = self.open < self.let_in
        self.let_in = min(self.open, self.let_in)
        return has_gone


class DataWires:
    """A worker's connections to its peers. `inbox` and `monitors` are what a loop waits on.

    keys: for an `address` that is TCP; a port that is `*` may be any, and `self.address` says which.
    """

    def __init__(self, context: Context, address: str, keys: WorkerKeys | None = None) -> None:
        self._context = context
        self._keys = keys
        self._door = None if keys is None else Doorkeeper(context)
        if keys is not None and self._door is not None:
            self._door.admit(keys.peers)
        self.inbox = _socket(context, zmq.PULL, _NEVER)
        self._arrived = self.inbox.get_monitor_socket(_ARRIVALS)
        self._arrivals = _Arrivals()
        self.address = _bind(self.inbox, address, keys.own if keys else None)
        self._outboxes: dict[WorkerIndex, Socket] = {}
        self._left: list[Socket] = []
        self._has_lost = False

    @property
    def monitors(self) -> list[Socket]:
        return [self._arrived, *self._left, *([] if self._door is None else [self._door.socket])]

    @property
    def is_complete(self) -> bool:
        """Whether all peers are in that need an answer of this loop for it. A task that runs user code may keep the
        loop from answering for as long as it likes."""
        return self._door is None or self._arrivals.let_in >= len(self._outboxes)

    def connect(self, peers: Sequence[str]) -> list[Socket]:
        """Connect to all workers, whose addresses these are by index; returns the monitors of the new connections."""
        added: list[Socket] = []
        for index, address in enumerate(peers):
            if address != self.address:
                outbox = self._outboxes[WorkerIndex(index)] = _socket(self._context, zmq.PUSH, _NEVER)
                added.append(outbox.get_monitor_socket(_BROKEN))
                keys = self._keys
                _connect(outbox, address, keys.own if keys else None, keys.peers[index] if keys else "")
        self._left += added
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
        while self._arrived.poll(0):
            broken = self._arrivals.take(_event(self._arrived)) or broken
        for monitor in self._left:
            while monitor.poll(0):
                broken = bool(_event(monitor) & _BROKEN) or broken
        return broken

    def let_peers_in(self) -> None:
        """Answer who asks to come in."""
        if self._door is not None:
            self._door.answer()

    def close(self) -> None:
        for socket in (self.inbox, *self._outboxes.values()):
            socket.disable_monitor()
        for socket in (self.inbox, *self._outboxes.values(), *self.monitors):
            socket.close()


def _event(monitor: Socket) -> int:
    return parse_monitor_message(monitor.recv_multipart())["event"]


def _receive(socket: Socket) -> bytes | None:
    try:
        return socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None


def _identity(attempt: Attempt, worker: WorkerIndex) -> bytes:
    return f"{attempt}-{worker}".encode()
