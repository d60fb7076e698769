"""A whole job whose checkpoints are on HDFS: killed with all it has, also together with HDFS, and started again."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hdfs.minicluster import MiniCluster
from tests.integration.jobs import JOB, CountingJob, RunningJob
from tests.integration.programs import TIDEGATE, run
from tidegate.checkpoint.log import Completed, Entry, LogView, view_log
from tidegate.checkpoint.manifest import files_of
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import JobName
from tidegate.storage.resolve import open_storage


class JobOnHdfs(CountingJob):
    """The counting job with enough keys that its state is in files and not in the manifests."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        super().__init__(folder, count=6000, keys=1500)

    def command(self, options: Sequence[str], program: Sequence[str]) -> list[str]:
        return super().command(["-p", "2", "--checkpoint-dir", self.url, *options], program)

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(open_storage(self.url), JobName(JOB))

    @property
    def view(self) -> LogView:
        return view_log(self.store.read_log())

    def assert_nothing_is_left_over(self) -> None:
        bodies = [entry.body for entry in self.view.entries if isinstance(entry, Entry)]
        named = files_of([body.manifest for body in bodies if isinstance(body, Completed)])
        assert named, "the state was small enough for the manifests"
        assert set(self.store.state_files()) == named


def kill_all(running: RunningJob, workers: Sequence[int]) -> None:
    for pid in (running.process.pid, *workers):
        os.kill(pid, signal.SIGKILL)
    running.wait()


def test_a_job_on_hdfs_survives_the_death_of_all_its_processes_and_can_be_looked_at(
    hdfs: MiniCluster, tmp_path: Path
) -> None:
    job = JobOnHdfs(tmp_path, hdfs.url("flows/one"))
    with job.start(program=["--pause", "0.001"]) as running:
        running.wait_for_checkpoint(2)
        kill_all(running, running.workers)
    assert len(job.output) < len(job.records), "it was not in the middle of its work"
    done = job.run()
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
    job.assert_nothing_is_left_over()
    for words in (("list", JOB, "--checkpoint-dir", job.url), ("verify", job.url)):
        looked = run([*TIDEGATE, "checkpoints", *words], tmp_path)
        assert looked.returncode == 0, looked.stderr
    assert not (tmp_path / "webhdfs:").exists()


@pytest.mark.slow
def test_a_job_outlives_the_death_of_hdfs(mortal_hdfs: MiniCluster, tmp_path: Path) -> None:
    job = JobOnHdfs(tmp_path, mortal_hdfs.url("flows/two"))
    with job.start(program=["--pause", "0.005"]) as running:
        running.wait_for_checkpoint(2)
        mortal_hdfs.kill()
        mortal_hdfs.start()
        running.wait_for_checkpoint(2)
        workers = running.workers
        mortal_hdfs.kill()
        kill_all(running, workers)
    mortal_hdfs.start()
    done = job.run()
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
    job.assert_nothing_is_left_over()


def test_a_job_whose_user_may_not_write_is_told_so_at_its_start(hdfs: MiniCluster, tmp_path: Path) -> None:
    job = JobOnHdfs(tmp_path, hdfs.url("flows-of-another"))
    done = job.run(environment={"HADOOP_USER_NAME": "somebody"})
    assert done.returncode == 2
    assert "Permission denied: user=somebody" in done.stderr
    assert "HADOOP_USER_NAME" in done.stderr
