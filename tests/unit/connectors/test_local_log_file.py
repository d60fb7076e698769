"""The embedded log's file: made once, shared by threads and processes, and refused when it is not what it should be."""

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.unit.connectors.local_logs import commit, prepared, values
from tidegate.checkpoint.protocol import Committed
from tidegate.connectors.local import database
from tidegate.errors import CorruptError, InvalidError, UnavailableError
from tidegate.local import LocalLog


def test_everything_is_there_after_closing_and_opening(log: LocalLog) -> None:
    log.append("t", 0, [b"a"])
    pending = prepared(log, "id", b"b")
    log.close()
    with LocalLog(log.directory) as again:
        assert values(again) == [b"a"]
        assert commit(again, pending) == Committed()
        assert values(again) == [b"a", b"b"]


def test_no_log_is_made_where_none_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no embedded log in"):
        LocalLog(tmp_path / "typo", create=False)
    assert not (tmp_path / "typo").exists()


def test_many_threads_that_make_the_same_log_get_one(tmp_path: Path) -> None:
    created = []

    def make() -> None:
        with LocalLog(tmp_path / "log") as log:
            log.create_topic("t", 1)
            log.append("t", 0, [b"x"])
            created.append(log.created)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 8
    assert len(set(created)) == 1
    with LocalLog(tmp_path / "log") as log:
        assert values(log) == [b"x"] * 8
    assert [path.name for path in (tmp_path / "log").iterdir() if path.name.startswith("new-log")] == []


def test_one_log_may_be_used_by_several_threads(log: LocalLog) -> None:
    def add(name: bytes) -> None:
        for _ in range(50):
            log.append("t", 0, [name])

    threads = [threading.Thread(target=add, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values(log), key=str) == sorted((b"%d" % number for number in range(4) for _ in range(50)), key=str)


def test_a_damaged_file_is_reported_as_damaged(tmp_path: Path) -> None:
    (tmp_path / database.FILE_NAME).write_bytes(b"no database at all, but long enough to look at it" * 100)
    with pytest.raises(CorruptError, match="is damaged"):
        LocalLog(tmp_path)


def test_a_file_of_another_version_is_refused(log: LocalLog) -> None:
    connection = sqlite3.connect(log.directory / database.FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InvalidError, match="has format 99"):
        LocalLog(log.directory)


def test_a_log_that_others_keep_locked_is_unavailable(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    holder = sqlite3.connect(log.directory / database.FILE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with LocalLog(log.directory) as waiting:
        assert values(waiting) == [], "reading does not wait for a writer"
        with pytest.raises(UnavailableError, match="locked by others"):
            waiting.append("t", 0, [b"a"])
        holder.execute("ROLLBACK")
        waiting.append("t", 0, [b"b"])
        assert values(waiting) == [b"b"]
    holder.close()


def test_a_failed_write_leaves_nothing(log: LocalLog) -> None:
    with pytest.raises(OverflowError):
        log.append("t", 0, [b"a", b"b"], timestamps=[1, 2**70])
    assert log.end_offset("t", 0) == 0
    log.append("t", 0, [b"c"])
    assert values(log) == [b"c"]


def test_a_copied_directory_is_a_log_of_its_own(log: LocalLog, tmp_path: Path) -> None:
    log.append("t", 0, [b"a"])
    log.close()
    shutil.copytree(log.directory, tmp_path / "copy")
    with LocalLog(tmp_path / "copy") as copy:
        copy.append("t", 0, [b"b"])
        assert values(copy) == [b"a", b"b"]
