"""One program in every way in which it can be run: each gives the same output, record for record and in order."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE
from tests.integration.user_programs import PROGRAM, Project, assert_refused, changed, user_of
from tidegate.ids import OperatorName

Command = Callable[..., list[str]]
TIDEGATE_RUN: Command = lambda program, *words: [*TIDEGATE, "run", program, *words]  # noqa: E731
PYTHON: Command = lambda program, *words: [sys.executable, program, *words]  # noqa: E731

BUILD = changed(
    ('job = tg.Job("totals")\n', "def build(argv):\n    job = tg.Job(argv[0])\n"),
    ("\norders = ", "\n    orders = "),
    ("\ntotals = ", "\n    totals = "),
    ("\ntotals.sink", "\n    totals.sink"),
    ("\n\nif __name__", "\n    return job\n\n\nif __name__"),
    ("    job.run()", "    tg.main(build)"),
)
NAMED = changed(("job = tg.Job", "revenue = tg.Job"), ("job.source", "revenue.source"), ("job.run()", "revenue.run()"))
OWN_CLASSES = """\
class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Purse:
    coins: int
    size: Size


class RunningTotal"""
WITH_PURSE = """\
        before = self.total.value() or Purse(0, Size.SMALL)
        purse = Purse(before.coins + value.amount, Size.LARGE)
        self.total.update(purse)
        self.pickled.add(purse)
        assert self.pickled.get()[-1] == purse
        yield Total(ctx.key, purse.coins)
"""
BODY = """\
        self.total.update(self.total.value() + value.amount)
        yield Total(ctx.key, self.total.value())
"""
CLASSES = changed(
    ("import msgspec\n", "from dataclasses import dataclass\nfrom enum import Enum\n\nimport msgspec\n"),
    ("class RunningTotal", OWN_CLASSES),
    ("tg.ValueState(int, default=0)", "tg.ValueState(Purse)\n    pickled = tg.ListState(tg.Pickled(Purse))"),
    (BODY, WITH_PURSE),
)


def slowly(*values: object) -> object:
    """A case for the long run: it differs little from another."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.feed(700)
    return made


def assert_runs(project: Project, command: Sequence[str]) -> None:
    done = project.execute(command)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert project.output() == project.expected()
    assert project.open_transactions() == []


@pytest.mark.parametrize(
    "words",
    [["-p", "3"], ["--in-process"], slowly(["-p", "1"]), slowly(["-p", "4"]), slowly(["--in-process", "-p", "3"])],
    ids=" ".join,
)
def test_the_output_is_the_same_in_however_many_processes(project: Project, words: list[str]) -> None:
    project.write()
    assert_runs(project, TIDEGATE_RUN("app.py", *words))


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (PROGRAM, PYTHON("app.py")),
        slowly(PROGRAM, TIDEGATE_RUN("app:job")),
        (PROGRAM, [*TIDEGATE, "run", "app"]),
        (NAMED, TIDEGATE_RUN("app.py:revenue")),
        slowly(NAMED, TIDEGATE_RUN("app:revenue")),
        (NAMED, PYTHON("app.py")),
        (BUILD, PYTHON("app.py", "totals")),
        (BUILD, TIDEGATE_RUN("app.py", "-p", "2", "--", "totals")),
        slowly(BUILD, TIDEGATE_RUN("app:build", "--", "totals")),
        slowly(CLASSES, PYTHON("app.py")),
        (CLASSES, TIDEGATE_RUN("app.py", "-p", "2")),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value[1:]).replace(TIDEGATE[2], "").strip(),
)
def test_however_it_is_started_it_is_the_same_job(project: Project, program: str, command: list[str]) -> None:
    project.write(program=program)
    assert_runs(project, command)


def test_a_program_in_a_package_runs_as_a_module(project: Project) -> None:
    package = project.folder / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    records, rest = PROGRAM.split("class Order", 1)[1].split("class RunningTotal", 1)
    (package / "records.py").write_text(f"import msgspec\n\n\nclass Order{records}")
    head = PROGRAM.split("class Order", 1)[0].replace("parent /", "parents[1] /")
    (package / "totals.py").write_text(f"{head}from .records import Order, Total\n\n\nclass RunningTotal{rest}")
    assert_refused(project.run("run", "shop/totals.py"), 2, "tidegate run PACKAGE.MODULE", tracebacks=1)
    assert_runs(project, TIDEGATE_RUN("shop.totals", "-p", "2"))
    again = project.python("-m", "shop.totals")
    assert again.returncode == 0
    assert "job totals is finished" in again.stderr


@pytest.mark.slow
def test_state_of_the_programs_own_classes_is_restored_at_another_parallelism(project: Project) -> None:
    unbounded = changed((", bounded=True", ""), program=CLASSES)
    project.write(program=unbounded)
    for parallelism in ("2", "3", "1"):
        with project.start("app.py", "-p", parallelism, "--checkpoint-interval", "50ms") as running:
            project.wait_until_read(running)
            running.interrupt()
            assert running.ends() == 0, running.said
        project.feed(50)
    newest = project.view().newest
    assert newest is not None
    record = newest.operator(OperatorName("totals"))
    assert record is not None
    for snapshot in record.snapshots:
        assert {state.name: state.value_type for state in snapshot.states}["pickled"] == "pickled(app.Purse)"
    counted = sum(map(len, project.output().values()))
    assert counted == len(project.amounts) - 50
    expected = project.expected()
    assert all(totals == expected[user][: len(totals)] for user, totals in project.output().items())


def test_a_program_without_the_guard_is_told_to_write_it(project: Project) -> None:
    project.write(('if __name__ == "__main__":\n    job.run()', "job.run()"))
    assert_refused(project.python("app.py"), 2, 'Put the call under `if __name__ == "__main__":`', tracebacks=1)


def test_run_returns_what_the_job_did(project: Project) -> None:
    project.write(
        ("    job.run()", "    done = job.run()\n    print(done.records_in, done.records_out, done.restarts)")
    )
    done = project.python("app.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "700 700 0\n"


def test_what_the_program_prints_stays_on_standard_output(project: Project) -> None:
    project.write(("        yield Total(", '        print("seen")\n        yield Total('))
    done = project.run("run", "app.py", "-p", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("seen") == 700
    assert "seen" not in done.stderr


def test_a_difference_of_the_output_would_be_seen(project: Project) -> None:
    project.write(("+ value.amount", "+ value.amount + (value.amount == 699)"))
    done = project.run("run", "app.py", "--in-process")
    assert done.returncode == 0, done.stderr
    found, expected = project.output(), project.expected()
    assert found != expected
    assert found.pop(user_of(699))[-1] == expected.pop(user_of(699))[-1] + 1
    assert found == expected
