"""A whole job whose checkpoints are on S3, started again on the machine where its workers were killed: state comes from
this machine, and from S3 where a copy is damaged."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.integration.jobs import JOB, In
from tests.integration.programs import wait_until
from tests.integration.test_s3_jobs import JobOnS3
from tests.unit.storage.s3.server import S3Server
from tidegate.checkpoint.manifest import files_of


class JobWithCopies(JobOnS3):
    """The counting job on S3, with keys so long that what changes from one checkpoint to the next is a file."""

    def feed(self, count: int, keys: int = 23) -> None:
        begin = len(self.records)
        new = [In(f"{number % keys}-".ljust(1000, "k"), number) for number in range(begin, begin + count)]
        self.records += new
        with self._log() as log:
            log.append("in", None, [*map(msgspec.json.encode, new)], [record.key.encode() for record in new])

    def command(self, options: Sequence[str], program: Sequence[str]) -> list[str]:
        return super().command(["-p", "2", *options], program)

    def copies(self) -> list[Path]:
        """Of all attempts, by attempt and subtask."""
        return sorted(path for path in self.local.glob(f"{JOB}/*/copies/*/count.*/*") if path.is_file())

    def attempts(self) -> list[int]:
        """Those that have copies."""
        return sorted(int(path.name) for path in self.local.glob(f"{JOB}/*/copies/*") if path.is_dir())

    def stored(self) -> frozenset[str]:
        """The files of state that the newest completed checkpoint names."""
        newest = self.view.newest
        assert newest is not None
        return files_of([newest])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    made = S3Server()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def read_from(server: S3Server) -> list[str]:
    """The files of state that were asked for, as often as they were."""
    found = [asked.path.partition(f"/{JOB}/")[2] for asked in server.asked if asked.method == "GET"]
    return sorted(path for path in found if path.startswith("shared/"))


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def damage(copies: list[Path]) -> None:
    """One after another in each of three ways."""
    for number, path in enumerate(copies):
        data = path.read_bytes()
        match number % 3:
            case 0:
                path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            case 1:
                path.write_bytes(data[: len(data) // 2])
            case _:
                path.unlink()


def test_workers_killed_on_their_machine_restore_what_is_whole_there_and_the_rest_from_s3(
    server: S3Server, tmp_path: Path
) -> None:
    job = JobWithCopies(tmp_path)
    with job.start(program=["--pause", "0.005"]) as running:
        running.wait_for_checkpoint(2)
        attempt = max(job.attempts())
        kill(*running.workers)
        running.wait_for_checkpoint()
        wait_until(lambda: job.attempts()[0] > attempt, "the end of the first attempt's copies")
        assert read_from(server) == []

        kill(running.process.pid, *running.workers)
        running.wait()
    assert len(job.output) < len(job.records), "it was not in the middle of its work"
    stored = sorted(job.stored())
    assert len(stored) >= 3, "the state was small enough for the manifests"
    damage(job.copies())
    server.behave()
    done = job.run()
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
    assert read_from(server) == stored
