"""The comparison with Apache Flink: that both give the same, and that it is found when they do not."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.oracle import __main__ as command
from benchmarks.oracle import engine, flink
from benchmarks.oracle.cases import CASES, GROUPS, LATE_ROW, Case
from benchmarks.oracle.comparison import Difference, Row, compare, read_rows, without_explained
from benchmarks.oracle.data import FLIGHTS, WEATHER, make, prepare
from benchmarks.oracle.run import Outcome, compare_all

ROWS = 1500
BY_NAME = {case.name: case for case in CASES}
Mutation = Callable[[list[Row]], list[Row]]
OutcomesOf = Callable[[str], dict[str, Outcome]]
MUTATIONS: dict[str, Mutation] = {
    "removed": lambda rows: rows[:-1],
    "doubled": lambda rows: [*rows, rows[0]],
    "changed": lambda rows: [(*rows[0][:-1], "other"), *rows[1:]],
}


def _compared(folder: Path, cases: Sequence[Case]) -> dict[str, Outcome]:
    return {outcome.case.name: outcome for outcome in compare_all(cases, folder, print)}


def _shown(outcomes: dict[str, Outcome]) -> dict[str, list[str]]:
    """What differs, by case."""
    return {name: outcome.difference.told() for name, outcome in outcomes.items() if outcome.difference}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a slice of the flights, and Flink's rows once they have been asked for."""
    made = tmp_path_factory.mktemp("flights")
    prepare(made, FLIGHTS, WEATHER, ROWS)
    return made


@pytest.fixture(scope="module")
def outcomes_of(folder: Path) -> OutcomesOf:
    """Of a group of cases."""
    return cache(lambda group: _compared(folder, GROUPS[group]))


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With rows of chance on the edges of windows, and what Flink makes of them in a few cases."""
    made = tmp_path_factory.mktemp("edges")
    make(made, 1, 600)
    assert _shown(_compared(made, [BY_NAME[name] for name in SENSITIVE])) == {}
    return made


SENSITIVE = {
    "tumbling-late": ("bound", "size", "offset"),
    "tumbling-lateness": ("lateness",),
    "sliding-lateness": ("bound", "lateness"),
    "session-lateness": ("bound", "gap"),
    "trigger-purging-session": ("bound", "gap"),
    "trigger-count": ("count",),
    "trigger-early": ("count", "lateness"),
    "interval": ("lower", "upper"),
    "interval-at-watermark": ("lower", "bound"),
    "temporal-within": ("within",),
    "temporal-late": ("bound",),
}
"""By case, parameters of which the least change makes another result."""


# ---- the same --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("group", GROUPS)
def test_flink_and_tidegate_give_the_same_rows_of_flights_and_weather(group: str, outcomes_of: OutcomesOf) -> None:
    outcomes = outcomes_of(group)
    assert list(outcomes) == [case.name for case in GROUPS[group]]
    assert _shown(outcomes) == {}
    for case, outcome in zip(GROUPS[group], outcomes.values(), strict=True):
        assert outcome.rows > 0
        # Otherwise the case would not show what it is there for. Flink has no late records in the last one.
        assert (outcome.late > 0) == (not case.is_in_time and case.explained != LATE_ROW), case.name
        assert (outcome.by_design > 0) == bool(case.explained), case.name


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("seed", "before_1970"), [(2, False), (3, True)])
def test_they_give_the_same_rows_of_what_lies_on_the_edges_of_windows(
    seed: int, before_1970: bool, group: str, tmp_path: Path
) -> None:
    make(tmp_path, seed, 800, before_1970=before_1970)
    cases = [case for case in GROUPS[group] if not (before_1970 and case.needs_1970)]
    assert _shown(_compared(tmp_path, cases)) == {}


# ---- different -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_row_that_is_removed_doubled_or_changed_is_found_in_every_case(
    kind: str, group: str, outcomes_of: OutcomesOf, folder: Path
) -> None:
    for name, outcome in outcomes_of(group).items():
        rows = read_rows(flink.rows_file(outcome.case, folder))
        assert not compare(rows, rows)
        mutated = MUTATIONS[kind](rows)
        for difference in (compare(rows, mutated), compare(mutated, rows)):
            assert without_explained(difference, outcome.case.explained), f"{name}: {kind}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "parameter"), [(name, each) for name, some in SENSITIVE.items() for each in some])
def test_a_program_that_is_off_by_one_millisecond_or_record_is_found(
    name: str, parameter: str, edges: Path, tmp_path: Path
) -> None:
    case = BY_NAME[name]
    expected = read_rows(flink.rows_file(case, edges))
    wrong = replace(case, parameters={**case.parameters, parameter: case.number(parameter) + 1})
    assert compare(expected, engine.run(wrong, edges, tmp_path))


def test_how_often_a_row_is_there_counts_and_in_which_order_does_not() -> None:
    a, b = ("pair", "AA1", 5), ("pair", "AA2", None)
    assert not compare([a, b, a], [a, a, b])
    assert compare([a, b], [a, a, b]) == Difference(Counter(), Counter({a: 1}))
    assert compare([a, b], [b]).told() == ['only Flink: ["pair","AA1",5]']
    assert compare([("x", 0.1)], [("x", 0.10000000000000002)]).rows == 2


def test_a_late_record_explains_its_own_pairs_and_no_others() -> None:
    late, other = ("pair", "AA1", 5, 4, "JFK", 30.0), ("pair", "AA2", 6, 4, "JFK", 30.0)
    found = compare([late, other], [("late", "AA1", 5)])
    assert without_explained(found, "late").told() == [f"only Flink: {_json(other)}"]
    assert without_explained(found, "") == found
    of_report = compare([late, other], [("late report", "JFK", 4), ("pair", "AA1", 5, None, None, None)])
    assert without_explained(of_report, "late report").told() == []
    assert without_explained(compare([], [other]), "late").told() == [f"only Tidegate: {_json(other)}"]


def _json(row: Row) -> str:
    return str(list(row)).replace("'", '"').replace(", ", ",")


# ---- the command -----------------------------------------------------------------------------------------------------


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    own = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.oracle", *arguments],
        cwd=root,
        env={**own, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command_prints_a_table_and_tells_how_far_it_is(tmp_path: Path) -> None:
    ran = _run("--rows", "300", "--only", "session-late", "--keep", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].split()[:4] == ["case", "what", "rows", "late"]
    assert [line.split()[0] for line in lines[1:]] == ["session-late", "session-lateness"]
    assert "Flink 1/2: session-late" in ran.stderr
    assert "Tidegate: session-late," in ran.stderr
    assert (tmp_path / "session-late.flink.jsonl").stat().st_size > 0


@pytest.mark.slow
def test_the_command_shows_what_differs_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = engine.run
    monkeypatch.setattr(engine, "run", lambda case, data, folder: real(case, data, folder)[1:])
    arguments = ["oracle", "--rows", "300", "--only", "tumbling-offset", "--keep", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 1
    assert '    only Flink: ["window"' in capsys.readouterr().out


def _only(folder: Path, *commands: str) -> str:
    """A PATH with nothing but these."""
    folder.mkdir()
    for name in commands:
        found = shutil.which(name)
        assert found is not None, f"{name} is needed to show what happens without the others"
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "message"),
    [
        ((), "no java is on PATH"),
        (("java",), "no mvn is on PATH"),
        (("java", "mvn"), "no javac is on PATH"),
    ],
)
def test_a_tool_that_is_missing_is_named_with_what_to_install(
    there: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    if "mvn" in there:
        (cache / "tidegate").mkdir(parents=True)
        (cache / "tidegate" / f"flink-{flink.VERSION}").symlink_to(flink.ensure_jars())
    ran = _run("--rows", "10", PATH=_only(tmp_path / "bin", *there), XDG_CACHE_HOME=str(cache))
    assert ran.returncode not in (0, 1)
    assert message in ran.stderr
    assert "apt-get install" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    for path, message in ((tmp_path / "nowhere.csv", "cannot be read"), (wrong, "is not what is expected")):
        ran = _run("--flights", str(path))
        assert ran.returncode not in (0, 1)
        assert message in ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_case_that_there_is_not_is_told_with_those_that_there_are() -> None:
    ran = _run("--only", "nothing-like-it")
    assert ran.returncode != 0
    assert "temporal-left" in ran.stderr
