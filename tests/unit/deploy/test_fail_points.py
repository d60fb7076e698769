"""Fail points are read from the environment and strike once, where and when they are asked to."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate import failpoints
from tidegate.deploy.fail_points import FailPoint, arm_from, parse
from tidegate.errors import InvalidError


def test_every_part_of_the_form_is_read() -> None:
    environment = {
        "TIDEGATE_FAIL_POINT": "log-append:before,commit:after:3@worker-1=stop,capture:before@worker,"
        "upload:before:*=delay-250",
        "TIDEGATE_FAIL_POINT_MARK": "/tmp/mark",
    }
    assert parse(environment) == (
        FailPoint("log-append:before", 1, "", signal.SIGKILL, "/tmp/mark.0"),
        FailPoint("commit:after", 3, "worker-1", signal.SIGSTOP, "/tmp/mark.1"),
        FailPoint("capture:before", 1, "worker", signal.SIGKILL, "/tmp/mark.2"),
        FailPoint("upload:before", 0, "", signal.SIGKILL, "/tmp/mark.3", 0.25),
    )


def test_nothing_asked_for_is_nothing() -> None:
    assert parse({}) == ()
    assert parse({"TIDEGATE_FAIL_POINT": ""}) == ()


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_every_fail_point_can_be_named(name: str) -> None:
    assert parse({"TIDEGATE_FAIL_POINT": name})[0].name == name


@pytest.mark.parametrize(
    "wrong",
    [
        "commit:before=delay",
        "commit:before=delay-x",
        "commit:before:*:2",
        "commit",
        "commit:during",
        "commit:before:0",
        "commit:before@master",
        "commit:before=maim",
        "commit:before@",
    ],
)
def test_what_is_no_fail_point_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidError, match="is not a fail point"):
        arm_from({"TIDEGATE_FAIL_POINT": wrong}, "jobmanager")


@pytest.mark.parametrize(
    ("wanted", "process", "is_meant"),
    [
        ("", "jobmanager", True),
        ("", "worker-3", True),
        ("jobmanager", "jobmanager", True),
        ("jobmanager", "worker-0", False),
        ("worker", "worker-3", True),
        ("worker", "jobmanager", False),
        ("worker-1", "worker-1", True),
        ("worker-1", "worker-10", False),
    ],
)
def test_a_process_is_meant_by_its_name_or_its_kind(wanted: str, process: str, is_meant: bool) -> None:
    assert FailPoint("commit:before", 1, wanted, signal.SIGKILL, "").is_meant(process) is is_meant


def reach_three_times(folder: Path, fail_point: str) -> tuple[int, list[str]]:
    """Exit code of a process that reaches `commit:before` three times, and what it said before each."""
    program = (
        "import os\n"
        "from tidegate.deploy.fail_points import arm_from\n"
        "from tidegate.failpoints import reach\n"
        "arm_from(os.environ, 'worker-0')\n"
        "for number in range(3):\n"
        "    print(number, flush=True)\n"
        "    reach('capture:before')\n"
        "    reach('commit:before')\n"
    )
    environment = {"TIDEGATE_FAIL_POINT": fail_point, "TIDEGATE_FAIL_POINT_MARK": str(folder / "mark")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.split()


def test_it_kills_at_the_time_that_was_asked_for_and_once_over_all_processes(tmp_path: Path) -> None:
    assert reach_three_times(tmp_path, "commit:before:2") == (-signal.SIGKILL, ["0", "1"])
    assert (tmp_path / "mark.0").exists()
    assert reach_three_times(tmp_path, "commit:before:2") == (0, ["0", "1", "2"])


def test_it_leaves_alone_whoever_is_not_meant(tmp_path: Path) -> None:
    assert reach_three_times(tmp_path, "commit:before@worker-1,commit:after") == (0, ["0", "1", "2"])
    assert list(tmp_path.iterdir()) == []


def test_a_delay_that_acts_each_time_delays_each_time_and_leaves_no_file(tmp_path: Path) -> None:
    before = time.monotonic()
    assert reach_three_times(tmp_path, "commit:before:*=delay-200") == (0, ["0", "1", "2"])
    assert time.monotonic() - before >= 0.6
    assert list(tmp_path.iterdir()) == []


def test_a_delay_at_one_time_acts_once_over_all_processes(tmp_path: Path) -> None:
    assert reach_three_times(tmp_path, "commit:before:2=delay-1") == (0, ["0", "1", "2"])
    assert [mark.name for mark in tmp_path.iterdir()] == ["mark.0"]
