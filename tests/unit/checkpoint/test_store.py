"""The stored log of a job: each position is won once, whatever answers are lost and whoever wakes up late."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.checkpoint.failing_storage import FailingStorage
from tests.unit.checkpoint.records import CREATED, ENTRIES, JOB, TAKEOVER, completed, entry
from tidegate.checkpoint.log import CleanStop, Created, Entry, Unreadable
from tidegate.checkpoint.store import CheckpointStore, Taken, Won, encode_entry, list_jobs
from tidegate.errors import InvalidError
from tidegate.ids import CheckpointId, JobName, LogPosition
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import AlreadyExists, StorageUnavailable


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def store(storage: MemoryStorage) -> CheckpointStore:
    return CheckpointStore(storage, JOB)


def log_path(position: int) -> str:
    return f"{JOB}/log/{position:020d}.json"


def fill(store: CheckpointStore, *entries: Entry) -> None:
    for each in entries:
        assert store.append(each) == Won()


def test_what_was_appended_is_read_back_in_order(store: CheckpointStore, storage: MemoryStorage) -> None:
    fill(store, *ENTRIES)
    assert store.read_log() == list(ENTRIES)
    assert storage.list("") == [log_path(position) for position in range(6)]


def test_an_entry_that_was_written_before_is_won_again(store: CheckpointStore) -> None:
    fill(store, CREATED, CREATED)
    assert store.read_log() == [CREATED]


def test_a_conflict_at_a_position_shows_who_took_it(store: CheckpointStore) -> None:
    other = entry(0, Created(), nonce="other", attempt=0)
    fill(store, other)
    assert store.append(CREATED) == Taken(other)
    assert store.read_log() == [other]


def test_the_same_process_may_not_write_something_else_at_a_position(store: CheckpointStore) -> None:
    fill(store, CREATED, completed(1, 1))
    assert store.append(completed(1, 2)) == Taken(completed(1, 1))


def test_damage_at_a_position_holds_it(store: CheckpointStore, storage: MemoryStorage) -> None:
    storage.write(log_path(0), b"half")
    found = store.append(CREATED)
    assert isinstance(found, Taken)
    assert isinstance(found.by, Unreadable)


def test_an_entry_above_a_hole_is_a_stray_write(store: CheckpointStore) -> None:
    """The log was pruned, or removed by somebody."""
    fill(store, CREATED)
    assert store.append(completed(5)) == Taken(None)
    assert store.append(completed(5)) == Taken(None)


def test_a_position_that_was_pruned_is_not_won_again(store: CheckpointStore) -> None:
    fill(store, CREATED, entry(1, TAKEOVER), *(completed(position) for position in (2, 3, 4, 5)))
    store.prune([LogPosition(position) for position in (1, 2, 3)])
    stale = entry(3, CleanStop(CheckpointId(1)), nonce="other")
    assert store.append(stale) == Taken(completed(5))


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("nonce", ["late", "mine"])
def test_a_position_right_above_what_is_never_pruned_is_not_won_again(
    store: CheckpointStore, kept: int, nonce: str
) -> None:
    """A process read the log when nothing was above, or wrote what is never pruned itself, and slept."""
    fill(store, CREATED, entry(1, TAKEOVER), *(completed(position) for position in (2, 3, 4, 5)))
    store.prune([LogPosition(position) for position in range(kept + 1, 5)])
    late = entry(kept + 1, TAKEOVER, nonce=nonce, attempt=2)
    assert store.append(late) == Taken(completed(5))


def test_an_entry_above_which_a_successor_has_taken_over_stays_and_is_not_won(
    store: CheckpointStore, storage: MemoryStorage
) -> None:
    """The answer to the first try was lost. The successor has found the entry; its writer may do nothing more."""
    fill(store, CREATED, entry(1, TAKEOVER))
    storage.put_if_absent(log_path(2), encode_entry(completed(2)))
    successor = entry(3, TAKEOVER, nonce="theirs", attempt=2)
    fill(store, successor)
    assert store.append(completed(2)) == Taken(successor)
    assert completed(2) in store.read_log()


def test_who_is_overtaken_while_taking_over_has_not_won(store: CheckpointStore, storage: MemoryStorage) -> None:
    fill(store, CREATED)
    late, quick = entry(1, TAKEOVER, nonce="late"), entry(2, TAKEOVER, nonce="quick", attempt=2)
    storage.put_if_absent(log_path(1), encode_entry(late))
    storage.put_if_absent(log_path(2), encode_entry(quick))
    assert store.append(late) == Taken(quick)


def test_files_of_others_in_the_folder_are_no_entries(store: CheckpointStore, storage: MemoryStorage) -> None:
    fill(store, CREATED)
    for name in ("notes.txt", "0.json", "00000000000000000001.json.bak", "below/00000000000000000002.txt"):
        storage.write(f"{JOB}/log/{name}", b"")
    assert store.read_log() == [CREATED]


def test_damage_is_read_as_damage(store: CheckpointStore, storage: MemoryStorage) -> None:
    fill(store, CREATED)
    storage.write(log_path(1), b"")
    created, damage = store.read_log()
    assert created == CREATED
    assert isinstance(damage, Unreadable)
    assert damage.position == 1


def test_jobs_in_one_storage_do_not_see_each_other(storage: MemoryStorage) -> None:
    for job in ("app", "app-1", "other"):
        fill(CheckpointStore(storage, JobName(job)), CREATED)
    storage.write("not-a-job/log/notes.txt", b"")
    storage.write("no-log/chk-1-1/x", b"")
    fill(CheckpointStore(storage, JobName("app")), completed(1))
    assert len(CheckpointStore(storage, JobName("app-1")).read_log()) == 1
    assert list_jobs(storage) == ["app", "app-1", "other"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b"])
def test_a_job_must_have_a_name(storage: MemoryStorage, name: str) -> None:
    with pytest.raises(InvalidError, match="cannot name a job"):
        CheckpointStore(storage, JobName(name))


# ---- a storage that fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [{"before": 2}, {"after": 1}, {"reads": 2}, {"before": 1, "after": 1, "reads": 2}])
def test_C08_an_append_without_an_answer_is_repeated_until_it_is_decided(failure: dict[str, int]) -> None:
    storage = FailingStorage()
    store = CheckpointStore(storage, JOB)
    fill(store, CREATED)
    for name, times in failure.items():
        setattr(storage, name, times)
    for _ in range(sum(failure.values())):
        with pytest.raises(StorageUnavailable):
            store.append(completed(1))
    assert store.append(completed(1)) == Won()
    assert store.read_log() == [CREATED, completed(1)]


def test_C10_a_log_that_gives_no_answer_is_never_read_as_empty_or_damaged() -> None:
    storage = FailingStorage()
    store = CheckpointStore(storage, JOB)
    fill(store, CREATED, completed(1))
    for position in range(3):
        storage.reads = 1 + position
        for _ in range(1 + position):
            with pytest.raises(StorageUnavailable):
                store.read_log()
    assert store.read_log() == [CREATED, completed(1)]


def test_entries_that_are_pruned_while_they_are_read_are_left_out() -> None:
    storage = FailingStorage()
    store = CheckpointStore(storage, JOB)
    fill(store, CREATED, *(completed(position) for position in (1, 2, 3)))
    storage.vanish = [log_path(2), log_path(1)]
    assert store.read_log() == [CREATED, completed(3)]


def test_a_log_that_vanishes_faster_than_it_can_be_read_is_unavailable() -> None:
    storage = FailingStorage()
    store = CheckpointStore(storage, JOB)
    fill(store, CREATED, *(completed(position) for position in range(1, 9)))
    storage.vanish = [log_path(position) for position in range(8, 0, -1)]
    with pytest.raises(StorageUnavailable, match="vanished"):
        store.read_log()


def test_a_holder_that_is_pruned_before_it_can_be_read_still_means_taken() -> None:
    @dataclass
    class Forgetful(FailingStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            self.inner.delete(path)
            raise AlreadyExists(path)

    assert CheckpointStore(Forgetful(), JOB).append(CREATED) == Taken(None)


def test_all_of_it_works_on_a_directory(tmp_path: Path) -> None:
    store = CheckpointStore(LocalStorage(tmp_path / "check points"), JOB)
    fill(store, *ENTRIES)
    again = CheckpointStore(LocalStorage(tmp_path / "check points"), JOB)
    assert again.read_log() == list(ENTRIES)
    assert again.append(entry(5, TAKEOVER, nonce="other")) == Taken(ENTRIES[5])
    again.prune([LogPosition(1), LogPosition(2)])
    assert [each.position for each in store.read_log()] == [0, 3, 4, 5]
    assert list_jobs(store.storage) == [JOB]
    assert store.location == f"{tmp_path}/check points/{JOB}"
