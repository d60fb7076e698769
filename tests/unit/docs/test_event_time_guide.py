"""The program of the guide to event time runs as it stands there and prints what stands there; nothing is left out."""

from pathlib import Path

import pytest

import tidegate as tg
from tests.unit.docs import markdown, readme
from tidegate.operators.timers import TimerService

GUIDE = (Path(__file__).parents[3] / "docs" / "event-time.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", ["Watermarks", "Watermark alignment", "Windows", "Triggers"])
def test_the_program_of_a_section_runs_and_prints_what_follows_it(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, command, printed = markdown.blocks(markdown.section(GUIDE, section))
    (tmp_path / program.text.partition("\n")[0].removeprefix("# ")).write_text(program.text, encoding="utf-8")
    (said,) = (readme.run(text, tmp_path) for text in readme.commands(f"```sh\n{command.text}```\n"))
    assert said == printed.text


def test_every_strategy_every_window_and_every_method_of_event_time_is_named() -> None:
    makers = [name for name in vars(tg.WatermarkStrategy) if name.startswith(("for_", "no_", "with_"))]
    assert len(makers) == 7
    methods = [name for name in vars(TimerService) if "event" in name or "watermark" in name]
    assigners = [name for name in tg.__all__ if name.endswith("Windows")]
    assert len(assigners) == 7
    triggers = [name for name in tg.__all__ if name.endswith("Trigger") and name != "Trigger"]
    assert len(triggers) == 8
    assert [name for name in (*makers, *methods, *assigners, *triggers) if f"`{name}(" not in GUIDE] == []
