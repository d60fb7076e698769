"""A directory as a storage: what killed writers leave, and what it says of a place that cannot be used."""

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from tests.unit.storage.processes import Process
from tidegate.errors import InvalidError
from tidegate.storage.local import TEMPORARY, LocalStorage
from tidegate.storage.port import AlreadyExists, StorageUnavailable
from tidegate.testing.conformance.storage import StartProcess, put_for_ever


def _everything(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_a_put_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.put_if_absent("job/log/0.json", b"entry")
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("job/log/0.json", b"other")
    storage.write("job/log/1.json", b"entry")
    assert _everything(tmp_path) == ["root", "root/job", "root/job/log", "root/job/log/0.json", "root/job/log/1.json"]


def test_a_deletion_takes_along_the_folders_that_it_empties(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for path in ("job/chk-1-1/a", "job/chk-1-1/b", "job/log/0"):
        storage.put_if_absent(path, b"")
    storage.delete("job/chk-1-1/a")
    assert "job/chk-1-1" in _everything(tmp_path)
    storage.delete("job/chk-1-1/b")
    assert _everything(tmp_path) == ["job", "job/log", "job/log/0"]
    storage.delete("job/log/0")
    assert tmp_path.is_dir()
    assert _everything(tmp_path) == []


def test_a_listing_never_shows_unfinished_writes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("job/log/0", b"")
    (tmp_path / "job" / "log" / f"{TEMPORARY}77-0").write_bytes(b"half")
    assert storage.list("job/") == ["job/log/0"]


def test_a_relative_root_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage(Path("checkpoints"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.put_if_absent("a", b"")
    assert (tmp_path / "checkpoints" / "a").exists()


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".tmp-1-1", "a/.hidden", "a b", "a\n"]
)
def test_no_path_leads_out_of_the_root_or_to_a_temporary_file(tmp_path: Path, path: str) -> None:
    storage = LocalStorage(tmp_path)
    for call in (storage.read, storage.exists, storage.delete, partial(storage.write, data=b"")):
        with pytest.raises(InvalidError, match="cannot be the path"):
            call(path)


@pytest.mark.parametrize("prefix", ["a", "/", "../", "a/../", ".tmp/"])
def test_no_listing_leads_out_of_the_root(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidError, match="folder"):
        LocalStorage(tmp_path).list(prefix)


# ---- many writers, killed writers ----------------------------------------------------------------------------------


def test_of_many_threads_one_wins_each_path(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    paths = [f"race/{number}" for number in range(30)]
    won: list[tuple[str, bytes]] = []

    def run(data: bytes) -> None:
        for path in paths:
            try:
                storage.put_if_absent(path, data)
            except AlreadyExists:
                continue
            won.append((path, data))

    threads = [threading.Thread(target=run, args=(b"%d" % number * 1000,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path for path, _ in won) == sorted(paths)
    assert all(storage.read(path) == data for path, data in won)


def test_writers_and_deleters_of_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The folder comes and goes under the writers."""
    storage = LocalStorage(tmp_path)

    def run(name: str) -> None:
        for _ in range(100):
            storage.put_if_absent(f"job/chk-1-1/{name}", name.encode())
            storage.delete(f"job/chk-1-1/{name}")
        storage.put_if_absent(f"job/chk-1-1/{name}", name.encode())

    threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.list("") == [f"job/chk-1-1/{name}" for name in "abcd"]


def test_C09_what_killed_writers_left_is_removed_and_what_living_ones_write_is_not(
    tmp_path: Path, start: StartProcess
) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "killed").mkdir()
    left = tmp_path / "killed" / f"{TEMPORARY}77-0"
    left.write_bytes(b"half")
    living = start(put_for_ever, partial(LocalStorage, tmp_path), "living/")
    while len(storage.list("living/")) < 5:
        storage.check_writable()
    assert not left.exists()
    assert isinstance(living, Process)
    assert living.is_running()


def _put_among_leftovers(root: Path) -> None:
    for number in range(50):
        (root / f"{TEMPORARY}{os.getpid()}-{number}").write_bytes(b"left by an earlier process of this pid")
    LocalStorage(root).put_if_absent("a", b"mine")


def test_a_new_process_takes_no_leftover_for_its_own(tmp_path: Path, start: StartProcess) -> None:
    """In containers every process has the same few pids."""
    start(_put_among_leftovers, tmp_path).join()
    assert len(list(tmp_path.glob(f"{TEMPORARY}*"))) == 50
    storage = LocalStorage(tmp_path)
    assert storage.read("a") == b"mine"
    storage.check_writable()
    assert _everything(tmp_path) == ["a"]


def test_proving_that_it_can_be_written_leaves_nothing_but_the_directory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "with spaces" / "deep")
    storage.check_writable()
    storage.check_writable()
    assert _everything(tmp_path) == ["with spaces", "with spaces/deep"]


# ---- what is wrong with a place ------------------------------------------------------------------------------------


def test_a_file_in_the_way_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for storage in (LocalStorage(tmp_path / "file"), LocalStorage(tmp_path / "file" / "below")):
        for call in (storage.check_writable, partial(storage.put_if_absent, "a/b", b"")):
            with pytest.raises(InvalidError, match=str(tmp_path / "file")) as caught:
                call()
            assert "choose another checkpoints.dir" in caught.value.failure.remedy
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_folder_where_a_file_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(InvalidError, match="cannot read"):
        LocalStorage(tmp_path).read("a/b")


def _fill_up(root: Path) -> None:
    """In a process of its own, which may write no file beyond 64 kB: a real failure in the middle of a write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    storage = LocalStorage(root)
    storage.put_if_absent("small", b"fits")
    for write in (storage.put_if_absent, storage.write):
        with pytest.raises(StorageUnavailable, match=r"cannot (create|write) .*large: File too large"):
            write("large", b"x" * 200_000)


def test_a_write_that_runs_out_of_space_leaves_nothing(tmp_path: Path, start: StartProcess) -> None:
    start(_fill_up, tmp_path).join()
    assert _everything(tmp_path) == ["small"]


def _write_as_nobody(root: Path) -> None:
    os.setuid(65534)
    storage = LocalStorage(root)
    for call in (storage.check_writable, partial(storage.put_if_absent, "new", b""), partial(storage.delete, "old")):
        with pytest.raises(InvalidError, match="Permission denied") as caught:
            call()
        assert "Give this user the right" in caught.value.failure.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_directory_of_somebody_else_is_named_with_a_remedy(tmp_path: Path, start: StartProcess) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    (tmp_path / "old").write_bytes(b"")
    start(_write_as_nobody, tmp_path).join()
    assert _everything(tmp_path) == ["old"]


PERMANENT = [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP]
PASSING = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ESTALE, errno.EMFILE, errno.ETIMEDOUT]


@pytest.mark.parametrize(
    ("number", "kind"), [(n, InvalidError) for n in PERMANENT] + [(n, StorageUnavailable) for n in PASSING]
)
def test_what_may_pass_is_told_from_what_will_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(os, "open", partial(_fail, number))
    with pytest.raises(kind, match=os.strerror(number)):
        storage.put_if_absent("a", b"")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", _HardLinksFail(number))
    for call in (LocalStorage(tmp_path).check_writable, partial(LocalStorage(tmp_path).put_if_absent, "a", b"")):
        with pytest.raises(InvalidError, match="no hard links"):
            call()
    assert _everything(tmp_path) == []


def test_a_file_system_whose_link_replaces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(final: Path, draft: Path) -> None:
        final.unlink()
        os.link(draft, final)

    monkeypatch.setattr(Path, "hardlink_to", replace)
    with pytest.raises(InvalidError, match="two job managers"):
        LocalStorage(tmp_path).check_writable()


def test_C08_a_sync_that_fails_after_the_link_leaves_the_outcome_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for an error that would not pass: the file is there."""
    storage = LocalStorage(tmp_path)
    real = os.fsync
    calls: Iterator[Callable[[int], None]] = iter([real, partial(_fail, errno.EACCES)])

    def fail_the_second_time(descriptor: int) -> None:
        next(calls)(descriptor)

    monkeypatch.setattr(os, "fsync", fail_the_second_time)
    with pytest.raises(StorageUnavailable):
        storage.put_if_absent("a", b"whole")
    monkeypatch.setattr(os, "fsync", real)
    assert storage.read("a") == b"whole"
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("a", b"whole")


def test_a_data_sync_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", partial(_fail, errno.EIO))
    with pytest.raises(StorageUnavailable):
        LocalStorage(tmp_path).put_if_absent("a", b"whole")
    assert _everything(tmp_path) == []


def _synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced from now on: the file's size, or the folder's name."""
    found: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        real(descriptor)
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    monkeypatch.setattr(os, "fsync", record)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are found in /proc")
@pytest.mark.parametrize("operation", ["put_if_absent", "write"])
def test_C09_the_file_and_every_folder_that_leads_to_it_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.put_if_absent("job/log/0", b"")
    synced = _synced(monkeypatch)
    getattr(storage, operation)("job/log/1", b"")
    assert synced[0].startswith(TEMPORARY)
    assert synced[1:] == ["log", "job", "root"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are found in /proc")
def test_who_is_told_that_a_path_exists_may_rely_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer may have been killed between the link and the sync of the folder."""
    storage = LocalStorage(tmp_path / "root")
    storage.put_if_absent("job/0", b"")
    synced = _synced(monkeypatch)
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("job/0", b"")
    assert synced[1:] == ["job", "root"]


def _fail(number: int, *_: object) -> NoReturn:
    raise OSError(number, os.strerror(number))


class _HardLinksFail:
    """Stands in for `Path.hardlink_to` of a file system that has none; an existing name is still noticed first."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __get__(self, final: Path, _: type[Path]) -> "partial[None]":
        return partial(self._link, final)

    def _link(self, final: Path, _: Path) -> None:
        _fail(errno.EEXIST if final.exists() else self.number)
