"""What the guide to state says runs as it stands there, prints what stands there, and names what there is."""

import inspect
from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.docs import markdown, readme
from tidegate.operators.timers import TimerService
from tidegate.state import handles, operator_handles
from tidegate.state.descriptors import StateDescriptor

GUIDE = (Path(__file__).parents[3] / "docs" / "state.md").read_text(encoding="utf-8")
SECTIONS = ["State by key", "Timers", "Two streams", "Broadcast state", "State without keys"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_program_of_the_guide_runs_and_prints_what_follows_it(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    printed, ran = "", 0
    for block in markdown.blocks(GUIDE.partition("\n## ")[0] + markdown.section(GUIDE, section)):
        if block.language == "python":
            (tmp_path / block.text.partition("\n")[0].removeprefix("# ")).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = [readme.run(command, tmp_path) for command in readme.commands(f"```sh\n{block.text}```\n")][-1]
            ran += 1
        else:
            assert (block.language, printed) == ("text", block.text)
    assert ran >= 2


def test_every_kind_of_state_is_in_the_first_table_and_every_method_in_the_second() -> None:
    kinds = {
        name for name in tg.__all__ if inspect.isclass(kind := getattr(tg, name)) and issubclass(kind, StateDescriptor)
    }
    listed = {row[0] for row in markdown.rows(GUIDE, "declared as")}
    assert listed == kinds | {"a timer"}
    methods = {
        "ValueState": handles.ValueHandle,
        "ListState`, `OperatorListState": operator_handles.OperatorListHandle,
        "MapState`, `BroadcastState": handles.MapHandle,
        "ReducingState`, `AggregatingState": handles.ReducingHandle,
    }
    for row in markdown.rows(GUIDE, "state"):
        for name, method in vars(methods[row[0]]).items():
            if inspect.isfunction(method) and not name.startswith("_") and name not in ("fill", "freeze"):
                assert f"{name}(" in row[1] + row[2], name


def test_the_functions_for_two_streams_and_the_methods_of_timers_are_named_as_they_are() -> None:
    assert {row[2] for row in markdown.rows(GUIDE, "what is connected")} == {
        name for name in tg.__all__ if name.endswith(("CoProcessFunction", "BroadcastProcessFunction"))
    }
    timers = markdown.section(GUIDE, "Timers")
    public = [name for name in vars(TimerService) if not name.startswith("_")]
    assert [name for name in public if f".{name}(" not in timers and f"`{name}`" not in timers] == []


def test_every_argument_of_a_time_to_live_is_listed_with_its_default() -> None:
    listed = {row[0]: row[1] for row in markdown.rows(GUIDE, "argument of `tg.Ttl")}
    parameters = inspect.signature(tg.Ttl).parameters
    assert listed == {
        name: "" if parameter.default is parameter.empty else parameter.default
        for name, parameter in parameters.items()
    }
