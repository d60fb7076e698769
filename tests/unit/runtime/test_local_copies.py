"""State that is stored remotely and lies on this machine as well: read from here when it is whole, never trusted, and
never in the way."""

import logging
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.copying_machine import DATA, GROUPS, Machine, deploy_of, name_of, named, names, write
from tidegate.errors import CorruptError
from tidegate.runtime.local_copies import local_copies
from tidegate.state.operator_pieces import ELEMENTS
from tidegate.state.rocksdb.cut import ROCKSDB


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "local")


# ---- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["piece", ELEMENTS])
def test_the_next_attempt_on_the_machine_reads_nothing_from_the_storage(machine: Machine, form: str) -> None:
    handle = machine.attempt(1).files().write("1-0", DATA, GROUPS, form=form)
    assert machine.attempt(2).files().read_state(handle) == DATA
    assert machine.storage.reads == []


@pytest.mark.parametrize("path", ["totals.0", "totals.1"])
def test_a_copy_lies_under_job_log_attempt_operator_and_subtask(machine: Machine, path: str) -> None:
    handle = write(machine.attempt(7).files(int(path[-1])), "1-0")
    (copy,) = machine.copies
    assert copy == machine.local / "job" / "log" / "copies" / "7" / path / name_of(handle)


def test_a_copy_of_any_other_subtask_will_do(machine: Machine) -> None:
    before, after = machine.attempt(1), machine.attempt(2)
    handles = [write(before.files(subtask), "1-0", DATA + bytes([subtask])) for subtask in range(3)]
    for subtask in range(2):
        files = after.files(subtask)
        assert [files.read_state(handle) for handle in handles] == [DATA + bytes([old]) for old in range(3)]
    assert machine.storage.reads == []


def flip_a_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, cut_off, empty, remove, replace_by_folder])
def test_what_is_damaged_here_is_read_from_the_storage_and_copied_anew(
    machine: Machine, damage: Callable[[Path], None]
) -> None:
    handle = write(machine.attempt(1).files(), "1-0")
    damage(machine.copies[0])
    assert machine.attempt(2).files().read_state(handle) == DATA
    assert machine.storage.reads == [f"job/{handle.path}"]
    assert machine.attempt(3).files().read_state(handle) == DATA
    assert len(machine.storage.reads) == 1


def test_of_several_copies_one_that_is_whole_is_enough(machine: Machine) -> None:
    handle = write(machine.attempt(1).files(), "1-0")
    (copy,) = machine.copies
    newer = copy.parents[1].with_name("2") / copy.parent.name / copy.name
    newer.parent.mkdir(parents=True)
    newer.write_bytes(DATA[:-1])
    assert machine.attempt(3).files().read_state(handle) == DATA
    assert machine.storage.reads == []


def test_what_was_restored_on_a_new_machine_is_there_at_the_next_restart(machine: Machine) -> None:
    handle = write(machine.attempt(1).files(), "1-0")
    shutil.rmtree(machine.local)
    assert machine.attempt(2).files().read_state(handle) == DATA
    assert machine.attempt(3).files().read_state(handle) == DATA
    assert machine.storage.reads == [f"job/{handle.path}"]


def test_damage_in_the_storage_that_no_copy_makes_good_is_told_as_ever_and_not_copied(machine: Machine) -> None:
    handle = write(machine.attempt(1).files(), "1-0")
    machine.storage.write(f"job/{handle.path}", DATA[:-1])
    assert machine.attempt(2).files().read_state(handle) == DATA
    shutil.rmtree(machine.local)
    with pytest.raises(CorruptError, match="should have"):
        machine.attempt(3).files().read_state(handle)
    assert machine.copies == []


def test_inlined_state_and_files_of_databases_are_not_copied(machine: Machine) -> None:
    files = machine.attempt(1).files()
    inlined = files.write("1-0", b"little", GROUPS)
    table = files.write("1-1", DATA, GROUPS, form=ROCKSDB, name="000007.sst")
    assert (files.read_state(inlined), files.read_state(table)) == (b"little", DATA)
    assert machine.copies == []


# ---- where there are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["s3://bucket/flows", "hdfs://host:8020/flows", "webhdfs://host:9870/flows"])
def test_there_are_copies_of_what_is_stored_remotely(tmp_path: Path, storage: str) -> None:
    assert local_copies(deploy_of(tmp_path, storage=storage)) is not None
    assert local_copies(deploy_of(tmp_path, storage=storage, local_recovery=False)) is None


@pytest.mark.parametrize("storage", ["/var/flows", "file:///var/flows", "memory:"])
def test_there_are_no_copies_of_what_is_stored_in_a_folder_or_in_memory(tmp_path: Path, storage: str) -> None:
    assert local_copies(deploy_of(tmp_path, storage=storage)) is None


def test_without_a_folder_for_them_there_are_no_copies(tmp_path: Path) -> None:
    deploy = deploy_of(tmp_path)
    nowhere = msgspec.structs.replace(deploy, options=msgspec.structs.replace(deploy.options, local_dir=""))
    assert local_copies(nowhere) is None


# ---- a disk that does not take them ----------------------------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    """Files take 1000 bytes, and then no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_neither_a_checkpoint_nor_a_restore_and_is_told_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    worker = machine.attempt(1)
    files = worker.files()
    with full_disk():
        handles = [write(files, "1-0"), write(files, "1-1", DATA * 2)]
        assert [files.read_state(handle) for handle in handles] == [DATA, DATA * 2]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"state cannot be copied to {worker.copies.root}: File too large;")
    assert "state.local_recovery" in record.getMessage()
    assert machine.copies == [], "a part of a copy is left"

    assert write(files, "1-2", DATA * 3).size == len(machine.copies[0].read_bytes())


def test_a_folder_that_cannot_be_made_fails_neither_a_checkpoint_nor_a_restore(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.local.write_text("a file where the folder should be")
    worker = machine.attempt(1)
    files = worker.files()
    handle = write(files, "1-0")
    assert files.read_state(handle) == DATA
    named(files, 1, handle)
    worker.complete(1)
    assert len(caplog.records) == 1


def test_a_file_system_without_links_gets_the_content_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = write(machine.attempt(1).files(), "1-0")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links")

    monkeypatch.setattr("os.link", refuse)
    after = machine.attempt(2)
    files = after.files()
    assert files.read_state(handle) == DATA
    named(files, 1, handle)
    after.complete(1)
    assert names(machine) == [name_of(handle)]
    assert files.read_state(handle) == DATA
    assert machine.storage.reads == []
