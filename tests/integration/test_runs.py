"""A job in real processes, from end to end: it finishes, it survives kills of any of its processes, and it stops."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.jobs import CountingJob
from tests.integration.programs import is_alive, wait_until
from tidegate.deploy.local import ONE_STOP_SECONDS

pytestmark = pytest.mark.slow
SLOWLY = ["--pause", "0.001"]


def test_a_bounded_job_finishes_and_the_same_command_again_changes_nothing(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    first = job.run("-p", "2")
    assert first.returncode == 0, first.stderr
    job.assert_exactly_once()
    before = job.view.next_position
    again = job.run("-p", "2")
    assert again.returncode == 0
    assert "finished" in again.stderr
    assert job.view.next_position == before
    job.assert_exactly_once()


@pytest.mark.parametrize("how", [["-p", "1"], ["-p", "4"], ["--in-process"], ["--in-process", "-p", "3"]])
def test_the_output_is_the_same_in_however_many_processes(tmp_path: Path, how: list[str]) -> None:
    job = CountingJob(tmp_path)
    done = job.run(*how)
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()


def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    with job.start("-p", "2", program=SLOWLY) as running:
        running.wait_for_checkpoint()
        os.kill(running.workers[1], signal.SIGKILL)
        assert running.wait() == 0, running.errors.read_text()
        assert "worker 1 died: killed by SIGKILL" in running.errors.read_text()
    assert job.view.attempt == 2
    job.assert_exactly_once()


def test_workers_die_with_a_killed_job_manager_and_the_same_command_goes_on(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    with job.start("-p", "2", program=SLOWLY) as running:
        running.wait_for_checkpoint(2)
        workers = running.workers
        running.process.kill()
        assert running.wait() == -signal.SIGKILL
        wait_until(lambda: not any(map(is_alive, workers)), f"the death of workers {workers}")
    assert 0 < len(job.output) < len(job.records)
    again = job.run("-p", "2")
    assert again.returncode == 0, again.stderr
    job.assert_exactly_once()


def test_a_stopped_job_goes_on_with_another_parallelism(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    with job.start("-p", "2", program=SLOWLY) as running:
        running.wait_for_checkpoint()
        running.interrupt()
        assert running.wait() == 0, running.errors.read_text()
        assert "Traceback" not in running.errors.read_text()
    assert 0 < len(job.output) < len(job.records)
    again = job.run("-p", "3")
    assert again.returncode == 0, again.stderr
    job.assert_exactly_once()


def test_an_unbounded_job_takes_what_comes_until_it_is_stopped(tmp_path: Path) -> None:
    job = CountingJob(tmp_path, count=100)
    with job.start("-p", "2", program=["--unbounded"]) as running:
        wait_until(lambda: len(job.output) == 100, "the first output")
        job.feed(100)
        wait_until(lambda: len(job.output) == 200, "the second output")
        running.process.terminate()
        assert running.wait() == 0, running.errors.read_text()
    job.assert_exactly_once()


def test_a_second_interrupt_does_not_wait_for_commits(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    stopped = {"TIDEGATE_FAIL_POINT": "commit:before@worker-0=stop", "TIDEGATE_FAIL_POINT_MARK": str(tmp_path / "mark")}
    with job.start("-p", "2", program=SLOWLY, environment=stopped) as running:
        wait_until((tmp_path / "mark.0").exists, "a commit")
        workers = running.workers
        running.interrupt()
        running.wait_for_text("finishing commits")
        # Sooner it would be the first once more.
        time.sleep(ONE_STOP_SECONDS * 1.2)
        running.interrupt()
        assert running.wait() == 130
        assert not any(map(is_alive, workers))
    again = job.run("-p", "2")
    assert again.returncode == 0, again.stderr
    job.assert_exactly_once()


def test_an_exception_in_user_code_is_shown_traceback_first(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    done = job.run("-p", "2", "--restart", "none", program=["--fail-at", "500"])
    assert done.returncode == 1
    shown = done.stderr[done.stderr.index("Traceback") :]
    assert "counting_job.py" in shown.splitlines()[1]
    assert "ValueError: no such number: 500" in shown
    assert "operator count" in shown
    assert "tidegate/" not in shown


def test_an_exit_in_user_code_is_a_failure_and_no_end(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    for how in (["-p", "2"], ["--in-process"]):
        done = job.run(*how, "--restart", "none", program=["--exit-at", "500"])
        assert done.returncode == 1, done.stderr
        assert "the program ended itself with exit code 0" in done.stderr


def test_a_fail_point_kills_once_and_the_run_goes_on(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    mark = tmp_path / "mark"
    environment = {"TIDEGATE_FAIL_POINT": "commit:before:2@worker-1", "TIDEGATE_FAIL_POINT_MARK": str(mark)}
    done = job.run("-p", "2", program=SLOWLY, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "worker 1 died: killed by SIGKILL" in done.stderr
    assert mark.with_name("mark.0").exists()
    assert job.view.attempt == 2
    job.assert_exactly_once()


def test_a_job_manager_that_wakes_up_after_another_took_over_is_fenced(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    with job.start("-p", "2", program=SLOWLY) as first:
        first.wait_for_checkpoint()
        workers = first.workers
        first.process.send_signal(signal.SIGSTOP)
        done = job.run("-p", "2")
        assert done.returncode == 0, done.stderr
        assert not any(map(is_alive, workers))
        first.process.send_signal(signal.SIGCONT)
        assert first.wait() == 4, first.errors.read_text()
    job.assert_exactly_once()


def test_python_runs_the_program_as_tidegate_does(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    done = subprocess.run([sys.executable, str(job.program)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
    helped = subprocess.run([sys.executable, str(job.program), "--help"], capture_output=True, text=True, check=True)
    assert "--fail-at" in helped.stdout


def test_state_in_memory_survives_workers(tmp_path: Path) -> None:
    job = CountingJob(tmp_path)
    environment = {
        "TIDEGATE_FAIL_POINT": "acknowledge:after:3@worker-0",
        "TIDEGATE_FAIL_POINT_MARK": str(tmp_path / "m"),
    }
    done = job.run("-p", "2", "--state-backend", "memory", program=SLOWLY, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "keeps checkpoints in this process" in done.stderr
    assert "killed by SIGKILL" in done.stderr
    job.assert_exactly_once()
