"""Commands on a running job find it, ask what was meant, and say what there is when they do not find it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tidegate.cli import running
from tidegate.deploy.requests import Request, RunningJob, Savepoint, Status, Stop
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, JobName, OperatorName, VertexName
from tidegate.metrics import JobStatus, OperatorStatus, VertexStatus

TOTALS = RunningJob(JobName("totals"), "/flows/totals", "/run/1")
OTHER = RunningJob(JobName("other"), "/flows/other", "/run/2")
ORDERS = OperatorStatus(OperatorName("orders"), 5, 4, 0)
STATUS = JobStatus(
    JobName("totals"),
    Attempt(1),
    "running",
    vertices=(VertexStatus(VertexName("orders"), 2, 700, 250, 50, 900, 100, (ORDERS,)),),
)
SAME_NAME = RunningJob(JobName("totals"), "/elsewhere/totals", "/run/3")


@pytest.fixture
def these_run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(*jobs: RunningJob) -> None:
        monkeypatch.setattr(running, "running_jobs", lambda: list(jobs))

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunningJob, Request, bool]]:
    found: list[tuple[RunningJob, Request, bool]] = []

    def ask(job: RunningJob, request: Request, *, until_end: bool = False) -> str:
        found.append((job, request, until_end))
        if isinstance(request, Status):
            return msgspec.json.encode(STATUS).decode()
        return "/kept" if isinstance(request, Savepoint) or request.savepoint else ""

    monkeypatch.setattr(running, "ask", ask)
    return found


def test_a_job_is_found_by_its_name(these_run: Callable[..., None]) -> None:
    these_run(OTHER, TOTALS)
    assert running.find_running("totals", None) == TOTALS


def test_of_two_jobs_of_one_name_the_folder_says_which(these_run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "totals" / "log").mkdir(parents=True)
    here = RunningJob(JobName("totals"), f"{tmp_path}/totals", "/run/4")
    these_run(TOTALS, SAME_NAME, here)
    with pytest.raises(InvalidError, match="3 jobs totals run here: /flows/totals, /elsewhere/totals"):
        running.find_running("totals", None)
    assert running.find_running(str(tmp_path / "totals"), None) == here


def test_a_job_that_does_not_run_is_told_with_those_that_do(these_run: Callable[..., None], tmp_path: Path) -> None:
    these_run(OTHER)
    with pytest.raises(InvalidError, match="no job totals runs on this machine") as error:
        running.find_running("totals", str(tmp_path))
    assert error.value.failure.remedy == "Running jobs: other (/flows/other)."
    (tmp_path / "totals" / "log").mkdir(parents=True)
    with pytest.raises(InvalidError, match=f"job totals in {tmp_path}/totals does not run on this machine"):
        running.find_running(str(tmp_path / "totals"), None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        ("", None),
        ("/a/b", "/a/b"),
        ("a/b", str(Path.cwd() / "a" / "b")),
        ("~/b", str(Path("~/b").expanduser())),
        ("s3://bucket/a", "s3://bucket/a"),
    ],
)
def test_a_place_means_the_same_to_the_process_of_the_job(given: str | None, meant: str | None) -> None:
    assert running.absolute_place(given) == meant


def test_a_savepoint_is_asked_for_and_its_path_printed_last(
    these_run: Callable[..., None],
    asked: list[tuple[RunningJob, Request, bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    these_run(TOTALS)
    running.savepoint("totals", "/kept")
    assert asked == [(TOTALS, Savepoint("/kept"), False)]
    assert capsys.readouterr().out == "/kept\n"


@pytest.mark.parametrize(
    ("savepoint", "drain", "request_", "printed"),
    [
        (None, False, Stop(), ""),
        (None, True, Stop(drain=True), ""),
        ("", False, Stop(savepoint=True), "/kept\n"),
        ("/kept", True, Stop(savepoint=True, path="/kept", drain=True), "/kept\n"),
    ],
)
def test_stop_asks_and_waits_for_the_end(
    these_run: Callable[..., None],
    asked: list[tuple[RunningJob, Request, bool]],
    capsys: pytest.CaptureFixture[str],
    savepoint: str | None,
    drain: bool,
    request_: Request,
    printed: str,
) -> None:
    these_run(TOTALS)
    running.stop("totals", savepoint, drain)
    assert asked == [(TOTALS, request_, True)]
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["totals", "--savepoint"], ["totals", "--savepoint="]),
        (["totals", "--savepoint", "--drain"], ["totals", "--savepoint=", "--drain"]),
        (["--savepoint", "/a", "totals"], ["--savepoint", "/a", "totals"]),
        (["totals"], ["totals"]),
        ([], []),
    ],
)
def test_the_path_of_a_savepoint_may_be_left_out(words: list[str], meant: list[str]) -> None:
    assert running.with_default_place(words) == meant


def test_the_status_is_a_line_and_a_table_or_all_of_it_for_machines(
    these_run: Callable[..., None],
    asked: list[tuple[RunningJob, Request, bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    these_run(TOTALS)
    running.status("totals")
    assert asked == [(TOTALS, Status(), False)]
    line, _, head, row = capsys.readouterr().out.splitlines()
    assert line.startswith("totals running · in 0")
    assert head.split() == ["task", "subtasks", "in", "out", "busy", "busiest", "idle", "back-pressured"]
    assert row.split()[0] == "orders"
    running.status("totals", as_json=True)
    assert msgspec.json.decode(capsys.readouterr().out, type=JobStatus) == STATUS
