"""The proxy that a test puts in front of one broker, and its faults, which any thread may switch at any time.

It keeps to what networks can do. A connection carries its frames in order or not at all: one that loses a frame carries
nothing behind it, and what stands behind a held frame waits. A fault holds for the connections there are and for those
that come.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from tests.kafka.proxy.faults import Hold, Line, Loss
from tests.kafka.proxy.frames import checked
from tests.kafka.proxy.lanes import Connection, Tally
from tests.kafka.proxy.loop import Loop
from tidegate.deploy.dev_kafka.ports import free_ports
from tidegate.deploy.dev_kafka.settings import HOST

BACKLOG = 1024
HOLD_PATIENCE = 30.0
_PAUSE = 0.005
T = TypeVar("T")


class Held:
    """Requests that stand in the proxy, until `release`."""

    def __init__(self, proxy: "KafkaProxy", rule: Hold) -> None:
        self._proxy = proxy
        self._rule = rule

    @property
    def count(self) -> int:
        """How many were held so far."""
        return self._proxy.call(lambda: self._rule.frames)

    def wait(self, count: int = 1, patience: float = HOLD_PATIENCE) -> None:
        """Until so many are held."""
        deadline = time.monotonic() + patience
        while self.count < count:
            assert time.monotonic() < deadline, f"after {patience:g} s {self.count} requests are held, not {count}"
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Let them and what stands behind them on, also those whose client has gone, and hold no more."""
        self._proxy.release(self._rule)


class KafkaProxy:
    """Listens on `port`, and connects each client to the broker at `target_port` of this machine.

    Not for TLS. `seed` is that of the jitter. `close`, or leaving it as a context, ends everything, faults and what is
    held as well.
    """

    def __init__(self, target_port: int, port: int | None = None, seed: int = 0) -> None:
        self.target_port = target_port
        self.port = free_ports(1)[0] if port is None else port
        random = Random(seed)
        self._requests, self._replies = Line(random), Line(random)
        self._seen: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._listener: socket.socket | None = self._listen()
        self._tally = Tally(*(partial(_count, counter) for counter in (self._seen, self._answered, self._lost)))
        self._loop = Loop(f"kafka-proxy-{self.port}")
        self.call(self._watch_listener)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def close(self) -> None:
        """Raises AssertionError when the proxy itself has failed."""
        try:
            self.call(self._close_listener)
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, action: Callable[[], T]) -> T:
        """Have the proxy's thread run it."""
        return self._loop.call(action)

    # ---- what was seen ---------------------------------------------------------------------------------------------

    @property
    def seen(self) -> Counter[str]:
        """Requests that came so far, by kind, whatever became of them."""
        return self.call(lambda: Counter(self._seen))

    @property
    def answered(self) -> Counter[str]:
        """Replies that the broker has given so far, by kind of request, also those that never reached a client."""
        return self.call(lambda: Counter(self._answered))

    @property
    def lost(self) -> Counter[str]:
        """Requests and replies that `lose_requests` and `lose_replies` have taken so far, by kind of request."""
        return self.call(lambda: Counter(self._lost))

    @property
    def connections(self) -> int:
        """How many there are now: of clients, and of clients that have gone but of which something is on its way."""
        return self.call(lambda: len(self._loop.connections))

    # ---- faults of the network -------------------------------------------------------------------------------------

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Each way, and up to `jitter` seconds more, at random."""
        self.call(lambda: self._delay(seconds, jitter))

    def throttle(self, bytes_per_second: float) -> None:
        """Each way, all connections together."""
        self.call(lambda: self._throttle(bytes_per_second))

    def cut(self, *, requests: bool = True, replies: bool = True) -> None:
        """Connections stay, and nothing passes until `heal`, in one or both directions, neither bytes nor the end of a
        connection. New ones are not answered."""
        self.call(lambda: self._cut(requests, replies))

    def refuse(self) -> None:
        """Refuse new connections until `heal`; those there are stay."""
        self.call(self._close_listener)

    def reset_connections(self) -> None:
        """All clients see their connections broken, now and once. What is held is still held for its broker."""
        self.call(lambda: self._each(lambda connection: connection.reset(time.monotonic())))

    def heal(self) -> None:
        """End every fault but `hold`: what was cut off arrives."""
        self.call(self._heal)

    # ---- faults by the kind of request -----------------------------------------------------------------------------

    def lose_replies(self, *apis: str, times: int | None = None, reset: bool = False) -> None:
        """The broker gets these requests and carries them out, and the client is not told: its connection brings no
        reply any more, or with `reset` breaks. `times`: so many of them, by default all until `heal`. Raises ValueError
        for an unknown kind."""
        self._add_loss(self._replies, apis, times, reset)

    def lose_requests(self, *apis: str, times: int | None = None, reset: bool = False) -> None:
        """The broker never gets these, nor what follows them on their connections. As `lose_replies` otherwise."""
        self._add_loss(self._requests, apis, times, reset)

    def hold(self, *apis: str, times: int | None = None) -> Held:
        """Keep these requests, and what follows them on their connections, on their way until they are released; by
        then their clients may have given up, and others on other connections have come first. Raises ValueError for an
        unknown kind."""
        rule = Hold(checked(apis), times)
        self.call(lambda: self._requests.holds.append(rule))
        return Held(self, rule)

    def release(self, rule: Hold) -> None:
        self.call(lambda: self._release(rule))

    # ---- in the proxy's thread -------------------------------------------------------------------------------------

    @property
    def _lines(self) -> tuple[Line, Line]:
        return self._requests, self._replies

    def _add_loss(self, line: Line, apis: tuple[str, ...], times: int | None, reset: bool) -> None:
        rule = Loss(checked(apis), times, reset)
        self.call(lambda: line.losses.append(rule))

    def _delay(self, seconds: float, jitter: float) -> None:
        for line in self._lines:
            line.delay, line.jitter = seconds, jitter

    def _throttle(self, bytes_per_second: float) -> None:
        for line in self._lines:
            line.throttle(bytes_per_second)

    def _cut(self, requests: bool, replies: bool) -> None:
        self._requests.is_cut |= requests
        self._replies.is_cut |= replies
        self._watch_listener()

    def _heal(self) -> None:
        for line in self._lines:
            line.heal()
        if self._listener is None and not self._loop.is_closed:
            self._listener = self._listen()
        self._watch_listener()
        self._each(lambda connection: None)

    def _release(self, rule: Hold) -> None:
        rule.is_released = True
        if rule in self._requests.holds:
            self._requests.holds.remove(rule)
        self._each(lambda connection: None)

    def _each(self, act: Callable[[Connection], object]) -> None:
        for connection in list(self._loop.connections):
            act(connection)
            self._loop.move(connection, time.monotonic())

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, self.port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        return listener

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.watch(self._listener, 0, self._accept)
            self._listener.close()
            self._listener = None

    def _watch_listener(self) -> None:
        if self._listener is not None:
            is_cut = any(line.is_cut for line in self._lines)
            self._loop.watch(self._listener, 0 if is_cut else selectors.EVENT_READ, self._accept)

    def _accept(self, mask: int) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            # It has gone again.
            return
        broker = socket.socket()
        for end in (client, broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Whether it could connect says the first attempt to send or to receive.
        with suppress(OSError):
            broker.connect((HOST, self.target_port))
        self._loop.add(Connection(client, broker, self._lines, self._tally))


def _count(counter: Counter[str], api: str) -> None:
    counter[api] += 1
