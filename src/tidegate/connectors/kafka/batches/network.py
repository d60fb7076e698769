"""The connections to the brokers of a cluster: opened when they are needed, polled without waiting, one thread.

Every request has exactly one outcome, an answer or an error, and an error when nothing has come for its time. Nothing
is sent twice: whether to ask again is for who asks.
"""

import select
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches.channels import Channel
from tidegate.connectors.kafka.batches.opening import Opening
from tidegate.connectors.kafka.wire import Address, address_of
from tidegate.errors import TidegateError, UnavailableError

OPENING_STEP = 0.002
"""Seconds after which a wait looks whether a connection is open."""

Lane = str
"""Requests of different lanes go through different connections: on one, a broker answers one after the other."""


class Outcome(NamedTuple):
    """`about` is what was given with the request; of the others one is None."""

    about: Any
    response: Any
    error: TidegateError | None


class _Asked(NamedTuple):
    request: Any
    about: Any
    deadline: float


class _Line:
    """One connection, from being opened on, and what is asked through it."""

    def __init__(self, address: Address, opening: Opening) -> None:
        self.address = address
        self.opening: Opening | None = opening
        self.channel: Channel | None = None
        self.unsent: list[_Asked] = []
        self.asked: dict[int, _Asked] = {}
        self.heard_at = float("-inf")
        """When bytes last came: a large answer over a slow line is late only when nothing more comes."""

    @property
    def waiting(self) -> list[_Asked]:
        return [*self.asked.values(), *self.unsent]

    def close(self) -> None:
        if self.opening is not None:
            self.opening.abandon()
        if self.channel is not None:
            self.channel.close()


class Network:
    """`config` is that of `Connection.kafka_python_config`. timeout: seconds for one request, and for opening a
    connection; a request for which the broker may wait has that in addition."""

    def __init__(
        self, bootstrap: str, config: Mapping[str, Any], timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._clock = clock
        self._bootstrap = [address_of(server) for server in bootstrap.split(",")]
        self._nodes: dict[int, Address] = {}
        self._any = 0
        self._lines: dict[tuple[Address, Lane], _Line] = {}
        self._outcomes: list[Outcome] = []
        self._next_deadline = float("inf")

    def learn(self, brokers: Mapping[int, Address]) -> None:
        """These are the brokers of the cluster now."""
        if brokers == self._nodes:
            return
        self._nodes = dict(brokers)
        known = {*self._nodes.values(), *self._bootstrap}
        for key, line in [*self._lines.items()]:
            if key[0] not in known and not line.waiting:
                line.close()
                del self._lines[key]

    def open_ahead(self, *lanes: Lane) -> None:
        """Connections to the first broker that will be asked, before there is anything to ask: it may take a while, and
        who leads a partition is often one of those that bootstrap= names."""
        for lane in lanes:
            self._line(self._bootstrap[0], lane)

    def ask_any(self, lane: Lane, request: Any, about: Any) -> None:
        """Any broker: the same again and again, until it fails."""
        known = [*dict.fromkeys([*self._nodes.values(), *self._bootstrap])]
        self.ask_at(known[self._any % len(known)], lane, request, about)

    def ask(self, node: int, lane: Lane, request: Any, about: Any, wait: float = 0.0) -> None:
        """`wait`: seconds that the broker may take its time."""
        address = self._nodes.get(node)
        if address is None:
            error = UnavailableError(f"broker {node} is not among those of the cluster")
            self._outcomes.append(Outcome(about, None, error))
        else:
            self.ask_at(address, lane, request, about, wait)

    def ask_at(self, address: Address, lane: Lane, request: Any, about: Any, wait: float = 0.0) -> None:
        asked = _Asked(request, about, self._clock() + self._timeout + wait)
        self._next_deadline = min(self._next_deadline, asked.deadline)
        line = self._line(address, lane)
        line.unsent.append(asked)
        self._guarded(line, self._send)

    def _line(self, address: Address, lane: Lane) -> _Line:
        key = (address, lane)
        line = self._lines.get(key)
        if line is not None and line.channel is not None and line.channel.is_idle:
            # A broker closes what is not used for long.
            self._guarded(line, self._read)
            line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(address, Opening(address, self._config, self._timeout))
        return line

    def poll(self) -> list[Outcome]:
        """What became of requests since it was last asked. Does not wait."""
        for line in [*self._lines.values()]:
            if line.opening is not None:
                self._guarded(line, self._opened)
            if line.channel is not None and line.asked:
                self._guarded(line, self._read)
        now = self._clock()
        if now >= self._next_deadline:
            self._give_up(now)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def wait(self, seconds: float) -> None:
        """Until something may have come, so many seconds at most."""
        self.waiting(seconds)()

    def waiting(self, seconds: float) -> Callable[[], object]:
        """What waits so when it is called, and touches nothing of this."""
        poll = select.poll()
        for line in self._lines.values():
            if line.opening is not None:
                # Nothing tells when a connection is open.
                seconds = min(seconds, OPENING_STEP)
            if line.channel is not None and line.asked:
                poll.register(line.channel, select.POLLIN | (select.POLLOUT if line.channel.has_outgoing else 0))
        return lambda: poll.poll(seconds * 1000)

    def watched(self) -> list[int]:
        """Descriptors that become readable when something comes; none while something else is waited for, too."""
        lines = self._lines.values()
        if any(line.opening is not None or (line.channel and line.channel.has_outgoing) for line in lines):
            return []
        return [line.channel.fileno() for line in lines if line.channel is not None and line.asked]

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # ---- one line --------------------------------------------------------------------------------------------------

    def _guarded(self, line: _Line, step: Callable[[_Line], None]) -> None:
        """Whatever goes wrong ends the connection, and is the outcome of all that was asked through it."""
        try:
            step(line)
        except Exception as error:
            self._end(line, errors.of_kafka_python(error, f"Kafka broker {line.address}"))

    def _opened(self, line: _Line) -> None:
        if line.opening is None or line.opening.result is None:
            return
        result, line.opening = line.opening.result, None
        if isinstance(result, TidegateError):
            raise result
        line.channel = Channel(line.address, *result.release(), self._config["client_id"])
        self._send(line)

    def _send(self, line: _Line) -> None:
        if line.channel is None:
            return
        while line.unsent:
            asked = line.unsent[0]
            line.asked[line.channel.send(asked.request)] = asked
            del line.unsent[0]

    def _read(self, line: _Line) -> None:
        if line.channel is None:
            return
        line.channel.write()
        before = line.channel.received
        for number, response in line.channel.read():
            self._outcomes.append(Outcome(line.asked.pop(number).about, response, None))
        if line.channel.received > before:
            line.heard_at = self._clock()

    def _give_up(self, now: float) -> None:
        """On connections over which an answer is late, and with it whatever would come behind it."""
        for line in [*self._lines.values()]:
            if line.heard_at + self._timeout <= now and any(asked.deadline <= now for asked in line.waiting):
                late = f"Kafka broker {line.address}: no answer in {self._timeout:g} s"
                self._end(line, UnavailableError(late))
        self._next_deadline = float("inf")
        for line in self._lines.values():
            first = min((asked.deadline for asked in line.waiting), default=float("inf"))
            self._next_deadline = min(self._next_deadline, max(first, line.heard_at + self._timeout))

    def _end(self, line: _Line, error: TidegateError) -> None:
        self._lines = {key: one for key, one in self._lines.items() if one is not line}
        self._any += 1
        self._outcomes += [Outcome(asked.about, None, error) for asked in line.waiting]
        line.close()
