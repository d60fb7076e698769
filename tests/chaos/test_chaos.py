"""Whole chaos runs, as one starts them: right ones, one that must be found wrong, one that is ended with Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.programs import wait_until

ROOT = Path(__file__).parents[2]


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.chaos", "--folder", str(folder), *words]


def run(folder: Path, *words: str, timeout: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(folder / "run", *words), cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout
    )


def figures(folder: Path, *words: str, timeout: float) -> dict[str, object]:
    """Of a run in which everything was right."""
    path = folder / "figures.json"
    done = run(folder, *words, "--json", str(path), timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "run").exists(), "a good run has left its folder"
    found: dict[str, object] = json.loads(path.read_bytes())
    assert (found["lost"], found["doubled"], found["violation"]) == (0, 0, "")
    return found


def processes_about(folder: Path) -> list[str]:
    """Command lines that name `folder`, of processes that live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in line:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


# Some 20 seconds where nothing else runs.
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_seconds_of_chaos_lose_and_double_nothing(tmp_path: Path) -> None:
    found = figures(tmp_path, "--minutes", "0.12", "--seed", "4", "--rate", "1000", timeout=380)
    assert found["kills"]
    assert isinstance(found["records"], int)
    assert found["records"] > 0


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("nodes", ["1", "3"])
def test_minutes_of_chaos_lose_and_double_nothing(tmp_path: Path, nodes: str) -> None:
    found = figures(tmp_path, "--minutes", "2", "--nodes", nodes, timeout=480)
    assert isinstance(found["kills"], dict)
    assert sum(found["kills"].values()) >= 10


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_disk_without_a_file_system_of_its_own_loses_and_doubles_nothing_either(tmp_path: Path) -> None:
    words = ("--minutes", "0.7", "--disk", "limit", "--kinds", "fill-disk,kill-worker,kill-group")
    found = figures(tmp_path, *words, timeout=380)
    assert found["disk"] == "RLIMIT_FSIZE of 0"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_that_doubles_is_found_with_its_records_and_everything_that_helps(tmp_path: Path) -> None:
    """With a sink that promises only at least once."""
    words = ("--minutes", "2", "--kinds", "kill-worker,kill-group", "--delivery", "at-least-once")
    done = run(tmp_path, *words, timeout=380)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "VIOLATION doubled: order " in done.stdout
    assert "partition " in done.stdout
    assert "kill " in done.stdout
    assert "make chaos SEED=" in done.stdout
    assert (tmp_path / "run" / "timeline.txt").exists()
    assert (tmp_path / "run" / "start-1.log").exists()
    assert (tmp_path / "run" / "disk-then" / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = subprocess.Popen(command(folder, "--minutes", "5"), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    timeline = folder / "timeline.txt"
    wait_until(lambda: timeline.exists() and "kill" in timeline.read_text(), "the first kill", 200)
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert started.returncode == 2, said
    assert processes_about(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = subprocess.Popen(command(folder, "--minutes", "5"), cwd=ROOT, stdout=subprocess.DEVNULL)
    timeline = folder / "timeline.txt"
    wait_until(lambda: timeline.exists() and "kill" in timeline.read_text(), "the first kill", 200)
    started.kill()
    started.wait()
    wait_until(lambda: processes_about(tmp_path) == [], "the end of all its processes")


def test_a_kind_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--kinds", "earthquake", timeout=60)
    assert done.returncode == 2
    assert "earthquake" in done.stdout
