"""Which partitions a job reads: splits that are found, assigned and handed back while processes die, topics that are
read no more, topics with nothing in them, offsets of groups (S01, S06, S09, S14, S20)."""

import random

import pytest

from tests.integration.running import Bench, Started
from tests.kafka.brokers import Broker
from tests.kafka.faults.jobs import CountingJob, interrupt, kill_all
from tidegate.checkpoint.log import Completed, Entry
from tidegate.ids import OperatorName

LOOKING = ["--discovery", "0.1"]


def splits_by_checkpoint(bench: Bench, job: CountingJob) -> list[list[str]]:
    """The ids of all splits in each completed checkpoint that is still there, oldest first, as they are listed."""
    bodies = [entry.body for entry in bench.view(job.name).entries if isinstance(entry, Entry)]
    records = [body.manifest.operator(OperatorName("orders")) for body in bodies if isinstance(body, Completed)]
    return [[split.id for split in record.splits] for record in records if record is not None]


def add_partitions(job: CountingJob, count: int) -> None:
    """With records in them before anybody has looked."""
    before = len(job.fed)
    job.medium.add_partitions(job.input, before + count)
    job.fed += [[] for _ in range(count)]
    job.feed(20 * count, partitions=range(before, before + count))


def kill_one(job: CountingJob, started: Started, draw: random.Random) -> Started:
    """Of the JobManager and its workers; the start that goes on afterwards."""
    victim = draw.choice(sorted(started.living()))
    started.kill(victim)
    if victim != started.pid:
        return started
    started.wait()
    return job.start(*LOOKING, options=["--restart", "fixed-delay:100:20ms"])


def wait_for_splits(job: CountingJob, started: Started, count: int) -> None:
    started.wait_until(lambda: len(job.positions()) >= count, f"a checkpoint with {count} splits")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(2))
def test_S20_no_split_is_lost_or_doubled_when_processes_die_while_it_is_found_and_assigned(
    bench: Bench, job: CountingJob, seed: int
) -> None:
    """Partitions come one after another, and with each somebody dies, a moment before or after it is found."""
    draw = random.Random(seed)
    options = ["--restart", "fixed-delay:100:20ms", "--set", "checkpoints.retained=500"]
    started = job.start(*LOOKING, options=options)
    job.feed(40)
    for _ in range(7):
        started.wait_until(lambda: job.newest is not None, "a checkpoint")
        before = len(job.fed)
        add_partitions(job, draw.randrange(1, 3))
        if draw.random() < 0.5:
            wait_for_splits(job, started, before + 1)
        started = kill_one(job, started, draw)
        job.feed(40)
    job.wait_for_all(started)
    wait_for_splits(job, started, len(job.fed))
    interrupt(started)
    known: set[str] = set()
    for splits in splits_by_checkpoint(bench, job):
        assert len(set(splits)) == len(splits), f"one is there twice: {splits}"
        assert known <= set(splits), f"lost: {known - set(splits)}"
        known = set(splits)
    assert known == {f"{job.input}/{partition}" for partition in range(len(job.fed))}
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_S06_from_latest_a_partition_that_comes_later_is_read_from_its_first_record(job: CountingJob) -> None:
    """Also when the job was away while it came."""
    words = ["--from", "latest", *LOOKING]
    job.feed(40)
    passed_over = [len(numbers) for numbers in job.fed]
    started = job.start(*words)
    started.wait_until(lambda: job.newest is not None, "a checkpoint")
    add_partitions(job, 1)
    started.wait_until(lambda: job.count() >= 20, "what was written before the partition was found")
    kill_all(started)
    add_partitions(job, 1)
    job.feed(40)
    started = job.start(*words)
    started.wait_until(lambda: job.count() >= 80, "the rest")
    interrupt(started)
    job.fed = [numbers[first:] for numbers, first in zip(job.fed, [*passed_over, 0, 0], strict=True)]
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_S09_a_topic_that_a_checkpoint_has_and_the_program_reads_no_more_stops_the_job(job: CountingJob) -> None:
    kept, left = job.input, job.medium.name("left")
    job.medium.create_topic(left, 4)
    job.feed(40)
    job.input = f"{kept},{left}"
    job.run_until_all_is_out()
    positions = job.positions()
    job.input = kept
    job.feed(40)
    for _ in range(2):
        refused = job.run()
        assert refused.process.returncode == 2, refused.said
        assert f"positions in topic {left}, which is not among the source's" in refused.said
        assert "--fresh" in refused.said
        assert "Traceback" not in refused.said
    assert job.positions() == positions
    job.input = f"{kept},{left}"
    job.run_until_all_is_out()
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_S14_a_bounded_job_with_nothing_to_read_ends_and_says_so_again(kafka: Broker, job: CountingJob) -> None:
    """Three partitions are empty, and all of the fourth is deleted."""
    job.feed(10, partitions=[2])
    kafka.delete_records(job.input, 2, 10)
    for said in ("done · in 0", "finished"):
        ended = job.run("--bounded")
        assert ended.process.returncode == 0, ended.said
        assert said in ended.said
    assert job.output() == {}
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_S01_offsets_that_somebody_sets_for_the_group_between_a_crash_and_the_next_start_change_nothing(
    kafka: Broker, job: CountingJob
) -> None:
    job.feed(400)
    started = job.start()
    job.wait_for_all(started)
    started.wait_until(lambda: sum(kafka.group_offsets(job.name, job.input).values()) == 400, "offsets of the group")
    kill_all(started)
    kafka.set_group_offsets(job.name, job.input, {0: 0, 1: 37, 2: 100})
    job.feed(400)
    job.run_until_all_is_out()
    job.assert_exactly_once()
    job.assert_nothing_is_open()
