"""Real runs with `--profile`: a slow function is found where it is, whether the job ends well, fails or is stopped."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.user_programs import UNBOUNDED, Project

SLOW = (
    "def process_element(self, value, ctx):",
    "def process_element(self, value, ctx):\n        slow(ctx)",
)
FUNCTION = (
    "class RunningTotal",
    "def slow(ctx):\n    return sum(range(30_000))\n\n\nclass RunningTotal",
)
FAILING = ("return sum(range(30_000))", "return sum(range(300_000)) // max(0, 500 - seen())")
"""After some seconds: of a process that is killed, as that of an attempt that failed, the last one is not seen."""
COUNTING = (
    "def slow(ctx):",
    "SEEN = []\n\n\ndef seen():\n    SEEN.append(1)\n    return len(SEEN)\n\n\ndef slow(ctx):",
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.feed(1000)
    return made


def seconds_of(file: Path) -> dict[str, dict[tuple[str, ...], float]]:
    """By worker and stack."""
    profile = json.loads(file.read_bytes())
    names = [frame["name"] for frame in profile["shared"]["frames"]]
    return {
        worker["name"]: {
            tuple(names[number] for number in sample): weight
            for sample, weight in zip(worker["samples"], worker["weights"], strict=True)
        }
        for worker in profile["profiles"]
    }


def with_function(seen: dict[tuple[str, ...], float], name: str) -> float:
    return sum(weight for stack, weight in seen.items() if name in stack)


def test_a_slow_function_is_found_at_the_top_with_its_operator_in_every_worker(project: Project) -> None:
    project.write(FUNCTION, SLOW)
    done = project.run("run", "app.py", "--profile", "-p", "2")
    assert done.returncode == 0, done.stderr
    assert project.output() == project.expected()
    seen = seconds_of(project.folder / "totals.speedscope.json")
    assert list(seen) == ["worker 0", "worker 1"]
    for worker, stacks in seen.items():
        hottest = max((stack for stack in stacks if stack[1].startswith("task")), key=lambda stack: stacks[stack])
        assert hottest[:3] == (worker, "task totals", "operator totals")
        assert hottest[-1] == "slow"
    _, table = done.stderr.split("profile of ")
    first, head, top, *_ = table.splitlines()
    assert first.endswith(str(project.folder / "totals.speedscope.json"))
    assert head.split() == ["operator", "share", "hottest", "functions"]
    assert top.split()[0] == "totals"
    assert top.split()[2:4] == ["slow", "(app.py:21)"]


@pytest.mark.slow
def test_a_job_that_fails_has_its_profile_of_all_attempts(project: Project) -> None:
    project.write(FUNCTION, SLOW, FAILING, COUNTING)
    words = ("--restart", "fixed-delay:1:10ms", "--profile=failed.json", "--log-format", "json")
    done = project.run("run", "app.py", *words)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    (told,) = (line for line in map(json.loads, done.stderr.splitlines()) if line["event"] == "profile")
    assert told["file"] == str(project.folder / "failed.json")
    assert told["rows"][0]["functions"][0]["name"] == "slow"
    assert with_function(seconds_of(project.folder / "failed.json")["worker 0"], "slow") > 0


@pytest.mark.slow
def test_in_one_process_the_same_is_found(project: Project) -> None:
    project.write(FUNCTION, SLOW)
    done = project.run("run", "app.py", "--profile=here/", "--in-process", "-p", "2")
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True)
    (project.folder / "here").mkdir()
    done = project.run("run", "app.py", "--profile=here/", "--in-process", "-p", "2")
    assert done.returncode == 0, done.stderr
    seen = seconds_of(project.folder / "here" / "totals.speedscope.json")
    assert list(seen) == ["worker 0", "worker 1", "JobManager"]
    for worker in ("worker 0", "worker 1"):
        hottest = max(seen[worker], key=lambda stack: seen[worker][stack])
        assert (hottest[2], hottest[-1]) == ("operator totals", "slow")


@pytest.mark.slow
def test_a_job_that_is_stopped_has_its_profile_and_so_has_one_whose_worker_was_killed(project: Project) -> None:
    project.write(FUNCTION, SLOW, UNBOUNDED)
    with project.start("app.py", "--checkpoint-interval", "100ms", "--profile") as running:
        running.wait_for(lambda: project.read_up_to() >= 0, "a checkpoint")
        worker = next(pid for pid in running.living() if pid != running.process.pid)
        os.kill(worker, signal.SIGKILL)
        project.wait_until_read(running)
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0
    assert project.output() == project.expected()
    assert with_function(seconds_of(project.folder / "totals.speedscope.json")["worker 0"], "slow") > 0


def test_a_target_that_cannot_be_written_is_refused_before_anything_runs(project: Project) -> None:
    project.write()
    done = project.run("run", "app.py", "--profile=missing/x.json")
    assert done.returncode == 2
    assert f"the profile cannot be written to {project.folder / 'missing' / 'x.json'}: No such file" in done.stderr
    assert not project.checkpoints.exists()
