"""The documents say what is there: every message, setting, command, path and link in them is real, none is left out."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.core import TyperGroup

from tests.unit.docs import markdown
from tidegate.checkpoint import log, protocol
from tidegate.cli.app import app
from tidegate.config import SETTINGS
from tidegate.runtime import control
from tidegate.runtime.frames import FrameKind

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "examples" / "data" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PROTOCOL = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = ["Context", "Decision", "Consequences", "Non-goals"]
MESSAGES = [message.__name__ for message in (*get_args(control.ToWorker), *get_args(control.ToJobManager))]


def differences(names: Iterable[str], document: str, table: str) -> list[str]:
    """Names that the table does not have exactly once, and rows that are no name."""
    listed = [row[0] for row in markdown.rows(document, table)]
    known = list(names)
    wrong = [f"{name} is listed {listed.count(name)} times" for name in known if listed.count(name) != 1]
    return wrong + [f"{name} does not exist" for name in listed if name not in known]


def without_row(document: str, name: str) -> str:
    return re.sub(rf"^\| `{name}` .*\n", "", document, flags=re.MULTILINE)


# ---- the protocol --------------------------------------------------------------------------------------------------


def test_the_table_of_messages_has_every_message_that_crosses_a_control_wire() -> None:
    assert differences(MESSAGES, PROTOCOL, "message") == []


def test_every_tagged_class_of_the_protocol_modules_is_a_message_or_an_outcome() -> None:
    """A new message cannot be forgotten by leaving it out of the unions."""
    outcomes = {outcome.__name__ for outcome in get_args(protocol.Outcome)}
    tagged = {
        name
        for module in (protocol, control)
        for name, thing in vars(module).items()
        if isinstance(thing, type) and getattr(getattr(thing, "__struct_config__", None), "tag", None) is not None
    }
    assert tagged - outcomes == set(MESSAGES)


def test_the_table_of_frames_has_every_kind_of_frame() -> None:
    assert differences([kind.name for kind in FrameKind], PROTOCOL, "frame") == []


def test_the_table_of_log_entries_has_every_body() -> None:
    assert differences([body.__name__ for body in get_args(log.Body)], PROTOCOL, "body") == []


@pytest.mark.parametrize("name", MESSAGES)
def test_the_check_notices_a_message_that_is_left_out(name: str) -> None:
    assert differences(MESSAGES, without_row(PROTOCOL, name), "message") == [f"{name} is listed 0 times"]


def test_the_check_notices_a_message_that_does_not_exist() -> None:
    assert differences(MESSAGES[1:], PROTOCOL, "message") == [f"{MESSAGES[0]} does not exist"]


def test_every_message_says_what_a_lost_a_late_and_a_doubled_one_does() -> None:
    for row in markdown.rows(PROTOCOL, "message") + markdown.rows(PROTOCOL, "frame"):
        assert len(row) == 6, row
        assert all(row), row


# ---- paths and links -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = markdown.links(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_of_the_source_exists(document: Path) -> None:
    found = [word for word in markdown.code(document.read_text(encoding="utf-8")) if "/" in word and "<" not in word]
    paths = [word for word in found if re.fullmatch(r"[a-z_/]+(\.py|/)", word)]
    places = (ROOT / "src" / "tidegate", ROOT / "src", ROOT, ROOT / "docs")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda path: path.stem)
def test_a_decision_record_has_a_number_in_its_title_and_all_sections(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.match(rf"# {record.name[:4]}: \S", text)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


# ---- README --------------------------------------------------------------------------------------------------------


def test_the_table_of_settings_has_every_setting_with_its_default() -> None:
    listed = {row[0]: row[1] for row in markdown.rows(README, "setting")}
    defaults = {name: setting.render(setting.default) for name, setting in SETTINGS.items()}
    defaults["checkpoints.dir"] = "$XDG_STATE_HOME/tidegate"
    defaults["state.local_dir"] = "$XDG_CACHE_HOME/tidegate"
    assert listed == defaults


def command_names(group: TyperGroup, prefix: str = "tidegate") -> set[str]:
    """Every command that help shows, with the words that lead to it."""
    names: set[str] = set()
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            names |= command_names(command, f"{prefix} {name}")
        elif not command.hidden:
            names.add(f"{prefix} {name}")
    return names


def test_the_table_of_commands_has_every_command_and_no_other() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    cells = [row[0] for row in markdown.rows(README, "command")]
    listed = {
        " ".join(re.findall(r"(?<![-A-Z])\b[a-z][a-z-]*\b", cell.partition(" [")[0].partition(" --")[0]))
        for cell in cells
    }
    assert listed - {"tidegate"} == command_names(group)


def options_of(group: TyperGroup) -> set[str]:
    """Of the command, and of every command below it."""
    options = {option for parameter in group.params for option in parameter.opts}
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            options |= options_of(command)
        else:
            options |= {option for parameter in command.params for option in parameter.opts}
    return options


def test_every_option_that_is_named_exists() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    named = {option for word in markdown.code(README) for option in re.findall(r"--[a-z-]+[a-z]", word)}
    assert named - options_of(group) == set()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(markdown.code(README))))
    named |= {
        target
        for block in markdown.blocks(README)
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    }
    assert named >= {"demo", "test"}
    assert named <= targets
