"""A disk that is full takes nothing more from the processes of a run, and takes it again when there is room."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.disk import LimitedDisk

WRITER = """
import sys
from pathlib import Path
path = Path(sys.argv[1])
for line in sys.stdin:
    try:
        path.write_bytes(b"x" * 10_000)
        print("written", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


def answers(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("again\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_limit_refuses_writes_of_living_and_of_new_processes_until_it_is_lifted(tmp_path: Path) -> None:
    disk = LimitedDisk(tmp_path / "disk")
    command = [sys.executable, "-c", WRITER, str(disk.path / "file")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first:  # type: ignore[call-overload]
        assert answers(first) == "written"
        disk.fill([first.pid])
        assert answers(first) == "File too large"
        with subprocess.Popen(command, **pipes) as second:  # type: ignore[call-overload]
            disk.started(second.pid)
            assert answers(second) == "File too large"
            disk.free([first.pid, second.pid])
            assert answers(first) == answers(second) == "written"
            second.kill()
        first.kill()


PROGRAM = """
import sys
from pathlib import Path
from tests.chaos.disk import SIZE, SmallDisk
try:
    disk = SmallDisk(Path(sys.argv[1]))
except OSError as error:
    print("not permitted", error.errno)
    sys.exit()
disk.fill([])
try:
    (disk.path / "file").write_bytes(b"x" * 10_000)
    print("there was room")
except OSError as error:
    print(error.strerror)
disk.free([])
(disk.path / "file").write_bytes(b"x" * 10_000)
print("written", (disk.path / "file").stat().st_size)
"""


def test_a_small_file_system_fills_up_and_is_seen_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.startswith("not permitted"):
        pytest.skip("mounting is not permitted here: a run limits what its processes may write instead")
    assert done.stdout.split("\n")[:2] == ["No space left on device", "written 10000"]
    assert list(path.iterdir()) == []
