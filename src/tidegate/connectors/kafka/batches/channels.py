"""One open connection to one broker, never waited for: requests go out and responses come in as far as the socket goes.

A broker answers in the order in which it was asked. Whatever does not fit that, or cannot be understood, ends the
connection: nothing that came over it afterwards could be believed.
"""

import itertools
import socket
import ssl
import struct
from collections import deque
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

from tidegate.connectors.kafka.wire import RESPONSE_BYTES_MAX, Address, check_version

_LENGTH = struct.Struct(">i")
HEADER_BYTES_MAX = 256
"""More than the header of any response has."""
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Answer(NamedTuple):
    """`number` is what `send` gave for the request."""

    number: int
    response: Any


class Channel:
    """`connected` is a socket on which the user is authenticated, `versions` what the broker speaks there. After an
    error of any method it can only be closed."""

    def __init__(
        self, address: Address, connected: socket.socket, versions: Mapping[int, tuple[int, int]], client_id: str
    ) -> None:
        connected.setblocking(False)
        self._place = f"Kafka broker {address}"
        self._socket = connected
        self._versions = versions
        self._client_id = client_id
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, Any]] = deque()
        """Numbers and requests that were not answered yet."""
        self._outgoing: deque[memoryview] = deque()
        self._length = memoryview(bytearray(_LENGTH.size))
        self._incoming = self._length
        self._received = 0
        self.received = 0
        """Bytes that have come so far."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return not self._waiting

    @property
    def has_outgoing(self) -> bool:
        """Whether the socket has not taken everything yet."""
        return bool(self._outgoing)

    def send(self, request: Any) -> int:
        """Its number. Raises InvalidError when the broker does not speak the request's version."""
        check_version(request, self._versions, self._place)
        number = next(self._numbers)
        request.with_header(correlation_id=number, client_id=self._client_id)
        self._outgoing.append(memoryview(request.encode(framed=True, header=True)))
        if request.expect_response():
            self._waiting.append((number, request))
        self.write()
        return number

    def write(self) -> None:
        """What waits to go out, as far as the socket takes it."""
        while self._outgoing:
            part = self._outgoing[0]
            try:
                sent = self._socket.send(part)
            except NOT_NOW:
                return
            if sent == len(part):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = part[sent:]

    def read(self) -> list[Answer]:
        """The answers that have arrived. Raises ConnectionError when the broker closed the connection."""
        answers = []
        while self._fill():
            if self._incoming is self._length:
                self._begin()
            else:
                answers.append(self._answer(self._incoming))
                self._incoming, self._received = self._length, 0
        return answers

    def _fill(self) -> bool:
        """Whether what is being received is complete now."""
        while self._received < len(self._incoming):
            try:
                count = self._socket.recv_into(self._incoming[self._received :])
            except NOT_NOW:
                return False
            if not count:
                raise ConnectionError("the broker closed the connection")
            self._received += count
            self.received += count
        return True

    def _begin(self) -> None:
        (length,) = _LENGTH.unpack(self._length)
        if not self._waiting or not 0 < length <= RESPONSE_BYTES_MAX:
            raise ConnectionError(f"what answers is no Kafka broker: a response of {length} bytes")
        self._incoming, self._received = memoryview(bytearray(length)), 0

    def _answer(self, body: memoryview) -> Answer:
        number, request = self._waiting.popleft()
        kind = request.header.get_response_class()
        start = BytesIO(bytes(body[:HEADER_BYTES_MAX]))
        if kind.parse_header(start).correlation_id != number:
            raise ConnectionError(f"the answer is not to the request {request.name}")
        return Answer(number, kind.decode(body[start.tell() :]))

    def close(self) -> None:
        self._socket.close()
