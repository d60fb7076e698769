"""The public interface infers element types along a chain, and finds mistakes, as seen by mypy --strict."""

import re
from pathlib import Path

import pytest
from mypy import api as mypy

FOLDER = Path(__file__).parent


def errors_in(name: str) -> list[int]:
    """The lines of the file `name` in which mypy --strict finds errors."""
    path = FOLDER / name
    output, problems, _ = mypy.run(["--strict", "--no-error-summary", "--hide-error-context", str(path)])
    assert problems == ""
    found = re.findall(rf"^.*{re.escape(name)}:(\d+): error:", output, re.MULTILINE)
    assert output.count(": error:") == len(found), output
    return sorted({int(line) for line in found})


@pytest.mark.parametrize("name", ["inference.py"])
def test_element_types_are_inferred_along_the_chain(name: str) -> None:
    assert errors_in(name) == []


@pytest.mark.parametrize("name", ["mistakes.py", "two_inputs.py", "ready_operators.py", "asynchronous.py"])
def test_mistakes_are_found_and_nothing_else(name: str) -> None:
    lines = (FOLDER / name).read_text().splitlines()
    expected = [number for number, line in enumerate(lines, start=1) if "# error:" in line]
    assert errors_in(name) == expected
