"""Simulated wires: for control, where frames are lost, doubled, delayed and reordered and a `Link` mends it; for data,
in order per pair and without loss, until a wire is cut, which both ends learn of.
"""

from collections.abc import Callable

from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime.link import Link
from tidegate.testing.sim.scheduler import Process
from tidegate.testing.sim.swarm import Network


class ControlEnd:
    """One side of the control wire between a JobManager and a worker. `deliver` gets each message once and in order."""

    def __init__(self, process: Process, attempt: Attempt, network: Network, deliver: Callable[[bytes], None]) -> None:
        self._process = process
        self._network = network
        self._deliver = deliver
        self._link = Link(attempt)
        self._random = process.scheduler.random(f"{process.name}/control")
        self._timer: float | None = None
        self._is_closed = False
        self.peer: ControlEnd | None = None

    def send(self, message: bytes) -> None:
        self._transmit(self._link.send(message, self._now))

    def close(self) -> None:
        """Nothing is sent or delivered any more."""
        self._is_closed = True

    @property
    def _now(self) -> float:
        return self._process.scheduler.seconds

    def _transmit(self, frames: list[bytes]) -> None:
        for frame in frames:
            copies = 1 + (self._random.random() < self._network.doubled)
            for _ in range(copies):
                if self.peer is not None and self._random.random() >= self._network.lost:
                    self.peer._carry(self._random.uniform(0.0, self._network.control_delay), frame)
        self._set_timer()

    def _carry(self, delay: float, frame: bytes) -> None:
        self._process.plan(delay, "gets a control frame", lambda: self._receive(frame))

    def _receive(self, frame: bytes) -> None:
        if self._is_closed:
            return
        messages, frames = self._link.receive(frame, self._now)
        self._transmit(frames)
        for message in messages:
            self._deliver(message)

    def _set_timer(self) -> None:
        due = self._link.next_deadline
        if due is not None and not self._is_closed and (self._timer is None or due < self._timer):
            self._timer = due
            self._process.plan(max(0.0, due - self._now), "looks at its link", lambda: self._due(due))

    def _due(self, at: float) -> None:
        if self._timer == at and not self._is_closed:
            self._timer = None
            self._transmit(self._link.due(self._now))


class DataWires:
    """The wires between the workers of one attempt."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._receivers: dict[WorkerIndex, tuple[Process, Callable[[bytes], None], Callable[[], None]]] = {}
        self._last_arrival: dict[tuple[WorkerIndex, WorkerIndex], float] = {}
        self._cut: set[tuple[WorkerIndex, WorkerIndex]] = set()

    def join(
        self, worker: WorkerIndex, process: Process, receive: Callable[[bytes], None], disconnected: Callable[[], None]
    ) -> None:
        """`worker` gets its frames by `receive` and learns by `disconnected` that a wire to it was cut."""
        self._receivers[worker] = (process, receive, disconnected)

    def send(self, source: WorkerIndex, target: WorkerIndex, frame: bytes, delay: float) -> None:
        """`delay` from 0 to 1, of the longest."""
        if (source, target) in self._cut or target not in self._receivers:
            return
        process, receive, _ = self._receivers[target]
        now = process.scheduler.seconds
        arrival = max(now + delay * self._network.data_delay, self._last_arrival.get((source, target), 0.0))
        self._last_arrival[source, target] = arrival
        process.plan(arrival - now, "gets a data frame", lambda: receive(frame))

    def cut(self, source: WorkerIndex, target: WorkerIndex) -> None:
        """Frames from now on are lost; the receiver learns of it a little later."""
        if source not in self._receivers or target not in self._receivers:
            return
        self._cut.add((source, target))
        process, _, disconnected = self._receivers[target]
        process.plan(0.02, "learns that a data wire is cut", disconnected)
