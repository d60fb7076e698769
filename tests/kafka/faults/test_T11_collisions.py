"""Ids that two could claim, and processes that wake up when another has taken their place (T11, T27, T14)."""

import os
import signal
import sys

import pytest

from tests.integration import running
from tests.integration.running import Bench, Started
from tests.kafka.faults.jobs import ABORTED, CountingJob, interrupt, kill_all, states, wait_until_stopped

TAKEN_OVER = 4
ELSEWHERE = [
    *(sys.executable, "-c"),
    "import socket; socket.gethostname = lambda: 'elsewhere'; from tidegate.cli.main import main; main()",
]
"""The command on what it takes for another machine."""
BOTH = "commit:before@worker-0=stop,commit:before@worker-1=stop"


# ---- ids -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T11_two_sinks_of_a_job_share_its_prefix_and_no_id(bench: Bench, job: CountingJob) -> None:
    second = bench.medium.name("second-out")
    bench.medium.create_topic(second, 4)
    job.feed(400)
    started = job.start("--second-output", second, fail_point=BOTH)
    wait_until_stopped(started)
    sinks = [id.split(":")[3] for id in job.pending()]
    assert set(sinks) == {"out", "second"}
    kill_all(started)
    started = job.start("--second-output", second)
    job.wait_for_all(started)
    started.wait_until(lambda: sum(map(len, job.output(second).values())) == 400, "the second output")
    interrupt(started)
    job.assert_exactly_once()
    job.assert_exactly_once(second)
    job.assert_nothing_is_open()


def test_T11_two_sinks_of_one_name_are_refused(bench: Bench, job: CountingJob) -> None:
    refused = job.run("--second-output", job.output_topic, "--second-name", "out")
    assert refused.process.returncode == 2, refused.said
    assert "two operators named out" in refused.said
    assert bench.open_transactions(job.name) == []


@pytest.mark.slow
@pytest.mark.parametrize(("waiting", "restarted"), [("longer", "shorter"), ("shorter", "longer")])
def test_T11_a_job_whose_prefix_begins_like_anothers_leaves_its_transactions_alone(
    bench: Bench, job: CountingJob, waiting: str, restarted: str
) -> None:
    """One stands with open and prepared transactions, the other dies, recovers and goes on."""
    prefixes = {"shorter": bench.medium.name("app"), "longer": f"{bench.medium.name('app')}-1"}
    standing, dying = job, CountingJob(bench, "dying")
    for one in (standing, dying):
        one.feed(400)
    stands = standing.start("--prefix", prefixes[waiting], fail_point=BOTH)
    wait_until_stopped(stands, 2)
    prepared = bench.open_transactions(prefixes[waiting])
    assert len(prepared) >= 2
    dies = dying.start("--prefix", prefixes[restarted], fail_point=BOTH)
    wait_until_stopped(dies, 2)
    kill_all(dies)
    dying.feed(100)
    dying.run_until_all_is_out("--prefix", prefixes[restarted])
    assert bench.open_transactions(prefixes[waiting]) == prepared
    stands.send_to_all(signal.SIGCONT)
    standing.feed(100)
    standing.wait_for_all(stands)
    interrupt(stands)
    for one in (standing, dying):
        one.assert_exactly_once()
        one.assert_nothing_is_open()
    assert bench.view(standing.name).attempt == 1


@pytest.mark.slow
def test_T11_started_twice_the_first_is_told_that_it_was_taken_over_and_nothing_is_lost_or_doubled(
    job: CountingJob,
) -> None:
    # Few checkpoints: a start whose position is written while it reads the log does not take over.
    options = ["--checkpoint-interval", "2s"]
    job.feed(400)
    first = job.start(options=options)
    first.wait_until(lambda: job.count() > 0, "output of the first")
    job.feed(400)
    second = job.start(options=options)
    assert first.wait() == TAKEN_OVER, first.said
    assert "was taken over" in first.said
    job.wait_for_all(second)
    interrupt(second)
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- zombies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a worker", pytest.param("the JobManager", marks=pytest.mark.slow)])
def test_T27_whoever_stood_still_and_was_replaced_adds_nothing_when_it_wakes_up(job: CountingJob, place: str) -> None:
    job.feed(400)
    fail_point = {"a worker": "commit:before@worker-0=stop", "the JobManager": "log-append:before:3@jobmanager=stop"}
    zombie = job.start(fail_point=fail_point[place])
    wait_until_stopped(zombie)
    if place == "a worker":
        # All of them: the JobManager would wait for the worker, and commit what it waits for.
        zombie.send_to_all(signal.SIGSTOP)
        wait_until_stopped(zombie, 3)
    successor = job.start()
    job.wait_for_all(successor)
    assert_the_zombie_is_turned_away(job, zombie, successor)


def assert_the_zombie_is_turned_away(job: CountingJob, zombie: Started, successor: Started) -> None:
    """It goes on where it stood, and changes nothing of what its successor does."""
    zombie.send_to_all(signal.SIGCONT)
    assert zombie.wait() == TAKEN_OVER, zombie.said
    job.feed(400)
    job.wait_for_all(successor)
    interrupt(successor)
    job.assert_exactly_once()
    job.assert_nothing_is_open()
    assert job.bench.view(job.name).attempt == 2


@pytest.mark.slow
@pytest.mark.parametrize("place", ["commit:before", "acknowledge:before:5", "upload:before:3"])
def test_T27_workers_on_another_machine_that_wake_up_first_are_swept_and_hold_nobody_back(
    job: CountingJob, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The successor cannot end processes there; and their JobManager, which could, does not move."""
    job.feed(4000)
    zombie = job.start("--pause", "0.0005", fail_point=f"{place}@worker-0=stop")
    wait_until_stopped(zombie)
    zombie.send_to_all(signal.SIGSTOP)
    workers = [pid for pid in wait_until_stopped(zombie, 3) if pid != zombie.pid]
    monkeypatch.setattr(running, "TIDEGATE", ELSEWHERE)
    successor = job.start()
    job.wait_for_all(successor)
    assert set(workers) <= set(zombie.living()), "the successor has ended processes of another machine"
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    job.feed(400)
    job.wait_for_all(successor)
    job.feed(400)
    job.wait_for_all(successor)
    assert_the_zombie_is_turned_away(job, zombie, successor)


@pytest.mark.slow
def test_T27_a_worker_that_wakes_up_while_its_job_goes_on_without_it_is_turned_away(job: CountingJob) -> None:
    """It stands for longer than its checkpoints may take: the attempt fails, and the next one replaces it."""
    options = ["--checkpoint-timeout", "500ms", "--set", "checkpoints.tolerable_failures=0"]
    job.feed(2000)
    started = job.start("--pause", "0.0005", options=options, fail_point="acknowledge:before:5@worker-1=stop")
    started.wait_for_fail_point()
    job.wait_for_all(started)
    interrupt(started)
    job.assert_exactly_once()
    job.assert_nothing_is_open()
    assert job.bench.view(job.name).attempt == 2


# ---- abandoned checkpoints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_T14_what_an_abandoned_checkpoint_had_prepared_goes_with_the_next_that_completes(
    job: CountingJob, crash: bool
) -> None:
    """A worker's acknowledgement comes too late, with its sink's and the other's transactions prepared."""
    options = ["--checkpoint-interval", "500ms", "--checkpoint-timeout", "700ms"]
    options += ["--set", "checkpoints.tolerable_failures=9"]
    job.feed(3000)
    started = job.start("--pause", "0.001", options=options, fail_point="acknowledge:before:9@worker-1=stop")
    (stopped,) = wait_until_stopped(started)
    before = job.newest
    started.wait_until(lambda: "is abandoned" in started.said, "a checkpoint that is given up")
    pending = set(job.bench.open_transactions(job.name))
    assert pending
    assert job.newest == before
    if crash:
        read = job.positions()
        kill_all(started)
        started = job.start(options=options)
        started.wait_until(lambda: job.positions() != read, "the next checkpoint")
        assert set(states(job.medium, pending).values()) <= ABORTED
    else:
        os.kill(stopped, signal.SIGCONT)
    job.wait_for_all(started)
    interrupt(started)
    # In one attempt nothing is read again: had a transaction been aborted, its records would be missing.
    assert job.bench.view(job.name).attempt == (2 if crash else 1), started.said
    job.assert_exactly_once()
    job.assert_nothing_is_open()
