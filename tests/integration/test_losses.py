"""Results of a completed checkpoint that are lost outside: the job stops, says everything that is known, and goes on
only when it is told to."""

import os
import signal
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.integration.user_programs import TRACEBACK, Project
from tidegate.local import LocalLog

SHORT = ("partitions=2)", "partitions=2, timeout=1.5)")
"""Transactions that time out while a test waits."""
RUN = ["app.py", "--checkpoint-interval", "100ms", "--checkpoint-timeout", "1s"]
TIGHT = ["--set", "checkpoints.tolerable_failures=0", "--set", "transactions.restart_allowance=0s"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.write(SHORT)
    made.feed(400)
    made.environment["TIDEGATE_FAIL_POINT_MARK"] = str(tmp_path / "mark")
    return made


def pending(project: Project) -> list[str]:
    newest = project.view().newest
    assert newest is not None
    return [pending.committable.id for record in newest.operators for pending in record.pending]


def wait_until_expired(project: Project, ids: list[str]) -> None:
    def all_aborted() -> bool:
        with LocalLog(project.folder / "log", create=False) as log:
            found = [log.describe(id) for id in ids]
        return all(one is not None and one.state.value == "CompleteAbort" for one in found)

    wait_until(all_aborted, "the end of the timeout", 20)


def assert_tells_the_loss(said: str, ids: list[str]) -> None:
    assert any(f"transaction {id} of a completed checkpoint is lost" in said for id in ids), said
    for part in ("it was open for longer than its timeout", "It belongs to checkpoint", "source orders, split orders/"):
        assert part in said
    assert said.count("It belongs to checkpoint") == 1
    assert "--accept-lost-transactions" in said
    assert TRACEBACK not in said


def test_a_loss_that_a_start_finds_stops_it_until_it_is_accepted(project: Project) -> None:
    project.environment["TIDEGATE_FAIL_POINT"] = "log-append:after@jobmanager"
    killed = project.run("run", *RUN, *TIGHT)
    assert killed.returncode == -signal.SIGKILL
    ids = pending(project)
    assert ids != []
    wait_until_expired(project, ids)
    for _ in range(2):
        stopped = project.run("run", *RUN, *TIGHT)
        assert stopped.returncode == 3
        assert_tells_the_loss(stopped.stderr, ids)
    listed = project.run("transactions", "list", "totals")
    assert [id for id in ids if f"{id}  CompleteAbort" not in listed.stdout] == []
    accepted = project.run("run", *RUN, *TIGHT, "--accept-lost-transactions")
    assert accepted.returncode == 0
    for id in ids:
        assert f"given up by --accept-lost-transactions: transaction {id}" in accepted.stderr
    assert accepted.stderr.count("source orders, split orders/") >= len(ids)
    assert project.open_transactions() == []
    there = {(user, total) for user, totals in project.output().items() for total in totals}
    assert there < {(user, total) for user, totals in project.expected().items() for total in totals}


def test_a_loss_that_a_running_job_finds_stops_it_with_the_same_words(project: Project) -> None:
    project.environment["TIDEGATE_FAIL_POINT"] = "commit:before@worker-0=stop"
    with project.start(*RUN, *TIGHT) as running:
        running.wait_for(lambda: project.read_up_to() > 0 and pending(project) != [], "a completed checkpoint")
        ids = pending(project)
        wait_until_expired(project, ids)
        for pid in running.workers():
            os.kill(pid, signal.SIGCONT)
        assert running.ends() == 3, running.said
        assert_tells_the_loss(running.said, ids)
        assert "operator out, subtask 0" in running.said
    accepted = project.run("run", *RUN, *TIGHT, "--accept-lost-transactions")
    assert accepted.returncode == 0
    assert "given up by --accept-lost-transactions" in accepted.stderr


def test_a_timeout_that_is_too_short_is_refused_before_anything_runs(project: Project) -> None:
    refused = project.run("run", *RUN)
    assert refused.returncode == 2
    assert "sink out" in refused.stderr
    assert "time out after 1.5 s" in refused.stderr
