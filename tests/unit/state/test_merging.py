"""Merges keep a chain short and what is written in proportion to what changes, and lose nothing."""

import random

import pytest

from tidegate.checkpoint.protocol import StateHandle
from tidegate.errors import CorruptError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state import merging, runs
from tidegate.state.descriptors import ValueState
from tidegate.state.merging import FAN_IN, MAX_CHANGES, choose
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.pieces import Piece
from tidegate.state.runs import Run
from tidegate.testing.conformance.state_kit import OPERATOR, KeptFiles, Taken

KEYS = 3000
DESCRIPTOR = ValueState(bytes, name="data")


def chain(*sizes: int) -> list[Run]:
    return [Run((StateHandle(0, 7, size, "checksum", str(place)),), size) for place, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), range(0)),
        ((100,), range(0)),
        ((100, 1), range(0)),
        ((100, 201), range(2)),
        ((1000, *(10,) * (FAN_IN - 1)), range(0)),
        ((1000, *(10,) * FAN_IN), range(1, FAN_IN + 1)),
        ((1000, 200, *(10,) * FAN_IN), range(2, FAN_IN + 2)),
        ((1000, 30, *(10,) * (FAN_IN - 1)), range(1, FAN_IN + 1)),
        ((100, *(10,) * FAN_IN), range(FAN_IN + 1)),
    ],
)
def test_similar_neighbours_are_merged_and_all_when_changes_are_a_good_part(
    sizes: tuple[int, ...], expected: range
) -> None:
    assert choose(chain(*sizes)) == expected


def test_a_chain_of_ever_smaller_runs_is_merged_before_it_is_too_long() -> None:
    sizes = [4**exponent for exponent in range(MAX_CHANGES + 1, 0, -1)]
    chosen = choose(chain(10 * sizes[0], *sizes))
    assert chosen.stop == len(sizes) + 1
    assert 2 <= len(chosen) <= 4


class Job:
    """One subtask whose checkpoints complete, or do not, as a test says; files go as soon as nothing needs them."""

    def __init__(self, backend: ObjectStateBackend, files: KeptFiles) -> None:
        self.backend = backend
        self.files = files
        self.handle = backend.register(DESCRIPTOR)
        self.last = 0
        self.kept: Taken | None = None
        self.kept_values: dict[int, bytes] = {}
        self.values: dict[int, bytes] = {}

    def write(self, key: int, value: bytes | None) -> None:
        self.backend.set_current_key(key)
        if value is None:
            self.handle.clear()
            self.values.pop(key, None)
        else:
            self.handle.update(value)
            self.values[key] = value

    def checkpoint(self, *, completes: bool = True) -> Taken:
        self.last += 1
        taken = Taken(self.backend.capture(CheckpointId(self.last)), self.files)
        named = taken.paths
        kept = self.kept.paths if self.kept is not None else set()
        if not completes:
            self.files.delete(named - kept)
            self.backend.abandoned(CheckpointId(self.last))
            return taken
        self.files.delete(kept - named)
        self.kept, self.kept_values = taken, dict(self.values)
        self.backend.completed(CheckpointId(self.last))
        work = self.backend.maintenance()
        if work is not None:
            work.run(self.files)
            work.finish(None)
        return taken

    def restored(self) -> dict[int, bytes]:
        assert self.kept is not None
        after = ObjectStateBackend(OPERATOR, SubtaskIndex(0), 1, 32)
        after.restore([self.kept.snapshot()], self.files)
        handle = after.register(DESCRIPTOR)
        found = {}
        for key in list(after.keys("data")):
            after.set_current_key(key)
            found[key] = handle.value()
        return found


def filled(files: KeptFiles) -> Job:
    job = Job(ObjectStateBackend(OPERATOR, SubtaskIndex(0), 1, 32), files)
    for key in range(KEYS):
        job.write(key, key.to_bytes(4, "big") * 25)
    job.checkpoint()
    return job


def test_over_200_checkpoints_what_is_written_stays_in_proportion_to_what_changed() -> None:
    """Each changed byte is written at most so many times in all, and the number of files never passes its bound."""
    files = KeptFiles()
    job = filled(files)
    chance = random.Random(1)
    begin, changed, handles = sum(files.sizes), 0, 0
    for round_ in range(200):
        before = len(files.sizes)
        for key in chance.sample(range(KEYS), KEYS // 100):
            job.write(key, round_.to_bytes(4, "big") * 25)
        job.checkpoint()
        changed += files.sizes[before]
        handles = max(handles, len(job.kept.handles if job.kept is not None else ()))
    written = sum(files.sizes) - begin
    assert written <= 8 * changed
    assert handles <= 1 + MAX_CHANGES + 1
    assert sum(len(data) for data in files.contents.values()) <= 3 * begin
    assert job.restored() == job.values


def test_nothing_that_was_merged_is_lost_when_checkpoints_are_abandoned_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(merging, "FAN_IN", 3)
    files = KeptFiles()
    job = filled(files)
    chance = random.Random(2)
    for round_ in range(150):
        for key in chance.sample(range(KEYS), 30):
            job.write(key, None if chance.random() < 0.3 else round_.to_bytes(4, "big"))
        job.checkpoint(completes=chance.random() < 0.5)
        if round_ % 10 == 9:
            assert job.restored() == job.kept_values
    job.checkpoint()
    assert job.restored() == job.values


def test_a_partial_merge_keeps_what_was_removed_from_what_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 2)
    files = KeptFiles()
    job = filled(files)
    job.write(1, None)
    job.checkpoint()
    job.write(2, b"changed")
    job.checkpoint()
    merged = job.checkpoint()
    assert len(merged.handles) == 2
    piece = Piece(merged.contents[1])
    assert not piece.header.is_full
    assert job.restored() == job.values


def test_a_merge_into_the_full_run_forgets_what_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FULL_SHARE_OF_FEW", 0)
    job = filled(KeptFiles())
    for key in range(1, KEYS):
        job.write(key, None)
    assert len(job.checkpoint().handles) == 2
    (handle,) = job.checkpoint().handles
    assert handle.size < 1000
    assert job.restored() == {0: bytes(100)}
    job.write(0, None)
    job.checkpoint()
    assert job.checkpoint().handles == ()


def test_a_merge_whose_files_are_gone_is_left_for_later() -> None:
    files = KeptFiles()
    job = filled(files)
    backend = job.backend
    for checkpoint in (2, 3, 4):
        for key in range(KEYS):
            job.write(key, b"y" * 90)
        job.kept = Taken(backend.capture(CheckpointId(checkpoint)), files)
        _ = job.kept.handles
        backend.completed(CheckpointId(checkpoint))
    work = backend.maintenance()
    assert work is not None
    assert backend.maintenance() is None
    whole, files.contents = files.contents, {}
    with pytest.raises(CorruptError, match="gone"):
        work.run(files)
    work.finish(CorruptError("gone"))
    files.contents = whole
    assert job.restored() == job.values
    assert backend.maintenance() is not None


def test_large_state_is_cut_into_pieces_between_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 50_000)
    files = KeptFiles()
    job = filled(files)
    assert job.kept is not None
    handles = job.kept.handles
    assert len(handles) > 4
    assert [handle.first_group for handle in handles[1:]] == [handle.last_group + 1 for handle in handles[:-1]]
    assert (handles[0].first_group, handles[-1].last_group) == (0, 31)
    assert max(handle.size for handle in handles) < 70_000
    assert job.restored() == job.values


def test_a_restored_chain_is_gone_on_with_also_after_rescaling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 50_000)
    files = KeptFiles()
    job = filled(files)
    for key in range(10):
        job.write(key, b"changed")
    taken = job.checkpoint()
    for subtask in range(2):
        backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(subtask), 2, 32)
        groups = range(16 * subtask, 16 * subtask + 16)
        backend.restore([taken.snapshot(groups)], files)
        backend.register(DESCRIPTOR)
        again = Taken(backend.capture(CheckpointId(9)), files)
        assert again.handles == taken.snapshot(groups).handles
