"""Lists without keys, broadcast state and timers over the death of workers and of the whole job, at every
parallelism."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.kinds_program import KindsProject, differences
from tests.integration.user_programs import Running

FAST = ["--checkpoint-interval", "50ms", "--restart", "fixed-delay:5:20ms"]
ROCKSDB = pytest.param("rocksdb", marks=pytest.mark.skipif(find_spec("rocksdict") is None, reason="extra rocksdb"))
BACKENDS = ["fs", ROCKSDB]


@pytest.fixture
def project(tmp_path: Path) -> KindsProject:
    return KindsProject(tmp_path / "project", tmp_path / "state")


def start(project: KindsProject, parallelism: int, *words: str) -> Running:
    return project.start("app.py", *FAST, "-p", str(parallelism), *words)


def kill_a_worker(running: Running, number: int) -> None:
    workers = running.workers()
    os.kill(workers[number % len(workers)], signal.SIGKILL)
    running.wait_to_say("restart 1 in")


def kill_all(running: Running) -> None:
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()


def finish(project: KindsProject, parallelism: int, *words: str) -> None:
    """Let everything out that is still held back, and look at it."""
    with start(project, parallelism, *words) as running:
        project.flush()
        running.wait_for(lambda: len(project.results) >= len(project.wanted), "all results")
        running.interrupt()
        assert running.ends() == 0, running.said
    project.assert_exactly_once()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
def test_B05_every_kind_of_state_survives_kills_and_moves_from_two_to_three_to_one_to_four(
    project: KindsProject, backend: str
) -> None:
    words = ["--state-backend", backend]
    for stage, parallelism in enumerate((2, 3, 1)):
        with start(project, parallelism, *words) as running:
            rule = project.feed_rule(running, stage + 2)
            project.feed_events(rule, 150)
            project.wait_until_covered(running, "events")
            project.feed_events(rule, 150)
            kill_a_worker(running, stage)
            project.feed_events(rule, 33)
            project.wait_until_covered(running, "events")
            project.feed_events(rule, 50)
            kill_all(running)
    finish(project, 4, *words)


def test_every_kind_of_state_survives_the_death_of_the_whole_job_at_another_parallelism(project: KindsProject) -> None:
    with start(project, 2) as running:
        project.feed_events(project.feed_rule(running, 3), 77)
        project.wait_until_covered(running, "events")
        kill_all(running)
    finish(project, 3)


def test_a_clean_stop_keeps_what_waits_for_a_timer(project: KindsProject) -> None:
    with start(project, 1, "--in-process") as running:
        project.feed_events(project.feed_rule(running, 3), 40)
        project.wait_until_covered(running, "events")
        running.interrupt()
        assert running.ends() == 0, running.said
    finish(project, 2)


def test_the_check_fails_when_a_result_is_removed_doubled_or_changed() -> None:
    right = [("a", 1), ("a", 2), ("b", 2)]
    assert differences(right, right[::-1]) == []
    assert differences(right, right[1:]) == ["1 x ('a', 1) missing"]
    assert differences(right, [*right, ("b", 2)]) == ["1 x ('b', 2) too many"]
    assert differences(right, [("a", 1), ("a", 3), ("b", 2)]) == ["1 x ('a', 2) missing", "1 x ('a', 3) too many"]
