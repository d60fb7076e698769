"""Between "the checkpoint is completed" and "its transactions are committed": whoever dies or ends there, they are
committed afterwards, once (T01, T02)."""

import signal
from pathlib import Path

import pytest

from tests.integration.running import KILLED, Started
from tests.kafka.faults.jobs import CountingJob, differences, interrupt, kill_all, states, wait_until_stopped

FED = 400


def slow(value: object) -> object:
    return pytest.param(value, marks=pytest.mark.slow)


def stop_before_the_commit(job: CountingJob, *words: str) -> Started:
    """A completed checkpoint names prepared transactions, and their workers stand in front of the commit."""
    job.feed(FED)
    started = job.start(*words, fail_point="commit:before@worker-0=stop,commit:before@worker-1=stop")
    wait_until_stopped(started)
    assert "Ongoing" in states(job.medium, job.pending()).values()
    return started


@pytest.mark.parametrize("victim", ["everything", slow("worker"), slow("jobmanager")])
def test_T01_what_a_completed_checkpoint_has_prepared_is_committed_once_whoever_dies_before_the_commit(
    job: CountingJob, victim: str
) -> None:
    started = stop_before_the_commit(job)
    named = job.pending()
    if victim == "everything":
        kill_all(started)
    elif victim == "jobmanager":
        started.kill(started.pid)
        started.wait()
    else:
        started.kill(wait_until_stopped(started)[0])
        started.send_to_all(signal.SIGCONT)
    if victim != "worker":
        started = job.start()
    job.wait_for_all(started)
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    job.feed(FED)
    job.wait_for_all(started)
    interrupt(started)
    job.assert_exactly_once()
    job.assert_nothing_is_open()
    assert job.bench.view(job.name).attempt == 2


@pytest.mark.slow
def test_T01_a_job_manager_that_dies_when_the_log_has_the_checkpoint_and_nobody_knows_commits_it_later(
    job: CountingJob,
) -> None:
    job.feed(FED)
    started = job.start(fail_point="log-append:after:3@jobmanager")
    assert started.wait() == KILLED
    job.feed(FED)
    job.run_until_all_is_out()
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T01_a_worker_that_dies_between_the_commits_of_two_sinks_leaves_neither_without_its_own(
    job: CountingJob,
) -> None:
    second = job.medium.name("second-out")
    job.medium.create_topic(second, 4)
    job.feed(FED)
    started = job.start("--second-output", second, fail_point="commit:after@worker-0")
    started.wait_for_fail_point()
    job.feed(FED)
    job.wait_for_all(started)
    started.wait_until(lambda: sum(map(len, job.output(second).values())) >= 2 * FED, "the second output")
    interrupt(started)
    job.assert_exactly_once()
    job.assert_exactly_once(second)
    job.assert_nothing_is_open()
    assert job.bench.view(job.name).attempt == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT)])
def test_T02_a_stop_with_prepared_transactions_commits_them_and_nothing_is_read_again(
    job: CountingJob, number: signal.Signals
) -> None:
    started = stop_before_the_commit(job)
    read = job.positions()
    started.process.send_signal(number)
    started.wait_until(lambda: "finishing commits" in started.said, "the stop")
    started.send_to_all(signal.SIGCONT)
    assert started.wait() == 0, started.said
    covered = job.positions()
    assert all(covered[partition] >= read[partition] for partition in read)
    assert differences(job.expected(lambda partition, offset: offset >= covered[partition]), job.output()) == []
    job.assert_nothing_is_open()
    job.feed(FED)
    job.run_until_all_is_out()
    job.assert_exactly_once()


@pytest.mark.slow
def test_T02_user_code_that_fails_while_a_transaction_is_prepared_does_not_abort_it(
    job: CountingJob, tmp_path: Path
) -> None:
    """The next interval's code fails while the worker still owes the commit."""
    mended = tmp_path / "mended"
    words = ["--fail-at", str(FED), "--unless", str(mended)]
    started = stop_before_the_commit(job, *words)
    named = job.pending()
    job.feed(FED)
    attempt = job.bench.view(job.name).attempt
    started.send_to_all(signal.SIGCONT)
    started.wait_until(lambda: f"record {FED} is one too many" in started.said, "the failure of user code")
    mended.touch()
    job.wait_for_all(started)
    interrupt(started)
    assert job.bench.view(job.name).attempt > attempt
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    job.assert_exactly_once()
    job.assert_nothing_is_open()
