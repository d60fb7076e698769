"""The folder for sockets is private and short, goes with its process, and what killed processes left is swept."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.errors import InvalidError


def test_it_is_private_and_its_addresses_are_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    folder = RuntimeFolder()
    try:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert len(folder.address("data-1000000-32767").removeprefix("ipc://")) < 80
    finally:
        folder.close()
    assert not folder.path.exists()


def test_it_is_made_where_the_user_has_runtime_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = Path("/tmp") / f"tidegate-test-{tmp_path.name}"[:50]
    home.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    folder = RuntimeFolder()
    assert folder.path.parent == home
    folder.close()
    home.rmdir()


def test_it_is_not_where_the_users_logout_would_take_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    monkeypatch.setattr(os, "access", lambda *_: True)
    folder = RuntimeFolder()
    assert folder.path.parent == Path("/tmp")
    folder.close()


def test_without_a_usable_folder_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InvalidError, match="no folder for the sockets"):
        RuntimeFolder()


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tidegate.deploy.runtime_folder import RuntimeFolder\n"
        "print(RuntimeFolder(Path(sys.argv[1])).path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    its = Path(process.stdout.readline().strip())
    RuntimeFolder(tmp_path).close()
    assert its.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    own = RuntimeFolder(tmp_path)
    assert list(tmp_path.iterdir()) == [own.path]
    own.close()


def test_a_folder_that_is_being_made_and_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("tidegate-run-x", "tidegate-demo-x", "other"):
        (tmp_path / name).mkdir()
    RuntimeFolder(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "tidegate-demo-x", "tidegate-run-x"]
