"""What attempts leave open behind them: the next one commits what a checkpoint names, ends the rest before it writes,
and leaves alone what is not its own (T07, T08, T09, T12, T13, T32)."""

import signal
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tests.kafka.faults.jobs import (
    ABORTED,
    CountingJob,
    describe,
    kill_all,
    states,
    wait_for_checkpoints,
    wait_until_stopped,
)

NO_CHECKPOINT = ("--checkpoint-interval", "2m")
NONE_COMPLETES = "log-append:before@jobmanager=stop"
"""Behind a restart checkpoints come soon, whatever their interval is."""


def leave_open(job: CountingJob, parallelism: int, *words: str) -> list[str]:
    """An attempt with records in its open transactions that dies before any checkpoint of its own is complete; their
    ids."""
    before = set(job.medium.transactional_ids())
    options = ["-p", str(parallelism), *NO_CHECKPOINT]
    started = job.start(*words, options=options, fail_point=NONE_COMPLETES)

    def new() -> list[str]:
        return [id for id in job.bench.open_transactions(words[1] if words else job.name) if id not in before]

    started.wait_until(lambda: len({id.split(":")[4] for id in new()}) == parallelism, "transactions of all subtasks")
    ids = new()
    kill_all(started)
    assert set(states(job.medium, ids).values()) == {"Ongoing"}
    return ids


@pytest.mark.slow
def test_T07_leftovers_of_attempts_before_any_checkpoint_are_ended_and_readers_go_on(job: CountingJob) -> None:
    job.feed(400)
    left: list[str] = []
    for parallelism in (4, 2, 4, 2):
        ids = leave_open(job, parallelism)
        # What came before is ended by the start of this one, also of subtasks that it does not have.
        assert not {"Ongoing"} & set(states(job.medium, left).values())
        left += ids
    assert len(left) >= 12
    job.run_until_all_is_out()
    assert set(states(job.medium, left).values()) <= ABORTED
    job.assert_exactly_once()
    job.assert_nothing_is_open()


def test_T08_what_is_prepared_is_committed_and_what_is_open_aborted_however_slow_the_recovery_is(
    job: CountingJob,
) -> None:
    job.feed(400)
    started = job.start(fail_point="commit:before@worker-0=stop,commit:before@worker-1=stop")
    wait_until_stopped(started)
    named = job.pending()
    wait_until_stopped(started, len(named))
    job.feed(400)
    kill_all(started)
    still_open = leave_open_of_a_zombie(job, named)
    recovering = job.start(fail_point="recovery-commit:before@jobmanager=stop")
    wait_until_stopped(recovering)
    found = states(job.medium, [*named, *still_open])
    assert set(found.values()) == {"Ongoing"}, "something was ended before what is named was committed"
    recovering.send_to_all(signal.SIGCONT)
    job.wait_for_all(recovering)
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    assert set(states(job.medium, still_open).values()) <= ABORTED
    kill_all(recovering)
    job.assert_exactly_once()


def leave_open_of_a_zombie(job: CountingJob, named: list[str]) -> list[str]:
    """A transaction that a process of the same attempt opened after the checkpoint, with records; its id."""
    prefix, instance, attempt, sink, subtask, _ = named[0].split(":")
    id = f"{prefix}:{instance}:{attempt}:{sink}:{subtask}:7"
    job.broker.produce_in_transaction(
        job.output_topic, ["k0-0 99 99"], keys=["k0-0"], commit=None, transactional_id=id, partition=0
    )
    return [id]


# ---- ids of checkpoints --------------------------------------------------------------------------------------------


def uses(job: CountingJob, ids: list[str]) -> dict[str, tuple[int, int, int]]:
    """Producer id, epoch and start time of each: another transaction under the id would show in one of them."""
    found = describe(job.medium, ids)
    return {id: (one.producer_id, one.producer_epoch, one.transaction_start_time_ms or 0) for id, one in found.items()}


@pytest.mark.slow
def test_T09_an_id_that_a_completed_checkpoint_names_is_not_opened_again_while_later_ones_fail(
    job: CountingJob,
) -> None:
    """A transaction of later checkpoints under it would make what became of the completed one's ambiguous."""
    job.feed(4000)
    options = ["--checkpoint-interval", "500ms", "--checkpoint-timeout", "500ms"]
    options += ["--set", "checkpoints.tolerable_failures=9"]
    started = job.start("--pause", "0.001", options=options, fail_point="acknowledge:before:13@worker-1=stop")
    wait_until_stopped(started)
    read, named = job.positions(), job.pending()
    assert named != []
    assert 0 < sum(read.values()) < 4000
    wait_until(lambda: set(states(job.medium, named).values()) == {"CompleteCommit"}, "the commits")
    first = uses(job, named)
    started.wait_until(lambda: started.said.count("is abandoned") >= 2, "two checkpoints that fail")
    assert job.positions() == read, "a later checkpoint has completed"
    assert uses(job, named) == first
    kill_all(started)
    job.run_until_all_is_out()
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- parallelism ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T12_parallelism_may_change_with_every_start_also_without_a_checkpoint_between(job: CountingJob) -> None:
    left: list[str] = []
    job.feed(400)
    job.run_until_all_is_out(options=["-p", "3"])
    job.feed(400)
    left += leave_open(job, 4)
    job.feed(400)
    for parallelism in (3, 1):
        job.run_until_all_is_out(options=["-p", str(parallelism)])
        assert not {"Ongoing"} & set(states(job.medium, left).values())
        job.assert_exactly_once()
        job.assert_nothing_is_open()
        job.feed(100)
        left += leave_open(job, parallelism)
    job.run_until_all_is_out(options=["-p", "2"])
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T12_a_job_with_more_subtasks_than_partitions_leaves_nothing_open_at_fewer(job: CountingJob) -> None:
    job.feed(400)
    job.run_until_all_is_out(options=["-p", "3"])
    job.feed(400)
    five = job.start(options=["-p", "5", *NO_CHECKPOINT], fail_point=NONE_COMPLETES)
    five.wait_until(lambda: len(job.bench.open_transactions(job.name)) >= 3, "transactions of five subtasks")
    left = job.bench.open_transactions(job.name)
    kill_all(five)
    job.run_until_all_is_out(options=["-p", "3"])
    job.run_until_all_is_out(options=["-p", "1"])
    assert set(states(job.medium, left).values()) <= ABORTED
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- nothing to write ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T13_quiet_checkpoints_fail_nothing_and_open_no_new_ids(job: CountingJob) -> None:
    """Without any input, then with input for one subtask alone, and a crash in between."""
    options = ["-p", "3", "--checkpoint-interval", "50ms"]
    started = job.start(options=options)
    wait_for_checkpoints(job, started, 10)
    job.feed(100, partitions=[1])
    job.wait_for_all(started)
    wait_for_checkpoints(job, started, 10)
    ids = [id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")]
    wait_for_checkpoints(job, started, 10)
    assert [id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")] == ids
    assert job.bench.view(job.name).attempt == 1, started.said
    kill_all(started)
    started = job.start(options=options)
    wait_for_checkpoints(job, started, 10)
    job.feed(100, partitions=[1])
    job.wait_for_all(started)
    kill_all(started)
    job.run_until_all_is_out(options=options)
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- another prefix ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T32_under_another_prefix_what_is_named_is_committed_and_what_is_left_under_both_is_aborted(
    bench: Bench, job: CountingJob
) -> None:
    old, new = bench.medium.name("old"), bench.medium.name("new")
    job.feed(400)
    started = job.start("--prefix", old, fail_point="commit:before@worker-0=stop,commit:before@worker-1=stop")
    wait_until_stopped(started, 2)
    kill_all(started)
    named = job.pending()
    assert {id.split(":")[0] for id in named} == {old}
    assert "Ongoing" in states(job.medium, named).values()
    job.feed(400)
    left = leave_open(job, 2, "--prefix", new)
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    left += leave_open(job, 2, "--prefix", old)
    job.feed(400)
    job.run_until_all_is_out("--prefix", new)
    assert set(states(job.medium, left).values()) <= ABORTED
    assert bench.open_transactions(old) == bench.open_transactions(new) == []
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T32_from_a_savepoint_under_another_prefix_what_is_left_under_the_old_one_is_aborted(
    bench: Bench, job: CountingJob, tmp_path: Path
) -> None:
    """What came after the savepoint was never committed: it is made again, once."""
    old, new = bench.medium.name("old"), bench.medium.name("new")
    place = str(tmp_path / "savepoint")
    started = job.start("--prefix", old, options=NO_CHECKPOINT)
    job.feed(400)
    started.wait_until(lambda: bench.open_transactions(old) != [], "records in transactions")
    saved = bench.command("savepoint", job.name, place)
    assert saved.returncode == 0, saved.stderr
    job.feed(400)
    started.wait_until(lambda: len({id.split(":")[4] for id in bench.open_transactions(old)}) == 2, "open transactions")
    left = bench.open_transactions(old)
    kill_all(started)
    job.run_until_all_is_out("--prefix", new, options=["--from-savepoint", place])
    assert set(states(job.medium, left).values()) <= ABORTED
    assert bench.open_transactions(old) == bench.open_transactions(new) == []
    job.assert_exactly_once()
    job.assert_nothing_is_open()
