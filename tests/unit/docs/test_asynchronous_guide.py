"""The programs of the guide to asynchronous calls run as they stand there and print what stands there; no argument is
left out."""

import inspect
from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.docs import markdown, readme

GUIDE = (Path(__file__).parents[3] / "docs" / "asynchronous.md").read_text(encoding="utf-8")
PARTS = {"prices.py": GUIDE.partition("## ")[0], "cities.py": markdown.section(GUIDE, "Tables outside")}


@pytest.mark.parametrize("name", PARTS)
def test_a_program_runs_and_prints_what_follows_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, command, printed = markdown.blocks(PARTS[name])
    assert program.text.startswith(f"# {name}\n")
    (tmp_path / name).write_text(program.text, encoding="utf-8")
    (said,) = (readme.run(text, tmp_path) for text in readme.commands(f"```sh\n{command.text}```\n"))
    assert said == printed.text


def test_every_argument_and_every_class_is_named() -> None:
    usual = {"self", "function", "name", "parallelism", "type", "threads"}
    explained = {row[0] for row in markdown.rows(GUIDE, "argument")}
    assert {*inspect.signature(tg.Stream.async_map).parameters} - usual == explained
    assert [name for name in ("AsyncFunction", "Retries", "LookupCache") if f"`tg.{name}" not in GUIDE] == []
