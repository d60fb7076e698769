"""The demo: its answer is right, its comparison notices everything, and it runs, kills, and cleans up as it says."""

import contextlib
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, is_alive, log_of, run, wait_until
from tidegate.deploy.demo import check_output, run_demo
from tidegate.deploy.demo_answer import Change, Difference, compare, expected_changes, read_flights
from tidegate.errors import InternalError, InvalidError
from tidegate.ids import OperatorName

ROWS = [
    {"carrier": "AA", "dep_delay": "NA"},
    {"carrier": "AA", "dep_delay": "-4"},
    {"carrier": "UA", "dep_delay": "2"},
    {"carrier": "AA", "dep_delay": "7"},
    {"carrier": "AA", "dep_delay": "0"},
]
AA = [
    Change("AA", 1, 1, None, None),
    Change("AA", 2, 1, -4.0, -4),
    Change("AA", 3, 1, 1.5, 7),
    Change("AA", 4, 1, 1.0, 7),
]
UA = [Change("UA", 1, 0, 2.0, 2)]


def right() -> dict[str, list[Change]]:
    return {"AA": list(AA), "UA": list(UA)}


# ---- the answer and the comparison ---------------------------------------------------------------------------------


def test_the_answer_has_one_change_for_each_flight() -> None:
    assert expected_changes(ROWS) == right()


def test_the_shipped_flights_are_those_of_january_2013() -> None:
    rows = read_flights()
    assert len(rows) == 27_004
    assert {row["month"] for row in rows} == {"1"}
    assert sum(row["dep_delay"] == "NA" for row in rows) == 521


def test_equal_output_differs_in_nothing() -> None:
    assert compare(right(), right()) == []


@pytest.mark.parametrize("place", range(4))
def test_a_removed_record_is_missing(place: int) -> None:
    output = right()
    del output["AA"][place]
    assert compare(right(), output) == [Difference("AA", "missing", place, AA[place])]


@pytest.mark.parametrize("place", range(4))
def test_a_doubled_record_is_one_too_many(place: int) -> None:
    output = right()
    output["AA"].append(AA[place])
    assert compare(right(), output) == [Difference("AA", "too many", 4, AA[place])]


@pytest.mark.parametrize(
    "change", [{"flights": 9}, {"cancelled": 0}, {"mean_delay": 1.25}, {"worst_delay": 8}, {"carrier": "UA"}]
)
def test_an_altered_record_is_missing_and_its_like_too_many(change: dict[str, object]) -> None:
    output = right()
    output["AA"][2] = msgspec.structs.replace(AA[2], **change)
    assert [difference.what for difference in compare(right(), output)] == ["missing", "too many"]


def test_exchanged_records_are_out_of_order() -> None:
    output = right()
    output["AA"][1], output["AA"][2] = AA[2], AA[1]
    assert compare(right(), output) == [Difference("AA", "out of order", 1, AA[2])]


def test_a_carrier_without_output_and_output_of_an_unknown_carrier_are_noticed() -> None:
    output = {"AA": AA, "ZZ": [Change("ZZ", 1, 0, 2.0, 2)]}
    assert [(d.carrier, d.what) for d in compare(right(), output)] == [("UA", "missing"), ("ZZ", "too many")]


def test_wrong_output_fails_the_demo_with_exit_code_1_and_says_where_it_is_wrong() -> None:
    output = right()
    output["AA"].append(AA[3])
    with pytest.raises(
        InternalError, match=r"in 1 places:\n  too many, carrier AA, record 4: AA after 4 flights"
    ) as error:
        check_output(ROWS, output)
    assert error.value.exit_code == 1


def test_right_output_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    check_output(ROWS, right())
    shown = capsys.readouterr().out
    assert "1.0 min" in shown
    assert "5 flights in, 5 changes out" in shown


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("mine")
    with pytest.raises(InvalidError, match="is not an empty folder"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


# ---- the whole -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_kills_a_worker_and_the_job_manager_and_the_result_is_right(tmp_path: Path) -> None:
    done = run([*TIDEGATE, "demo", "--keep", "kept"], tmp_path, timeout=115)
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("SIGKILL for worker", "SIGKILL for the JobManager", "27,004 flights in, 27,004 changes out"):
        assert told in done.stdout, done.stdout
    view = log_of(tmp_path / "kept" / "checkpoints", "flights")
    assert view.attempt >= 3
    assert view.newest is not None
    source = view.newest.operator(OperatorName("flights"))
    assert source is not None
    assert sum(split.position for split in source.splits) == 27_004


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_no_process_behind(tmp_path: Path, ending: signal.Signals) -> None:
    checkpoints = tmp_path / "kept" / "checkpoints"

    def has_begun() -> bool:
        return checkpoints.exists() and log_of(checkpoints, "flights").newest is not None

    demo = subprocess.Popen([*TIDEGATE, "demo", "--keep", "kept"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(has_begun, "a checkpoint of the demo's job")
        takeover = log_of(checkpoints, "flights").takeover
        assert takeover is not None
        demo.send_signal(ending)
        demo.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            demo.kill()
        demo.wait()
    assert demo.returncode == 130
    processes = [takeover.job_manager.pid, *(worker.pid for worker in takeover.workers)]
    assert len(processes) == 3
    wait_until(lambda: not any(map(is_alive, processes)), f"the end of processes {processes}")
