"""The pytest plugin brings its fixtures where Tidegate is installed, and costs next to nothing where it is not used."""

import subprocess
import sys
import tomllib
from pathlib import Path

import tidegate_pytest

ROOT = Path(__file__).parents[3]
TEST = """
import tidegate as tg
from tidegate.testing import CollectSink, ScriptedSource

closed = []


class Closing(tg.ProcessFunction):
    def process_element(self, value, ctx):
        yield value * 2

    def close(self):
        closed.append("closed")


def test_both_make_harnesses(job_harness, operator_harness):
    job = tg.Job("doubles")
    job.source(ScriptedSource(), name="in").process(Closing(), name="it").sink(CollectSink(), name="out")
    one, other = job_harness(job, parallelism=2), job_harness(job, sources={"in": [5]})
    one.send("in", 1)
    other.finish()
    assert (one.output(), other.committed()) == ([2], [10])
    single = operator_harness(Closing())
    single.process_element(4)
    assert single.output() == [8]
    closed.clear()


def test_what_they_made_was_closed_behind_the_test():
    assert closed == ["closed"] * 3
"""


def test_its_fixtures_make_harnesses_and_close_them(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidegate_pytest", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_is_told_of_it_and_it_is_part_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"tidegate_pytest": tidegate_pytest.__name__}
    found = project["tool"]["setuptools"]["packages"]["find"]
    assert [(ROOT / where / "tidegate_pytest" / "__init__.py").exists() for where in found["where"]] == [True]


def test_loading_it_imports_nothing_of_tidegate() -> None:
    program = (
        "import sys, tidegate_pytest; print([name for name in sys.modules if name.partition('.')[0] == 'tidegate'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
