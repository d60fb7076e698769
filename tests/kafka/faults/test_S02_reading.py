"""Input whose end nobody can read, whose beginning is gone, or that came while nobody looked (S02, S05, S10)."""

import pytest

from tests.integration.running import Bench
from tests.kafka.brokers import Broker
from tests.kafka.faults.jobs import CountingJob, differences, interrupt, kill_all, wait_until_stopped


def test_S02_a_bounded_job_ends_though_what_its_topic_ends_with_cannot_be_read(kafka: Broker, job: CountingJob) -> None:
    """Partition 0 ends in an aborted transaction, all of partition 1 is deleted, 2 is empty, 3 ends in a marker."""
    kafka.produce(job.input, ["k0-0 0", "k0-0 1"], partition=0)
    kafka.produce_in_transaction(job.input, ["k0-0 2"], partition=0, commit=False)
    kafka.produce(job.input, ["k1-0 3", "k1-0 4"], partition=1)
    kafka.delete_records(job.input, 1, 2)
    kafka.produce_in_transaction(job.input, ["k3-0 5"], partition=3, commit=True)
    ended = job.run("--bounded")
    assert ended.process.returncode == 0, ended.said
    assert job.output() == {"k0-0": [(1, 0), (2, 1)], "k3-0": [(1, 5)]}
    job.assert_nothing_is_open()


def test_S05_from_latest_what_a_silent_partition_gets_between_a_crash_and_the_next_start_is_read(
    job: CountingJob,
) -> None:
    """Where it begins is a number from the first checkpoint on, also for a partition that has not had a record."""
    job.feed(90, partitions=[0, 1, 2])
    passed_over = [len(numbers) for numbers in job.fed]
    started = job.start("--from", "latest")
    started.wait_until(lambda: job.newest is not None, "a checkpoint")
    job.feed(40, partitions=[0, 1])
    started.wait_until(lambda: job.count() >= 40, "what two partitions got")
    kill_all(started)
    job.feed(60, partitions=[0, 1, 2])
    started = job.start("--from", "latest")
    started.wait_until(lambda: job.count() >= 100, "what all three got")
    interrupt(started)
    fed = [numbers[first:] for numbers, first in zip(job.fed, passed_over, strict=True)]
    assert [len(numbers) for numbers in fed] == [40, 40, 20, 0]
    job.fed = fed
    job.assert_exactly_once()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a worker", "the JobManager"])
def test_S05_from_latest_what_comes_before_the_first_results_are_out_is_read_though_somebody_dies_then(
    job: CountingJob, victim: str
) -> None:
    """Where it begins is in a checkpoint before anything is read; no later start finds another end."""
    options = ["--checkpoint-interval", "5s"]
    job.feed(40)
    passed_over = [len(numbers) for numbers in job.fed]
    started = job.start("--from", "latest", options=options)
    started.wait_until(lambda: job.newest is not None, "the checkpoint that has where it begins")
    assert sum(job.positions().values()) == 40
    job.feed(40)
    started.wait_until(lambda: job.bench.open_transactions(job.name) != [], "records in transactions")
    assert job.output() == {}
    if victim == "a worker":
        started.kill(max(started.living()))
    else:
        kill_all(started)
        started = job.start("--from", "latest", options=options)
    started.wait_until(lambda: "running, attempt 2" in started.said, "the next attempt")
    job.feed(40)
    started.wait_until(lambda: job.count() >= 80, "all that came after the beginning")
    interrupt(started)
    job.fed = [numbers[first:] for numbers, first in zip(job.fed, passed_over, strict=True)]
    job.assert_exactly_once()
    job.assert_nothing_is_open()


def test_S10_what_was_deleted_before_it_was_read_stops_the_job_with_partition_and_range(
    kafka: Broker, job: CountingJob
) -> None:
    job.feed(400)
    job.run_until_all_is_out()
    assert job.positions()[2] == 100
    job.feed(400)
    kafka.delete_records(job.input, 2, 150)
    output = job.output()
    for _ in range(2):
        stopped = job.run()
        assert stopped.process.returncode == 3, stopped.said
        assert f"{job.input}/2" in stopped.said
        assert "100" in stopped.said
        assert "149" in stopped.said or "150" in stopped.said
        assert "on_lost_offsets" in stopped.said
        assert "Traceback" not in stopped.said
    assert differences(output, {key: records[: len(output[key])] for key, records in job.output().items()}) == []
    assert job.positions()[2] == 100


@pytest.mark.slow
def test_S10_what_is_deleted_under_a_job_that_stands_still_stops_it(
    kafka: Broker, bench: Bench, job: CountingJob
) -> None:
    job.feed(400)
    started = job.start(fail_point="commit:after@worker-0=stop,commit:after@worker-1=stop")
    wait_until_stopped(started)
    kill_all(started)
    job.feed(400)
    covered = job.positions()
    kafka.delete_records(job.input, 1, covered[1] + 10)
    stopped = job.run()
    assert stopped.process.returncode == 3, stopped.said
    assert f"{job.input}/1" in stopped.said
    assert str(covered[1]) in stopped.said
    # What the attempt that failed wrote itself stays open until the next start; what it found is settled.
    attempts = {id.split(":")[2] for id in bench.open_transactions(job.name)}
    assert attempts <= {str(bench.view(job.name).attempt)}
