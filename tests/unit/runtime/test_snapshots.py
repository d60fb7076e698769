"""Captured state becomes inlined bytes or files, and finds its subtask again at any parallelism."""

from collections.abc import Iterable

import pytest

from tests.unit.checkpoint.failing_storage import FailingStorage
from tidegate.checkpoint.protocol import OperatorSnapshot, SplitState
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.runtime.control import RestoredOperator, RuntimeOptions
from tidegate.runtime.snapshots import (
    CapturedOperator,
    OperatorFiles,
    SnapshotWriter,
    StateTooLarge,
    restore_backends,
)
from tidegate.state.descriptors import ValueState
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage, StorageUnavailable

MAX_PARALLELISM = 8
NAME = OperatorName("totals")
TASK = TaskId(VertexName("totals"), SubtaskIndex(0))
ONE = CheckpointId(1)
KEYS = [f"k{i}" for i in range(50)]


def backend_of(subtask: int = 0, parallelism: int = 1) -> ObjectStateBackend:
    return ObjectStateBackend(NAME, SubtaskIndex(subtask), parallelism, MAX_PARALLELISM)


def filled(subtask: int = 0, parallelism: int = 1) -> ObjectStateBackend:
    """A subtask's part of a state in which each key has its number."""
    backend = backend_of(subtask, parallelism)
    handle = backend.register(ValueState(int, name="number"))
    for number, key in enumerate(KEYS):
        if subtask_of(key_group(key, MAX_PARALLELISM), parallelism, MAX_PARALLELISM) == subtask:
            backend.set_current_key(key)
            handle.update(number)
    return backend


def contents(backend: ObjectStateBackend) -> dict[str, int]:
    handle = backend.register(ValueState(int, name="number"))
    found = {}
    for key in KEYS:
        backend.set_current_key(key)
        value = handle.value()
        if value is not None:
            found[key] = value
    return found


def writer(
    storage: Storage, *, attempt: int = 1, task: TaskId = TASK, options: RuntimeOptions | None = None
) -> SnapshotWriter:
    options = options or RuntimeOptions(inline_limit=0)
    store = CheckpointStore(storage, JobName("job"))
    return SnapshotWriter(task, {NAME: OperatorFiles(store, task, NAME, Attempt(attempt), options)}, options)


def captured(backend: ObjectStateBackend | None, *, ended: bool = False) -> CapturedOperator:
    return CapturedOperator(NAME, ended, None if backend is None else backend.capture(ONE), ())


def stored(storage: Storage, backend: ObjectStateBackend, options: RuntimeOptions | None = None) -> OperatorSnapshot:
    (snapshot,) = writer(storage, options=options).store([captured(backend)])
    return snapshot


def restored(storage: Storage, snapshots: Iterable[OperatorSnapshot], backend: ObjectStateBackend) -> None:
    operator = RestoredOperator(NAME, False, tuple(snapshots))
    restore_backends({NAME: backend}, writer(storage).files, [operator])


# ---- storing ---------------------------------------------------------------------------------------------------------


def test_state_beyond_the_inline_limit_becomes_a_file_of_attempt_operator_subtask_and_checkpoint() -> None:
    storage = MemoryStorage()
    (handle,) = stored(storage, filled()).handles
    assert handle.path == "shared/1/totals.0.1-0"
    assert handle.inline is None
    assert storage.list("") == ["job/shared/1/totals.0.1-0"]
    assert len(storage.read("job/shared/1/totals.0.1-0")) == handle.size


def test_state_of_just_the_inline_limit_is_inlined_and_of_one_byte_more_is_not() -> None:
    storage = MemoryStorage()
    (handle,) = stored(storage, filled()).handles
    (inlined,) = stored(MemoryStorage(), filled(), RuntimeOptions(inline_limit=handle.size)).handles
    (filed,) = stored(MemoryStorage(), filled(), RuntimeOptions(inline_limit=handle.size - 1)).handles
    assert inlined.inline == storage.read(f"job/{handle.path}")
    assert inlined.path is None
    assert filed.path is not None


def test_with_the_memory_preset_no_file_is_written_whatever_the_size() -> None:
    storage = MemoryStorage()
    (handle,) = stored(storage, filled(), RuntimeOptions(inline_limit=0, state_in_job_manager=True)).handles
    assert handle.inline is not None
    assert storage.list("") == []


def test_the_memory_presets_limit_counts_all_state_of_the_task() -> None:
    size = stored(MemoryStorage(), filled()).handles[0].size
    enough = RuntimeOptions(state_in_job_manager=True, memory_limit=2 * size)
    too_small = RuntimeOptions(state_in_job_manager=True, memory_limit=2 * size - 1)
    twice = [captured(filled()), captured(filled())]
    assert len(writer(MemoryStorage(), options=enough).store(twice)) == 2
    twice = [captured(filled()), captured(filled())]
    with pytest.raises(StateTooLarge, match=f"has {2 * size} bytes.*Use state.backend fs"):
        writer(MemoryStorage(), options=too_small).store(twice)


def test_without_the_memory_preset_its_limit_does_not_count() -> None:
    assert stored(MemoryStorage(), filled(), RuntimeOptions(inline_limit=0, memory_limit=1)).handles


def test_splits_and_the_end_go_into_the_snapshot_of_an_operator_without_state() -> None:
    splits = (SplitState("a", 7),)
    (snapshot,) = writer(MemoryStorage()).store([CapturedOperator(NAME, True, None, splits)])
    assert snapshot == OperatorSnapshot(NAME, ended=True, splits=splits)


def test_an_operator_in_whose_state_no_key_is_has_no_handle() -> None:
    backend = backend_of()
    backend.register(ValueState(int, name="number"))
    snapshot = stored(MemoryStorage(), backend)
    assert snapshot.handles == ()
    assert [state.name for state in snapshot.states] == ["number"]


def test_what_is_stored_is_the_state_of_the_capture_and_not_of_later() -> None:
    storage, backend = MemoryStorage(), backend_of()
    handle = backend.register(ValueState(int, name="number"))
    backend.set_current_key("k1")
    handle.update(1)
    at_barrier = captured(backend)
    handle.update(2)
    backend.set_current_key("k2")
    handle.update(3)
    fresh = backend_of()
    restored(storage, writer(storage).store([at_barrier]), fresh)
    assert contents(fresh) == {"k1": 1}


def test_a_storage_that_gives_no_answer_is_told_as_such() -> None:
    with pytest.raises(StorageUnavailable):
        stored(FailingStorage(before=1), filled())


def test_storing_again_what_may_have_been_written_is_no_conflict() -> None:
    storage = FailingStorage(after=1)
    with pytest.raises(StorageUnavailable):
        stored(storage, filled())
    assert stored(storage, filled()).handles


def test_a_file_of_an_earlier_log_is_never_replaced() -> None:
    storage = MemoryStorage()
    storage.write("job/shared/1/totals.0.1-0", b"something else")
    with pytest.raises(InvalidError, match="belongs to an earlier log"):
        stored(storage, filled())
    assert storage.read("job/shared/1/totals.0.1-0") == b"something else"


# ---- restoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 2), (2, 8), (8, 1)])
@pytest.mark.parametrize("inline_limit", [0, 1_000_000])
def test_each_key_is_found_again_in_exactly_the_subtask_that_has_its_group(
    before: int, after: int, inline_limit: int
) -> None:
    storage = MemoryStorage()
    snapshots: list[OperatorSnapshot] = []
    for subtask in range(before):
        own = TaskId(VertexName("totals"), SubtaskIndex(subtask))
        it = writer(storage, task=own, options=RuntimeOptions(inline_limit=inline_limit))
        snapshots += it.store([captured(filled(subtask, before))])
    for subtask in range(after):
        backend = backend_of(subtask, after)
        restored(storage, snapshots, backend)
        assert contents(backend) == contents(filled_anew(subtask, after))


def filled_anew(subtask: int, parallelism: int) -> ObjectStateBackend:
    """As `filled`, with its state not yet claimed."""
    storage, backend = MemoryStorage(), backend_of(subtask, parallelism)
    restored(storage, [stored(storage, filled(subtask, parallelism))], backend)
    return backend


def test_a_changed_file_is_not_restored() -> None:
    storage = MemoryStorage()
    snapshot = stored(storage, filled())
    path = f"job/{snapshot.handles[0].path}"
    storage.write(path, storage.read(path)[:-1] + b"\xff")
    with pytest.raises(CorruptError, match="checksum"):
        restored(storage, [snapshot], backend_of())


def test_a_missing_file_is_not_taken_for_no_state() -> None:
    storage = MemoryStorage()
    snapshot = stored(storage, filled())
    storage.delete(f"job/{snapshot.handles[0].path}")
    with pytest.raises(CorruptError, match="missing"):
        restored(storage, [snapshot], backend_of())


def test_one_operators_pieces_with_different_types_of_keys_contradict() -> None:
    storage = MemoryStorage()
    other = backend_of(1, 2)
    handle = other.register(ValueState(int, name="number"))
    other.set_current_key(next(n for n in range(100) if subtask_of(key_group(n, MAX_PARALLELISM), 2, MAX_PARALLELISM)))
    handle.update(1)
    snapshots = [stored(storage, filled(0, 2)), stored(MemoryStorage(), other, RuntimeOptions())]
    with pytest.raises(CorruptError, match="keys of type"):
        restored(storage, snapshots, backend_of())


def test_with_nothing_stored_a_backend_begins_empty() -> None:
    backend = backend_of()
    restored(MemoryStorage(), [OperatorSnapshot(NAME)], backend)
    assert backend.unclaimed == ()
    assert contents(backend) == {}
