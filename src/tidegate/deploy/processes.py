"""Operating-system processes: who they are, how they end, and that a child does not outlive its parent.

Only processes that a job itself recorded are ever killed, and only when pid and start time are those recorded.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tidegate.checkpoint.log import ProcessRecord

_PR_SET_PDEATHSIG = 1
KILL_PATIENCE = 10.0
"""Seconds in which a process that was sent SIGKILL must be gone."""


def process_record(pid: int) -> ProcessRecord:
    """`start_time` is in clock ticks since boot on Linux; 0 where it cannot be learned, and then nobody is killed by it."""
    return ProcessRecord(pid, _start_time(pid))


def _start_time(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name, in parentheses, may hold anything; start time is the 22nd field, the 20th behind it.
    return int(text.rpartition(")")[2].split()[19])


def is_running(record: ProcessRecord) -> bool:
    """Whether exactly this process runs; a zombie that waits for its parent does not."""
    if record.start_time == 0 or _start_time(record.pid) != record.start_time:
        return False
    with suppress(OSError):
        return Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def kill_recorded(records: Sequence[ProcessRecord]) -> list[int]:
    """Kill those that still run, and wait until they are gone; blocks. Returns the pids of those that would not go."""
    living = [record for record in records if record.pid != os.getpid() and is_running(record)]
    for record in living:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(record.pid, signal.SIGKILL)
    deadline = time.monotonic() + KILL_PATIENCE
    while time.monotonic() < deadline and any(map(is_running, living)):
        time.sleep(0.005)
    return [record.pid for record in living if is_running(record)]


def die_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when the thread that spawned it ends (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before the request.
        os._exit(1)


def describe_exit(code: int) -> str:
    """'killed by SIGKILL', 'exited with 1'."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
