"""The thread in which a proxy lives: it waits for sockets, for time, and for what other threads ask it to do.

Everything that changes is changed here. What other threads want is handed over by `call`, which waits for the result.
"""

import heapq
import itertools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from tests.kafka.proxy.lanes import Connection

CALL_PATIENCE = 30.0
"""Seconds; the thread never waits for anything but `select`."""
T = TypeVar("T")


class Loop:
    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._timers: list[tuple[float, int, Connection]] = []
        self._numbers = itertools.count()
        self._masks: dict[socket.socket, tuple[int, int]] = {}
        """By socket that is watched: its number and what it is watched for."""
        self.is_closed = False
        self._failure: BaseException | None = None
        self.connections: dict[Connection, None] = {}
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # ---- for other threads -----------------------------------------------------------------------------------------

    def call(self, action: Callable[[], T]) -> T:
        """The result of `action`, which the thread has run; after its end there is nobody whom that could disturb."""
        if not self._thread.is_alive():
            self._raise_failure()
            return action()
        future: Future[T] = Future()
        self._calls.append((action, future))
        try:
            self._waker.send(b"x")
        except OSError:
            # It has ended at this moment: nobody else answers any more.
            self._thread.join()
            self._answer_all()
        return future.result(CALL_PATIENCE)

    def close(self) -> None:
        """End the thread and all connections. Raises what went wrong in it."""
        if self._thread.is_alive():
            self.call(self._begin_close)
            self._thread.join()
        self._raise_failure()

    def _begin_close(self) -> None:
        self.is_closed = True

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise AssertionError("the proxy's thread has failed") from self._failure

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.is_closed:
                self._step()
        except BaseException as error:
            self._failure = error
        for connection in self.connections:
            connection.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()
        self._answer_all()

    def _step(self) -> None:
        for key, mask in self._selector.select(self._timeout()):
            key.data(mask)
        self._answer_all()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            connection = heapq.heappop(self._timers)[2]
            connection.wakes_at = None
            self.move(connection, now)

    def _answer_all(self) -> None:
        while self._calls:
            self._answer(*self._calls.popleft())

    @staticmethod
    def _answer(action: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    def _timeout(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _drain(self, mask: int) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    # ---- for what runs in it ---------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        self.connections[connection] = None
        self.move(connection, time.monotonic())

    def move(self, connection: Connection, now: float) -> None:
        """Send what may pass, and wait for what must come before more can."""
        again = connection.flush(now)
        if again is not None and (connection.wakes_at is None or again < connection.wakes_at):
            connection.wakes_at = again
            heapq.heappush(self._timers, (again, next(self._numbers), connection))
        client = _mask(not connection.requests.is_full, connection.replies.wants_write)
        broker = _mask(not connection.replies.is_full, connection.requests.wants_write)
        self._watch_end(connection, connection.client, client if connection.is_client_open else 0)
        self._watch_end(connection, connection.broker, broker if connection.is_broker_open else 0)
        if connection.is_over:
            self.connections.pop(connection, None)

    def _watch_end(self, connection: Connection, end: socket.socket, mask: int) -> None:
        read = connection.read_client if end is connection.client else connection.read_broker

        def act(happened: int) -> None:
            now = time.monotonic()
            if happened & selectors.EVENT_READ:
                read(now)
            self.move(connection, now)

        self.watch(end, mask, act)

    def watch(self, end: socket.socket, mask: int, act: Callable[[int], None]) -> None:
        """Call `act` when what `mask` says happens; with 0, no more."""
        number, before = self._masks.get(end, (-1, 0))
        if mask == before or self.is_closed:
            return
        if not mask:
            self._selector.unregister(number)
            del self._masks[end]
        elif before:
            self._selector.modify(number, mask, act)
            self._masks[end] = (number, mask)
        else:
            self._selector.register(end, mask, act)
            self._masks[end] = (end.fileno(), mask)


def _mask(reads: bool, writes: bool) -> int:
    return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
