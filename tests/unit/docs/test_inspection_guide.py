"""What the guides to savepoints and inspection say runs as it stands there, and prints what stands there."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.unit.docs import markdown, readme
from tests.unit.docs.test_documents import command_names, options_of
from tidegate.cli.app import app
from tidegate.savepoints.format import FILE, FORMAT

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "inspection.md").read_text(encoding="utf-8")
SAVEPOINTS = (DOCS / "savepoints.md").read_text(encoding="utf-8")


def test_every_block_of_the_guide_runs_and_prints_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    printed, compared = "", 0
    for block in markdown.blocks(GUIDE):
        if block.language == "python":
            (tmp_path / block.text.partition("\n")[0].removeprefix("# ")).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = [readme.run(command, tmp_path) for command in readme.commands(f"```sh\n{block.text}```\n")][-1]
        else:
            assert (block.language, printed) == ("text", block.text)
            compared += 1
    assert compared == 4


def test_the_guides_name_the_format_and_only_commands_that_there_are() -> None:
    assert f'{{"format": {FORMAT}, ' in SAVEPOINTS
    assert FILE in SAVEPOINTS
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    written = [word for word in markdown.code(SAVEPOINTS + GUIDE) if word.startswith("tidegate ")]
    named = {" ".join(re.findall(r"^tidegate(?: [a-z]+)+", word)) for word in written}
    assert named >= {"tidegate stop", "tidegate state read", "tidegate checkpoints diff"}
    assert named <= command_names(group)
    options = {option for word in markdown.code(SAVEPOINTS + GUIDE) for option in re.findall(r"--[a-z-]+[a-z]", word)}
    assert options <= options_of(group)
