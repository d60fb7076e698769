"""Runs one command as the parent of all its processes: `python -m benchmarks.suite.supervisor LOG PATIENCE
COMMAND...`.

It adopts what its children leave behind, so that every process is waited for and its CPU time counted, also of those
that are killed or that nobody else waits for. None outlives it: with SIGTERM, and when its parent dies, it stops them.
The first line that it prints says when it started the command, the last one how that ended and the CPU seconds.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

from benchmarks.suite.proc import descendants

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
REST_PATIENCE = 3.0
"""Seconds that other processes may outlive the command itself."""
_LOOK = 0.2


def main() -> None:
    log, patience, *command = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Waited for, not handled: nothing can happen between looking and waiting.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    begin = time.time()
    try:
        pid = _start(command, log)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    print(begin, flush=True)
    status = _wait(pid, float(patience))
    used = os.times()
    # Nobody may be there any more to read it.
    with suppress(BrokenPipeError):
        print(status, used.children_user + used.children_system, flush=True)


def _start(command: list[str], log: str) -> int:
    """In a session of its own."""
    into_log = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=into_log,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )


def _wait(main: int, patience: float) -> int:
    """Until no process is left. The exit code of the command itself. `patience`: seconds from SIGTERM to SIGKILL."""
    code, kill_at = 0, float("inf")
    while True:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == main:
                    code = os.waitstatus_to_exitcode(ended[1])
                    kill_at = min(kill_at, time.monotonic() + REST_PATIENCE)
        left = descendants(os.getpid())
        if not left:
            return code
        if time.monotonic() >= kill_at:
            _send(left, signal.SIGKILL)
        happened = signal.sigtimedwait(_WATCHED, _LOOK)
        if happened is not None and happened.si_signo != signal.SIGCHLD:
            # The processes decide among themselves whom else it concerns, as with Ctrl-C in a terminal.
            _send_group(main)
            kill_at = min(kill_at, time.monotonic() + patience)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _send_group(main: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(main, signal.SIGTERM)


if __name__ == "__main__":
    main()
