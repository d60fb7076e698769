"""Writes orders at a fixed rate, in a process of its own: `python -m benchmarks.suite.measures.load --help`.

All requests are made before the first one goes out, and none waits for the answer to the one before it, so that while
it runs it costs next to nothing. Orders are due at their tick, whatever became of those before; it never skips any, and
counts how late each crowd went out: latencies are taken from when an order was due, and a generator that fell behind is
told, not hidden.
"""

import argparse
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import msgspec

from benchmarks.suite.measures.orders import TICK, Orders
from benchmarks.suite.measures.promptness import be_prompt
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.workloads import USERS
from tidegate.connectors.kafka.batches import produce_requests
from tidegate.connectors.kafka.batches.building import Building
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.wire import BrokerConnection, address_of

LIMIT = 900_000
"""Bytes of a batch: brokers take no more than a megabyte."""
PATIENCE = 30.0
"""Seconds for a broker's answer."""
SEND_BUFFER = 1 << 23
"""Bytes that may wait in the kernel: a broker that is busy for a moment does not make the generator late."""
HEAD_START = 0.2
"""Seconds from the first line that is printed to the first order."""
LATE = 0.1
"""Seconds after which a crowd of orders is late."""
LATE_SHARE = 0.01
"""The share of all crowds that may be late: a moment in which the machine was busy makes no wrong measure."""


class Sent(msgspec.Struct, frozen=True):
    """What it has done."""

    began: float
    """When the first tick was due, in seconds of the monotonic clock."""
    ticks: int
    late: int
    """Crowds that went out more than `LATE` after they were due."""
    latest: float
    """Seconds, of the one that was latest."""
    cpu_seconds: float
    """From the first order on."""

    def check(self, share: float = LATE_SHARE) -> None:
        """Raises NoMeasure when it fell behind with more than this share of its crowds: then it was itself what was
        slow."""
        if not self.ticks:
            raise NoMeasure("the load generator has sent nothing")
        if self.late > self.ticks * share:
            raise NoMeasure(
                f"the load generator fell behind: {self.late} of {self.ticks} crowds went out more than"
                f" {LATE * 1000:.0f} ms late, the latest by {self.latest:.2f} s; take a lower --rate"
            )


class Pace(NamedTuple):
    """What a generator needs of the world, so that a test can be the world."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]


def run(send: Callable[[int], None], began: float, is_over: Callable[[int], bool], pace: Pace) -> Sent:
    """Call `send` with 0, 1, 2 … when each tick is due, until `is_over`."""
    late, latest, tick, computed = 0, 0.0, 0, time.process_time()
    while not is_over(tick):
        due = began + tick * TICK
        now = pace.clock()
        if now < due:
            pace.sleep(due - now)
            now = pace.clock()
        late += now - due > LATE
        latest = max(latest, now - due)
        send(tick)
        tick += 1
    return Sent(began, tick, late, latest, time.process_time() - computed)


def requests(orders: Orders, topic: str, partitions: int, now: int) -> list[Any]:
    """One for each tick of a cycle. `now`: milliseconds since 1970, the time that records bear."""
    made = []
    for tick in range(orders.cycle_ticks):
        batches = {}
        for partition, (keys, values) in orders.columns(tick, partitions).items():
            building = Building(LIMIT, Producing())
            if building.add(Columns(values, keys, [now] * len(keys), None)) < len(keys):
                raise NoMeasure(f"{orders.rate:,} records a second do not fit into batches of {LIMIT} bytes")
            batches[TopicPartition(topic, partition)] = building.seal(-1, 0.0)
        request = produce_requests.produce(None, produce_requests.ALL_IN_SYNC, PATIENCE, batches)
        request.with_header(correlation_id=tick, client_id="bench")
        made.append(request)
    return made


class Pipeline:
    """A connection to the only broker, over which requests go out in order; a thread takes the answers."""

    def __init__(self, bootstrap: str, made: Sequence[Any]) -> None:
        self._answer_class = made[0].header.get_response_class()
        self._made = [request.encode(framed=True, header=True) for request in made]
        config = Connection(bootstrap).kafka_python_config()
        self._socket, _ = BrokerConnection(address_of(bootstrap), config, PATIENCE).release()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._socket.settimeout(PATIENCE)
        self._answered = 0
        self._error: Exception | None = None
        self._sent = 0
        threading.Thread(target=self._take_answers, daemon=True).start()

    def send(self, tick: int) -> None:
        """Raises NoMeasure when an earlier one was refused, OSError."""
        if self._error is not None:
            raise self._error
        self._socket.sendall(self._made[tick % len(self._made)])
        self._sent += 1

    def finish(self) -> None:
        """Wait until all are answered. Raises NoMeasure when one was refused, or not answered."""
        deadline = time.monotonic() + PATIENCE
        while self._answered < self._sent and self._error is None and time.monotonic() < deadline:
            time.sleep(TICK)
        if self._error is not None:
            raise self._error
        if self._answered < self._sent:
            raise NoMeasure(f"{self._sent} requests were sent, {self._answered} answered")

    def _take_answers(self) -> None:
        file = self._socket.makefile("rb")
        try:
            while head := file.read(4):
                answer = BytesIO(file.read(int.from_bytes(head, "big")))
                self._answer_class.parse_header(answer)
                check_answer(self._answer_class.decode(answer))
                self._answered += 1
        except (NoMeasure, OSError) as error:
            self._error = error


def check_answer(response: Any) -> None:
    """Raises NoMeasure where a partition did not take its orders."""
    for partition, (code, text) in produce_requests.produced_codes(response).items():
        if code:
            raise NoMeasure(f"{partition}: orders were refused with code {code} {text}")


def command(bootstrap: str, topic: str, orders: Orders) -> list[str]:
    """How to run it."""
    module = [sys.executable, "-m", "benchmarks.suite.measures.load"]
    return [*module, bootstrap, topic, "--rate", str(orders.rate), "--users", str(orders.users)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap", metavar="HOST:PORT", help="the only broker")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=int, required=True, help="orders a second, in hundreds")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, help="until SIGTERM without it")
    options = parser.parse_args(arguments)
    be_prompt()
    orders = Orders(options.rate, options.users)
    made = requests(orders, options.topic, options.partitions, round(time.time() * 1000))
    pipeline = Pipeline(options.bootstrap, made)
    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    most = options.seconds / TICK if options.seconds else float("inf")
    began = time.monotonic() + HEAD_START
    print(began, flush=True)
    sent = run(pipeline.send, began, lambda tick: is_stopped or tick >= most, Pace(time.monotonic, time.sleep))
    pipeline.finish()
    print(msgspec.json.encode(sent).decode(), flush=True)


if __name__ == "__main__":
    main()
