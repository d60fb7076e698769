"""Files of a stored RocksDB that somebody has been at: corrupt, refused, or read as what was there. Also where the
checksum that a checkpoint keeps of each file fits what was done to it."""

import msgspec
import pytest

pytest.importorskip("rocksdict")

from pathlib import Path

from tests.unit.savepoints.checkpoints import make_backend
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.checkpoint.store import checksum
from tidegate.errors import CorruptError, InvalidError, UnavailableError
from tidegate.ids import CheckpointId, OperatorName
from tidegate.savepoints.rows import read_rows
from tidegate.state.descriptors import MapState, ValueState
from tidegate.state.pieces import StoredRow
from tidegate.testing.conformance.state_kit import KeptFiles, Taken

GROUPS = range(16)
STEP = 211
"""Between two bytes that are changed; a prime, so that other ones are met in each file."""


class Stored:
    """A database in a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.files = KeptFiles()
        self._scratch = folder / "scratch"
        backend = make_backend("rocksdb", 0, 1, folder / "local")
        total, devices = (
            backend.register(ValueState(int, name="total")),
            backend.register(MapState(str, int, name="devices")),
        )
        for number in range(40):
            backend.set_current_key(f"user-{number}")
            total.update(number)
            devices.put("phone", number)
        self.snapshot = Taken(backend.capture(CheckpointId(1)), self.files).snapshot()
        backend.close()

    def rows(self, snapshot: OperatorSnapshot | None = None) -> list[StoredRow]:
        return list(read_rows(snapshot or self.snapshot, self.files, GROUPS, self._scratch))

    def with_file(self, index: int, data: bytes) -> OperatorSnapshot:
        """The snapshot with other content of one file, as if that had been stored."""
        handles = list(self.snapshot.handles)
        path = f"damaged-{index}"
        self.files.contents[path] = data
        handles[index] = msgspec.structs.replace(handles[index], path=path, size=len(data), checksum=checksum(data))
        return msgspec.structs.replace(self.snapshot, handles=tuple(handles))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored(tmp_path_factory.mktemp("database"))


def test_damage_of_any_file_is_noticed_by_its_checksum(stored: Stored) -> None:
    for handle in stored.snapshot.handles:
        right = stored.files.contents[str(handle.path)]
        for position in range(0, len(right), STEP):
            stored.files.contents[str(handle.path)] = right[:position] + b"?!" + right[position + 2 :]
            with pytest.raises(CorruptError):
                stored.rows()
        stored.files.contents[str(handle.path)] = right


def test_damage_that_no_checksum_of_ours_shows_gives_an_error_or_what_was_there(stored: Stored) -> None:
    right = stored.rows()
    assert len(right) == 80
    for index, handle in enumerate(stored.snapshot.handles):
        data = stored.files.contents[str(handle.path)]
        changed = [data[:at] + bytes((data[at] ^ 0x41,)) + data[at + 1 :] for at in range(0, len(data), STEP)]
        for other in (*changed, b"", data[: len(data) // 2], data + data):
            try:
                found = stored.rows(stored.with_file(index, other))
            except (CorruptError, InvalidError, UnavailableError):
                continue
            assert found == right, handle.name


@pytest.mark.parametrize("name", ["", ".", "..", "../000001.sst", "a/b", "/etc/passwd", "a\0b", "x" * 300])
def test_a_file_with_an_impossible_name_is_refused(stored: Stored, name: str) -> None:
    handles = (msgspec.structs.replace(stored.snapshot.handles[0], name=name), *stored.snapshot.handles[1:])
    with pytest.raises((CorruptError, UnavailableError)):
        stored.rows(msgspec.structs.replace(stored.snapshot, name=OperatorName("totals"), handles=handles))
