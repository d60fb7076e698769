"""What a worker or a JobManager needs from the outside: somebody to run blocking work, and wires. Implemented for real
in `deploy/`, inline for one-process runs, and simulated in `testing/sim`."""

from collections.abc import Callable
from typing import Any, Protocol

from tidegate.ids import WorkerIndex


class Executor(Protocol):
    """Runs blocking work away from the stepping thread."""

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `work`; later call `done(result, None)` or `done(None, error)` on the stepping thread, between two steps.

        Work of one lane runs in order, one after another; lanes run side by side. `done` may never come: the process
        died.
        """
        ...


class DataWire(Protocol):
    """Carries frames to other workers of the same attempt: in order per pair, without loss, or the attempt fails."""

    def send(self, worker: WorkerIndex, frame: bytes) -> None: ...


class ControlWire(Protocol):
    """Carries frames between the JobManager and one worker. May lose, repeat and reorder: `runtime.link` mends that."""

    def send(self, frame: bytes) -> None: ...
