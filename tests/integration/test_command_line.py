"""What the command line shows: of itself, of the configuration, of checkpoints of real jobs, and of a job that runs."""

import json
import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE
from tests.integration.user_programs import UNBOUNDED, Project, assert_refused
from tidegate.cli.version import describe_version

FAST = ["--checkpoint-interval", "50ms"]
PLAIN_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S.*")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.write()
    made.feed(300)
    return made


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A job that has finished, with two workers."""
    root = tmp_path_factory.mktemp("stored")
    made = Project(root / "project", {"XDG_STATE_HOME": str(root / "state")})
    made.write()
    made.feed(300)
    done = made.run("run", "app.py", "-p", "2")
    assert done.returncode == 0, done.stderr
    return made


# ---- what it says of itself ----------------------------------------------------------------------------------------


def test_the_version_is_one_line(project: Project) -> None:
    done = project.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{describe_version()}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], ["run", "checkpoints", "transactions", "demo"]),
        (
            ["run", "--help"],
            [
                "--parallelism",
                "--checkpoint-interval",
                "--fresh",
                "--from-checkpoint",
                "--in-process",
                "--profile",
                "--set",
            ],
        ),
        (["checkpoints", "--help"], ["list", "show", "verify"]),
        (["checkpoints", "show", "--help"], ["JOB|DIR", "--lag", "--json"]),
        (["transactions", "--help"], ["list", "describe", "commit", "abort"]),
        (["status", "--help"], ["JOB|DIR", "--json"]),
        (["savepoint", "--help"], ["JOB|DIR", "[PATH]"]),
        (["stop", "--help"], ["JOB|DIR", "--savepoint", "--drain"]),
        (["state", "read", "--help"], ["--operator", "--state", "--key", "--format"]),
        (["transactions", "commit", "--help"], ["ID", "JOB|DIR", "--force"]),
        ([], ["Usage: tidegate"]),
    ],
)
def test_help_names_what_there_is(project: Project, words: list[str], said: list[str]) -> None:
    done = project.run(*words)
    shown = done.stdout + done.stderr
    assert done.returncode == (0 if words else 2)
    assert [part for part in said if part not in shown] == []


def test_show_config_says_where_each_value_came_from(project: Project) -> None:
    (project.folder / "tidegate.toml").write_text('[checkpoints]\ninterval = "3s"\nretained = 7\n')
    project.write(
        ('tg.Job("totals")', 'tg.Job("totals", config=tg.Config(checkpoint_timeout="30s", max_parallelism=64))')
    )
    done = project.run(
        "run", "app.py", "--show-config", "-p", "3", "--set", "batch.size=99", TIDEGATE_CHECKPOINTS_INTERVAL="2s"
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line}
    assert rows["checkpoints.interval"] == ["2s", "TIDEGATE_CHECKPOINTS_INTERVAL"]
    assert rows["checkpoints.retained"] == ["7", "tidegate.toml, line 3"]
    assert rows["checkpoints.timeout"] == ["30s", "tg.Config(checkpoint_timeout=…)"]
    assert rows["max_parallelism"] == ["64", "tg.Config(max_parallelism=…)"]
    assert rows["parallelism"] == ["3", "--parallelism"]
    assert rows["batch.size"] == ["99", "--set batch.size"]
    assert rows["restart"][1] == "default"
    assert rows["checkpoints.dir"][0] == str(project.checkpoints)
    assert not project.checkpoints.exists()


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def test_checkpoints_list_shows_what_is_stored_of_a_real_job(stored: Project) -> None:
    done = stored.run("checkpoints", "list", "totals")
    assert done.returncode == 0, done.stderr
    head, titles, row = done.stdout.splitlines()
    assert head == f"job totals in {stored.checkpoints}/totals, attempt 1, finished"
    assert titles.split() == ["checkpoint", "attempt", "triggered", "duration", "state", "pending", "status"]
    assert row.split()[:2] == ["1", "1"]
    assert row.endswith("newest")
    assert stored.run("checkpoints", "list", str(stored.checkpoints / "totals")).stdout == done.stdout


def test_checkpoints_list_for_machines_has_the_same(stored: Project) -> None:
    found = json.loads(stored.run("checkpoints", "list", "totals", "--json").stdout)
    assert found["job"] == "totals"
    assert [(row["checkpoint"], row["attempt"], row["status"]) for row in found["checkpoints"]] == [(1, 1, "newest")]
    assert found["checkpoints"][0]["state_bytes"] > 0


def test_checkpoints_show_has_positions_states_and_transactions(stored: Project) -> None:
    done = stored.run("checkpoints", "show", "totals")
    assert done.returncode == 0, done.stderr
    assert re.search(r"totals +total +value +int +msgpack/1", done.stdout)
    positions = [int(found) for found in re.findall(r"^orders +orders/\d +(\d+)", done.stdout, re.MULTILINE)]
    assert sum(positions) == 300
    assert len(positions) == 4
    shown = json.loads(stored.run("checkpoints", "show", "totals", "1", "--json").stdout)
    subtasks = [subtask["snapshot"] for operator in shown["operators"] for subtask in operator["subtasks"]]
    assert sum(split["position"] for snapshot in subtasks for split in snapshot["splits"]) == 300
    assert_refused(stored.run("checkpoints", "show", "totals", "9"), 2, "has no completed checkpoint 9", "stored: 1")


def test_checkpoints_verify_says_that_nothing_is_damaged(stored: Project) -> None:
    done = stored.run("checkpoints", "verify", "totals")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{stored.checkpoints}/totals: 1 checkpoint checked, nothing is damaged\n"
    found = json.loads(stored.run("checkpoints", "verify", "totals", "--json").stdout)
    assert (found["checked"], found["damage"]) == ([1], [])


# ---- a running job -------------------------------------------------------------------------------------------------


def test_plain_lines_begin_with_the_time_and_end_with_what_was_done(project: Project) -> None:
    done = project.run("run", "app.py", "-p", "2")
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line for line in lines if PLAIN_LINE.fullmatch(line) is None] == []
    assert "checkpoint 1 completed in" in done.stderr
    assert "totals done" in lines[-1]
    assert "in 300" in lines[-1]
    assert "out 300" in lines[-1]
    assert "attempt 0" not in done.stderr


def test_a_job_that_failed_is_not_called_done(project: Project) -> None:
    project.write(("value.amount)", "value.price)"))
    done = project.run("run", "app.py", "--restart", "none")
    assert done.returncode == 1
    assert "totals failed, attempt 1" in done.stderr
    assert "totals done" not in done.stderr


@pytest.mark.parametrize("fails", [False, True], ids=["finished", "failed"])
def test_json_is_json_on_every_line_and_a_status_has_all_its_fields(project: Project, fails: bool) -> None:
    if fails:
        project.write(("value.amount)", "value.price)"))
    done = project.run("run", "app.py", "--log-format", "json", "--restart", "fixed-delay:1:10ms", *FAST)
    assert done.returncode == fails
    assert done.stdout == ""
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert [record for record in records if not {"time", "level", "event"} <= record.keys()] == []
    last = [record for record in records if record["event"] == "status"][-1]
    if fails:
        assert last["state"] == "failed"
        assert last["restarts"] == 1
        error = records[-1]
        assert (error["level"], error["kind"], error["exit_code"]) == ("error", "user code", 1)
        assert "AttributeError" in error["traceback"]
    else:
        assert (last["state"], last["records_in"], last["records_out"]) == ("done", 300, 300)
        assert last["checkpoint"]["id"] == 1


class Terminal:
    """A command on a pseudo-terminal; what it wrote there is in `shown`, escape sequences left out."""

    def __init__(self, command: list[str], project: Project) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | project.environment | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        self.process = subprocess.Popen(
            command,
            cwd=project.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self._raw = ""

    @property
    def shown(self) -> str:
        with suppress(OSError):
            while data := os.read(self._ours, 65536):
                self._raw += data.decode()
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._raw)

    def left_on_screen(self) -> list[str]:
        """The lines that are there in the end: of what was written over each other, the last."""
        lines = [[part for part in line.split("\r") if part] for line in self.shown.split("\n")]
        return [parts[-1] for parts in lines if parts]

    def wait_for(self, pattern: str) -> "re.Match[str]":
        deadline = time.monotonic() + 30
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, f"{pattern} was not shown:\n{self.shown}"
            time.sleep(0.05)
        return found

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            _ = self.shown
            time.sleep(0.05)
        self.process.kill()
        return self.process.wait()


@pytest.mark.parametrize("words", [["-p", "2"], ["--in-process"]], ids=" ".join)
def test_a_terminal_shows_one_live_line_with_rates_and_the_newest_checkpoint(
    project: Project, words: list[str]
) -> None:
    project.write(UNBOUNDED)
    terminal = Terminal([*TIDEGATE, "run", "app.py", "--checkpoint-interval", "300ms", *words], project)
    try:
        line = r"totals running · in 300 \(\S+/s\) · out 300 \(\S+/s\) · checkpoint (\d+) (\d+s) ago in \S+, \S+ B"
        first = terminal.wait_for(line)
        project.feed(200)
        later = terminal.wait_for(line.replace("300", "500"))
        assert int(later[1]) >= int(first[1]) >= 1
    finally:
        code = terminal.end()
    assert code == 0
    assert "Traceback" not in terminal.shown
    assert "totals running" not in "".join(terminal.left_on_screen())
    assert [line for line in terminal.left_on_screen() if "totals done" in line] == terminal.left_on_screen()[-1:]


@pytest.mark.slow
def test_the_live_line_shows_restarts(project: Project) -> None:
    project.write(UNBOUNDED, ("value.amount)", "value.price)"))
    terminal = Terminal([*TIDEGATE, "run", "app.py", "--restart", "fixed-delay:9:2s"], project)
    try:
        terminal.wait_for(r"totals waiting to restart · .* · 1 restart")
        terminal.wait_for(r"attempt 2 · 1 restart")
    finally:
        assert terminal.end() == 0
