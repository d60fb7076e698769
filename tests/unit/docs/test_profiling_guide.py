"""The guide to profiling runs as it stands there and prints what stands there; its names are those that there are."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.unit.docs import markdown, readme
from tests.unit.docs.test_documents import command_names, options_of
from tidegate.cli.app import app
from tidegate.deploy.profiling import places
from tidegate.metrics import VertexStatus
from tidegate.runtime.busyness import LOOK_EVERY

GUIDE = (Path(__file__).parents[3] / "docs" / "profiling.md").read_text(encoding="utf-8")


def test_the_program_runs_with_a_profile_and_its_slow_function_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in readme.files(GUIDE).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    *_, printed = (readme.run(command, tmp_path) for command in readme.commands(GUIDE))
    (expected,) = (block.text for block in markdown.blocks(GUIDE) if block.language == "text")
    assert printed == expected


def test_the_times_and_the_parts_of_the_engine_are_called_what_they_are_called() -> None:
    times = [row[2] for row in markdown.rows(GUIDE, "a task is")]
    assert len(times) == 3
    assert set(times) <= set(VertexStatus.__struct_fields__)
    named = set(markdown.code(GUIDE)) | {word.removeprefix("engine: ") for word in markdown.code(GUIDE)}
    parts = {*places.OF_TASK.values(), *places.OF_WORKER.values(), places.REST}
    assert parts - named == {"asynchronous calls"}
    assert f"one step of {LOOK_EVERY}" in GUIDE


def test_only_commands_and_options_that_there_are_are_named() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    written = [word for word in markdown.code(GUIDE) if word.startswith("tidegate ")]
    assert {" ".join(re.findall(r"^tidegate(?: [a-z]+)+", word)) for word in written} <= command_names(group)
    assert {option for word in markdown.code(GUIDE) for option in re.findall(r"--[a-z-]+", word)} <= options_of(group)
