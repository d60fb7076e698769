"""The programs of the guide to joins run as they stand there and print what stands there; nothing is left out."""

import inspect
from pathlib import Path

import pytest

from tests.unit.docs import markdown, readme
from tidegate.api.joins import KeyedJoins

GUIDE = (Path(__file__).parents[3] / "docs" / "joins.md").read_text(encoding="utf-8")
JOINS = ["temporal_join", "interval_join", "window_join"]


@pytest.mark.parametrize("section", ["Temporal join", "Interval join", "Window join"])
def test_the_program_of_a_join_runs_and_prints_what_follows_it(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, command, printed = markdown.blocks(markdown.section(GUIDE, section))
    (tmp_path / program.text.partition("\n")[0].removeprefix("# ")).write_text(program.text, encoding="utf-8")
    (said,) = (readme.run(text, tmp_path) for text in readme.commands(f"```sh\n{command.text}```\n"))
    assert said == printed.text


def test_every_join_and_every_argument_of_one_is_in_the_guide() -> None:
    assert [name for name in vars(KeyedJoins) if name.endswith("_join")] == JOINS
    assert [row[0] for row in markdown.rows(GUIDE, "join")[: len(JOINS)]] == JOINS
    arguments = {name for join in JOINS for name in inspect.signature(getattr(KeyedJoins, join)).parameters}
    everywhere = {"self", "versions", "right", "assigner", "parallelism"}
    assert sorted(name for name in arguments - everywhere if f"`{name}" not in GUIDE and f"{name}=" not in GUIDE) == []
