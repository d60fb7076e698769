"""`import tidegate` is quick: it brings what describes a job, and nothing of what runs one."""

import subprocess
import sys

import msgspec

SLOW = ("zmq", "sqlite3", "typer", "rich", "click", "fsspec", "asyncio", "tidegate.deploy", "tidegate.connectors")
SHOW = """
import sys, time
begun = time.perf_counter()
import tidegate
seconds = time.perf_counter() - begun
import msgspec
print(msgspec.json.encode([seconds, sorted(sys.modules)]).decode())
"""


def imported() -> tuple[float, list[str]]:
    said = subprocess.check_output([sys.executable, "-c", SHOW], text=True, timeout=30)
    return msgspec.json.decode(said, type=tuple[float, list[str]])


def test_importing_tidegate_imports_nothing_that_runs_jobs() -> None:
    _, modules = imported()
    assert "tidegate.api.job" in modules
    assert [module for module in modules if any(f"{module}.".startswith(f"{slow}.") for slow in SLOW)] == []


def test_importing_tidegate_is_quick() -> None:
    # The best of some: the machine may be busy.
    assert min(imported()[0] for _ in range(3)) < 0.3
