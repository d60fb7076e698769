"""Checkpoints of the RocksDB backend: cuts that are made late, and tables that checkpoints share."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.rocksdb.tools import GROUPS, Attempts, clip, snapshot_of, tables
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import UnavailableError
from tidegate.ids import CheckpointId
from tidegate.state.descriptors import ListState, ValueState
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.rocksdb import RocksStateBackend
from tidegate.state.rocksdb.cut import Cut
from tidegate.state.rocksdb.database import Database
from tidegate.state.rocksdb.memory import RocksMemory

TOTAL = ValueState(int, default=0, name="total")
SEEN = ListState(int, name="seen")


def write(backend: RocksStateBackend, numbers: range, handle: Any = None) -> None:
    """A number for as many keys, in the state `total`."""
    total = handle or backend.register(TOTAL)
    for number in numbers:
        backend.set_current_key(f"user-{number}")
        total.update(number)


def read(attempts: Attempts, snapshot: OperatorSnapshot) -> dict[str, int]:
    """What a checkpoint holds in the state `total`."""
    attempts.crash()
    backend = attempts.restored([snapshot])
    total = backend.register(TOTAL)
    found = {}
    for key in backend.keys("total"):
        backend.set_current_key(key)
        found[key] = total.value()
    return found


# ---- cuts ----------------------------------------------------------------------------------------------------------


def test_what_is_written_before_the_cut_is_made_is_not_in_it(attempts: Attempts) -> None:
    backend = attempts.backend(cache_bytes=0)
    total = backend.register(TOTAL)
    write(backend, range(20), total)
    capture = backend.capture(CheckpointId(1))
    write(backend, range(10, 40), total)
    assert read(attempts, snapshot_of(capture, attempts.files)) == {f"user-{n}": n for n in range(20)}


def test_a_full_cache_makes_the_cut_before_it_writes(attempts: Attempts) -> None:
    backend = attempts.backend(cache_bytes=0)
    total = backend.register(TOTAL)
    write(backend, range(3), total)
    capture = backend.capture(CheckpointId(1))
    assert not capture.cut.is_made
    write(backend, range(3, 6), total)
    assert capture.cut.is_made


def test_a_barrier_does_not_wait_for_the_files(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    write(backend, range(100), total)
    capture = backend.capture(CheckpointId(1))
    write(backend, range(50, 150), total)
    assert not capture.cut.is_made
    assert not capture.cut.folder.exists()


def test_a_cut_that_two_threads_want_is_made_once_and_both_wait_for_it(folder: Path) -> None:
    database = Database(folder / "database", RocksMemory(RocksMemory.LIMIT_MIN))
    batch = database.batch()
    batch.put(b"\x00\x00row", b"value")
    database.write(batch)
    cut = Cut(database, folder / "cut")
    threads = [threading.Thread(target=cut.make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cut.is_made
    assert not cut.is_empty
    assert len(list((folder / "cut").glob("*.sst"))) == 1
    database.close()


def test_storing_beside_processing_gives_the_state_at_each_barrier(attempts: Attempts) -> None:
    backend = attempts.backend(cache_bytes=4096)
    total, seen = backend.register(TOTAL), backend.register(SEEN)
    expected, snapshots, number = [], [], 0
    for checkpoint in range(1, 6):
        capture = backend.capture(CheckpointId(checkpoint))
        expected.append(number)
        found: list[OperatorSnapshot] = []
        thread = threading.Thread(target=lambda c=capture, f=found: f.append(snapshot_of(c, attempts.files)))
        thread.start()
        for _ in range(500):
            backend.set_current_key(f"user-{number % 50}")
            total.update(number)
            seen.add(number)
            number += 1
        thread.join()
        snapshots += found
        backend.completed(CheckpointId(checkpoint))
    for records, snapshot in zip(expected[1:], snapshots[1:], strict=True):
        attempts.crash()
        after = attempts.restored([snapshot])
        total, seen = after.register(TOTAL), after.register(SEEN)
        for user in range(50):
            after.set_current_key(f"user-{user}")
            assert seen.get() == list(range(user, records, 50))
            assert total.value() == seen.get()[-1]


def test_a_backend_that_is_closed_while_its_cut_is_made_waits_for_that(attempts: Attempts) -> None:
    for _ in range(20):
        attempts.crash()
        backend = attempts.backend()
        write(backend, range(2000))
        capture = backend.capture(CheckpointId(1))
        thread = threading.Thread(target=capture.cut.make)
        thread.start()
        while not capture.cut._turn.locked() and not capture.cut.is_made:
            pass
        backend.close()
        thread.join()
        assert capture.cut.is_made


def test_a_cut_that_was_not_made_when_the_backend_was_closed_fails_the_checkpoint(attempts: Attempts) -> None:
    backend = attempts.backend()
    write(backend, range(10))
    capture = backend.capture(CheckpointId(1))
    backend.close()
    backend.close()
    with pytest.raises(UnavailableError):
        capture.store(attempts.files)


def test_a_barrier_without_a_change_makes_the_cut_before_it(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    write(backend, range(10), total)
    first, second = backend.capture(CheckpointId(1)), backend.capture(CheckpointId(2))
    second.store(attempts.files)
    write(backend, range(10, 20), total)
    attempts.checkpoint = 2
    attempts.take(backend)
    assert read(attempts, snapshot_of(first, attempts.files)) == {f"user-{n}": n for n in range(10)}


# ---- shared tables -------------------------------------------------------------------------------------------------


def test_tables_of_a_completed_checkpoint_are_named_again_and_not_stored_again(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    write(backend, range(1000), total)
    first = attempts.take(backend)
    stored = len(attempts.files.contents)
    write(backend, range(3), total)
    second = attempts.take(backend)
    assert tables(first).items() < tables(second).items()
    new = [handle for handle in second.handles if handle not in first.handles]
    assert len(attempts.files.contents) == stored + len(new)
    assert sum(handle.size for handle in new) < sum(handle.size for handle in first.handles) / 2


def test_nothing_changed_stores_only_the_small_files(attempts: Attempts) -> None:
    backend = attempts.backend()
    write(backend, range(100))
    first, second = attempts.take(backend), attempts.take(backend)
    assert tables(first) == tables(second)


def test_B01_files_of_an_abandoned_checkpoint_are_never_named_again(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    write(backend, range(100), total)
    snapshots = []
    for number in range(8):
        write(backend, range(number, 100, 8), total)
        snapshots.append(attempts.take(backend, is_completed=number % 2 == 1))
    for number, snapshot in enumerate(snapshots, start=1):
        written_for = {int(str(handle.path).split("/")[1].split(".")[0]) for handle in snapshot.handles}
        assert all(checkpoint == number or checkpoint % 2 == 0 for checkpoint in written_for)
    completed = {handle.path for snapshot in snapshots[1::2] for handle in snapshot.handles}
    attempts.files.delete([path for path in attempts.files.contents if path not in completed])
    for number in (1, 3, 5, 7):
        assert len(read(attempts, snapshots[number])) == 100


def test_word_of_completion_that_is_late_makes_no_file_named_that_may_be_gone(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    snapshots = []
    for number in range(1, 4):
        write(backend, range(number * 10), total)
        snapshots.append(snapshot_of(backend.capture(CheckpointId(number)), attempts.files))
        if number == 2:
            backend.completed(CheckpointId(1))
    # The second has completed, too, unheard; so the first one's files may be gone when the third is made.
    needed = {handle.path for handle in snapshots[1].handles}
    only_first = {handle.path for handle in snapshots[0].handles} - needed
    assert only_first
    assert not only_first & {handle.path for handle in snapshots[2].handles}


def test_a_capture_of_which_no_word_came_is_decided_by_a_later_one(attempts: Attempts) -> None:
    backend = attempts.backend()
    write(backend, range(100))
    snapshot_of(backend.capture(CheckpointId(1)), attempts.files)
    second = snapshot_of(backend.capture(CheckpointId(2)), attempts.files)
    backend.completed(CheckpointId(2))
    third = snapshot_of(backend.capture(CheckpointId(3)), attempts.files)
    assert tables(second) == tables(third)


def test_a_restored_database_goes_on_with_the_tables_that_are_stored(attempts: Attempts) -> None:
    backend = attempts.backend()
    write(backend, range(1000))
    before = attempts.take(backend)
    attempts.crash()
    after = attempts.restored([before])
    after.register(TOTAL)
    again = attempts.take(after)
    assert tables(before).items() <= tables(again).items()


@pytest.mark.parametrize("parallelism", [(2, 3), (3, 1), (1, 4)])
def test_B05_rescaled_state_is_complete_and_has_no_key_twice(attempts: Attempts, parallelism: tuple[int, int]) -> None:
    old, new = parallelism
    keys = range(400)
    snapshots = []
    for subtask in range(old):
        backend = attempts.backend(subtask, old)
        total = backend.register(TOTAL)
        for key in keys:
            if subtask_of(key_group(key, GROUPS), old, GROUPS) == subtask:
                backend.set_current_key(key)
                total.update(key)
        snapshots.append(attempts.take(backend))
    attempts.crash()
    found: list[int] = []
    again = []
    for subtask in range(new):
        backend = attempts.restored(snapshots, subtask, new)
        backend.register(TOTAL)
        found += backend.keys("total")
        again.append(attempts.take(backend))
    assert sorted(found) == list(keys)
    attempts.crash()
    whole = attempts.restored(again)
    whole.register(TOTAL)
    assert sorted(whole.keys("total")) == list(keys)


def test_B05_tables_hold_foreign_groups_after_clipping_and_none_of_them_is_restored(attempts: Attempts) -> None:
    backend = attempts.backend()
    write(backend, range(300))
    snapshot = attempts.take(backend)
    attempts.crash()
    half = attempts.restored([clip(snapshot, range(8))], 0, 2)
    half.register(TOTAL)
    taken = attempts.take(half)
    assert {(handle.first_group, handle.last_group) for handle in taken.handles} == {(0, 7)}
    attempts.crash()
    widened = attempts.restored([taken])
    widened.register(TOTAL)
    own, everything = set(half.keys("total")), {f"user-{n}" for n in range(300)}
    assert set(widened.keys("total")) == own
    assert own < everything
