"""The catalogue of faults and the tests agree: every test that it names exists, every test that is named after an entry
is in that entry's row, and a row without a test says why."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.unit.docs import markdown

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
DOCUMENT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
HEADER = ["id", "what goes wrong", "how the design avoids it", "tests"]
FOUND = ["what was wrong", "found by", "mended", "kept as"]
SECTIONS = {
    "Kafka transactions and the two-phase-commit sink": "T",
    "Kafka source": "S",
    "Checkpoints and failover": "C",
    "State": "B",
    "Time": "W",
}
REASONS = ("cannot happen here:", "not there yet:")
_NAMED = re.compile(r"([\w/]+\.py)::([tT]est\w*)")
_ENTRY = re.compile(r"([TSCBW]\d\d)( ★)?")
_TEST = re.compile(r"test_([TSCBW]\d\d)(?=_|$)")

Tests = Mapping[str, Sequence[str]]
"""The names of tests by their file, which is told from the folder of all tests."""


def names_in(source: str) -> list[str]:
    """Those of functions, and of classes, which may inherit theirs."""
    named = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [one.name for one in named if one.name.startswith(("test_", "Test"))]


@cache
def written_tests() -> Tests:
    files = sorted(TESTS.rglob("test_*.py"))
    return {path.relative_to(TESTS).as_posix(): names_in(path.read_text(encoding="utf-8")) for path in files}


def section_rows(document: str, title: str) -> list[list[str]]:
    return markdown.rows(markdown.section(document, title), HEADER[0])


def row_problems(rows: Iterable[Sequence[str]], letter: str) -> list[str]:
    """Rows that are no entry of their section, come twice, are out of order, or have no test and no reason."""
    found: list[str] = []
    last = ""
    for row in rows:
        entry = _ENTRY.fullmatch(row[0])
        if len(row) != len(HEADER) or not all(row) or entry is None or not entry[1].startswith(letter):
            found.append(f"{row} is no row of {letter}")
            continue
        if entry[1] <= last:
            found.append(f"{entry[1]} comes after {last}")
        last = entry[1]
        if not _NAMED.search(row[3]) and not row[3].startswith(REASONS):
            found.append(f"{entry[1]} has neither a test nor a reason")
    return found


def missing_tests(rows: Iterable[Sequence[str]], tests: Tests) -> list[str]:
    """What the rows name and nobody has written."""
    named = [(row[0], file, prefix) for row in rows for file, prefix in _NAMED.findall(row[3])]
    return [
        f"{id}: {file} has no {prefix}"
        for id, file, prefix in named
        if not any(name.startswith(prefix) for name in tests.get(file, ()))
    ]


def missing_rows(rows: Iterable[Sequence[str]], tests: Tests) -> list[str]:
    """Tests that are named after an entry and that its row leaves out."""
    named = [(row[0][:3], file, prefix) for row in rows for file, prefix in _NAMED.findall(row[3])]
    found = []
    for file, names in tests.items():
        for name in names:
            entry = _TEST.match(name)
            if entry and not any(
                id == entry[1] and file == known and name.startswith(prefix) for id, known, prefix in named
            ):
                found.append(f"{file}::{name} is not in the row of {entry[1]}")
    return found


def all_rows(document: str) -> list[list[str]]:
    return [row for title in SECTIONS for row in section_rows(document, title)]


# ---- the document --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("title", "letter"), SECTIONS.items())
def test_every_row_is_an_entry_of_its_section_with_tests_or_a_reason(title: str, letter: str) -> None:
    assert len(section_rows(DOCUMENT, title)) >= 4
    assert row_problems(section_rows(DOCUMENT, title), letter) == []


def test_every_test_that_the_document_names_exists() -> None:
    assert missing_tests(all_rows(DOCUMENT), written_tests()) == []


def test_every_error_that_was_found_is_kept_as_tests_that_exist() -> None:
    rows = markdown.rows(markdown.section(DOCUMENT, "What the proof found"), FOUND[0])
    assert all(len(row) == len(FOUND) and all(row) and _NAMED.search(row[3]) for row in rows)
    assert missing_tests(rows, written_tests()) == []


def test_every_test_that_is_named_after_an_entry_is_in_its_row() -> None:
    assert missing_rows(all_rows(DOCUMENT), written_tests()) == []


def test_every_table_of_the_document_that_has_entries_is_checked() -> None:
    assert markdown.rows(DOCUMENT, HEADER[0]) == all_rows(DOCUMENT)


@pytest.mark.parametrize("title", ["What the proof found", "Figures"])
def test_what_was_found_and_measured_has_a_place(title: str) -> None:
    assert markdown.section(DOCUMENT, title).strip()


# ---- the check -----------------------------------------------------------------------------------------------------

SMALL = """\
| id | what goes wrong | how the design avoids it | tests |
|---|---|---|---|
| T01 ★ | a crash | a log | `a/test_a.py::test_T01` `a/test_b.py::test_other` |
| T03 | a wish | none | cannot happen here: nobody wishes |
"""
WRITTEN: Tests = {"a/test_a.py": ["test_T01_it_holds", "test_nothing"], "a/test_b.py": ["test_other_things"]}
ROWS = markdown.rows(SMALL, "id")


def test_a_right_table_has_no_problems() -> None:
    assert row_problems(ROWS, "T") == missing_tests(ROWS, WRITTEN) == missing_rows(ROWS, WRITTEN) == []


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ({**WRITTEN, "a/test_a.py": ["test_nothing"]}, "T01 ★: a/test_a.py has no test_T01"),
        ({"a/test_a.py": WRITTEN["a/test_a.py"]}, "T01 ★: a/test_b.py has no test_other"),
    ],
)
def test_a_named_test_that_is_gone_is_noticed(tests: Tests, said: str) -> None:
    assert missing_tests(ROWS, tests) == [said]


@pytest.mark.parametrize("name", ["test_T01_elsewhere", "test_T03_though_it_cannot_happen", "test_S01_unheard_of"])
def test_a_test_that_is_in_no_row_of_its_entry_is_noticed(name: str) -> None:
    (said,) = missing_rows(ROWS, {**WRITTEN, "b/test_c.py": [name]})
    assert said == f"b/test_c.py::{name} is not in the row of {name[5:8]}"


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (SMALL.replace("| cannot happen here: nobody wishes |", "| someday |"), "T03 has neither"),
        (SMALL.replace("T03", "T01"), "T01 comes after T01"),
        (SMALL.replace("T03", "T00"), "T00 comes after T01"),
        (SMALL.replace("T03", "S03"), "is no row of T"),
        (SMALL.replace("| a wish |", "| |"), "is no row of T"),
        (SMALL.replace("T03", "T3"), "is no row of T"),
    ],
)
def test_a_spoilt_row_is_noticed(spoilt: str, said: str) -> None:
    (problem,) = row_problems(markdown.rows(spoilt, "id"), "T")
    assert said in problem


@pytest.mark.parametrize("kept", ["`a/test_a.py`", "somewhere", "`a/test_a.py::other`"])
def test_a_cell_that_names_no_test_is_noticed(kept: str) -> None:
    assert row_problems([["T01", "a crash", "a log", kept]], "T") == ["T01 has neither a test nor a reason"]


def test_tests_are_found_in_classes_too() -> None:
    source = "class TestIt(Kit):\n    def test_T01_it(self): ...\n\ndef helper(): ...\ndef test_b(): ...\n"
    assert sorted(names_in(source)) == ["TestIt", "test_T01_it", "test_b"]
