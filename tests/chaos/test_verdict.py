"""What is judged beside the records: each check passes what is right and fails what it is there for."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import verdict
from tests.chaos.checker import Violation
from tests.chaos.disk import LimitedDisk
from tests.chaos.schedule import plan_of, start_draw
from tests.chaos.supervisor import Scene, Start, Supervisor
from tests.chaos.timeline import Agenda, Timeline
from tests.chaos.verdict import Progress, check_files, check_processes, check_transactions
from tests.integration.exactly_once import answer_of
from tests.integration.mediums import LogMedium
from tests.integration.running import Bench, Started, orders

PLAN = plan_of(1, 1, ())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    return Scene(tmp_path, LimitedDisk(tmp_path / "disk"), sockets, "job", "in", "out", "exactly-once")


@pytest.fixture
def start_of(tmp_path: Path) -> Iterator[Callable[[str], Start]]:
    """Makes a start whose process runs the Python that it is given."""
    processes = []

    def make(program: str) -> Start:
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        processes.append(process)
        said = tmp_path / "said"
        said.write_text("what it said last\n")
        mark = tmp_path / "mark"
        return Start(1, Started(process, said, mark), start_draw(PLAN, 1), mark, has_point=False)

    yield make
    for process in processes:
        process.kill()
        process.wait()


# ---- exit codes ------------------------------------------------------------------------------------------------------


def ended(scene: Scene, start: Start, **what_was_done: bool) -> None:
    """The supervisor looks at `start` after its end."""
    for name, value in what_was_done.items():
        setattr(start, name, value)
    start.started.process.wait()
    supervisor = Supervisor(scene, PLAN, Timeline(scene.folder / "timeline"), Agenda())
    supervisor.is_finishing = True
    supervisor.starts.append(start)
    supervisor.tick()


KILL = "import os; os.kill(os.getpid(), 9)"
EXPLAINED = [
    ("raise SystemExit(0)", "was_asked"),
    ("raise SystemExit(130)", "was_asked"),
    (KILL, "was_killed"),
    ("raise SystemExit(4)", "was_rivalled"),
]


@pytest.mark.parametrize(("program", "what"), EXPLAINED)
def test_an_end_that_was_brought_about_is_right(
    scene: Scene, start_of: Callable[[str], Start], program: str, what: str
) -> None:
    ended(scene, start_of(program), **{what: True})


@pytest.mark.parametrize(("program", "what"), EXPLAINED)
def test_the_same_end_by_itself_is_a_violation(
    scene: Scene, start_of: Callable[[str], Start], program: str, what: str
) -> None:
    others = {name: True for _, name in EXPLAINED if name != what}
    with pytest.raises(Violation, match="which nothing explains"):
        ended(scene, start_of(program), **others)


@pytest.mark.parametrize("code", [1, 2, 3])
def test_nothing_explains_a_failure(scene: Scene, start_of: Callable[[str], Start], code: int) -> None:
    with pytest.raises(Violation, match=f"ended with {code}, .*\n.*what it said last"):
        ended(scene, start_of(f"raise SystemExit({code})"), was_asked=True, was_killed=True, was_rivalled=True)


# ---- what is left ----------------------------------------------------------------------------------------------------


def test_a_process_that_lives_is_left_over(scene: Scene, start_of: Callable[[str], Start]) -> None:
    start = start_of("import time; time.sleep(60)")
    with pytest.raises(Violation, match=f"processes \\[{start.pid}\\]"):
        check_processes(scene, [start])
    start.started.process.kill()
    start.started.process.wait()
    check_processes(scene, [start])


def test_a_folder_of_sockets_is_left_over(scene: Scene) -> None:
    check_processes(scene, [])
    (scene.sockets / "tidegate-run-1").mkdir()
    with pytest.raises(Violation, match="tidegate-run-1"):
        check_processes(scene, [])


class Listed:
    """Transactions in states, as a cluster lists them."""

    def __init__(self, **by_state: str) -> None:
        self._by_state = by_state

    def transactions(self, prefix: str, *states: str) -> list[str]:
        return [id for state, id in self._by_state.items() if state in states and id.startswith(prefix)]


def test_an_open_transaction_of_the_job_is_left_over(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "MARKERS_PATIENCE", 0.0)
    check_transactions(scene, Listed(Ongoing="other:1", CompleteCommit="job:1"))
    with pytest.raises(Violation, match=r"ongoing .*job:1"):
        check_transactions(scene, Listed(Ongoing="job:1"))
    with pytest.raises(Violation, match=r"not completed .*job:1"):
        check_transactions(scene, Listed(PrepareCommit="job:1"))


@pytest.fixture
def finished(tmp_path: Path) -> Iterator[Scene]:
    """After a job with state in files, on the embedded log."""
    disk = LimitedDisk(tmp_path / "disk")
    bench = Bench(disk.path, LogMedium(tmp_path / "log"))
    try:
        found = orders(0, 6000, 3000)
        bench.append(found)
        started = bench.start("--bounded")
        assert started.wait() == 0, started.said
        bench.assert_right(answer_of(found))
        yield Scene(tmp_path, disk, tmp_path / "sockets", bench.job, "in", "out", "exactly-once")
    finally:
        bench.clear()


def test_wrong_files_and_a_log_that_went_back_are_found(finished: Scene) -> None:
    check_files(finished)
    files = [path for path in finished.checkpoints.rglob("*") if path.is_file() and "shared" in path.parts]
    stray = files[0].with_name("99-stray")
    stray.write_bytes(b"x")
    with pytest.raises(Violation, match="99-stray"):
        check_files(finished)
    stray.unlink()
    files[0].unlink()
    with pytest.raises(Violation, match=f"missing: .*{files[0].name}"):
        check_files(finished)
    progress = Progress(finished)
    progress.look()
    assert (progress.attempts, progress.checkpoints > 0) == (1, True)
    for path in sorted((finished.checkpoints / finished.job / "log").iterdir())[2:]:
        path.unlink()
    with pytest.raises(Violation, match="went back from attempt 1, position"):
        progress.look()
