"""Checkpoints that cannot be read, finite input, another folder: what is visible already decides what may go on (C10,
C12)."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.running import KILLED, Bench
from tests.kafka.faults.jobs import ABORTED, CountingJob, interrupt, kill_all, states, wait_until_stopped
from tidegate.checkpoint.log import Completed, Entry
from tidegate.checkpoint.manifest import Manifest, files_of

NONE_DUE = ("--checkpoint-interval", "2m")


# ---- unreadable ----------------------------------------------------------------------------------------------------


def manifests(bench: Bench, job: CountingJob) -> list[Manifest]:
    bodies = [entry.body for entry in bench.view(job.name).entries if isinstance(entry, Entry)]
    return [body.manifest for body in bodies if isinstance(body, Completed)]


def damage(bench: Bench, job: CountingJob, what: str, earlier: int) -> Path:
    """Make the newest completed checkpoint unreadable, and not the earlier one."""
    folder = bench.checkpoints / job.name
    newest = job.newest
    assert newest is not None
    if what == "state":
        kept = files_of([one for one in manifests(bench, job) if one.checkpoint == earlier])
        path = folder / next(name for name in sorted(files_of([newest]) - set(kept)))
        path.unlink()
        return path
    name = f'"checkpoint":{newest.checkpoint}'
    entries = [path for path in sorted((folder / "log").iterdir()) if name in path.read_text().replace(" ", "")]
    path = next(path for path in reversed(entries) if "completed" in path.read_text())
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    return path


def two_checkpoints(job: CountingJob, count: int) -> int:
    """The output of a first part belongs to an earlier one, that of a second to the newest; the earlier one's id."""
    many = ["--set", "checkpoints.retained=50"]
    job.feed(count)
    started = job.start(options=many)
    job.wait_for_all(started)
    started.wait_until(lambda: sum(job.positions().values()) == count, "a checkpoint of the first part")
    newest = job.newest
    assert newest is not None
    job.feed(count)
    job.wait_for_all(started)
    kill_all(started)
    return newest.checkpoint


@pytest.mark.parametrize("what", ["entry", pytest.param("state", marks=pytest.mark.slow)])
def test_C10_an_unreadable_newest_checkpoint_stops_the_job_and_no_older_one_is_taken_by_itself(
    bench: Bench, job: CountingJob, what: str
) -> None:
    if what == "state":
        # Too much to be inlined into the entry.
        job.keys = 10_000
    count = 3000 if what == "state" else 400
    earlier = two_checkpoints(job, count)
    path = damage(bench, job, what, earlier)
    output = job.output()
    for _ in range(2):
        stopped = job.run()
        assert stopped.process.returncode == 3, stopped.said
        assert path.name in stopped.said or path.stem.lstrip("0") in stopped.said
        assert "--from-checkpoint" in stopped.said
        assert "Traceback" not in stopped.said
        assert job.output() == output
    back = job.start(options=["--from-checkpoint", str(earlier)])
    job.feed(100)
    back.wait_until(lambda: job.count() >= 3 * count + 100, "the second part again and a third")
    interrupt(back)
    assert re.search(r"again|second time|twice", back.said), back.said
    wanted = Counter(one for records in job.expected().values() for one in records)
    found = Counter(one for records in job.output().values() for one in records)
    assert not wanted - found
    # What came after the earlier checkpoint is there twice, and nothing else.
    assert {number for _, number in found - wanted} == set(range(count, 2 * count))


# ---- finite input --------------------------------------------------------------------------------------------------


def test_C12_all_of_a_finite_input_is_out_when_the_job_ends_though_no_checkpoint_was_due(job: CountingJob) -> None:
    job.feed(400)
    ended = job.run("--bounded", options=NONE_DUE)
    assert ended.process.returncode == 0, ended.said
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.parametrize("parallelism", ["3", pytest.param("1", marks=pytest.mark.slow)])
def test_C12_a_death_between_the_last_checkpoint_and_its_commit_loses_nothing_at_another_parallelism(
    job: CountingJob, parallelism: str
) -> None:
    job.feed(400)
    # One partition has nothing, another much more: sources end at different moments.
    job.feed(400, partitions=[3])
    died = job.run("--bounded", options=NONE_DUE, fail_point="log-append:after@jobmanager")
    assert died.process.returncode == KILLED, died.said
    named = job.pending()
    assert named != []
    assert job.output() == {}
    ended = job.run("--bounded", options=[*NONE_DUE, "-p", parallelism])
    assert ended.process.returncode == 0, ended.said
    assert set(states(job.medium, named).values()) == {"CompleteCommit"}
    job.assert_exactly_once()
    job.assert_nothing_is_open()
    again = job.run("--bounded", options=NONE_DUE)
    assert again.process.returncode == 0
    assert "finished" in again.said
    job.assert_exactly_once()


# ---- another folder ------------------------------------------------------------------------------------------------


def test_another_folder_of_checkpoints_stops_the_job_before_it_aborts_what_belongs_to_the_first(
    bench: Bench, job: CountingJob, tmp_path: Path
) -> None:
    job.feed(400)
    job.run_until_all_is_out()
    job.feed(400)
    started = job.start(fail_point="commit:before@worker-0=stop,commit:before@worker-1=stop")
    wait_until_stopped(started, 2)
    kill_all(started)
    open_before = bench.open_transactions(job.name)
    assert len(open_before) >= 2
    elsewhere = ["--checkpoint-dir", str(tmp_path / "elsewhere")]
    for _ in range(2):
        stopped = job.run(options=elsewhere)
        assert stopped.process.returncode == 3, stopped.said
        assert any(id in stopped.said for id in open_before), stopped.said
        assert "--checkpoint-dir" in stopped.said
        assert "--fresh" in stopped.said
        assert bench.open_transactions(job.name) == open_before
    fresh = job.start(options=[*elsewhere, "--fresh"])
    # From the start: the first part is there twice, the second once.
    fresh.wait_until(lambda: job.count() >= 400 + 800, "everything anew")
    interrupt(fresh)
    assert set(states(job.medium, open_before).values()) <= ABORTED
    assert job.count() == 1200
    second = {one: list(records) for one, records in job.expected().items()}
    for key, records in job.output().items():
        assert list(records)[-len(second[key]) :] == second[key]
    job.assert_nothing_is_open()
