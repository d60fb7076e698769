"""The folder of a savepoint says what it is, whether it is complete and whole, and never names anything outside."""

from pathlib import Path

import msgspec
import pytest

from tidegate.checkpoint.manifest import FORMAT as MANIFEST_FORMAT
from tidegate.checkpoint.manifest import Manifest, OperatorRecord, SubtaskRecord
from tidegate.checkpoint.protocol import Committable, OperatorSnapshot, PendingTransaction, StateHandle
from tidegate.checkpoint.store import checksum
from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex
from tidegate.savepoints.format import FILE, FORMAT, SavepointReader, SavepointWriter, is_savepoint, writing
from tidegate.savepoints.places import StorageFolder, open_savepoint
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import AlreadyExists, NotFound, StorageUnavailable

OPERATOR = OperatorName("totals")
GROUPS = range(16)


def manifest(*handles: StateHandle, pending: tuple[PendingTransaction, ...] = ()) -> Manifest:
    snapshot = OperatorSnapshot(OPERATOR, handles=handles, pending=pending)
    record = OperatorRecord(OPERATOR, 1, False, (SubtaskRecord(SubtaskIndex(0), snapshot),))
    numbers = (Attempt(1), CheckpointId(1), 1, 16, 1.5, 0.25)
    return Manifest(MANIFEST_FORMAT, JobName("job"), LogInstance("log1"), *numbers, (record,))


@pytest.fixture
def savepoint(tmp_path: Path) -> SavepointReader:
    storage = LocalStorage(tmp_path / "save")
    writer = SavepointWriter(storage)
    handles = [writer.write_state(OPERATOR, content, GROUPS) for content in (b"first", b"second")]
    writer.finish(manifest(*handles))
    return SavepointReader(storage)


def rewrite(savepoint: SavepointReader, change: dict[str, object]) -> None:
    path = Path(savepoint.location) / FILE
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), **change}))


def test_what_was_written_is_read(savepoint: SavepointReader) -> None:
    read = savepoint.manifest()
    assert [handle.path for handle in read.handles] == ["state/totals.0", "state/totals.1"]
    assert [savepoint.read_state(handle) for handle in read.handles] == [b"first", b"second"]
    assert (savepoint.verify(), savepoint.unreferenced()) == ([], [])


def test_a_folder_without_its_manifest_is_not_complete(savepoint: SavepointReader, tmp_path: Path) -> None:
    (tmp_path / "save" / FILE).unlink()
    assert is_savepoint(savepoint.storage)
    with pytest.raises(InvalidError, match=r"save is not a complete savepoint: savepoint.json, .* is missing"):
        savepoint.manifest()


def test_where_nothing_is_there_is_no_savepoint(tmp_path: Path) -> None:
    assert not is_savepoint(LocalStorage(tmp_path / "empty"))
    with pytest.raises(InvalidError, match=r"there is no savepoint in .*empty"):
        open_savepoint(str(tmp_path / "empty")).manifest()


def test_a_newer_format_is_refused_by_name(savepoint: SavepointReader) -> None:
    rewrite(savepoint, {"format": FORMAT + 1})
    with pytest.raises(InvalidError, match=f"newer version of Tidegate: savepoint format {FORMAT + 1}, "):
        savepoint.manifest()


def test_a_newer_manifest_is_refused_by_name(savepoint: SavepointReader) -> None:
    text = msgspec.json.encode({"format": MANIFEST_FORMAT + 1, "something": "new"})
    rewrite(savepoint, {"checksum": checksum(text), "savepoint": msgspec.Raw(text)})
    with pytest.raises(InvalidError, match=f"manifest format {MANIFEST_FORMAT + 1}"):
        savepoint.manifest()


def test_a_manifest_cut_off_anywhere_is_noticed(savepoint: SavepointReader, tmp_path: Path) -> None:
    path = tmp_path / "save" / FILE
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError, match=FILE):
            savepoint.manifest()


def test_a_flipped_bit_anywhere_in_the_manifest_is_noticed(savepoint: SavepointReader, tmp_path: Path) -> None:
    path = tmp_path / "save" / FILE
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
        try:
            read = savepoint.manifest()
        except (CorruptError, InvalidError):
            continue
        assert read == manifest(*read.handles), "only what no reader looks at may change unnoticed"
        assert whole[place : place + 1].isspace()


def test_each_damaged_file_is_named(savepoint: SavepointReader, tmp_path: Path) -> None:
    first, second = tmp_path / "save" / "state" / "totals.0", tmp_path / "save" / "state" / "totals.1"
    first.unlink()
    second.write_bytes(b"secomd")
    problems = savepoint.verify()
    assert [(problem.operator, problem.where) for problem in problems] == [
        ("totals", "state/totals.0"),
        ("totals", "state/totals.1"),
    ]
    assert problems[0].why.startswith("missing; 5 bytes")
    assert problems[1].why.startswith("has the checksum")
    second.write_bytes(b"sec")
    assert savepoint.verify()[1].why == "has 3 bytes and should have 6"


def test_what_it_does_not_name_is_told(savepoint: SavepointReader, tmp_path: Path) -> None:
    (tmp_path / "save" / "state" / "totals.7").write_bytes(b"stray")
    assert savepoint.unreferenced() == ["state/totals.7"]


@pytest.mark.parametrize(
    "path", ["../flows/log/1", "/etc/passwd", "chk-1-1/totals.0", "state/../x.0", "savepoint.json"]
)
def test_a_path_that_leads_out_of_the_savepoint_is_never_followed(path: str) -> None:
    outside = manifest(StateHandle(0, 15, 1, checksum(b"x"), path=path))
    writer = SavepointWriter(MemoryStorage())
    with pytest.raises(InternalError, match="not the path of a file of a savepoint"):
        writer.finish(outside)
    text = msgspec.json.encode(outside)
    storage = MemoryStorage()
    storage.put_if_absent(FILE, b'{"format": 1, "checksum": "%s", "savepoint": %s}' % (checksum(text).encode(), text))
    with pytest.raises(CorruptError, match="not the path of a file of a savepoint"):
        SavepointReader(storage).manifest()


def test_a_savepoint_with_something_still_to_commit_is_never_written() -> None:
    pending = (PendingTransaction(CheckpointId(1), Committable("job:log1:1:out:0:0")),)
    with pytest.raises(InternalError, match="still to be committed"):
        SavepointWriter(MemoryStorage()).finish(manifest(pending=pending))


# ---- two writers, and storages that do not answer --------------------------------------------------------------------


def test_of_two_writers_at_once_one_is_refused_and_removes_nothing_of_the_other() -> None:
    storage = MemoryStorage()
    one, other = SavepointWriter(storage), SavepointWriter(storage)
    handle = one.write_state(OPERATOR, b"same", GROUPS)
    with pytest.raises(InvalidError, match="written by somebody else"):
        other.write_state(OPERATOR, b"same", GROUPS)
    other.undo()
    one.finish(manifest(handle))
    assert SavepointReader(storage).verify() == []


class Forgetful(MemoryStorage):
    """Does what it is told and does not say so, from the given write on."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        self.answers -= 1
        if self.answers < 0:
            raise StorageUnavailable(f"no answer about {path}")


@pytest.mark.parametrize("answers", range(3))
def test_a_write_without_an_answer_fails_the_savepoint_and_is_undone(answers: int) -> None:
    storage = Forgetful(answers)

    def write(writer: SavepointWriter) -> None:
        handles = [writer.write_state(OPERATOR, content, GROUPS) for content in (b"first", b"second")]
        writer.finish(manifest(*handles))

    with pytest.raises(StorageUnavailable):
        writing(storage, write)
    assert storage.list("") == []


# ---- a folder of a storage -------------------------------------------------------------------------------------------


def test_a_folder_of_a_storage_is_a_storage_of_its_own() -> None:
    whole = MemoryStorage()
    whole.put_if_absent("job/savepoints/a-2/state/x.0", b"other")
    folder = StorageFolder(whole, "job/savepoints/a")
    folder.put_if_absent("state/x.0", b"1")
    with pytest.raises(AlreadyExists, match=r"^state/x.0$"):
        folder.put_if_absent("state/x.0", b"2")
    folder.write("y", b"3")
    assert (folder.list(""), folder.list("state/")) == (["state/x.0", "y"], ["state/x.0"])
    assert (folder.read("y"), folder.exists("y"), folder.exists("z")) == (b"3", True, False)
    with pytest.raises(NotFound, match=r"^z$"):
        folder.read("z")
    folder.delete("y")
    assert whole.list("job/") == ["job/savepoints/a-2/state/x.0", "job/savepoints/a/state/x.0"]
    assert folder.location.endswith("job/savepoints/a")
