"""State of real jobs is read without running them, written by hand, and begun from."""

import json
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.user_programs import UNBOUNDED, USERS, Project, assert_refused, totals_of, user_of

FAST = ["--checkpoint-interval", "50ms"]
HISTORY = {f"u{number}": 1000 * (number + 1) for number in range(USERS)}


class RunningTotal(tg.KeyedProcessFunction[str, Any, Any]):
    """What the program declares."""

    total = tg.ValueState(int, default=0)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.write()
    made.feed(300)
    return made


def last_totals(project: Project) -> dict[str, int]:
    return {user: totals[-1] for user, totals in project.expected().items()}


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def with_history(amounts: list[int]) -> dict[str, list[int]]:
    """The answer of a job that begins with `HISTORY`."""
    return {user: [HISTORY[user] + total for total in totals] for user, totals in totals_of(amounts).items()}


def history_rows(history: dict[str, int]) -> list[tg.StateRow]:
    return [{"key": user, "state": "total", "value": total} for user, total in history.items()]


@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_the_state_of_a_job_is_read_by_command_and_in_python(project: Project, backend: str) -> None:
    done = project.run("run", "app.py", "-p", "2", "--state-backend", backend, *FAST)
    assert done.returncode == 0, done.stderr
    read = project.run("state", "read", "totals", "--operator", "totals")
    assert read.returncode == 0, read.stderr
    assert {row["key"]: row["value"] for row in rows(read.stdout)} == last_totals(project)
    one = project.run("state", "read", "totals", "--operator", "totals", "--state", "total", "--key", "u3")
    assert rows(one.stdout) == [{"state": "total", "key": "u3", "value": last_totals(project)["u3"]}]
    table = tg.read_state(project.checkpoints / "totals", "totals").arrow()
    assert {row["key"]: row["total"] for row in table.to_pylist()} == last_totals(project)
    verified = project.run("checkpoints", "verify", "totals")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "nothing is damaged" in verified.stdout


def test_two_checkpoints_of_a_running_job_are_compared(project: Project) -> None:
    project.write(UNBOUNDED)
    with project.start("app.py", "--set", "checkpoints.retained=100", *FAST) as running:
        project.wait_until_read(running)
        first = project.view().newest
        project.append([{"user": "u0", "amount": 5}, {"user": "somebody", "amount": 1}])
        running.wait_for(lambda: project.read_up_to() >= 302, "a checkpoint of the new orders")
        last = project.view().newest
        assert first is not None
        assert last is not None
        numbers = (str(first.checkpoint), str(last.checkpoint))
        compared = project.run("checkpoints", "diff", "totals", *numbers, "--json")
        assert compared.returncode == 0, compared.stderr
        difference = json.loads(compared.stdout)
        assert difference["states"] == [
            {"operator": "totals", "state": "total", "added": 1, "removed": 0, "changed": 1}
        ]
        assert sum(split["after"] - split["before"] for split in difference["splits"]) == 2
        running.interrupt()
        assert running.ends() == 0


@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_a_job_begins_with_history_that_was_written_from_rows(project: Project, backend: str) -> None:
    operators = {"totals": tg.OperatorRows(RunningTotal, history_rows(HISTORY), key=str)}
    tg.write_savepoint(project.folder / "history", job="totals", operators=operators)
    done = project.run("run", "app.py", "-p", "2", "--state-backend", backend, "--from-savepoint", "history", *FAST)
    assert done.returncode == 0, done.stderr
    assert project.output() == with_history(project.amounts)
    again = project.run("run", "app.py", "-p", "2", "--state-backend", backend, "--from-savepoint", "history", *FAST)
    assert again.returncode == 0, again.stderr
    assert project.output() == with_history(project.amounts)


def test_a_savepoint_is_changed_by_hand_and_gone_on_from(project: Project, tmp_path: Path) -> None:
    project.write(UNBOUNDED)
    with project.start("app.py", "-p", "2", *FAST) as running:
        project.wait_until_read(running)
        # By its place: jobs of that name may run in other tests on this machine.
        place = ("--checkpoint-dir", str(tmp_path / "state" / "tidegate"))
        taken = project.run("stop", "totals", "--savepoint", str(tmp_path / "taken"), *place)
        assert taken.returncode == 0, taken.stderr
        assert running.ends() == 0
    before = project.output()
    changed: list[tg.StateRow] = [
        {**row, "value": row["value"] + HISTORY[row["key"]]} for row in tg.read_state(tmp_path / "taken", "totals")
    ]
    operators = {"totals": tg.OperatorRows(RunningTotal, changed)}
    tg.write_savepoint(tmp_path / "changed", base=tmp_path / "taken", operators=operators)
    assert project.run("checkpoints", "verify", str(tmp_path / "changed")).returncode == 0
    project.feed(70)
    project.write()
    done = project.run("run", "app.py", "-p", "3", "--from-savepoint", str(tmp_path / "changed"), *FAST)
    assert_refused(done, 2, "source 'orders' was unbounded")
    project.write(UNBOUNDED)
    with project.start("app.py", "-p", "3", "--from-savepoint", str(tmp_path / "changed"), *FAST) as running:
        project.wait_until_read(running)
        running.interrupt()
        assert running.ends() == 0
    expected = project.expected()
    for user, totals in before.items():
        later = expected[user][len(totals) :]
        assert project.output()[user] == [*totals, *(total + HISTORY[user] for total in later)]
    assert set(before) == {user_of(number) for number in range(USERS)}


def test_a_savepoint_with_a_value_of_another_type_is_refused_before_the_first_record(project: Project) -> None:
    states = {"total": tg.ValueState(str)}
    operators = {"totals": tg.OperatorRows(states, [{"key": "u1", "state": "total", "value": "many"}])}
    tg.write_savepoint(project.folder / "wrong", job="totals", operators=operators)
    done = project.run("run", "app.py", "--from-savepoint", "wrong", *FAST)
    assert_refused(done, 2, "state total")
    assert "str" in done.stderr
    assert "totals" not in project.output() or project.output() == {}
