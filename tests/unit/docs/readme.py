"""The README's programs and commands, for tests that do what it says in a folder of their own."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.unit.docs import markdown

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
PROGRAMS = {
    "python": [sys.executable],
    "tidegate": [sys.executable, "-c", "from tidegate.cli.main import main; main()"],
}


def files(document: str = README) -> dict[str, str]:
    """Each Python block by the file that its first line names."""
    found = {}
    for block in markdown.blocks(document):
        if block.language == "python":
            first = re.match(r"# (\w+\.py)\n", block.text)
            assert first, f"this block does not say which file it is:\n{block.text}"
            found[first[1]] = block.text
    return found


def commands(document: str = README) -> list[list[str]]:
    """The lines of the shell blocks, as words."""
    lines = [line for block in markdown.blocks(document) if block.language == "sh" for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines]


def executable(command: list[str]) -> list[str]:
    """With the interpreter and the package under test."""
    return [*PROGRAMS[command[0]], *command[1:]]


def run(command: list[str], folder: Path) -> str:
    """What it prints; it must end well."""
    done = subprocess.run(executable(command), cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
