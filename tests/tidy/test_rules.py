"""Each rule finds what it is there to find, in a made-up snippet, and leaves its decent neighbour alone."""

import pytest

from tests.tidy import rules


def _function(lines: int) -> str:
    return "def work():\n" + '    """Says what it does."""\n' + "    step()\n" * lines


def test_a_body_is_counted_without_signature_and_docstring() -> None:
    assert rules.function_sizes(_function(60)) == {"work": 60}


def test_a_body_that_is_only_a_docstring_has_no_lines() -> None:
    assert rules.function_sizes('def work():\n    """Says it all."""\n') == {"work": 0}


def test_methods_and_inner_functions_are_counted_by_qualified_name() -> None:
    text = "class A:\n    async def outer(self):\n        def inner():\n            pass\n        return inner\n"
    assert rules.function_sizes(text) == {"A.outer": 3, "A.outer.inner": 1}


def test_a_function_that_is_too_long_is_found_by_name() -> None:
    (problem,) = rules.ratchet(rules.function_sizes(_function(61)), rules.FUNCTION_LINES_MAX, {})
    assert problem.startswith("work has 61 lines")


def test_a_file_that_is_too_long_is_found() -> None:
    limit = rules.FILE_LINES_MAX
    sizes = {"long.py": rules.file_size("x\n" * (limit + 1)), "short.py": rules.file_size("x\n" * limit)}
    (problem,) = rules.ratchet(sizes, limit, {})
    assert problem.startswith(f"long.py has {limit + 1} lines")


def test_an_old_sinner_of_its_old_size_is_tolerated() -> None:
    assert rules.ratchet({"old": 80}, 60, {"old": 80}) == []


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ({"old": 81}, "split it"),
        ({"old": 79}, "lower its 80"),
        ({"old": 60}, "no sinner any more"),
        ({}, "is gone"),
    ],
)
def test_an_old_sinner_may_only_shrink_and_the_table_with_it(sizes: dict[str, int], complaint: str) -> None:
    (problem,) = rules.ratchet(sizes, 60, {"old": 80})
    assert complaint in problem


@pytest.mark.parametrize(
    "text", ["import re\n", '"""Placeholder."""\n', '"""Short.\n\nThe rest is long enough to be one."""\n']
)
def test_a_module_without_a_first_paragraph_is_found(text: str) -> None:
    assert len(rules.first_paragraph_problems(text)) == 1


@pytest.mark.parametrize("text", ["", "\n", '"""What this module is for, in a sentence."""\n'])
def test_an_empty_module_needs_no_paragraph_and_a_sentence_is_one(text: str) -> None:
    assert rules.first_paragraph_problems(text) == []


@pytest.mark.parametrize("text", ["", "## Only a section\n", "# One\n\n# Two\n", "# One\n```\n# code\n```\n# Two\n"])
def test_a_document_without_exactly_one_title_is_found(text: str) -> None:
    assert len(rules.title_problems(text)) == 1


def test_a_comment_in_a_fenced_block_is_no_title() -> None:
    assert rules.title_problems("# One\n\n```sh\n# a comment\nls\n```\n\n## Section\n") == []


@pytest.mark.parametrize(
    "text",
    [
        *(f"x = 1  # {word}: later\n" for word in rules.UNFINISHED_WORDS),
        *(f"see https://{host}/simple\n" for host in rules.REGISTRY_HOSTS),
        f"--index-url https://files.{rules.REGISTRY_HOSTS[1]}/\n",
        'path = "/wo' + 'rk/main"\n',
        "cd /ro" + "ot/x\n",
    ],
)
def test_a_banned_word_is_found_with_its_line(text: str) -> None:
    (problem,) = rules.banned_word_problems("fine\n" + text)
    assert problem.startswith("line 2: ")


@pytest.mark.parametrize(
    "text", ["a framework/of/parts", "tmp_path/work/x", "f'{home}/work/x'", "mytodos", "example.org"]
)
def test_decent_neighbours_of_banned_words_are_left_alone(text: str) -> None:
    assert rules.banned_word_problems(text) == []


def test_a_generator_without_a_seed_is_found() -> None:
    assert len(rules.unseeded_random_problems("import random\nr = random.Random()\n")) == 1
    assert rules.unseeded_random_problems("from random import Random\nr = Random(7)\n") == []


SOURCES = {"a.py": 'reach("x:before")\n', "b.py": 'failpoints.reach("x:after")\n"""Call `reach("y")`."""\n'}


def test_declared_fail_points_that_are_reached_are_fine() -> None:
    assert rules.fail_point_problems(["x:before", "x:after"], SOURCES) == []


@pytest.mark.parametrize(
    ("names", "sources", "complaint"),
    [
        (["x:before", "x:after", "y"], SOURCES, "y is declared and never reached"),
        (["x:before"], SOURCES, "b.py:1: x:after is reached and not declared"),
        (["x:before", "x:after", "x:after"], SOURCES, "x:after is declared 2 times"),
        (["x:before", "x:after"], {**SOURCES, "c.py": "reach(name)\n"}, "c.py:1: reach() needs the name"),
    ],
)
def test_fail_points_that_disagree_are_found(names: list[str], sources: dict[str, str], complaint: str) -> None:
    (problem,) = rules.fail_point_problems(names, sources)
    assert problem.startswith(complaint)


MODULES = {
    "p": "",
    "p.sub": '"""A package."""',
    "p.sub.used": '"""Refers to itself: p.sub.used."""\nimport p.sub.used\n',
    "p.user": "from p.sub import used\n",
    "p.lazy": "x = 1\n",
    "p.tested": "x = 1\n",
    "p.alone.__main__": "x = 1\n",
    "p.entry": 'LAZY = {"x": "p.lazy:x"}\nfrom p.user import y\n',
}


def test_modules_that_something_refers_to_are_alive() -> None:
    assert rules.dead_module_problems(MODULES, ["import p.tested\n"], ["p.entry"]) == []


@pytest.mark.parametrize("name", ["p.sub.used", "p.user", "p.lazy", "p.tested", "p.entry"])
def test_a_module_is_dead_once_nothing_refers_to_it(name: str) -> None:
    short = name.rpartition(".")[2]
    modules = {other: text if other == name else text.replace(short, "gone") for other, text in MODULES.items()}
    users = ["import p.tested\n".replace(short, "gone")]
    entry_points = ["p.entry".replace(short, "gone")]
    assert f"{name} is imported by nothing" in rules.dead_module_problems(modules, users, entry_points)


def test_a_package_that_nothing_imports_from_is_dead() -> None:
    assert rules.dead_module_problems({"p.sub": '"""A package."""'}, [], []) == ["p.sub is imported by nothing"]


@pytest.mark.parametrize(
    "file_names",
    [["0001-a.md", "0003-b.md"], ["0002-a.md"], ["0001-a.md", "0001-b.md"], ["notes.md"], ["0001_A.md"]],
)
def test_a_gap_a_repeat_and_a_strange_name_are_found(file_names: list[str]) -> None:
    assert rules.numbering_problems(file_names)


def test_records_numbered_from_one_are_fine() -> None:
    assert rules.numbering_problems(["0002-why-not.md", "0001-a-log.md"]) == []
