"""The guide to changing types says what happens: each of its examples is run, and its message is the real one."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.docs import markdown
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.serializers import Outcome, check_evolution, serializer_for
from tidegate.state.descriptors import ListState, ValueState

GUIDE = (Path(__file__).parents[3] / "docs" / "state-evolution.md").read_text(encoding="utf-8")
BLOCKS = markdown.blocks(GUIDE)
CASES = [
    (block.text, answer.text.strip())
    for block, answer in itertools.pairwise(BLOCKS)
    if block.language == "python" and answer.language == "text"
]


def run(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(source, "guide", "exec"), names)
    return names


def answer_of(source: str) -> str:
    names = run(source)
    before, after = (
        StateInfo("total", "value", serializer_for(names[name]).type_spelling, "msgpack/1")
        for name in ("Before", "After")
    )
    try:
        outcome = check_evolution(before, after).outcome
    except InvalidError as error:
        why = error.failure.message.partition("(msgpack/1): ")[2]
        return f"refused: {why}\n{error.failure.remedy}"
    return {Outcome.SAME: "kept", Outcome.MIGRATE: "rewritten"}[outcome]


@pytest.mark.parametrize(("source", "answer"), CASES, ids=lambda text: text.splitlines()[0])
def test_an_example_gets_the_answer_that_the_guide_gives(source: str, answer: str) -> None:
    assert answer_of(source) == answer


def test_every_block_is_run() -> None:
    assert {block.language for block in BLOCKS} == {"python", "text"}
    assert len(CASES) == sum(block.language == "text" for block in BLOCKS) == 5


def test_a_wrong_answer_is_noticed() -> None:
    source, answer = next(case for case in CASES if "missing.py" in case[0])
    assert answer_of(source.replace("country: str", 'country: str = ""')) != answer


def test_the_serializer_of_the_guide_does_what_it_says() -> None:
    (source,) = (block.text for block in BLOCKS if "MoneySerializer" in block.text)
    names = run(source)
    balance, payments = names["Purse"].balance, names["Purse"].payments
    assert isinstance(balance, ValueState)
    assert isinstance(payments, ListState)
    money = names["Money"](5, "USD")
    assert balance.info.serializer == "money/2"
    assert balance.stored.decode(balance.stored.encode(money)) == money
    assert balance.stored.reader("money/1")(b"5") == names["Money"](5, "EUR")
    assert payments.stored.decode(payments.stored.encode([money])) == [money]


def test_every_change_that_may_be_made_has_its_answer_and_every_refusal_its_reason() -> None:
    allowed = markdown.rows(markdown.section(GUIDE, "What may change"), "change")
    assert {re.split(r"[;,]", answer)[0] for _, answer in allowed} == {"kept", "rewritten", "as there"}
    assert all(len(row) == 2 for row in markdown.rows(markdown.section(GUIDE, "What is refused"), "change"))
