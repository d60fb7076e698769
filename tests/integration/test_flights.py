"""The example: from a CSV file into a topic and from there to totals by carrier, in every way it can be run."""

import csv
import sys
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, log_of, run
from tidegate.api.job import Job
from tidegate.deploy.demo_answer import Change, compare, expected_changes, read_flights
from tidegate.deploy.program import load, spec_of_target
from tidegate.errors import InvalidError
from tidegate.local import LocalLog

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights.py"
ROWS = read_flights()[:3000]
WAYS = {
    "tidegate run": lambda arguments: [*TIDEGATE, "run", str(EXAMPLE), "-p", "2", "--", *arguments],
    "in one process": lambda arguments: [*TIDEGATE, "run", str(EXAMPLE), "--in-process", "--", *arguments],
    "python": lambda arguments: [sys.executable, str(EXAMPLE), *arguments],
}


def built(*arguments: str) -> Job:
    return load(spec_of_target(str(EXAMPLE), arguments, Path.cwd(), ()))


def operators(job: Job) -> list[tuple[str, str]]:
    return [(node.kind, str(node.name)) for node in job.graph().nodes]


def write_csv(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)


def committed(folder: Path) -> dict[str, list[Change]]:
    changes: dict[str, list[Change]] = {}
    with LocalLog(folder / "log", create=False) as log:
        for partition in range(log.partitions("carriers")):
            for record in log.read("carriers", partition):
                change = msgspec.json.decode(record.value or b"", type=Change)
                changes.setdefault(change.carrier, []).append(change)
    return changes


def test_the_totals_job_reads_flights_keeps_totals_by_carrier_and_writes_them(tmp_path: Path) -> None:
    job = built("--log", str(tmp_path / "log"))
    assert job.name == "flights"
    assert operators(job) == [
        ("source", "flights"),
        ("key_by", "flights-key"),
        ("process", "totals"),
        ("sink", "carriers"),
    ]
    assert not job.graph().sources[0].source.bounded  # type: ignore[union-attr]


def test_the_loading_job_is_another_job(tmp_path: Path) -> None:
    job = built("--log", str(tmp_path / "log"), "--load", "flights.csv")
    assert job.name == "flights-load"
    assert operators(job) == [("source", "rows"), ("sink", "topic")]


def test_without_a_log_it_says_what_it_needs() -> None:
    with pytest.raises(InvalidError, match="ended itself"):
        built()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_change_comes_out_exactly_once_and_in_order(tmp_path: Path, way: str) -> None:
    write_csv(tmp_path / "flights.csv")
    for arguments in (["--load", "flights.csv"], ["--bounded"]):
        done = run(WAYS[way](["--log", "log", *arguments]), tmp_path)
        assert done.returncode == 0, done.stderr
    assert compare(expected_changes(ROWS), committed(tmp_path)) == []


@pytest.mark.slow
def test_run_again_it_is_finished_and_changes_nothing(tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv")
    checkpoints = ["--checkpoint-dir", "checkpoints"]
    command = [*TIDEGATE, "run", str(EXAMPLE), *checkpoints, "--", "--log", "log"]
    for arguments in (["--load", "flights.csv"], ["--bounded"]):
        assert run([*command, *arguments], tmp_path).returncode == 0
    before = log_of(tmp_path / "checkpoints", "flights").next_position
    again = run([*command, "--bounded"], tmp_path)
    assert again.returncode == 0
    assert "finished" in again.stderr
    assert log_of(tmp_path / "checkpoints", "flights").next_position == before
    assert compare(expected_changes(ROWS), committed(tmp_path)) == []
