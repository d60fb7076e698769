"""Of a run every process counts and none is left: orphans, those that were killed, and those that hear no SIGTERM."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.suite.contracts import Command
from benchmarks.suite.processes import Tree
from tidegate.errors import UnavailableError

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
PARENT = """
import subprocess, sys, time
burn = {burn!r}
# An orphan: whoever started it has ended, in another session.
subprocess.run(["sh", "-c", 'setsid "$0" -c "$1" &', sys.executable, burn], check=True)
# One that is killed after it has worked.
child = subprocess.Popen([sys.executable, "-c", burn + "print(flush=True)\\ntime.sleep(100)"], stdout=subprocess.PIPE)
child.stdout.readline()
child.kill()
print("said", flush=True)
{rest}
"""
DEAF = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(100)\n"
)


def _python(code: str) -> Command:
    return Command([sys.executable, "-c", code], {"WHERE": "here"}, ends=True)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_orphans_and_killed_processes_count(tmp_path: Path) -> None:
    code = PARENT.format(burn=BURN.format(seconds=0.3), rest="sys.exit(7)")
    with Tree(_python(code), tmp_path / "log") as tree:
        usage = tree.usage()
    assert usage.exit_code == 7
    assert 0.6 <= usage.cpu_seconds < 5
    assert "said" in tree.tail()


def test_processes_and_their_memory_are_seen_while_they_run(tmp_path: Path) -> None:
    code = "import os, time\nheld = b'x' * 50_000_000\nprint(os.environ['WHERE'], flush=True)\ntime.sleep(100)\n"
    with Tree(_python(code), tmp_path / "log") as tree:
        _wait(lambda: "here" in tree.tail())
        assert tree.look() > 0
        (process,) = tree.processes()
        assert process.command.startswith(sys.executable)
        tree.stop()
        usage = tree.usage()
    assert usage.exit_code == -15
    assert 50_000_000 < usage.peak_memory < 500_000_000
    assert not os.path.exists(f"/proc/{process.pid}")


def test_what_hears_no_sigterm_is_killed(tmp_path: Path) -> None:
    with Tree(_python(DEAF), tmp_path / "log", stop_patience=0.1) as tree:
        _wait(lambda: "deaf" in tree.tail())
        tree.stop()
        assert tree.usage().exit_code == -9


def test_leaving_the_block_ends_all(tmp_path: Path) -> None:
    begun: list[int] = []

    def interrupted() -> None:
        with Tree(_python("import time\ntime.sleep(100)"), tmp_path / "log") as tree:
            begun.extend(process.pid for process in tree.processes())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (pid,) = begun
    assert not os.path.exists(f"/proc/{pid}")


def test_a_command_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    command = Command(["no-such-command"], {}, ends=True)
    with pytest.raises(UnavailableError, match="no-such-command"), Tree(command, tmp_path / "log"):
        pass
