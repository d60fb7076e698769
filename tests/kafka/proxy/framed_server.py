"""The smallest server that speaks in Kafka's frames, and its client: it answers each request with the request's body.

It answers in order, one connection in one thread, as a broker does.
"""

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from tests.kafka.proxy.frames import Api

PATIENCE = 20.0


class Got(NamedTuple):
    api: str
    correlation_id: int
    body: bytes


def receive(end: socket.socket, size: int) -> bytes | None:
    """None at the end of the stream."""
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


class FramedServer:
    def __init__(self) -> None:
        self.got: list[Got] = []
        """All requests, in the order in which they came."""
        self.ended = 0
        """How many connections have come to their end."""
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                self._ends.append(end)
                threading.Thread(target=self._serve, args=[end], daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with suppress(OSError), end:
            while (length := receive(end, 4)) is not None:
                rest = receive(end, *struct.unpack(">i", length))
                if rest is None:
                    break
                key, _, number = struct.unpack_from(">hhi", rest)
                body = rest[8:]
                self.got.append(Got(Api(key).name, number, body))
                end.sendall(struct.pack(">ii", 4 + len(body), number) + body)
        self.ended += 1

    def numbers(self, api: str) -> list[int]:
        """The correlation ids of its requests, in the order in which they came."""
        return [one.correlation_id for one in self.got if one.api == api]

    def drop_clients(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.drop_clients()


class FramedClient:
    """Numbers its requests from `first` on."""

    def __init__(self, port: int, first: int = 1) -> None:
        self.end = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._next = first

    def send(self, api: Api, body: bytes = b"") -> int:
        number = self._next
        self._next += 1
        self.end.sendall(struct.pack(">ihhi", 8 + len(body), api, 0, number) + body)
        return number

    def receive(self) -> tuple[int, bytes] | None:
        """The number of a reply and its body, None at the end of the stream. Raises ConnectionResetError."""
        length = receive(self.end, 4)
        if length is None:
            return None
        rest = receive(self.end, *struct.unpack(">i", length))
        assert rest is not None, "half a reply"
        (number,) = struct.unpack_from(">i", rest)
        return number, rest[4:]

    def ask(self, api: Api, body: bytes = b"") -> None:
        """The reply must be the right one."""
        number = self.send(api, body)
        assert self.receive() == (number, body)

    def assert_hears_nothing(self, seconds: float = 0.1) -> None:
        self.end.settimeout(seconds)
        try:
            heard = self.end.recv(1)
        except TimeoutError:
            self.end.settimeout(PATIENCE)
            return
        raise AssertionError("the connection has ended" if not heard else "there is a reply")

    def close(self) -> None:
        self.end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
