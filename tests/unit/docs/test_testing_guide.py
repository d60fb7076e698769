"""The tests in the guide to testing run as they stand there and pass; no call, marker or fixture is left out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate_pytest
from tests.unit.docs import markdown, readme
from tidegate import testing
from tidegate.testing import CollectSink, JobHarness, OperatorHarness

GUIDE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")


def run_tests(document: str, folder: Path) -> str:
    """The last line of what pytest says."""
    for name, text in readme.files(document).items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidegate_pytest", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip().rpartition("\n")[2]


def test_every_test_of_the_guide_passes(tmp_path: Path) -> None:
    count = len(re.findall(r"^def test_", GUIDE, re.MULTILINE))
    assert count == len(set(re.findall(r"^def (test_\w+)", GUIDE, re.MULTILINE))) > 8
    assert run_tests(GUIDE, tmp_path).startswith(f"{count} passed")


def test_a_test_of_the_guide_that_says_something_wrong_fails(tmp_path: Path) -> None:
    assert GUIDE.count('["ann 5", "ann 12"]') > 2
    blocks = GUIDE[: GUIDE.index("## A job in a harness")]
    wrong = blocks.replace('harness.committed() == ["ann 5", "ann 12"]', 'harness.committed() == ["ann 5", "ann 7"]')
    assert run_tests(wrong, tmp_path).startswith("1 failed")


def test_the_command_is_one_that_runs_a_test_of_the_guide() -> None:
    (command,) = readme.commands(GUIDE)
    assert command[:3] == ["python", "-m", "pytest"]
    assert command[3] in readme.files(GUIDE)


@pytest.mark.parametrize("harness", [JobHarness, OperatorHarness])
def test_every_call_of_a_harness_is_in_the_guide(harness: type) -> None:
    calls = [name for name, member in vars(harness).items() if callable(member) and not name.startswith("_")]
    told = " ".join(markdown.code(GUIDE))
    assert len(calls) > 10
    assert [name for name in calls if not re.search(rf"\b{name}\b", told)] == [
        name for name in calls if name == "close"
    ]


def test_every_public_name_and_every_fixture_is_in_the_guide() -> None:
    fixtures = [name for name in vars(tidegate_pytest) if name.endswith("_harness")]
    assert len(fixtures) == 2
    names = [name for name in (*testing.__all__, *fixtures) if name not in GUIDE]
    # What `sink` gives is described by its properties.
    assert names == ["Collected"]
    assert CollectSink.__name__ in GUIDE
