"""Who may read and enter what a job makes: `docs/security.md` says the same."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidegate.connectors.local.log import LocalLog
from tidegate.deploy.requests import RequestServer
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.ids import JobName
from tidegate.storage.local import LocalStorage

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_enter_the_folder_of_a_jobs_sockets_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    with closing(RuntimeFolder(tmp_path)) as folder:
        assert mode(folder.path) == 0o700
        with closing(RequestServer(folder, JobName("totals"), "/flows/totals")) as server:
            assert Path(server.address).parent == folder.path


def test_nobody_else_may_read_the_embedded_log_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    with LocalLog(tmp_path / "log") as log:
        log.create_topic("orders", 1)
        files = [path for path in sorted((tmp_path / "log").iterdir()) if path.is_file()]
        assert files
        assert all(mode(path) & OTHERS == 0 for path in files), files


def test_the_umask_says_who_may_read_checkpoints(umask: int, tmp_path: Path) -> None:
    LocalStorage(tmp_path / "checkpoints").put_if_absent("orders/log/0.json", b"{}")
    for path in sorted((tmp_path / "checkpoints").rglob("*")):
        assert mode(path) & OTHERS == OTHERS & ~umask & (0o777 if path.is_dir() else 0o666), path
