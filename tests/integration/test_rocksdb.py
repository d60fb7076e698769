"""Whole jobs with their state in RocksDB: killed at any moment, with local files that help, are gone, or are wrong."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.running import KILLED, Bench, Started
from tests.integration.streams import Stream

USERS = 400
STREAM = Stream(pause=0.0, count=6000)
SECONDS = 6.0
"""About as long as it takes to read all of it, where something is done in the middle."""


def options(local: Path, *more: str) -> tuple[str, ...]:
    return ("--state-backend", "rocksdb", "--set", f"state.local_dir={local}", *more)


def start(bench: Bench, local: Path, fail_point: str = "") -> Started:
    pause = SECONDS * 2 / STREAM.count
    return bench.start("--bounded", "--pause", str(pause), fail_point=fail_point, options=options(local))


def folders(bench: Bench, local: Path) -> list[str]:
    """Of the attempts that have local files."""
    return sorted(path.name for path in local.glob(f"{bench.job}/*/*"))


@pytest.mark.parametrize(
    "place",
    [
        "upload:before:3@worker-0",
        pytest.param("upload:after:3@worker-1", marks=pytest.mark.slow),
        pytest.param("capture:after:4@worker-0", marks=pytest.mark.slow),
        pytest.param("log-append:after:4@jobmanager", marks=pytest.mark.slow),
    ],
)
def test_B13_a_process_killed_in_a_checkpoint_changes_nothing(bench: Bench, tmp_path: Path, place: str) -> None:
    answer = STREAM.fill(bench, USERS)
    started = start(bench, tmp_path / "local", place)
    started.wait_for_fail_point()
    bench.repeat_until_finished(started, "--bounded", options=options(tmp_path / "local"))
    bench.assert_right(answer)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("nothing", marks=pytest.mark.slow),
        pytest.param("everything", marks=pytest.mark.slow),
        "a byte",
    ],
)
def test_B12_local_files_of_a_killed_job_are_a_cache_that_may_be_gone_or_wrong(
    bench: Bench, tmp_path: Path, loss: str
) -> None:
    answer, local = STREAM.fill(bench, USERS), tmp_path / "local"
    started = start(bench, local, "upload:after:4@worker-0=stop")
    started.wait_for_fail_point()
    STREAM.assert_is_in_the_middle(bench)
    started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED
    tables = sorted(local.rglob("*.sst"))
    assert tables
    for path in tables if loss == "a byte" else ():
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    if loss == "everything":
        shutil.rmtree(local)
    bench.repeat_until_finished(start(bench, local), "--bounded", options=options(local))
    bench.assert_right(answer)


@pytest.mark.slow
def test_B12_files_of_killed_attempts_are_gone_when_a_checkpoint_has_completed(bench: Bench, tmp_path: Path) -> None:
    answer, local = STREAM.fill(bench, USERS), tmp_path / "local"
    started = start(bench, local, "capture:after:4@worker-1")
    started.wait_until(lambda: folders(bench, local) != [], "the first attempt's files")
    first = folders(bench, local)[0]
    started.wait_for_fail_point()
    started.wait_until(
        lambda: folders(bench, local) != [] and first not in folders(bench, local), "the end of the first files"
    )
    bench.repeat_until_finished(started, "--bounded", options=options(local))
    bench.assert_right(answer)


def test_too_little_memory_for_rocksdb_is_refused_before_anything_is_done(bench: Bench, tmp_path: Path) -> None:
    started = bench.start("--bounded", options=options(tmp_path / "local", "--set", "state.rocksdb.memory=1MB"))
    assert started.wait() == 2
    assert "state.rocksdb.memory" in started.said
    assert not bench.checkpoints.exists() or not any(bench.checkpoints.iterdir())
