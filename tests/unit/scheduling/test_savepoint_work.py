"""The blocking half of what a JobManager has done with savepoints, on real folders."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.unit.scheduling.manifests import handle, manifest
from tests.unit.scheduling.programs import JOB
from tidegate import failpoints
from tidegate.checkpoint.log import SavepointOrigin
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, CheckpointId, LogInstance
from tidegate.savepoints.format import FILE, SavepointReader
from tidegate.scheduling import protocol as p
from tidegate.scheduling.savepoint_work import SavepointPlaces, SavepointWork
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage

NEW = LogInstance("new")


class Fixture:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = CheckpointStore(LocalStorage(folder / "checkpoints"), JOB)
        self.work = SavepointWork(self.store, SavepointPlaces(scratch=folder / "scratch"))
        self.manifest = manifest(5)

    def origin(self, path: str, *, is_claimed: bool = True) -> SavepointOrigin:
        own = self.manifest
        return SavepointOrigin(path, is_claimed, own.instance, own.attempt, own.checkpoint)

    def take_in(self, origin: SavepointOrigin, *, inline: bool = False) -> Manifest:
        return self.work.take_in(p.ImportSavepoint(origin, Attempt(2), CheckpointId(6), NEW, inline))


@pytest.fixture
def found(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def test_a_checkpoint_is_exported_read_and_taken_in_elsewhere(found: Fixture) -> None:
    path = str(found.folder / "here")
    assert found.work.export(found.manifest, path) == path
    assert found.work.read(path).checkpoint == 5
    taken = found.take_in(found.origin(path))
    assert (taken.instance, taken.attempt, taken.checkpoint) == (NEW, 2, 6)
    assert not (found.folder / "scratch" / "savepoint-i0-1-5").exists()


def test_without_a_path_it_is_in_the_jobs_own_folder(found: Fixture) -> None:
    path = found.work.export(found.manifest, None)
    assert path.startswith(f"{found.folder}/checkpoints/orders/savepoints/")
    assert found.work.read(path).checkpoint == 5


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
import tidegate.worker, tidegate.cli.main, tidegate.cli.app
from tidegate.errors import UnavailableError
from tidegate.scheduling.savepoint_work import SavepointPlaces
try:
    SavepointPlaces().scratch_now()
except UnavailableError as error:
    print(error)
"""


def test_where_no_file_can_be_written_all_can_be_imported_and_only_an_export_has_no_room(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("there is no room for temporary files: No usable temporary directory found")
    assert "TMPDIR" in done.stdout


def test_where_checkpoints_are_in_memory_a_path_is_asked_for(found: Fixture) -> None:
    work = SavepointWork(CheckpointStore(MemoryStorage(), JOB), SavepointPlaces(scratch=found.folder / "scratch"))
    with pytest.raises(InvalidError, match="in the memory of its process"):
        work.export(found.manifest, None)
    assert work.export(found.manifest, str(found.folder / "here")) == str(found.folder / "here")


def test_a_folder_that_holds_something_is_refused(found: Fixture) -> None:
    path = str(found.folder / "here")
    found.work.export(found.manifest, path)
    with pytest.raises(InvalidError, match="holds a savepoint already"):
        found.work.export(found.manifest, path)
    assert SavepointReader(LocalStorage(Path(path))).verify() == []


def test_a_savepoint_that_was_exchanged_is_neither_taken_in_nor_dropped(found: Fixture) -> None:
    path = str(found.folder / "here")
    found.work.export(found.manifest, path)
    other = msgspec.structs.replace(found.origin(path), checkpoint=CheckpointId(4))
    with pytest.raises(InvalidError, match="another savepoint"):
        found.take_in(other)
    found.work.drop(other)
    assert (found.folder / "here" / FILE).exists()


def test_a_claimed_savepoint_is_dropped_once_and_its_absence_does_not_matter(found: Fixture) -> None:
    path = str(found.folder / "here")
    found.work.export(found.manifest, path)
    for _ in range(2):
        found.work.drop(found.origin(path))
        assert not (found.folder / "here" / FILE).exists()


def test_a_checkpoint_that_cannot_be_read_leaves_an_empty_target(found: Fixture) -> None:
    broken = manifest(5, handles=[handle(0, 7, "chk-1-5/totals.0.1")])
    with pytest.raises(Exception, match="missing"):
        found.work.export(broken, str(found.folder / "here"))
    assert LocalStorage(found.folder / "here").list("") == []


def test_each_half_is_a_fail_point(found: Fixture) -> None:
    reached: list[str] = []
    failpoints.arm(reached.append)
    try:
        path = str(found.folder / "here")
        found.work.export(found.manifest, path)
        found.take_in(found.origin(path))
    finally:
        failpoints.arm(None)
    assert [name for name in reached if name.startswith("savepoint")] == [
        "savepoint-export:before",
        "savepoint-export:after",
        "savepoint-import:before",
        "savepoint-import:after",
    ]
