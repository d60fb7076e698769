"""The right to commit is made from a proof, and an operator's word for one is given at the command line alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from tidegate.checkpoint.protocol import (
    CheckpointCompleted,
    CommitPermit,
    Committable,
    CompletedInLog,
    OperatorDecision,
    PendingTransaction,
)
from tidegate.ids import Attempt, CheckpointId

SOURCES = Path(__file__).parents[3] / "src" / "tidegate"
MAY_DECIDE = {"checkpoint/protocol.py", "cli/transactions.py"}
FIRST = PendingTransaction(CheckpointId(1), Committable("t"))


@pytest.mark.parametrize("proof", [CheckpointCompleted, CompletedInLog])
def test_a_completed_checkpoint_covers_what_was_prepared_up_to_its_barrier(proof: Any) -> None:
    permit = CommitPermit(proof(Attempt(1), CheckpointId(1)))
    assert permit.covers(FIRST)
    assert not permit.covers(PendingTransaction(CheckpointId(2), Committable("t")))


def test_an_operators_decision_covers_nothing_that_waits_for_a_checkpoint() -> None:
    assert not CommitPermit(OperatorDecision("I know better")).covers(FIRST)


@pytest.mark.parametrize("proof", [CheckpointId(1), "trust me", None])
def test_anything_else_is_no_proof(proof: Any) -> None:
    with pytest.raises(TypeError, match="needs the proof"):
        CommitPermit(proof)


def who_decides(files: dict[str, str]) -> set[str]:
    return {name for name, text in files.items() if re.search(r"\bOperatorDecision\b", text)}


def test_nobody_but_the_command_line_makes_an_operators_decision() -> None:
    files = {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py")}
    assert who_decides(files) == MAY_DECIDE


def test_an_engine_that_decided_for_itself_would_be_found() -> None:
    assert who_decides({"runtime/sink_driver.py": "permit = CommitPermit(p.OperatorDecision('why not'))"}) != set()
