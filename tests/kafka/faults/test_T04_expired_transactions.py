"""Transactions that are open for longer than their timeout: a loss is told with everything that is known, and skipped
only when an operator says so; and nothing runs whose timeout cannot be long enough (T04, T05, T06)."""

import re
import signal

import pytest

from tests.integration.programs import wait_until
from tests.integration.running import Bench, Started
from tests.kafka.faults.jobs import CountingJob, differences, kill_all, states, wait_until_expired, wait_until_stopped

TIMEOUT = 3.0
SHORT = ["--timeout", str(TIMEOUT)]
TIGHT = [
    *("-p", "1", "--checkpoint-timeout", "500ms"),
    *("--set", "checkpoints.tolerable_failures=0", "--set", "transactions.restart_allowance=500ms"),
]
ACCEPT = "--accept-lost-transactions"
UTC = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"


def stop_before_the_commit(job: CountingJob) -> Started:
    """A first part is out, and the transaction of a second is prepared, named by a completed checkpoint, and open."""
    job.feed(100)
    job.run_until_all_is_out(*SHORT, options=TIGHT)
    job.feed(100)
    started = job.start(*SHORT, options=TIGHT, fail_point="commit:before=stop")
    wait_until_stopped(started)
    assert len(job.pending()) == 1
    return started


def assert_tells_the_loss(job: CountingJob, said: str, before: dict[int, int]) -> None:
    """Which checkpoint, which transaction, since when, which input, what can be done."""
    newest, (id,) = job.newest, job.pending()
    assert newest is not None
    assert f"transaction {id} of a completed checkpoint is lost" in said
    assert f"It belongs to checkpoint {newest.checkpoint}" in said
    assert re.search(rf"its timeout had passed, which was at {UTC}", said), said
    assert f"its timeout was {TIMEOUT:g} s" in said
    for partition, position in job.positions().items():
        line = f"split {job.input}/{partition}: from {before[partition]} up to {position}, not included"
        assert (line in said) == (before[partition] != position), said
    for choice in (ACCEPT, "--from-checkpoint"):
        assert choice in said
    assert "Traceback" not in said
    assert said.count("It belongs to checkpoint") == 1


def assert_only_this_is_missing(job: CountingJob, before: dict[int, int], after: dict[int, int]) -> None:
    expected = job.expected(lambda partition, offset: before[partition] <= offset < after[partition])
    assert differences(expected, job.output()) == []


def test_T04_a_transaction_that_expired_while_the_job_was_down_stops_it_until_the_loss_is_accepted(
    job: CountingJob,
) -> None:
    kill_all(stop_before_the_commit(job))
    before, after = dict.fromkeys(range(4), 25), job.positions()
    wait_until_expired(job.medium, job.pending())
    output, log = job.output(), job.bench.view(job.name)
    for _ in range(2):
        stopped = job.run(*SHORT, options=TIGHT)
        assert stopped.process.returncode == 3, stopped.said
        assert_tells_the_loss(job, stopped.said, before)
        assert job.output() == output
        assert job.bench.view(job.name).newest == log.newest
    given_up = job.pending()
    accepted = job.start(*SHORT, options=[*TIGHT, ACCEPT])
    job.feed(100)
    accepted.wait_until(lambda: job.count() >= 300 - sum(after.values()) + sum(before.values()), "the rest")
    accepted.process.send_signal(signal.SIGINT)
    assert accepted.wait() == 0, accepted.said
    assert f"given up by {ACCEPT}: transaction {given_up[0]}" in accepted.said
    assert_only_this_is_missing(job, before, after)
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T04_a_transaction_that_expires_while_its_worker_stands_before_the_commit_stops_the_job_likewise(
    job: CountingJob,
) -> None:
    started = stop_before_the_commit(job)
    before, after = dict.fromkeys(range(4), 25), job.positions()
    wait_until_expired(job.medium, job.pending())
    started.send_to_all(signal.SIGCONT)
    assert started.wait() == 3, started.said
    assert_tells_the_loss(job, started.said, before)
    again = job.run(*SHORT, options=TIGHT)
    assert again.process.returncode == 3, again.said
    assert_tells_the_loss(job, again.said, before)
    job.feed(100)
    accepted = job.start(*SHORT, options=[*TIGHT, ACCEPT])
    accepted.wait_until(lambda: job.count() >= 300 - sum(after.values()) + sum(before.values()), "the rest")
    kill_all(accepted)
    assert_only_this_is_missing(job, before, after)


@pytest.mark.slow
def test_T04_going_back_to_the_checkpoint_before_makes_the_lost_results_again(job: CountingJob) -> None:
    started = stop_before_the_commit(job)
    kill_all(started)
    wait_until_expired(job.medium, job.pending())
    stopped = job.run(*SHORT, options=TIGHT)
    match = re.search(r"With --from-checkpoint (\d+) it goes back", stopped.said)
    assert match, stopped.said
    job.run_until_all_is_out(*SHORT, options=[*TIGHT, "--from-checkpoint", match[1]])
    job.assert_exactly_once()


@pytest.mark.slow
def test_T04_of_several_transactions_only_the_lost_one_is_missing(job: CountingJob) -> None:
    """One worker's is committed, the other's expires."""
    options = [*TIGHT, "-p", "2"]
    job.feed(100)
    job.run_until_all_is_out(*SHORT, options=options)
    job.feed(100)
    started = job.start(*SHORT, options=options, fail_point="commit:before@worker-1=stop")
    wait_until_stopped(started)
    wait_until(lambda: len({*job.pending()} & {*job.bench.open_transactions(job.name)}) <= 1, "the other's commit")
    (lost,) = {*job.pending()} & {*job.bench.open_transactions(job.name)}
    kill_all(started)
    wait_until_expired(job.medium, [lost])
    stopped = job.run(*SHORT, options=options)
    assert stopped.process.returncode == 3, stopped.said
    assert f"transaction {lost} of a completed checkpoint is lost" in stopped.said
    assert stopped.said.count("of a completed checkpoint is lost") == 1
    there = {number for records in job.output().values() for _, number in records}
    covered = job.positions()

    def is_lost(partition: int, offset: int) -> bool:
        return offset < covered[partition] and job.fed[partition][offset] not in there

    accepted = job.start(*SHORT, options=[*options, ACCEPT])
    job.feed(40)
    wanted = job.expected(is_lost)
    assert sum(map(len, wanted.values())) < 240
    wait_until(lambda: job.count() >= sum(map(len, wanted.values())), "all that is not lost")
    kill_all(accepted)
    assert differences(wanted, job.output()) == []


# ---- before the checkpoint is complete -----------------------------------------------------------------------------


def written_to(job: CountingJob) -> int:
    """Records and markers in the output, of open transactions as well."""
    return sum(job.broker.end_offsets(job.output_topic).values())


@pytest.mark.slow
def test_T06_a_transaction_that_expires_before_its_checkpoint_fails_the_attempt_as_an_expiry_and_is_read_again(
    job: CountingJob,
) -> None:
    """Everything stands still, as on a machine that is suspended, and between two checkpoints: one that is under way
    would be too late as well, by the JobManager's clock, and that would be found and told first."""
    timeout = ["--timeout", "5"]
    options = ["-p", "1", "--checkpoint-interval", "2s", "--checkpoint-timeout", "2s"]
    options += ["--set", "checkpoints.tolerable_failures=0", "--set", "transactions.restart_allowance=500ms"]
    job.feed(100)
    started = job.start(*timeout, options=options)
    job.wait_for_all(started)
    written, completed = written_to(job), job.bench.view(job.name).next_position
    wait_until(lambda: job.bench.view(job.name).next_position > completed, "the next checkpoint")
    # The next one is two seconds away: what can be looked at while everything stands is not looked at before.
    job.feed(100)
    wait_until(lambda: written_to(job) >= written + 100, "the records in an open transaction")
    started.send_to_all(signal.SIGSTOP)
    ids = job.bench.open_transactions(job.name)
    assert len(ids) == 1
    assert not {*ids} & {*job.pending()}
    wait_until_expired(job.medium, ids)
    started.send_to_all(signal.SIGCONT)
    job.wait_for_all(started)
    started.process.send_signal(signal.SIGINT)
    assert started.wait() == 0, started.said
    assert re.search(rf"restart 1 in .*transaction {ids[0]} .*its timeout had passed", started.said), started.said
    assert "another producer" not in started.said
    job.assert_exactly_once()
    job.assert_nothing_is_open()


def test_T06_a_timeout_that_checkpoints_may_outlast_is_refused_with_both_numbers(
    bench: Bench, job: CountingJob
) -> None:
    job.feed(4)
    options = ["--checkpoint-interval", "2s", "--checkpoint-timeout", "8s", "--set", "checkpoints.tolerable_failures=1"]
    refused = job.run("--timeout", "79", options=[*options, "--set", "transactions.restart_allowance=1m"])
    assert refused.process.returncode == 2, refused.said
    assert "79 s" in refused.said
    assert "80 s" in refused.said
    assert "restart 1 in" not in refused.said
    assert job.output() == {}
    assert bench.open_transactions(job.name) == []


def test_T05_a_timeout_above_what_the_brokers_allow_is_refused_with_both_numbers(job: CountingJob) -> None:
    job.feed(4)
    refused = job.run("--timeout", "3600")
    assert refused.process.returncode == 2, refused.said
    assert "3600 s" in refused.said
    assert "900 s" in refused.said
    assert "transaction.max.timeout.ms" in refused.said
    assert "restart 1 in" not in refused.said
    assert "Traceback" not in refused.said
    assert job.output() == {}
    assert states(job.medium, job.bench.open_transactions(job.name)) == {}
