"""A savepoint holds what its checkpoint held, in one form whatever wrote it, wherever its folder is moved to; a job
that begins from it has all of that in its own folder."""

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import SINK, SPLITS, Job, restored
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.format import FILE, SavepointReader, drop_savepoint
from tidegate.savepoints.importing import import_savepoint
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.reading import read_state
from tidegate.savepoints.rows import read_operator
from tidegate.state import runs
from tidegate.state.operator_pieces import ELEMENTS
from tidegate.state.pieces import Piece
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage

USERS = [f"user-{number}" for number in range(200)]


class Totals(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int, default=0)
    recent = tg.ListState(str)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return filled(Job(tmp_path / "flows", Totals))


def filled(job: Job) -> Job:
    for number, user in enumerate(USERS):
        handles = job.at(user)
        handles["total"].update(number)
        handles["recent"].extend([user, "x"])
    return job


def export(job: Job, manifest: Manifest, folder: Path) -> SavepointReader:
    storage = LocalStorage(folder)
    export_savepoint(manifest, job.store, storage, folder.parent / "scratch")
    return SavepointReader(storage)


def totals(
    manifest: Manifest, files: Any, parallelism: int = 2, backend: str = "object", local: Path = Path()
) -> dict[str, int]:
    found = {}
    for one, handles in restored(manifest, files, Totals, parallelism, backend, local):
        for key in list(one.keys("total")):
            one.set_current_key(key)
            assert handles["recent"].get() == [key, "x"]
            found[key] = handles["total"].value()
        one.close()
    return found


EXPECTED = {user: number for number, user in enumerate(USERS)}


def test_a_savepoint_restores_what_its_checkpoint_held(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    manifest = savepoint.manifest()
    assert totals(manifest, savepoint) == EXPECTED
    source = manifest.operator(OperatorName("orders"))
    assert source is not None
    assert source.splits == SPLITS
    assert [record.sink for record in manifest.operators] == [None, None, SINK]


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_a_savepoint_restores_at_any_parallelism(job: Job, tmp_path: Path, parallelism: int) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    assert totals(savepoint.manifest(), savepoint, parallelism) == EXPECTED


@pytest.mark.parametrize("target", ["object", "rocksdb"])
@pytest.mark.parametrize("source", ["object", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_savepoint_of_each_backend_restores_in_each_other(
    tmp_path: Path, source: str, target: str, parallelism: int
) -> None:
    job = filled(Job(tmp_path / "flows", Totals, backend=source))
    job.complete()
    job.at("user-1")["total"].update(-1)
    savepoint = export(job, job.complete(), tmp_path / "save")
    assert {handle.form for handle in savepoint.manifest().handles} == {"piece"}
    found = totals(savepoint.manifest(), savepoint, parallelism, target, tmp_path / "restored")
    assert found == {**EXPECTED, "user-1": -1}
    assert not (tmp_path / "scratch").exists() or not any((tmp_path / "scratch").iterdir())


def test_the_same_state_makes_the_same_rows_whatever_backend_had_it(tmp_path: Path) -> None:
    rows = []
    for backend in ("object", "rocksdb"):
        job = filled(Job(tmp_path / backend, Totals, backend=backend, name=backend))
        savepoint = export(job, job.complete(), tmp_path / f"save-{backend}")
        operator = savepoint.manifest().operator(OperatorName("totals"))
        assert operator is not None
        rows.append(sorted(read_operator(operator, savepoint, range(16), tmp_path / "scratch")))
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2 * len(USERS)


def test_the_changes_of_several_checkpoints_are_one_state_in_a_savepoint(job: Job, tmp_path: Path) -> None:
    job.complete()
    job.at("user-1")["total"].update(-1)
    job.at("user-2")["total"].clear()
    job.at("user-2")["recent"].clear()
    savepoint = export(job, job.complete(), tmp_path / "save")
    expected = {**EXPECTED, "user-1": -1}
    del expected["user-2"]
    assert totals(savepoint.manifest(), savepoint) == expected
    handles = list(savepoint.manifest().handles)
    assert all(Piece(savepoint.read_state(handle)).header.is_full for handle in handles)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 500)


@pytest.mark.usefixtures("small_files")
def test_large_state_becomes_many_files_each_with_groups_of_its_own(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    manifest = savepoint.manifest()
    assert len(manifest.files) > 8
    groups = [(handle.first_group, handle.last_group) for handle in manifest.handles]
    assert [first for first, _ in groups] == [0, *(last + 1 for _, last in groups[:-1])]
    assert totals(manifest, savepoint, 3) == EXPECTED


@pytest.mark.usefixtures("small_files")
def test_exporting_importing_and_reading_hold_a_small_part_of_the_state_at_once(tmp_path: Path) -> None:
    rows = ({"key": number, "state": "text", "value": "x" * 2000} for number in range(5000))
    states = {"text": tg.ValueState(str)}
    write_savepoint(tmp_path / "first", job="job", operators={"totals": OperatorRows(states, rows)})
    first = SavepointReader(LocalStorage(tmp_path / "first"))
    store = CheckpointStore(LocalStorage(tmp_path / "flows"), JobName("job"))

    def everything() -> None:
        export_savepoint(first.manifest(), first, LocalStorage(tmp_path / "second"), tmp_path / "scratch")
        import_into(first, store)
        assert sum(len(row["value"]) for row in read_state(tmp_path / "second", "totals")) == 10_000_000

    tracemalloc.start()
    try:
        everything()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_pending_transactions_are_left_out(job: Job, tmp_path: Path) -> None:
    manifest = job.complete(pending=True)
    assert any(record.pending for record in manifest.operators)
    savepoint = export(job, manifest, tmp_path / "save")
    assert not any(record.pending for record in savepoint.manifest().operators)


def test_state_without_keys_is_kept_as_it_was(job: Job, tmp_path: Path) -> None:
    checkpoint = job.complete(lists=[list(range(100)), [7]])
    savepoint = export(job, checkpoint, tmp_path / "save")
    before, after = (one.operator(OperatorName("totals")) for one in (checkpoint, savepoint.manifest()))
    assert before is not None
    assert after is not None
    for old, new in zip(before.snapshots, after.snapshots, strict=True):
        assert new.operator_states == old.operator_states
        assert {handle.form for handle in new.operator_handles} == {ELEMENTS}
        contents = [job.store.read_state(handle) for handle in old.operator_handles]
        assert [savepoint.read_state(handle) for handle in new.operator_handles] == contents


def test_the_folder_can_be_moved_and_the_job_removed(job: Job, tmp_path: Path) -> None:
    export(job, job.complete(), tmp_path / "save")
    shutil.move(tmp_path / "save", tmp_path / "elsewhere" / "kept")
    shutil.rmtree(tmp_path / "flows")
    moved = SavepointReader(LocalStorage(tmp_path / "elsewhere" / "kept"))
    assert str(tmp_path) not in (tmp_path / "elsewhere" / "kept" / FILE).read_text()
    assert moved.verify() == []
    assert totals(moved.manifest(), moved) == EXPECTED


def test_a_target_that_holds_anything_is_refused_and_left_alone(job: Job, tmp_path: Path) -> None:
    manifest = job.complete()
    (tmp_path / "save").mkdir()
    (tmp_path / "save" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidError, match=r"save holds letter.txt and perhaps more already"):
        export(job, manifest, tmp_path / "save")
    assert [path.name for path in (tmp_path / "save").iterdir()] == ["letter.txt"]


def test_a_second_savepoint_in_one_folder_is_refused(job: Job, tmp_path: Path) -> None:
    manifest = job.complete()
    first = export(job, manifest, tmp_path / "save")
    with pytest.raises(InvalidError, match="holds a savepoint already"):
        export(job, manifest, tmp_path / "save")
    assert first.verify() == []


@pytest.mark.usefixtures("small_files")
def test_an_export_that_fails_leaves_the_target_as_empty_as_it_was(job: Job, tmp_path: Path) -> None:
    manifest = job.complete()
    damaged = next(path for path in job.folder.rglob("*") if path.is_file() and "totals.1" in path.name)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1])
    with pytest.raises(CorruptError, match=damaged.name):
        export(job, manifest, tmp_path / "save")
    assert LocalStorage(tmp_path / "save").list("") == []
    damaged.write_bytes(content)
    savepoint = export(job, manifest, tmp_path / "save")
    assert totals(savepoint.manifest(), savepoint) == EXPECTED


# ---- beginning from one ----------------------------------------------------------------------------------------------


def import_into(savepoint: SavepointReader, store: CheckpointStore, **options: bool) -> Manifest:
    return import_savepoint(savepoint.storage, store, Attempt(3), CheckpointId(9), LogInstance("new"), **options)


def test_an_imported_savepoint_is_a_checkpoint_in_the_jobs_folder(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    store = CheckpointStore(LocalStorage(tmp_path / "new"), JobName("orders-job"))
    manifest = import_into(savepoint, store)
    assert (manifest.attempt, manifest.checkpoint, manifest.instance) == (3, 9, "new")
    assert sorted(manifest.files) == store.state_files()
    assert all(path.startswith("chk-3-9/totals.") for path in manifest.files)
    shutil.rmtree(tmp_path / "save")
    assert store.verify_manifest(manifest) == []
    assert totals(manifest, store) == EXPECTED


@pytest.mark.usefixtures("small_files")
def test_an_import_that_was_interrupted_is_done_again(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    store = CheckpointStore(LocalStorage(tmp_path / "new"), JobName("orders-job"))
    first = import_into(savepoint, store)
    store.delete_files(sorted(first.files)[1:4])
    assert import_into(savepoint, store) == first
    assert store.verify_manifest(first) == []


def test_another_jobs_savepoint_gives_its_state_and_not_its_sinks(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    store = CheckpointStore(LocalStorage(tmp_path / "new"), JobName("copy"))
    manifest = import_into(savepoint, store)
    assert manifest.job == "copy"
    assert not any(record.sink for record in manifest.operators)
    assert totals(manifest, store) == EXPECTED
    same = import_into(savepoint, CheckpointStore(MemoryStorage(), JobName("orders-job")))
    assert [record.sink for record in same.operators] == [None, None, SINK]


def test_an_import_for_the_memory_preset_has_its_state_in_the_manifest(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    store = CheckpointStore(MemoryStorage(), JobName("orders-job"))
    manifest = import_into(savepoint, store, inline=True)
    assert manifest.files == frozenset()
    elsewhere = CheckpointStore(MemoryStorage(), JobName("orders-job"))
    assert totals(manifest, elsewhere) == EXPECTED


def test_a_damaged_file_is_never_imported(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    damaged = tmp_path / "save" / "state" / "totals.1"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    store = CheckpointStore(LocalStorage(tmp_path / "new"), JobName("orders-job"))
    with pytest.raises(CorruptError, match=r"state/totals.1: has the checksum"):
        import_into(savepoint, store)


def test_a_dropped_savepoint_is_gone_and_what_others_put_there_stays(job: Job, tmp_path: Path) -> None:
    savepoint = export(job, job.complete(), tmp_path / "save")
    (tmp_path / "save" / "notes.txt").write_text("mine")
    (tmp_path / "save" / FILE).unlink()  # as if dropping had been interrupted
    drop_savepoint(savepoint.storage)
    drop_savepoint(savepoint.storage)
    assert savepoint.storage.list("") == ["notes.txt"]
