"""What a worker or a JobManager needs from the outside: somebody to run blocking work. Implemented for real
in `deploy/`, inline for one-process runs, and simulated in `testing/sim`."""

from collections.abc import Callable
from typing import Any, Protocol


class Executor(Protocol):
    """Runs blocking work away from the stepping thread."""

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `work`; later call `done(result, None)` or `done(None, error)` on the stepping thread, between two steps.

        Work of one lane runs in order, one after another; lanes run side by side. `done` may never come: the process
        died.
        """
        ...
