"""The files of state of whole jobs, on both backends: what they are based on, and what becomes of one that is damaged
(B01, B04)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.retaining import JOB, USERS, Totals, kept
from tests.integration.stepping import BACKENDS
from tests.integration.test_retention import assert_all_can_be_gone_on_from
from tests.integration.totals_program import Total
from tidegate.errors import CorruptError
from tidegate.storage.local import LocalStorage
from tidegate.storage.port import StorageUnavailable

_CHECKPOINT = re.compile(r"/shared/\d+/totals\.\d+\.(\d+)(?!\d|-merged)")


def checkpoint_of(path: str) -> int:
    """For which checkpoint a file of state was written; 0 for any other, also for the outcome of a merge behind one."""
    found = _CHECKPOINT.search(path)
    return int(found[1]) if found else 0


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Checkpoints of which the last file could not be stored, though others were: every second one."""
    found: set[int] = set()
    put = LocalStorage.put_if_absent
    written: dict[int, int] = {}

    def failing(storage: LocalStorage, path: str, data: bytes) -> None:
        checkpoint = checkpoint_of(path)
        if checkpoint and checkpoint % 2 == 0:
            written[checkpoint] = written.get(checkpoint, 0) + 1
            if written[checkpoint] > 1:
                found.add(checkpoint)
                raise StorageUnavailable("the storage does not answer")
        put(storage, path, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", failing)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_B01_where_every_second_checkpoint_is_abandoned_those_between_rest_on_none_of_them(
    tmp_path: Path, backend: str, refused: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Totals(tmp_path / "job", backend, retained=50)
    job.feed(USERS)
    while len(refused) < 3:  # a checkpoint of RocksDB that wrote one file has no second one to refuse
        job.run_totals(2, 5, fed=3 * USERS)
    completed = [manifest.checkpoint for manifest in kept(job.store)]
    assert not refused & set(completed)
    assert len(completed) >= 5
    bases = {checkpoint_of(f"/{path}") for manifest in kept(job.store) for path in manifest.files}
    assert not bases & refused
    job.assert_right()
    monkeypatch.undo()
    assert_all_can_be_gone_on_from(job, tmp_path / "copies")


def damaged(data: bytes) -> Iterator[tuple[int, bytes]]:
    """With one byte changed: in front, in the middle, and at the end."""
    for place in (0, len(data) // 2, len(data) - 1):
        yield place, data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@pytest.mark.parametrize("backend", ["fs", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_B04_a_byte_that_was_flipped_in_any_stored_file_of_the_newest_checkpoint_stops_the_start(
    tmp_path: Path, backend: str
) -> None:
    job = Totals(tmp_path / "job", backend)
    job.feed(USERS)
    job.run_totals(2, 3)
    out, newest = job.output(Total), job.newest
    assert newest is not None
    assert len(newest.files) >= 2
    for name in sorted(newest.files):
        path = job.checkpoints / JOB / name
        data = path.read_bytes()
        for place, wrong in damaged(data):
            path.write_bytes(wrong)
            # Nothing of it is on this machine any more, where it could be read instead.
            job.local = tmp_path / f"local-{path.name}-{place}"
            with pytest.raises(CorruptError, match=re.escape(path.name)):
                job.run_totals(2)
            path.write_bytes(data)
    assert job.output(Total) == out
    job.run_totals(3)
    job.assert_right()
