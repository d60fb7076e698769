"""The whole tree keeps the rules of `tests.tidy.rules`. Old sinners stand in two tables that may only shrink."""

import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy import rules
from tidegate import failpoints

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "demo-data", "node_modules"}
VISIBLE_DOT_FOLDERS = {".ci", ".github"}

LONG_FILES: dict[str, int] = {}
"""Path to lines."""
LONG_FUNCTIONS: dict[str, int] = {}
"""`path::qualified.name` to lines of the body."""


def _texts(*suffixes: str, under: Path = ROOT) -> dict[str, str]:
    """Path relative to the root, and content, of each text file; with suffixes, only of those."""
    texts = {}
    for path in _files(under):
        if not suffixes or path.suffix in suffixes:
            try:
                texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return texts


def _files(under: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(under):
        subfolders[:] = sorted(name for name in subfolders if _is_ours(name))
        yield from (Path(folder, name) for name in sorted(names))


def _is_ours(folder: str) -> bool:
    if folder.startswith("."):
        return folder in VISIBLE_DOT_FOLDERS
    return folder not in SKIPPED_FOLDERS and not folder.endswith(".egg-info")


def _problems(rule: Callable[[str], list[str]], texts: dict[str, str]) -> list[str]:
    return [f"{path}: {problem}" for path, text in texts.items() for problem in rule(text)]


def _expect_none(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _module_name(path: str) -> str:
    parts = Path(path).relative_to("src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_file_is_too_long() -> None:
    sizes = {path: rules.file_size(text) for path, text in _texts(".py").items()}
    _expect_none(rules.ratchet(sizes, rules.FILE_LINES_MAX, LONG_FILES))


def test_no_function_body_is_too_long() -> None:
    sizes = {
        f"{path}::{name}": size
        for path, text in _texts(".py").items()
        for name, size in rules.function_sizes(text).items()
    }
    _expect_none(rules.ratchet(sizes, rules.FUNCTION_LINES_MAX, LONG_FUNCTIONS))


def test_every_module_begins_with_a_paragraph_on_what_it_is_for() -> None:
    _expect_none(_problems(rules.first_paragraph_problems, _texts(".py", under=SOURCE)))


def test_every_document_has_one_title() -> None:
    _expect_none(_problems(rules.title_problems, _texts(".md")))


def test_no_file_contains_a_banned_word() -> None:
    _expect_none(_problems(rules.banned_word_problems, _texts()))


def test_every_random_generator_of_the_engine_has_a_seed() -> None:
    _expect_none(_problems(rules.unseeded_random_problems, _texts(".py", under=SOURCE)))


def test_fail_points_and_the_calls_that_reach_them_agree() -> None:
    _expect_none(rules.fail_point_problems(failpoints.NAMES, _texts(".py", under=SOURCE)))


def test_no_module_is_dead() -> None:
    modules = {_module_name(path): text for path, text in _texts(".py", under=SOURCE).items()}
    users = [text for path, text in _texts(".py").items() if not path.startswith("src/")]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    entry_points = ["tidegate", "tidegate.worker", *(target.partition(":")[0] for target in scripts.values())]
    _expect_none(rules.dead_module_problems(modules, users, entry_points))


def test_decision_records_are_numbered_without_gaps() -> None:
    _expect_none(rules.numbering_problems(path.name for path in (ROOT / "docs" / "decisions").glob("*.md")))
