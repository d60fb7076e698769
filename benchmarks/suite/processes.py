"""One run of a command with all its processes: started under a supervisor, watched, stopped, and what it has used.

Nothing that it starts outlives it. Linux only, as what it reads of processes is.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.suite import proc
from benchmarks.suite.contracts import Command
from benchmarks.suite.places import ROOT
from tidegate.errors import UnavailableError

STOP_PATIENCE = 10.0
END_PATIENCE = 30.0
"""Seconds in which a supervisor must have ended all that it started."""
PRECISION = 0.01
"""Of the peak of memory."""
_TAIL = 40
"""Lines of a log that an error repeats."""


class Usage(NamedTuple):
    """Of all processes of a run, from the first to the last moment."""

    started: float
    """Seconds since 1970."""
    exit_code: int
    """Of the command itself; negative: the signal that ended it."""
    cpu_seconds: float
    peak_memory: int
    """Bytes: the largest sum of proportional set sizes that was seen, see `Tree.look`."""


class Tree:
    """A command and all processes that come of it. For `with`, at whose end none of them is left."""

    def __init__(self, command: Command, log: Path, stop_patience: float = STOP_PATIENCE) -> None:
        """`stop_patience`: seconds from SIGTERM to SIGKILL."""
        self._command = command
        self.log = log
        self._stop_patience = stop_patience
        self._peak = self._most_resident = 0
        self._process: subprocess.Popen[str]
        self.started = 0.0
        """When, in seconds since 1970."""

    def __enter__(self) -> Self:
        supervisor = [sys.executable, "-m", "benchmarks.suite.supervisor", str(self.log), str(self._stop_patience)]
        self._process = subprocess.Popen(
            [*supervisor, *self._command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self._command.environment},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        try:
            said = self._process.stdout.readline()
        except BaseException:
            self.stop()
            raise
        if not said:
            self._process.wait()
            raise UnavailableError(
                f"{self._command.arguments[0]} cannot be run", remedy="See what the supervisor says above."
            )
        self.started = float(said)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._process.wait(END_PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def look(self) -> float:
        """Take a sample of the memory, a few times a second. The CPU seconds until now, of the processes that run and
        of those that have ended."""
        supervisor = self._process.pid
        running = proc.descendants(supervisor)
        # Exact sums cost time that the run would miss, so they are taken only where there is more than ever.
        if (resident := proc.resident(running)) > self._most_resident * (1 + PRECISION):
            self._most_resident = resident
            self._peak = max(self._peak, proc.memory(running))
        return proc.ended_children_seconds(supervisor) + sum(map(proc.cpu_seconds, running))

    def processes(self) -> list[proc.Process]:
        """Those that run now, the command itself first."""
        return proc.processes(self._process.pid)

    def stop(self) -> None:
        """SIGTERM to its process group, after a while SIGKILL to all that is left. Does not wait."""
        if self.is_running:
            self._process.terminate()

    def usage(self) -> Usage:
        """Waits until it has ended."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        self._process.wait(END_PATIENCE)
        if len(said) != 2:
            raise UnavailableError("the supervisor of a run was killed", remedy="Measure again.")
        return Usage(self.started, int(said[0]), float(said[1]), self._peak)

    def tail(self) -> str:
        """The end of what it has said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL:])
