"""Savepoints beside checkpoints: what they make visible, and to whom their files belong (C11, C15)."""

import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs import wait_until
from tests.integration.retaining import USERS, Totals, kept
from tests.integration.running import KILLED, Bench
from tests.integration.stepping import BACKENDS
from tests.integration.streams import Stream
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.format import SavepointReader
from tidegate.storage.local import LocalStorage

STREAM = Stream(pause=0.0005)
MANY = 2000
"""Users, so that state is in files."""
QUICK = ["fs", pytest.param("rocksdb", marks=pytest.mark.slow)]

# ---- what becomes visible ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_C11_a_death_right_after_a_savepoint_goes_back_to_nothing_before_it(bench: Bench, tmp_path: Path) -> None:
    answer = STREAM.fill(bench, MANY)
    started = STREAM.start(bench)
    started.wait_until(lambda: bench.view().newest is not None, "a checkpoint")
    done = bench.command("savepoint", bench.job, str(tmp_path / "savepoint"))
    assert done.returncode == 0, done.stderr
    started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED
    manifest = SavepointReader(LocalStorage(tmp_path / "savepoint")).manifest()
    newest = bench.view().newest
    assert newest is not None
    assert newest.checkpoint >= manifest.checkpoint, "the savepoint is not in the chain from which the job goes on"
    assert [one for record in manifest.operators for one in record.pending] == []
    STREAM.finish(bench, STREAM.start(bench))
    bench.assert_right(answer)


@pytest.mark.slow
def test_C11_a_stop_whose_commits_do_not_come_is_not_answered_and_the_next_start_commits_them(
    bench: Bench, tmp_path: Path
) -> None:
    answer, path = STREAM.fill(bench, MANY), tmp_path / "savepoint"
    # The only checkpoint is the one to stop with; a sink stands before its commit.
    stream = Stream(STREAM.pause, ("--checkpoint-interval", "2m"))
    started = stream.start(bench, "commit:before@worker-0=stop")
    started.wait_until(lambda: "running, attempt 1" in started.said, "the attempt")
    with ThreadPoolExecutor(1) as side:
        asked = side.submit(bench.command, "stop", bench.job, "--savepoint", str(path))
        started.wait_for_fail_point()
        started.wait_until_stopped()
        wait_until(lambda: bench.view().newest is not None, "the checkpoint to stop with")
        STREAM.assert_is_in_the_middle(bench)
        assert not asked.done()
        assert not (path / "savepoint.json").exists()
        named = bench.pending() & set(bench.open_transactions())
        assert named != set(), "nothing was left to be committed"
        started.send_to_all(signal.SIGKILL)
        stopped: subprocess.CompletedProcess[str] = asked.result()
    assert stopped.returncode != 0
    assert not (path / "savepoint.json").exists()
    STREAM.finish(bench, STREAM.start(bench))
    bench.assert_right(answer)
    assert bench.view().attempt == 2


# ---- whose files they are ------------------------------------------------------------------------------------------


def exported(job: Totals, path: Path) -> LocalStorage:
    """The newest checkpoint of a job that has stopped, as `tidegate stop --savepoint` writes it."""
    storage = LocalStorage(path)
    newest = job.newest
    assert newest is not None
    export_savepoint(newest, job.store, storage, path.parent / "scratch")
    return storage


def other_job(job: Totals, folder: Path, retained: int = 1) -> Totals:
    """With its own copy of the log and no checkpoint."""
    made = Totals(folder, job.backend, retained)
    shutil.rmtree(made.log)
    shutil.copytree(job.log, made.log)
    made.fed, made.count = list(job.fed), job.count
    return made


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_C15_what_one_job_prunes_no_other_that_began_from_the_same_savepoint_misses(
    tmp_path: Path, backend: str
) -> None:
    first = Totals(tmp_path / "first", backend, retained=1)
    for _ in range(2):
        first.feed(USERS)
        first.run_totals(2, 3)
    storage = exported(first, tmp_path / "savepoint")
    jobs = [other_job(first, tmp_path / name) for name in ("second", "third", "claiming")]
    begin: dict[str, Any] = {"from_savepoint": str(tmp_path / "savepoint")}
    # The first two run and prune all that they began with; so does the job that wrote it.
    for job, parallelism in ((jobs[0], 3), (first, 1)):
        job.feed(USERS)
        job.run_totals(parallelism, 5, **({} if job is first else begin))
        job.assert_right()
        assert len(kept(job.store)) == 1
        assert SavepointReader(storage).verify() == []
    for job in jobs[1:]:
        job.feed(50)
        job.run_totals(2, 2, **begin, claim_savepoint=job is jobs[2])
        job.assert_right()
        assert (tmp_path / "savepoint" / "savepoint.json").exists() is (job is jobs[1])
    for job in (first, *jobs):
        job.feed(10)
        job.run_totals(2)
        job.assert_right()


@pytest.mark.parametrize("backend", QUICK)
def test_C15_a_job_that_began_from_a_savepoint_names_no_file_of_it_and_none_of_the_job_that_wrote_it(
    tmp_path: Path, backend: str
) -> None:
    first = Totals(tmp_path / "first", backend)
    first.feed(USERS)
    first.run_totals(2, 3)
    exported(first, tmp_path / "savepoint")
    second = other_job(first, tmp_path / "second")
    second.feed(USERS)
    second.run_totals(2, 2, from_savepoint=str(tmp_path / "savepoint"))
    shutil.rmtree(tmp_path / "savepoint")
    shutil.rmtree(first.folder)
    second.feed(50)
    second.run_totals(3)
    second.assert_right()
