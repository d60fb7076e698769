"""The first program of the README runs as it stands there, and its output is the one that stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.unit.docs import markdown

ROOT = Path(__file__).parents[3]
BLOCKS = markdown.blocks((ROOT / "README.md").read_text(encoding="utf-8"))
PROGRAMS = {
    "python": [sys.executable],
    "tidegate": [sys.executable, "-c", "from tidegate.cli.main import main; main()"],
}


def write_files(folder: Path) -> list[str]:
    """Each Python block goes into the file that its first line names."""
    names = []
    for block in BLOCKS:
        if block.language == "python":
            first = re.match(r"# (\w+\.py)\n", block.text)
            assert first, f"this block does not say which file it is:\n{block.text}"
            names.append(first[1])
            (folder / first[1]).write_text(block.text, encoding="utf-8")
    return names


def commands() -> list[list[str]]:
    """The lines of the shell blocks; what make does is tested elsewhere."""
    lines = [line for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if not line.startswith("make ")]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        [*PROGRAMS[command[0]], *command[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_block_is_code_that_a_test_runs_or_output_that_a_test_compares() -> None:
    assert {block.language for block in BLOCKS} == {"python", "sh", "text"}
    assert all(command[0] in PROGRAMS for command in commands())


def test_the_first_program_prints_what_the_document_says(tmp_path: Path) -> None:
    names = write_files(tmp_path)
    printed = {shlex.join(command): run(command, tmp_path) for command in commands()}
    assert all(any(name in command for command in printed) for name in names)
    (expected,) = (block.text for block in BLOCKS if block.language == "text")
    by_user = sorted(printed["python show.py"].splitlines(), key=lambda line: line.partition(",")[0])
    assert by_user == expected.splitlines()
    assert "running-totals" not in printed["python orders.py"]
    assert "newest" in printed["tidegate checkpoints list running-totals"]
