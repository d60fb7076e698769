"""Files of state: never replaced, never taken on trust, and nothing else is deleted in their place."""

from pathlib import Path

import pytest

from tests.unit.checkpoint.failing_storage import FailingStorage
from tests.unit.checkpoint.records import CREATED, INLINE, JOB, manifest
from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore, Problem, Won, attempt_of, checksum, state_path
from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.ids import Attempt, CheckpointId, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import StorageUnavailable

TASK = TaskId(VertexName("read"), SubtaskIndex(2))


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def store(storage: MemoryStorage) -> CheckpointStore:
    return CheckpointStore(storage, JOB)


def handle_of(path: str, data: bytes) -> StateHandle:
    return StateHandle(0, 127, len(data), checksum(data), path=path)


def state_of(part: str = "keyed", checkpoint: int = 7) -> str:
    return state_path(Attempt(3), CheckpointId(checkpoint), TASK, OperatorName("totals"), part)


def test_a_path_of_state_says_attempt_checkpoint_operator_subtask_and_part() -> None:
    assert state_of("keyed.0") == "chk-3-7/totals.2.keyed.0"
    assert attempt_of(state_of()) == 3


def test_different_parts_never_get_one_path() -> None:
    """`a-1` subtask 2 is not `a` subtask 1 with a part that looks alike."""
    names = ["a", "a-1", "a-1-2", "1"]
    numbers = [1, 2, 12]
    paths = [
        state_path(Attempt(attempt), CheckpointId(number), TaskId(VertexName("v"), subtask), OperatorName(name), part)
        for attempt in numbers
        for number in numbers
        for subtask in map(SubtaskIndex, numbers)
        for name in names
        for part in ("1", "2", "1.2", "2-1")
    ]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("part", ["", "a/b", "..", "a..b", ".a"])
def test_a_part_must_have_a_name(part: str) -> None:
    with pytest.raises(InternalError, match="cannot name a part"):
        state_of(part)


@pytest.mark.parametrize(
    ("path", "attempt"),
    [
        ("chk-12-7/a", 12),
        ("shared/3/a/b.sst", 3),
        ("log/00000000000000000000.json", None),
        ("savepoints/1/a", None),
        ("chk-12-7", None),
        ("chk-12/a", None),
        ("shared/x/a", None),
        ("x/chk-1-1/a", None),
    ],
)
def test_the_attempt_of_a_file_is_in_its_path(path: str, attempt: int | None) -> None:
    assert attempt_of(path) == attempt


@pytest.mark.parametrize("data", [b"", b"state", bytes(range(256)) * 100])
def test_state_is_read_back_as_it_was_written(store: CheckpointStore, data: bytes) -> None:
    store.write_state(state_of(), data)
    store.write_state(state_of(), data)
    assert store.read_state(handle_of(state_of(), data)) == data


def test_C14_state_of_an_earlier_log_is_never_replaced(store: CheckpointStore) -> None:
    """Somebody removed the log but not the files, and numbers begin again."""
    store.write_state(state_of(), b"old")
    with pytest.raises(
        InvalidError, match=r"memory:/orders/chk-3-7/totals\.2\.keyed exists with other content"
    ) as caught:
        store.write_state(state_of(), b"new")
    assert "Move memory:/orders away" in caught.value.failure.remedy
    assert store.read_state(handle_of(state_of(), b"old")) == b"old"


def test_an_upload_without_an_answer_is_repeated() -> None:
    store = CheckpointStore(FailingStorage(before=1, after=1), JOB)
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            store.write_state(state_of(), b"data")
    store.write_state(state_of(), b"data")
    assert store.read_state(handle_of(state_of(), b"data")) == b"data"


def test_inlined_state_needs_no_file(store: CheckpointStore) -> None:
    assert store.read_state(INLINE) == b"\x00\xffx"


DAMAGES = {
    "missing; 4 bytes with checksum 8": None,
    "has 3 bytes and should have 4": b"dat",
    "has 5 bytes and should have 4": b"data!",
    "has the checksum": b"dAta",
}


@pytest.mark.parametrize("why", DAMAGES)
def test_damaged_state_is_never_returned(store: CheckpointStore, storage: MemoryStorage, why: str) -> None:
    content = DAMAGES[why]
    if content is not None:
        storage.write(f"{JOB}/{state_of()}", content)
    expected = why.removesuffix(" 8")
    with pytest.raises(CorruptError, match=rf"memory:/orders/chk-3-7/totals\.2\.keyed: {expected}") as caught:
        store.read_state(handle_of(state_of(), b"data"))
    assert "--from-checkpoint" in caught.value.failure.remedy


def test_B04_any_flipped_bit_of_state_is_noticed(store: CheckpointStore, storage: MemoryStorage) -> None:
    data = b"a state of a few bytes"
    handle = handle_of(state_of(), data)
    for index in range(len(data) * 8):
        changed = bytearray(data)
        changed[index // 8] ^= 1 << index % 8
        storage.write(f"{JOB}/{state_of()}", bytes(changed))
        with pytest.raises(CorruptError, match="checksum"):
            store.read_state(handle)


@pytest.mark.parametrize(
    "handle",
    [StateHandle(0, 1, 3, checksum(b"abc"), inline=b"abd"), StateHandle(0, 1, 3, checksum(b"abc"))],
)
def test_damaged_inlined_state_is_noticed(store: CheckpointStore, handle: StateHandle) -> None:
    with pytest.raises(CorruptError, match="orders/inline state"):
        store.read_state(handle)


def test_state_that_gives_no_answer_is_not_taken_for_damaged() -> None:
    store = CheckpointStore(FailingStorage(reads=2), JOB)
    with pytest.raises(StorageUnavailable):
        store.read_state(handle_of(state_of(), b"data"))
    with pytest.raises(StorageUnavailable):
        store.verify_manifest(manifest(handles=(handle_of(state_of(), b"data"),)))


def test_verifying_names_each_damaged_file_and_no_other(store: CheckpointStore, storage: MemoryStorage) -> None:
    names = ["whole", "missing", "short", "flipped"]
    for name in names[:1] + names[2:]:
        store.write_state(state_of(name), b"data")
    handles = tuple(handle_of(state_of(name), b"data") for name in names)
    storage.write(f"{JOB}/{state_of('short')}", b"da")
    storage.write(f"{JOB}/{state_of('flipped')}", b"dat4")
    problems = store.verify_manifest(manifest(handles=(INLINE, *handles)))
    assert [problem.where for problem in problems] == [state_of(name) for name in names[1:]]
    assert problems[1] == Problem(
        OperatorName("totals"), SubtaskIndex(0), state_of("short"), "has 2 bytes and should have 4"
    )
    assert store.verify_manifest(manifest(handles=(INLINE, handles[0]))) == []


def test_files_of_state_are_listed_and_deleted_and_nothing_else_is(
    store: CheckpointStore, storage: MemoryStorage
) -> None:
    assert store.append(CREATED) == Won()
    store.write_state("shared/2/a.sst", b"")
    store.write_state(state_of(), b"")
    storage.write(f"{JOB}/savepoints/1/a", b"")
    storage.write("other/chk-1-1/a", b"")
    assert store.state_files() == [state_of(), "shared/2/a.sst"]
    store.delete_files(["shared/2/a.sst", "shared/2/gone.sst"])
    assert store.state_files() == [state_of()]
    assert len(storage.list("")) == 4


@pytest.mark.parametrize("path", ["log/00000000000000000000.json", "savepoints/1/a", "../other/chk-1-1/a", ""])
def test_what_is_no_file_of_state_cannot_be_deleted_or_written_as_one(store: CheckpointStore, path: str) -> None:
    assert store.append(CREATED) == Won()
    with pytest.raises(InternalError, match="not the path of a file of state"):
        store.delete_files([path])
    with pytest.raises(InternalError, match="not the path of a file of state"):
        store.write_state(path, b"")
    assert store.read_log() == [CREATED]


def test_no_path_in_a_handle_leads_out_of_the_storage(store: CheckpointStore) -> None:
    with pytest.raises(InvalidError, match="cannot be the path"):
        store.read_state(handle_of("shared/1/../../../etc/passwd", b""))


def test_all_of_it_works_on_a_directory(tmp_path: Path) -> None:
    store = CheckpointStore(LocalStorage(tmp_path / "check points"), JOB)
    store.write_state(state_of(), b"data")
    again = CheckpointStore(LocalStorage(tmp_path / "check points"), JOB)
    assert again.read_state(handle_of(state_of(), b"data")) == b"data"
    assert again.state_files() == [state_of()]
    again.delete_files([state_of()])
    assert store.state_files() == []
