"""Checkpoints under way while inputs are unequal, tasks are late or not ready: what completes is one cut, and what does
not costs that checkpoint alone (C01, C02, C04, C05, C13)."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.integration.exactly_once import answer_of
from tests.integration.faults.skewed import JOB, Skewed, cut_problems, positions
from tests.integration.running import Bench, orders

FAST, SLOW = 12_000, 30


@pytest.mark.parametrize("slow", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_C01_of_a_fast_and_a_slow_input_each_checkpoint_holds_what_was_before_its_barriers(
    bench: Bench, tmp_path: Path, slow: int
) -> None:
    counts = [FAST, FAST]
    counts[slow] = SLOW
    job = Skewed(bench, tmp_path, counts, slow, pause=0.05)
    started = job.start()
    assert started.wait() == 0, started.said
    job.assert_right()
    middles = [read for read in map(positions, job.manifests()) if 0 < read.get(slow, 0) < SLOW]
    assert len(middles) >= 3, "hardly any checkpoint came while the slow input was read"


def test_C01_the_check_fails_when_a_record_is_missing_doubled_or_exchanged() -> None:
    assert cut_problems({0: 3, 1: 0}, {0: 3}, {0: 3}) == []
    assert cut_problems({0: 3}, {0: 2}, {0: 1}) != []
    assert cut_problems({0: 3}, {0: 4}, {0: 5}) != []
    assert cut_problems({0: 3}, {0: 3}, {0: 4}) != []
    assert cut_problems({0: 3}, {0: 3, 1: 1}, {0: 3, 1: 0}) != []


@pytest.mark.slow
def test_C02_a_checkpoint_that_the_slow_input_keeps_waiting_is_overtaken_by_the_next(
    bench: Bench, tmp_path: Path
) -> None:
    # Each record takes longer than a checkpoint may: barriers of later ones come while earlier ones are still owed.
    job = Skewed(bench, tmp_path, [FAST, 8], slow=1, pause=0.4)
    started = job.start("--checkpoint-timeout", "150ms", "--set", "checkpoints.tolerable_failures=1000")
    assert started.wait() == 0, started.said
    assert started.said.count("is abandoned") >= 2, started.said
    job.assert_right()
    assert bench.view(JOB).attempt == 1, "the attempt failed"


@pytest.mark.slow
def test_C04_an_acknowledgement_after_the_timeout_completes_nothing_and_leaves_no_file(bench: Bench) -> None:
    users = 3000  # So much that state is in files.
    found = orders(0, 12_000, users)
    bench.append(found)
    options = ["--checkpoint-timeout", "400ms", "--set", "checkpoints.tolerable_failures=1000"]
    arguments = ("--bounded", "--pause", "0.0003")
    started = bench.start(*arguments, fail_point="acknowledge:before:5@worker-1=stop", options=options)
    started.wait_for_fail_point()
    (late,) = started.wait_until_stopped()
    before = bench.view().newest
    started.wait_until(lambda: "is abandoned" in started.said, "the end of the checkpoint's time")
    os.kill(late, signal.SIGCONT)
    started.wait_until(lambda: bench.view().newest != before, "the next checkpoint")
    after, attempt = bench.view().newest, bench.view().attempt
    assert after is not None
    assert before is not None
    assert after.checkpoint >= before.checkpoint + 2, "the abandoned checkpoint has completed"
    assert started.wait() == 0, started.said
    assert attempt == bench.view().attempt == 1, "the attempt failed"
    bench.assert_right(answer_of(found))


@pytest.mark.slow
def test_C05_a_task_that_is_not_ready_yet_costs_no_checkpoint_and_no_attempt(bench: Bench, tmp_path: Path) -> None:
    job = Skewed(bench, tmp_path, [400, 400], slow=0, pause=0.002)
    options = ["--checkpoint-interval", "10ms", "--restart", "none", "--set", "checkpoints.tolerable_failures=0"]
    started = job.start(*options, start_up=1.0)
    assert started.wait() == 0, started.said
    assert bench.view(JOB).attempt == 1
    first = job.manifests()[0]
    assert first.checkpoint == 1
    assert first.triggered_at >= job.ready.stat().st_mtime, "it was triggered while a task was not ready"
    job.assert_right()


@pytest.mark.slow
def test_C05_a_savepoint_that_is_asked_for_before_all_are_ready_is_written_when_they_are(
    bench: Bench, tmp_path: Path
) -> None:
    job = Skewed(bench, tmp_path, [300, 300], slow=0, pause=0.01)
    started = job.start("--checkpoint-interval", "2m", start_up=2.0)
    started.wait_until(lambda: "attempt 1" in started.said, "the attempt")
    assert not job.ready.exists()
    done = bench.command("savepoint", JOB, str(tmp_path / "savepoint"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "savepoint" / "savepoint.json").exists()
    assert started.wait() == 0, started.said
    assert "abandoned" not in started.said
    job.assert_right()


@pytest.mark.slow
def test_C13_checkpoints_follow_each_other_however_short_the_interval(bench: Bench, tmp_path: Path) -> None:
    job = Skewed(bench, tmp_path, [3000, 300], slow=1, pause=0.004)
    started = job.start("--checkpoint-interval", "1ms")
    assert started.wait() == 0, started.said
    manifests = job.manifests()
    assert len(manifests) >= 5
    for earlier, later in itertools.pairwise(manifests):
        assert earlier.checkpoint < later.checkpoint
        assert earlier.triggered_at + earlier.duration <= later.triggered_at, "two ran at the same time"
    job.assert_right()
