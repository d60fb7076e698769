"""A whole job whose checkpoints are on S3: killed with everything it has, started again, looked at from outside."""

import os
import signal
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import pytest

from tests.integration.jobs import JOB, CountingJob
from tests.integration.programs import TIDEGATE, run
from tests.unit.storage.s3.server import BUCKET, CREDENTIALS, SLOW_DOWN, Asked, Cut, Fault, S3Server
from tidegate.checkpoint.log import Created, Entry, LogView, view_log
from tidegate.checkpoint.store import CheckpointStore
from tidegate.cli.stored import find_store
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, JobName, LogInstance, LogPosition
from tidegate.storage.resolve import open_storage

FOLDER = f"s3://{BUCKET}/some/flows"


class JobOnS3(CountingJob):
    """The counting job with enough keys that its state is in files and not in the manifests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, count=6000, keys=1500)

    def command(self, options: Sequence[str], program: Sequence[str]) -> list[str]:
        return super().command(["--checkpoint-dir", FOLDER, *options], program)

    @cached_property
    def store(self) -> CheckpointStore:
        return CheckpointStore(open_storage(FOLDER), JobName(JOB))

    @property
    def view(self) -> LogView:
        return view_log(self.store.read_log())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    made = S3Server()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def every_seventh_fails(server: S3Server) -> None:
    """Of the requests that may fail and be tried again: a refusal, then a lost answer, and so on."""

    def judge(asked: Asked) -> Fault:
        faults: dict[int, Fault] = {3: SLOW_DOWN, 6: Cut.AFTER_SUCCESS}
        return faults.get(len(server.asked) % 7)

    server.judge = judge


def tidegate(folder: Path, *words: str) -> str:
    done = run([*TIDEGATE, *words], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_job_on_s3_survives_the_death_of_all_its_processes_and_can_be_looked_at(
    server: S3Server, tmp_path: Path
) -> None:
    every_seventh_fails(server)
    job = JobOnS3(tmp_path)
    with job.start("-p", "2", program=["--pause", "0.001"]) as running:
        running.wait_for_checkpoint(2)
        for pid in (running.process.pid, *running.workers):
            os.kill(pid, signal.SIGKILL)
        running.wait()
    assert len(job.output) < len(job.records), "it was not in the middle of its work"
    done = job.run("-p", "2")
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
    assert job.store.state_files(), "the state was small enough for the manifests"
    newest = job.view.newest
    assert newest is not None

    assert f"\n{newest.checkpoint} " in tidegate(tmp_path, "checkpoints", "list", JOB, "--checkpoint-dir", FOLDER)
    assert f"checkpoint {newest.checkpoint} of job {JOB}" in tidegate(
        tmp_path, "checkpoints", "show", f"{FOLDER}/{JOB}/"
    )
    tidegate(tmp_path, "checkpoints", "verify", FOLDER)
    tidegate(tmp_path, "transactions", "list", JOB, "--checkpoint-dir", f"{FOLDER}/")
    assert not (tmp_path / "s3:").exists()

    other = CheckpointStore(open_storage(FOLDER), JobName("other"))
    other.append(Entry(LogPosition(0), "nonce", LogInstance("other"), Attempt(0), 0.0, Created()))
    for url, jobs in ((FOLDER, 2), (f"{FOLDER}/none", 0)):
        with pytest.raises(InvalidError, match=f"^{url} holds {jobs} jobs"):
            find_store(url, tmp_path, FOLDER)
    assert find_store("other", tmp_path, FOLDER).location == f"{FOLDER}/other"

    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    said = done.stdout + done.stderr + (tmp_path / "stderr.txt").read_text()
    assert secret not in said
    storage = open_storage(FOLDER)
    assert not [path for path in storage.list("") if secret.encode() in storage.read(path)]
