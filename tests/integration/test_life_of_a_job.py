"""A job that is started, stopped and started again: by Ctrl-C as a terminal sends it, or as a supervisor stops it.

Stopped at whatever moment it ends within seconds, shows no traceback, leaves no transaction open that the next start
does not commit, and goes on without loss or double.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.user_programs import PROGRAM, TRACEBACK, UNBOUNDED, Project, Running, assert_refused, changed
from tidegate.checkpoint.log import CleanStop, Entry, Finished
from tidegate.deploy.local import ONE_STOP_SECONDS
from tidegate.local import LocalLog

FAST = ["--checkpoint-interval", "50ms"]
SLOW = ["--checkpoint-interval", "1m"]
AT_ONCE = 10.0
"""Seconds in which a stop must be over, on a machine that does other things too."""
INTERRUPTED = 130


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.write(UNBOUNDED)
    made.feed(500)
    return made


def ctrl_c(running: Running) -> None:
    running.interrupt()


def terminate(running: Running) -> None:
    """As systemd and Kubernetes do it: to the one process that they know."""
    running.process.send_signal(signal.SIGTERM)


def assert_stops(running: Running, code: int = 0) -> None:
    before = time.monotonic()
    assert running.ends(AT_ONCE) == code, running.said
    assert time.monotonic() - before < AT_ONCE
    assert TRACEBACK not in running.said, running.said
    assert "KeyboardInterrupt" not in running.said


def last_of_log(project: Project) -> object:
    entry = project.view().entries[-1]
    return entry.body if isinstance(entry, Entry) else entry


# ---- stopping a job that runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [ctrl_c, pytest.param(terminate, marks=pytest.mark.slow)])
@pytest.mark.parametrize("words", [["-p", "2"], ["--in-process"]], ids=["processes", "one process"])
def test_a_stop_commits_what_is_due_aborts_the_rest_and_the_next_start_goes_on(
    project: Project, stop: Callable[[Running], None], words: list[str]
) -> None:
    with project.start("app.py", *FAST, *words) as running:
        project.wait_until_read(running)
        project.feed(300)
        stop(running)
        assert_stops(running)
    assert project.open_transactions() == []
    assert isinstance(last_of_log(project), CleanStop)
    committed = project.output()
    assert sum(map(len, committed.values())) == project.read_up_to()
    # The first attempt may have read all that there was, which would not show that this one runs.
    project.feed(100)
    with project.start("app.py", *FAST, *words) as running:
        project.wait_until_read(running)
        stop(running)
        assert_stops(running)
    assert project.output() == project.expected()
    assert project.open_transactions() == []


def test_what_no_checkpoint_covers_is_aborted_and_read_again(project: Project) -> None:
    # More than a sink holds back before it writes.
    project.feed(6000)
    with project.start("app.py", *SLOW) as running:
        running.wait_to_say("totals running")
        running.wait_for(lambda: "u6" in written(project), "records in an open transaction")
        running.interrupt()
        assert_stops(running)
    assert project.output() == {}
    assert project.open_transactions() == []
    with project.start("app.py", *FAST) as running:
        project.wait_until_read(running)
        running.interrupt()
        assert_stops(running)
    assert project.output() == project.expected()


def written(project: Project) -> str:
    """What lies in the output topic, committed or not."""
    with LocalLog(project.folder / "log") as log:
        if "totals" not in log.topics():
            return ""
        numbers = range(log.partitions("totals"))
        found = [log.read("totals", number, isolation="read_uncommitted") for number in numbers]
    return " ".join((record.value or b"").decode() for records in found for record in records)


IMPORTING = changed(
    UNBOUNDED,
    ("from pathlib import Path\n", "import time\nfrom pathlib import Path\n"),
    ("job = tg.Job", '(LOG / "imported").touch()\ntime.sleep(2)\njob = tg.Job'),
)


def test_ctrl_c_while_the_program_is_imported_ends_it_before_anything_runs(project: Project) -> None:
    project.write(program=IMPORTING)
    with project.start("app.py", *FAST) as running:
        running.wait_for((project.folder / "log" / "imported").exists, "the import")
        running.interrupt()
        assert_stops(running, INTERRUPTED)
    assert not project.checkpoints.exists()


@pytest.mark.slow
def test_ctrl_c_while_the_workers_start_is_answered_by_the_job_manager_alone(project: Project) -> None:
    with project.start("app.py", *FAST, "-p", "2") as running:
        running.wait_for(lambda: project.checkpoints.exists() and project.view().attempt > 0, "a takeover")
        running.interrupt()
        assert_stops(running)
    project.write(program=IMPORTING)
    with project.start("app.py", *FAST, "-p", "2") as running:
        running.wait_for(lambda: len(running.workers()) == 2, "two workers")
        (project.folder / "log" / "imported").unlink()
        running.wait_for((project.folder / "log" / "imported").exists, "the import in a worker")
        running.interrupt()
        assert_stops(running)
    project.write(UNBOUNDED)
    with project.start("app.py", *FAST) as running:
        project.wait_until_read(running)
        running.interrupt()
        assert_stops(running)
    assert project.output() == project.expected()


def test_a_job_that_waits_to_restart_is_stopped_at_once(project: Project) -> None:
    project.write(UNBOUNDED, ("value.amount)", "value.price)"))
    with project.start("app.py", *FAST, "--restart", "fixed-delay:5:1h") as running:
        running.wait_to_say("restart 1 in 3600.0 s after a failure")
        running.wait_to_say("totals waiting to restart")
        running.interrupt()
        assert running.ends(AT_ONCE) == 0, running.said
    assert running.said.count(TRACEBACK) == 1, running.said
    assert project.open_transactions() == []


SLEEPING = changed(
    UNBOUNDED,
    ("from pathlib import Path\n", "import time\nfrom pathlib import Path\n"),
    (
        "        self.total.update(",
        '        (LOG / "asleep").touch()\n        time.sleep(3600)\n        self.total.update(',
    ),
)


@pytest.mark.parametrize("words", [["-p", "2"], ["--in-process"]], ids=["processes", "one process"])
@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(project: Project, words: list[str]) -> None:
    project.write(program=SLEEPING)
    with project.start("app.py", *FAST, *words) as running:
        running.wait_for((project.folder / "log" / "asleep").exists, "sleep in the user's function")
        running.interrupt()
        # Sooner it would be the first once more.
        time.sleep(ONE_STOP_SECONDS * 1.2)
        running.interrupt()
        assert_stops(running, INTERRUPTED)


@pytest.mark.slow
def test_user_code_that_does_not_return_delays_one_ctrl_c_by_seconds_at_most(project: Project) -> None:
    project.write(program=SLEEPING)
    with project.start("app.py", *FAST, "-p", "2") as running:
        running.wait_for((project.folder / "log" / "asleep").exists, "sleep in the user's function")
        running.interrupt()
        assert_stops(running)
    assert project.output() == {}


# ---- going on ------------------------------------------------------------------------------------------------------


def test_a_finished_job_says_so_and_a_fresh_start_runs_it_again_once(project: Project) -> None:
    project.write()
    assert project.run("run", "app.py").returncode == 0
    assert isinstance(last_of_log(project), Finished)
    for _ in range(2):
        again = project.run("run", "app.py", "-p", "2")
        assert again.returncode == 0
        assert again.stderr.count("job totals is finished: all its input was read") == 1
    assert project.output() == project.expected()
    for label, times in (("one", 2), ("one", 2), ("two", 3)):
        assert project.run("run", "app.py", f"--fresh={label}").returncode == 0
        counts = {user: len(totals) for user, totals in project.output().items()}
        assert counts == {user: len(totals) * times for user, totals in project.expected().items()}


@pytest.mark.slow
def test_an_unbounded_job_goes_on_with_what_came_while_it_was_stopped_at_another_parallelism(project: Project) -> None:
    for parallelism in ("2", "3", "1"):
        with project.start("app.py", *FAST, "-p", parallelism) as running:
            project.wait_until_read(running)
            project.feed(200)
            project.wait_until_read(running)
            running.interrupt()
            assert_stops(running)
        assert project.output() == project.expected()
        project.feed(200)


@pytest.mark.slow
def test_a_topic_that_gets_more_partitions_while_the_job_runs_is_read_in_full(project: Project) -> None:
    project.write((", bounded=True", ", discovery_interval=0.2"))
    with project.start("app.py", *FAST, "-p", "2") as running:
        project.wait_until_read(running)
        with LocalLog(project.folder / "log") as log:
            log.create_topic("orders", 6)
            values = [
                b'{"user": "new-%d", "amount": %d}' % (partition, amount) for partition in (4, 5) for amount in (1, 2)
            ]
            log.append("orders", 4, values[:2])
            log.append("orders", 5, values[2:])
        project.wait_until_read(running, 504)
        running.interrupt()
        assert_stops(running)
    new = {"new-4": [1, 3], "new-5": [1, 3]}
    assert project.output() == project.expected() | new


@pytest.mark.slow
def test_the_memory_preset_survives_a_worker_and_warns_that_it_survives_no_more(project: Project) -> None:
    words = ["app.py", "-p", "2", "--state-backend", "memory", "--restart", "fixed-delay:3:10ms", *FAST]
    with project.start(*words) as running:
        running.wait_to_say("warning: state.backend memory keeps checkpoints in")
        running.wait_for(lambda: project.output() == project.expected(), "all output")
        victim = running.workers()[0]
        os.kill(victim, signal.SIGKILL)
        running.wait_to_say("restart 1 in")
        project.feed(300)
        running.wait_for(lambda: project.output() == project.expected(), "the rest of the output")
        running.interrupt()
        assert_stops(running)
    assert project.output() == project.expected()
    assert not (project.checkpoints / "totals").exists()


# ---- where things are ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_another_folder_the_job_finds_its_log(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | project.environment
    with project.start("app.py", *FAST) as running:
        project.wait_until_read(running)
        running.interrupt()
        assert_stops(running)
    project.feed(100)
    with Running([sys.executable, str(project.folder / "app.py")], elsewhere, environment) as running:
        running.wait_to_say("totals running, attempt 2")
        running.interrupt()
        assert_stops(running)
    # What the second attempt has read would not show that the third one runs.
    project.feed(100)
    with project.start("app.py", *FAST) as running:
        project.wait_until_read(running)
        running.interrupt()
        assert_stops(running)
    assert project.view().attempt == 3
    assert project.output() == project.expected()
    assert [path.name for path in elsewhere.iterdir()] == ["said-0"]


@pytest.mark.parametrize(("before", "after"), [("unbounded", "bounded"), ("bounded", "unbounded")])
def test_a_source_whose_bounds_have_changed_is_refused(project: Project, before: str, after: str) -> None:
    """It would wait for ever at the old ends, or never end."""
    project.write(*([UNBOUNDED] if before == "unbounded" else []))
    words = ["run", "app.py"]
    if before == "bounded":
        assert project.run(*words).returncode == 0
        # What says that it is finished, so that it goes on from its checkpoint.
        max((project.checkpoints / "totals" / "log").iterdir()).unlink()
    else:
        with project.start("app.py", *FAST) as running:
            project.wait_until_read(running)
            running.interrupt()
            assert_stops(running)
    project.write(*([UNBOUNDED] if after == "unbounded" else []))
    assert_refused(project.run(*words), 2, f"source 'orders' was {before} in checkpoint", f"the program has it {after}")


def test_the_program_of_these_tests_is_the_one_that_users_write() -> None:
    assert "if __name__" in PROGRAM
    with pytest.raises(AssertionError, match="nothing to change"):
        changed(("no such text", ""))
