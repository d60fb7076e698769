"""The JobManager dies, or all do, in the middle of writing a savepoint and of beginning from one: nothing is lost,
doubled or left over, and what was begun from is begun from again."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.exactly_once import Answer
from tests.integration.running import KILLED, Bench, Started
from tests.integration.streams import Stream
from tidegate.savepoints.format import SavepointReader
from tidegate.storage.local import LocalStorage

STREAM = Stream(pause=0.0005)
MANY = 2000
"""Users, so that state is in files."""
EXPORT = ("savepoint-export:before", "savepoint-export:after")
COVERED = frozenset((*EXPORT, "savepoint-import:before", "savepoint-import:after"))


def is_whole(path: Path) -> bool:
    return SavepointReader(LocalStorage(path)).verify() == []


def ran_until_a_checkpoint(bench: Bench, fail_point: str = "") -> Started:
    started = STREAM.start(bench, fail_point)
    started.wait_until(lambda: bench.view().newest is not None, "its first checkpoint")
    return started


def stopped_with(bench: Bench, path: Path) -> Answer:
    """In the middle of the stream."""
    answer = STREAM.fill(bench, MANY)
    started = ran_until_a_checkpoint(bench)
    done = bench.command("stop", bench.job, "--savepoint", str(path))
    assert (done.returncode, done.stdout.strip()) == (0, str(path)), done.stderr
    assert started.wait() == 0
    STREAM.assert_is_in_the_middle(bench)
    return answer


@pytest.mark.parametrize("place", EXPORT)
def test_C11_a_job_that_dies_while_it_writes_a_savepoint_goes_on_and_writes_the_next(
    bench: Bench, tmp_path: Path, place: str
) -> None:
    answer = STREAM.fill(bench, MANY)
    started = ran_until_a_checkpoint(bench, f"{place}@jobmanager")
    lost = bench.command("savepoint", bench.job, str(tmp_path / "lost"))
    assert lost.returncode != 0
    assert started.wait() == KILLED
    assert not (tmp_path / "lost").exists() or (place.endswith("after") and is_whole(tmp_path / "lost"))
    again = STREAM.start(bench)
    again.wait_until(lambda: bench.view().attempt == 2, "its second attempt")
    written = bench.command("savepoint", bench.job, str(tmp_path / "written"))
    assert written.returncode == 0, written.stderr
    assert is_whole(tmp_path / "written")
    STREAM.finish(bench, again)
    bench.assert_right(answer)


@pytest.mark.parametrize(
    ("place", "claim", "victim"),
    [
        ("savepoint-import:before", ("--claim",), "jobmanager"),
        ("savepoint-import:after", (), "everything"),
        pytest.param("savepoint-import:after", ("--claim",), "jobmanager", marks=pytest.mark.slow),
        pytest.param("savepoint-import:before", (), "everything", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_dies_while_it_begins_from_a_savepoint_begins_from_it_again(
    bench: Bench, tmp_path: Path, place: str, claim: tuple[str, ...], victim: str
) -> None:
    path = tmp_path / "savepoint"
    answer = stopped_with(bench, path)
    before = bench.view().attempt
    stream = Stream(STREAM.pause, ("--from-savepoint", str(path), *claim))
    action = "" if victim == "jobmanager" else "=stop"
    started = stream.start(bench, f"{place}@jobmanager{action}")
    started.wait_for_fail_point()
    if victim == "everything":
        started.wait_until_stopped()
        started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED
    assert is_whole(path)
    stream.finish(bench, stream.start(bench))
    bench.assert_right(answer)
    assert bench.view().attempt == before + 2
    assert (path / "savepoint.json").exists() is not bool(claim)


def test_a_job_goes_on_elsewhere_from_a_savepoint_that_was_moved(bench: Bench, tmp_path: Path) -> None:
    answer = stopped_with(bench, tmp_path / "savepoint")
    shutil.move(tmp_path / "savepoint", tmp_path / "moved")
    shutil.rmtree(bench.checkpoints)
    stream = Stream(STREAM.pause, ("--from-savepoint", str(tmp_path / "moved"), "-p", "3"))
    stream.finish(bench, stream.start(bench))
    bench.assert_right(answer)
    assert bench.view().attempt == 1


def test_a_drained_job_goes_on_from_its_log(bench: Bench) -> None:
    answer = STREAM.fill(bench, MANY)
    started = ran_until_a_checkpoint(bench)
    done = bench.command("stop", bench.job, "--drain")
    assert done.returncode == 0, done.stderr
    assert started.wait() == 0
    STREAM.assert_is_in_the_middle(bench)
    STREAM.finish(bench, STREAM.start(bench))
    bench.assert_right(answer)
