"""Operating-system processes: who they are, how they end, and that a child does not outlive its parent.

Only processes that a job itself recorded are ever killed, and only when pid and start time are those recorded.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegate.checkpoint.log import ProcessRecord
from tidegate.errors import ErrorKind, Failure
from tidegate.operators.user_code import user_traceback

_IS_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What asks a job to stop."""
KILL_PATIENCE = 10.0
"""Seconds in which a process that was sent SIGKILL must be gone."""


def host_name() -> str:
    """This machine since its last start: pids and start times of before say nothing about the processes of now."""
    try:
        return f"{socket.gethostname()} (boot {_BOOT_ID.read_text()[:8]})"
    except OSError:
        return socket.gethostname()


def process_record(pid: int) -> ProcessRecord:
    """Of a process that runs. `start_time` tells it from a later one with the same pid: clock ticks since boot on
    Linux, a checksum of what `ps` says elsewhere; 0 where it cannot be learned, and then nobody is killed by it."""
    return ProcessRecord(pid, _start_time(pid) or 0)


def is_running(record: ProcessRecord) -> bool:
    """Whether exactly this process runs; a zombie that waits for its parent does not."""
    return record.start_time != 0 and _start_time(record.pid) == record.start_time


def _start_time(pid: int) -> int | None:
    """None when no such process runs, or nothing can be learned about it."""
    if _IS_LINUX:
        return _start_ticks(pid)
    command = ["ps", "-o", "lstart=", "-o", "stat=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env={"LC_ALL": "C"}).stdout.split()
    return zlib.crc32(" ".join(said[:-1]).encode()) if said and not said[-1].startswith("Z") else None


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything. Behind it the state is the first field, the start time the 20th.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if fields[0] not in ("Z", "X") else None


def kill_recorded(records: Sequence[ProcessRecord]) -> list[int]:
    """Kill those that still run, and wait until they are gone; blocks. Returns the pids of those that would not go.

    Never the process that calls, whatever was recorded.
    """
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
    if _IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before the request.
        os._exit(1)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """This thread is not interrupted by Ctrl-C and SIGTERM while this lasts (other threads of the process may be). A
    process that it starts meanwhile begins so, and keeps it until `ignore_interrupts`: what a whole process group gets
    reaches it before its first line runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ctrl-C and SIGTERM are not for this process, also what of them has waited since `without_interrupts`: terminals,
    `timeout` and service managers send them to all processes of a job, and the JobManager alone stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Taken and not ignored: what user code starts would inherit that, and could not be terminated any more.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def describe_exit(code: int) -> str:
    """'killed by SIGKILL', 'exited with 1'."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def failure_of_exit(error: BaseException) -> Failure:
    """What is no Exception (`sys.exit()`, KeyboardInterrupt), from user code in the middle of a job: an error as any
    other, never the job's good end."""
    code = f"ended itself with exit code {error.code!r}" if isinstance(error, SystemExit) else ""
    done = code or f"raised {type(error).__name__}"
    text = f"the program {done} in the middle of a job"
    return Failure(ErrorKind.USER_CODE, text, "Raise an Exception instead.", traceback=user_traceback(error))
