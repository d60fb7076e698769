"""The programs of the guide to the ready operators run as they stand there and print what stands there; nothing is left
out."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.docs import markdown, readme
from tidegate.testing import OperatorHarness

GUIDE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", ["Aggregates", "Rolling aggregates", "Deduplication", "Batch functions"])
def test_the_program_of_a_section_runs_and_prints_what_follows_it(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, command, printed, *_ = markdown.blocks(markdown.section(GUIDE, section))
    (tmp_path / program.text.partition("\n")[0].removeprefix("# ")).write_text(program.text, encoding="utf-8")
    (said,) = (readme.run(text, tmp_path) for text in readme.commands(f"```sh\n{command.text}```\n"))
    assert said == printed.text


def test_the_process_function_beside_the_rolling_aggregate_runs_on_the_same_records() -> None:
    program, *_, function = markdown.blocks(markdown.section(GUIDE, "Rolling aggregates"))
    names: dict[str, Any] = {"__name__": "visits"}
    exec(program.text.partition("job = ")[0] + function.text, names)
    with OperatorHarness(names["Longest"](), key=lambda visit: visit.user) as harness:
        for visit in names["VISITS"]:
            harness.process_element(names["Visit"](*visit))
        assert harness.output() == ["ada: 30", "bob: None", "ada: 45", "bob: 10"]


def test_every_aggregate_and_every_argument_of_the_operators_is_named() -> None:
    made = [
        name
        for name, function in vars(tg.aggregates).items()
        if inspect.isfunction(function) and function.__module__ == tg.aggregates.__name__ and not name.startswith("_")
    ]
    assert len(made) == 10
    assert [name for name in made if f"`{name}(" not in GUIDE] == []
    operators: list[Any] = [
        tg.KeyedStream.aggregate,
        tg.KeyedStream.deduplicate,
        tg.KeyedStream.top_n,
        tg.Stream.sample,
        tg.Stream.map_batch,
        tg.Stream.process_batch,
    ]
    arguments = {name for method in operators for name in inspect.signature(method).parameters} - COMMON
    assert [name for name in sorted(arguments) if f"`{name}" not in GUIDE and f"{name}=" not in GUIDE] == []


COMMON = {"self", "name", "parallelism", "aggregate", "function", "ranking_function", "result_function"}
