"""A job's folder with a log and state as a JobManager leaves them, and the command line run in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.cli.stored_job import StoredJob
from tidegate.cli.main import main


class Ran(NamedTuple):
    exit_code: int
    output: str
    errors: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `tidegate` with the given words, standing in `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def run_words(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return run_words


@pytest.fixture
def stored(tmp_path: Path) -> StoredJob:
    """Checkpoints 1 and 2 of attempt 1, a takeover, checkpoint 3 of attempt 2; checkpoint 4 is not completed."""
    job = StoredJob(tmp_path / "flows", "totals")
    job.begin()
    job.complete(1)
    job.complete(2)
    job.take_over()
    job.complete(3, pending=True)
    job.leave_unfinished(4)
    return job
