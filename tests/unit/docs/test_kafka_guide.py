"""The guide to Kafka and the page on guarantees name what there is: every argument with its default, every field of a
record, and the messages with which a job stops."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.docs import markdown
from tidegate.checkpoint.loss import lost_transaction
from tidegate.checkpoint.protocol import Committable
from tidegate.errors import ErrorKind
from tidegate.kafka import KafkaRecord, KafkaSink, KafkaSource

DOCS = Path(__file__).parents[3] / "docs"
SOURCE = DOCS.parent / "src" / "tidegate"
GUIDE = (DOCS / "kafka.md").read_text(encoding="utf-8")
GUARANTEES = (DOCS / "guarantees.md").read_text(encoding="utf-8")


def arguments(section: str) -> dict[str, str]:
    return {row[0]: row[1] for row in markdown.rows(markdown.section(GUIDE, section), "argument")}


def written(default: object) -> str:
    """A default as the guide writes it. That of None, which stands for something else, is told in words."""
    match default:
        case () | {}:
            return "nothing"
        case float():
            return f"{default:g} s"
    return str(default)


@pytest.mark.parametrize(("section", "of"), [("The source", KafkaSource), ("The sink", KafkaSink)])
def test_the_guide_has_every_argument_with_its_default(section: str, of: Callable[..., object]) -> None:
    listed, parameters = arguments(section), inspect.signature(of).parameters
    assert list(listed) == list(parameters)
    told = {name: one.default for name, one in parameters.items() if one.default not in (None, inspect.Parameter.empty)}
    assert {name: listed[name] for name in told} == {name: written(default) for name, default in told.items()}


def test_the_guide_has_every_field_of_a_record() -> None:
    rows = markdown.rows(GUIDE, "field of `KafkaRecord") + markdown.rows(GUIDE, "field of `KafkaRecord`")
    named = [name.strip("` ") for row in rows for name in row[0].split(",")]
    assert named == list(KafkaRecord.__struct_fields__)


def texts(source: str) -> list[str]:
    """The strings of a module, with '…' for what is put into them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def test_the_table_of_messages_has_messages_that_there_are() -> None:
    said = [text for path in sorted(SOURCE.rglob("*.py")) for text in texts(path.read_text(encoding="utf-8"))]
    kinds = (ErrorKind.LOST, ErrorKind.UNKNOWN_OUTCOME)
    said += [lost_transaction(kind, Committable("id"), "why").message for kind in kinds]
    cells = [row[0] for row in markdown.rows(GUARANTEES, "it says")]
    assert len(cells) > 5
    unknown = [cell for cell in cells if not any(re.match(pattern_of(cell), text) for text in said)]
    assert unknown == []


def pattern_of(cell: str) -> str:
    return re.escape(cell).replace("…", ".+")


def test_a_message_that_nobody_says_is_noticed() -> None:
    said = texts('raise LostDataError(f"{partition} ends at offset {end}, " f"and reading had reached {offset}: why")')
    assert re.match(pattern_of("… ends at offset …, and reading had reached …"), said[0])
    assert not re.match(pattern_of("… ends at offset …, and reading got to …"), said[0])
