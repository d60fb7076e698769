"""What the README says of the embedded log runs as it stands there, and its output is the one that stands there."""

import shlex
from pathlib import Path

from tests.unit.docs import markdown, readme

WITHOUT_A_BROKER = markdown.section(readme.README, "Without a broker")


def test_every_block_is_code_that_a_test_runs_or_output_that_a_test_compares() -> None:
    assert {block.language for block in markdown.blocks(readme.README)} == {"python", "sh", "text"}
    assert all(command[0] in readme.PROGRAMS for command in readme.commands())


def test_every_file_is_run_or_imported_by_one_that_is() -> None:
    words = {word for command in readme.commands() for word in command}
    assert set(readme.files()) <= words


def test_the_program_without_a_broker_prints_what_the_document_says(tmp_path: Path) -> None:
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    printed = {shlex.join(command): readme.run(command, tmp_path) for command in readme.commands(WITHOUT_A_BROKER)}
    (expected,) = (block.text for block in markdown.blocks(WITHOUT_A_BROKER) if block.language == "text")
    by_user = sorted(printed["python local_totals.py"].splitlines(), key=lambda line: line.partition(",")[0])
    assert by_user == expected.splitlines()
    assert "newest" in printed["tidegate checkpoints list local-totals"]


def test_the_test_of_the_first_job_passes(tmp_path: Path) -> None:
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (command,) = readme.commands(markdown.section(readme.README, "Tests of your own"))
    assert "1 passed" in readme.run(command, tmp_path)
