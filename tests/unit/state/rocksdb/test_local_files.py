"""Files on the worker's own disk: a cache that spares reading what is stored, and is never trusted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.state.rocksdb.tools import Attempts, clip, snapshot_of, tables
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.checkpoint.store import checksum
from tidegate.errors import CorruptError, UnavailableError
from tidegate.ids import Attempt, CheckpointId
from tidegate.state.descriptors import ValueState
from tidegate.state.rocksdb import RocksStateBackend, remove_old_attempts
from tidegate.state.rocksdb.folders import BackendFolder, LocalTables

TOTAL = ValueState(int, default=0, name="total")


def filled(attempts: Attempts) -> tuple[RocksStateBackend, OperatorSnapshot]:
    """A backend with two tables, and its checkpoint."""
    backend = attempts.backend()
    total = backend.register(TOTAL)
    for number in range(200):
        backend.set_current_key(number)
        total.update(number % 100)
        if number == 100:
            attempts.take(backend)
    return backend, attempts.take(backend)


def check_whole(backend: RocksStateBackend) -> None:
    total = backend.register(TOTAL)
    for key in range(200):
        backend.set_current_key(key)
        assert total.value() == key % 100


def test_after_a_crash_on_this_machine_no_table_is_read_from_the_storage(attempts: Attempts) -> None:
    _, snapshot = filled(attempts)
    attempts.crash()
    check_whole(attempts.restored([snapshot]))
    assert not [path for path in attempts.files.reads if path.endswith(".sst")]


def test_rescaling_on_this_machine_reads_no_table_from_the_storage(attempts: Attempts) -> None:
    _, snapshot = filled(attempts)
    attempts.crash()
    halves = [attempts.restored([snapshot], subtask, 2) for subtask in range(2)]
    for half in halves:
        half.register(TOTAL)
    assert sorted(key for half in halves for key in half.keys("total")) == list(range(200))
    assert not [path for path in attempts.files.reads if path.endswith(".sst")]


def test_tables_that_the_database_has_merged_away_are_still_there_for_the_next_attempt(attempts: Attempts) -> None:
    backend, snapshot = filled(attempts)
    assert backend._database is not None
    backend._database._db.compact_range(None, None)
    attempts.crash()
    check_whole(attempts.restored([snapshot]))
    assert not [path for path in attempts.files.reads if path.endswith(".sst")]


def test_B04_a_table_that_was_damaged_here_before_it_was_stored_never_gives_another_value(attempts: Attempts) -> None:
    """What is stored is what the disk had, so only the blocks' own checksums can tell."""
    refused = 0
    for round_ in range(24):
        attempts.crash()
        backend = attempts.backend(cache_bytes=0)
        total = backend.register(TOTAL)
        for number in range(200):
            backend.set_current_key(number)
            total.update(number % 100)
        capture = backend.capture(CheckpointId(round_ + 1))
        capture.cut.make()
        (table,) = capture.cut.folder.glob("*.sst")
        with table.open("r+b") as file:
            place = table.stat().st_size * round_ // 24
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 0x40]))
        snapshot = snapshot_of(capture, attempts.files)
        backend.close()
        attempts.crash()
        try:
            check_whole(attempts.restored([snapshot]))
        except (CorruptError, UnavailableError):
            refused += 1
    assert refused >= 6, "hardly any of it was noticed"


def test_B12_a_byte_that_was_flipped_on_this_machine_is_noticed_and_the_stored_file_is_read(attempts: Attempts) -> None:
    _, snapshot = filled(attempts)
    damaged = min(tables(snapshot))
    for path in attempts.folder.rglob(damaged):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
    attempts.crash()
    check_whole(attempts.restored([snapshot]))
    assert [path for path in attempts.files.reads if path.endswith(".sst")] == [tables(snapshot)[damaged]]


def test_on_another_machine_everything_is_read_from_the_storage_once(attempts: Attempts, folder: Path) -> None:
    _, snapshot = filled(attempts)
    attempts.crash()
    attempts.folder = folder / "elsewhere"
    check_whole(attempts.restored([snapshot]))
    assert attempts.files.reads == {handle.path: 1 for handle in snapshot.handles}


@pytest.mark.parametrize("is_missing", [True, False])
def test_B04_a_stored_file_that_is_damaged_or_missing_is_corrupt_and_named(
    attempts: Attempts, folder: Path, is_missing: bool
) -> None:
    _, snapshot = filled(attempts)
    attempts.folder = folder / "elsewhere"
    whole = dict(attempts.files.contents)
    for handle in snapshot.handles:
        path = str(handle.path)
        if is_missing:
            del attempts.files.contents[path]
        else:
            attempts.files.contents[path] = whole[path][:-1] + bytes([whole[path][-1] ^ 1])
        attempts.crash()
        with pytest.raises(CorruptError, match=path):
            attempts.restored([snapshot])
        attempts.files.contents[path] = whole[path]
    attempts.crash()
    check_whole(attempts.restored([snapshot]))


def test_a_snapshot_that_names_too_few_files_is_corrupt(attempts: Attempts, folder: Path) -> None:
    _, snapshot = filled(attempts)
    attempts.folder = folder / "elsewhere"
    for left_out in snapshot.handles:
        cut = OperatorSnapshot(
            snapshot.name,
            key_type=snapshot.key_type,
            states=snapshot.states,
            handles=tuple(handle for handle in snapshot.handles if handle != left_out),
        )
        attempts.crash()
        with pytest.raises(CorruptError):
            attempts.restored([cut])


def test_files_are_removed_when_a_newer_checkpoint_has_completed_and_nothing_else_stays(attempts: Attempts) -> None:
    backend, _ = filled(attempts)
    attempts.take(backend, is_completed=False)
    backend.capture(CheckpointId(99)).store(attempts.files)
    backend.abandoned(CheckpointId(99))
    maintenance = backend.maintenance()
    assert maintenance is not None
    maintenance.run(attempts.files)
    assert [path.name for path in sorted((attempts.folder / "1" / "totals.0" / "cuts").iterdir())] == ["2"]
    assert backend.maintenance() is None


def test_a_capture_that_is_abandoned_while_it_is_stored_leaves_no_files(attempts: Attempts) -> None:
    backend, _ = filled(attempts)
    capture = backend.capture(CheckpointId(99))
    backend.abandoned(CheckpointId(99))
    maintenance = backend.maintenance()
    assert maintenance is not None
    maintenance.run(attempts.files)
    capture.store(attempts.files)
    assert not capture.cut.folder.exists()


def test_only_files_of_other_attempts_and_of_the_same_operator_are_looked_at(folder: Path) -> None:
    for place in ("1/totals.0/database", "1/other.0/database", "2/totals.1/read-1", "2/totals.0/database"):
        (folder / place).mkdir(parents=True)
        (folder / place / "7.sst").write_bytes(place.encode())
    local = LocalTables(BackendFolder(folder / "2" / "totals.0"))
    linked = []
    for number, path in enumerate(sorted(folder.rglob("*.sst"))):
        data = path.read_bytes()
        handle = StateHandle(0, 0, len(data), checksum(data), "stored", form="rocksdb", name="7.sst")
        if local.link(handle, folder / f"link-{number}"):
            linked.append(data.decode())
    assert linked == ["1/totals.0/database"]


def test_a_table_that_vanishes_meanwhile_is_read_from_the_storage(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, snapshot = filled(attempts)
    attempts.crash()
    link = LocalTables.link

    def vanish_and_link(self: LocalTables, handle: StateHandle, target: Path) -> bool:
        shutil.rmtree(attempts.folder / "1", ignore_errors=True)
        return link(self, handle, target)

    monkeypatch.setattr(LocalTables, "link", vanish_and_link)
    check_whole(attempts.restored([snapshot]))
    assert [path for path in attempts.files.reads if path.endswith(".sst")]


def test_only_older_attempts_are_removed(folder: Path) -> None:
    for name in ("1", "2", "3", "10", "notes"):
        (folder / name / "totals.0").mkdir(parents=True)
    remove_old_attempts(folder, Attempt(3))
    assert sorted(path.name for path in folder.iterdir()) == ["10", "3", "notes"]


def test_B12_a_database_that_another_process_has_open_stays(folder: Path) -> None:
    database = folder / "1" / "totals.0" / "database"
    code = (
        "import sys; from rocksdict import Rdict; db = Rdict(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    database.parent.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        remove_old_attempts(folder, Attempt(2))
        assert database.is_dir()
        process.kill()
        process.wait()
    remove_old_attempts(folder, Attempt(2))
    assert not database.exists()


def test_a_local_disk_that_fails_asks_for_a_restart(attempts: Attempts, folder: Path) -> None:
    _, snapshot = filled(attempts)
    attempts.crash()
    (folder / "2").write_text("in the way")
    with pytest.raises(UnavailableError, match="totals"):
        attempts.restored([clip(snapshot, range(16))])
