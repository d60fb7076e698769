"""CURVE for wires that leave the file system: the keys of a job's processes, and who of them may come in.

Each process of an attempt has a key pair of its own, made by the JobManager and never stored. A socket that binds
proves its key and lets in nobody whose key it does not know; one that connects knows the key that it must find there.
A secret travels to its worker through an inherited file without a name: never as an argument, in the environment or in
a message.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec
import zmq
from zmq.utils import z85

from tidegate.errors import InternalError, InvalidError

_VERSION, _KNOWN, _UNKNOWN = b"1.0", (b"200", b"OK"), (b"400", b"this key is not known")
_CREDENTIALS = 6
"""Where in a request of ZAP (ZeroMQ's RFC 27) the key stands."""

Context = zmq.Context["zmq.Socket[bytes]"]
Socket = zmq.Socket[bytes]


class KeyPair(msgspec.Struct, frozen=True):
    """As Z85 text, 40 characters each."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public!r}, '***')"


class WorkerKeys(msgspec.Struct, frozen=True):
    """What one worker of an attempt must know."""

    own: KeyPair
    job_manager: str
    """Public key."""
    peers: tuple[str, ...]
    """Public key of each worker, by index, its own too."""


def new_pair() -> KeyPair:
    """Raises InvalidError where ZeroMQ was built without CURVE."""
    if not zmq.has("curve"):
        raise InvalidError(
            "this ZeroMQ was built without CURVE, and over TCP nothing goes unencrypted",
            remedy="Install a pyzmq that has it, as the wheels do, or set network.transport to ipc.",
        )
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def worker_keys(job_manager: KeyPair, count: int) -> list[WorkerKeys]:
    """New keys for the `count` workers of an attempt."""
    pairs = [new_pair() for _ in range(count)]
    peers = tuple(pair.public for pair in pairs)
    return [WorkerKeys(pair, job_manager.public, peers) for pair in pairs]


def hand_over(keys: WorkerKeys, folder: Path) -> BinaryIO:
    """An open file from which the process that inherits it takes its keys. It never has a name, or loses it at once."""
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  the caller closes it when the child has it
    file.write(msgspec.json.encode(keys))
    file.flush()
    file.seek(0)
    return file


def take_keys(descriptor: int) -> WorkerKeys:
    """What `hand_over` wrote. The file is empty and closed afterwards. Raises InternalError when it is not that."""
    with os.fdopen(descriptor, "r+b") as file:
        data = file.read()
        file.truncate(0)
    try:
        return msgspec.json.decode(data, type=WorkerKeys)
    except msgspec.MsgspecError as error:
        raise InternalError("a worker cannot read the keys that it was started with") from error


def serve(socket: Socket, own: KeyPair) -> None:
    """Let in only whom the `Doorkeeper` of this context knows; nobody, where there is none."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    _identify(socket, own)
    socket.setsockopt(zmq.ZAP_DOMAIN, b"tidegate")
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def call_on(socket: Socket, own: KeyPair, server: str) -> None:
    """Connect to nobody but who has the key whose public half is `server`."""
    _identify(socket, own)
    socket.setsockopt(zmq.CURVE_SERVERKEY, server.encode())


def _identify(socket: Socket, own: KeyPair) -> None:
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret.encode())


class Doorkeeper:
    """Answers ZeroMQ's question whether a key may come in, for all sockets of a context. There is one in each.

    Only who has proved to hold a key, and knew the server's, is asked about. The loop that owns this waits on `socket`
    and calls `answer`.
    """

    def __init__(self, context: Context) -> None:
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")
        self._known: frozenset[bytes] = frozenset()

    def admit(self, keys: Iterable[str]) -> None:
        """From now on these public keys, and no others. Who is in already stays."""
        self._known = frozenset(z85.decode(key.encode()) for key in keys)

    def answer(self) -> None:
        while self.socket.poll(0):
            request = self.socket.recv_multipart()
            code, text = _KNOWN if request[_CREDENTIALS:] and request[_CREDENTIALS] in self._known else _UNKNOWN
            self.socket.send_multipart([_VERSION, request[1], code, text, b"", b""])

    def close(self) -> None:
        self.socket.close()
