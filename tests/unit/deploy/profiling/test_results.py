"""What becomes of a profile: a file by speedscope's format, a table, and an error before the job where it cannot be."""

import os
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.unit.deploy.test_in_process import Told
from tidegate.deploy.profiling.recording import Place, Profile, Seen, WorkerProfile, write_part
from tidegate.deploy.profiling.run import profiling, target_of
from tidegate.deploy.profiling.speedscope import SCHEMA, speedscope_file
from tidegate.deploy.profiling.summary import of_program, render_summary, summary_of
from tidegate.errors import InvalidError
from tidegate.ids import JobName

JOB = JobName("shop")
PROFILE = Profile(
    [
        Place("task sales"),
        Place("operator net"),
        Place("MapOperator.process", "/engine/stateless.py", 70),
        Place("discount", "/shop/shop.py", 9),
        Place("round", "/python/numbers.py", 1),
        Place("engine: sending"),
        Place("thread sink:sales"),
    ],
    [
        WorkerProfile("worker 0", [Seen((0, 1, 2, 3), 3.0), Seen((0, 1, 2, 3, 4), 3.0), Seen((0, 5), 1.0)], 2.0),
        WorkerProfile("worker 1", [Seen((0, 1, 2), 1.0), Seen((6, 4), 0.8)], 0.5),
    ],
)


# ---- the file --------------------------------------------------------------------------------------------------------


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """As the format's schema has it."""

    name: str
    file: str | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET
    col: int | msgspec.UnsetType = msgspec.UNSET


class Shared(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[Frame]


class Sampled(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    type: Literal["sampled"]
    name: str
    unit: Literal["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
    start_value: float
    end_value: float
    samples: list[list[int]]
    weights: list[float]


class File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    schema: Literal["https://www.speedscope.app/file-format-schema.json"] = msgspec.field(name="$schema")
    shared: Shared
    profiles: list[Sampled]
    name: str | msgspec.UnsetType = msgspec.UNSET
    exporter: str | msgspec.UnsetType = msgspec.UNSET
    active_profile_index: int | msgspec.UnsetType = msgspec.UNSET


def stacks(file: File, profile: Sampled) -> dict[tuple[str, ...], float]:
    return {
        tuple(file.shared.frames[number].name for number in sample): weight
        for sample, weight in zip(profile.samples, profile.weights, strict=True)
    }


def test_the_file_is_of_speedscopes_format_with_one_profile_for_each_worker() -> None:
    file = msgspec.json.decode(speedscope_file(PROFILE, "shop"), type=File)
    assert file.schema == SCHEMA
    assert [profile.name for profile in file.profiles] == ["worker 0", "worker 1"]
    for profile in file.profiles:
        assert profile.end_value - profile.start_value == pytest.approx(sum(profile.weights))
    assert stacks(file, file.profiles[0]) == {
        ("worker 0", "task sales", "engine: sending"): 1.0,
        ("worker 0", "task sales", "operator net", "MapOperator.process", "discount"): 3.0,
        ("worker 0", "task sales", "operator net", "MapOperator.process", "discount", "round"): 3.0,
    }
    (found,) = [frame for frame in file.shared.frames if frame.name == "discount"]
    assert (found.file, found.line) == ("/shop/shop.py", 9)
    (label,) = [frame for frame in file.shared.frames if frame.name == "operator net"]
    assert label.file is msgspec.UNSET


def test_a_run_in_which_nothing_was_seen_gives_a_file_too() -> None:
    assert msgspec.json.decode(speedscope_file(Profile([], []), "shop"), type=File).profiles == []


# ---- the table -------------------------------------------------------------------------------------------------------


def test_the_table_has_each_operators_share_of_the_work_and_its_own_hottest_functions() -> None:
    summary = summary_of(PROFILE, lambda file: file.startswith("/shop/"))
    assert (summary.working, summary.waiting) == (8.0, 2.5)
    assert [(row.name, row.share) for row in summary.rows] == [
        ("net", 0.875),
        ("engine: sending", 0.125),
        ("thread sink:sales", 0.1),
    ]
    assert render_summary(summary, "shop.speedscope.json").splitlines() == [
        "profile of 8.0 s of work (2.5 s of waiting left out): shop.speedscope.json",
        "  operator           share  hottest functions",
        "  net                  88%  discount (shop.py:9) 75%, MapOperator.process (stateless.py:70) 12%",
        "  engine: sending      12%",
        "  thread sink:sales    10%  round (numbers.py:1) 10%",
        "  Open the file at https://www.speedscope.app to look into it.",
    ]


def test_a_programs_own_files_are_those_of_no_library() -> None:
    assert of_program(__file__)
    assert not of_program(os.__file__)
    assert not of_program(msgspec.__file__)
    assert not of_program(target_of.__code__.co_filename)
    assert not of_program("<string>")


# ---- around a job ----------------------------------------------------------------------------------------------------


def test_the_target_is_a_file_or_a_folder_or_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert target_of("", JOB) == tmp_path / "shop.speedscope.json"
    assert target_of(str(tmp_path), JOB) == tmp_path / "shop.speedscope.json"
    assert target_of("x.json", JOB) == tmp_path / "x.json"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wanted", ["missing/x.json", "missing/", "file/x.json"])
def test_a_target_that_cannot_be_written_is_refused_before_the_job_starts(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    told, has_begun = Told(), False
    with (
        pytest.raises(InvalidError, match=f"cannot be written to {tmp_path}") as raised,
        profiling(wanted, JOB, told, "text"),
    ):
        has_begun = True
    assert not has_begun
    assert "--profile=FILE" in raised.value.failure.remedy


@pytest.mark.parametrize("error", [None, ValueError("failed"), KeyboardInterrupt()])
def test_the_file_is_written_and_the_table_told_however_the_job_ends(
    error: BaseException | None, tmp_path: Path
) -> None:
    told = Told()

    def job() -> None:
        with profiling(str(tmp_path / "x.json"), JOB, told, "text") as parts:
            write_part(PROFILE, parts / "worker-1-0.part")
            if error is not None:
                raise error

    if error is None:
        job()
    else:
        with pytest.raises(type(error)):
            job()
    assert msgspec.json.decode((tmp_path / "x.json").read_bytes(), type=File).profiles[0].name == "worker 0"
    ((level, text),) = told.events
    assert level == "info"
    assert text.startswith(f"profile of 8.0 s of work (2.5 s of waiting left out): {tmp_path / 'x.json'}")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_profile_that_cannot_be_written_in_the_end_does_not_spoil_the_jobs_end(tmp_path: Path) -> None:
    told, folder = Told(), tmp_path / "there"
    folder.mkdir()
    with profiling(str(folder / "x.json"), JOB, told, "text"):
        folder.rmdir()
    ((level, text),) = told.events
    assert (level, text.startswith("the profile could not be written to")) == ("error", True)
