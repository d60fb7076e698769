"""What tests of TCP with CURVE share: processes that are no processes, two workers with their wires, and strangers."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import zmq

from tests.integration.programs import wait_until
from tidegate.deploy.curve import Context, KeyPair, Socket, call_on, new_pair, worker_keys
from tidegate.deploy.wires import DataWires
from tidegate.ids import WorkerIndex

ANYWHERE = "tcp://127.0.0.1:*"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"
"""How a connection of ZeroMQ begins, up to the name of the mechanism."""


class Process:
    """What stands for a process here: a ZeroMQ context has one doorkeeper."""

    def __init__(self) -> None:
        self.context = Context()
        self.sockets: list[socket.socket] = []

    def close(self) -> None:
        for one in self.sockets:
            one.close()
        self.context.destroy(linger=0)


class Pair:
    """Two workers, 0 and 1, that are connected to each other. `seen` is what each of them has received."""

    def __init__(self, process: Callable[[], Process], way: Callable[[str], str] = lambda address: address) -> None:
        self.keys = worker_keys(new_pair(), 2)
        self.wires = [DataWires(process().context, ANYWHERE, keys) for keys in self.keys]
        self.seen: list[list[bytes]] = [[], []]
        self.broken = [False, False]
        addresses = [wires.address for wires in self.wires]
        self.wires[0].connect([addresses[0], way(addresses[1])])
        self.wires[1].connect([way(addresses[0]), addresses[1]])
        self.until(lambda: all(wires.is_complete for wires in self.wires), "both connections")

    def pump(self) -> None:
        for index, wires in enumerate(self.wires):
            if not wires.inbox.closed:
                wires.let_peers_in()
                self.broken[index] |= wires.has_broken()
                while (frame := wires.receive()) is not None:
                    self.seen[index].append(frame)

    def until(self, has_happened: Callable[[], bool], what: str) -> None:
        def happens() -> bool:
            self.pump()
            return has_happened()

        wait_until(happens, what, 30)

    def exchange(self, frames: list[bytes]) -> None:
        """Both ways; the frames have arrived when this returns, and nothing else has."""
        self.seen = [[], []]
        for frame in frames:
            self.wires[0].send(WorkerIndex(1), frame)
            self.wires[1].send(WorkerIndex(0), frame)
        self.until(lambda: min(map(len, self.seen)) >= len(frames), "all frames")
        assert self.seen == [frames, frames]


def port_of(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def stranger(process: Process, address: str, own: KeyPair | None, server: str) -> Socket:
    """One that keeps trying and has something to say."""
    made: Socket = process.context.socket(zmq.PUSH)
    made.setsockopt(zmq.LINGER, 0)
    if own is not None:
        call_on(made, own, server)
    made.connect(address)
    made.send(b"from a stranger")
    return made


def raw(process: Process, address: str, data: bytes) -> None:
    process.sockets.append(socket.create_connection(port_of(address)))
    process.sockets[-1].sendall(data)


class PassThrough:
    """Carries bytes of one connection after another to `target`, and remembers them."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.carried = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.carried += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()
