"""Whole commands in processes of their own, as a user types them, and what they leave behind."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.checkpoint.log import LogView, view_log
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import JobName
from tidegate.storage.resolve import open_storage

TIDEGATE = [sys.executable, "-c", "from tidegate.cli.main import main; main()"]


def run(command: list[str], folder: Path, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    """Run it to its end in `folder`; any exit code will do."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout)


def log_of(checkpoints: Path, job: str) -> LogView:
    return view_log(CheckpointStore(open_storage(str(checkpoints)), JobName(job)).read_log())


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that waits to be collected does nothing any more.
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(has_happened: Callable[[], bool], what: str, patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not has_happened():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience:g} s"
        time.sleep(0.02)
