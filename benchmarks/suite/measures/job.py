"""A job of the project that runs while it is measured from outside: started with marks, killed, started again.

Only processes that it has started are killed, by the pids that they have noted themselves.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.suite.contracts import Command
from benchmarks.suite.measures import marks
from benchmarks.suite.measures.marks import Mark
from benchmarks.suite.processes import Tree
from tidegate.errors import UnavailableError

PATIENCE = 120.0
"""Seconds until a mark must be there."""
_LOOK = 0.02


def endless(command: Command, program: Path | None = None, *options: str, arguments: tuple[str, ...] = ()) -> Command:
    """The same job without an end of its input; with another program, more options of `tidegate run`, more arguments of
    the program."""
    words = [word for word in command.arguments if word != "--bounded"]
    at = words.index("--")
    if program is not None:
        words[words.index("run") + 1] = str(program)
    return command._replace(arguments=[*words[:at], *options, *words[at:], *arguments], ends=False)


class Job:
    """For `with`, at whose end none of its processes is left. `folder`: of this run alone; marks and what it says."""

    def __init__(self, command: Command, folder: Path) -> None:
        self._marks = folder / "marks"
        environment = marks.environment(self._marks, command.environment)
        self.tree = Tree(command._replace(environment=environment), folder / "log")
        self.began = 0.0
        """When it was started, in seconds of the monotonic clock."""

    def __enter__(self) -> Self:
        self.tree.__enter__()
        self.began = self.tree.started - time.time() + time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tree.__exit__(kind, error, trace)

    def marks(self) -> list[Mark]:
        """Until now."""
        return marks.read(self._marks)

    def wait_for(self, text: str, after: float = 0.0) -> Mark:
        """The first mark of this text. Raises UnavailableError when the job ends, or does not come there."""
        deadline = time.monotonic() + PATIENCE
        while (found := marks.first(self.marks(), text, after=after)) is None:
            if not self.tree.is_running or time.monotonic() > deadline:
                raise UnavailableError(f"the job does not come to {text!r}", remedy=self.tree.tail())
            time.sleep(_LOOK)
        return found

    def check_alive(self) -> None:
        """Raises UnavailableError with what it has said when it has ended."""
        if not self.tree.is_running:
            raise UnavailableError("the job has ended", remedy=self.tree.tail())

    def kill_worker(self) -> float:
        """SIGKILL to the newest process of worker 0. When, in seconds of the monotonic clock."""
        pid = marks.living_workers(self.marks())["worker 0"]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return killed

    def kill_all(self) -> float:
        """SIGKILL to the JobManager and to all workers. When, in seconds of the monotonic clock."""
        pids = {mark.pid for mark in self.marks()} & {process.pid for process in self.tree.processes()}
        killed = time.monotonic()
        for pid in sorted(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return killed
