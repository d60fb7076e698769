"""Each preset has its backend, and what a worker leaves on its machine goes when nobody needs it any more."""

from pathlib import Path

import msgspec
import pytest

from tidegate.errors import InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex
from tidegate.runtime.control import Deploy, RuntimeOptions
from tidegate.runtime.local_folder import remove_earlier_logs
from tidegate.runtime.state_backends import state_backends
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksStateBackend

OPERATOR = OperatorName("totals")


def deploy(backend: str, local: Path, *, attempt: int = 1, instance: str = "log") -> Deploy:
    options = RuntimeOptions(
        state_backend=backend, state_in_job_manager=backend == "memory", local_dir=str(local), local_memory=2**24
    )
    return Deploy(
        job=JobName("job"),
        attempt=Attempt(attempt),
        instance=LogInstance(instance),
        parallelism=1,
        max_parallelism=8,
        restored=(),
        peers=(),
        options=options,
        storage="/flows",
        last_checkpoint=CheckpointId(0),
    )


def made(backend: str, local: Path) -> KeyedStateBackend:
    return state_backends(deploy(backend, local)).make(OPERATOR, SubtaskIndex(0), 1)


@pytest.mark.parametrize(
    ("preset", "backend"), [("memory", ObjectStateBackend), ("fs", ObjectStateBackend), ("rocksdb", RocksStateBackend)]
)
def test_each_preset_has_its_backend(tmp_path: Path, preset: str, backend: type) -> None:
    assert type(made(preset, tmp_path)) is backend


def test_objects_leave_nothing_on_the_machine(tmp_path: Path) -> None:
    backends = state_backends(deploy("fs", tmp_path))
    backends.make(OPERATOR, SubtaskIndex(0), 1).close()
    backends.tidy()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_earlier_attempts_and_of_earlier_logs_in_the_same_place_go(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for instance, storage in (("older", "/flows"), ("elsewhere", "/other"), ("unknown", None)):
        (job / instance / "1" / "totals.0").mkdir(parents=True)
        if storage is not None:
            (job / instance / "storage").write_text(storage)
    (job / "log" / "1" / "totals.0").mkdir(parents=True)
    (job / "log" / "2" / "totals.0").mkdir(parents=True)
    state_backends(deploy("rocksdb", tmp_path, attempt=2)).tidy()
    assert sorted(path.name for path in job.iterdir()) == ["elsewhere", "log", "unknown"]
    assert sorted(path.name for path in (job / "log").iterdir()) == ["2", "storage"]


def test_a_folder_that_cannot_be_read_or_written_disturbs_nobody(tmp_path: Path) -> None:
    remove_earlier_logs(tmp_path / "nothing" / "here", "/flows")
    assert list(tmp_path.iterdir()) == []


def test_what_a_worker_is_told_reaches_its_backends(tmp_path: Path) -> None:
    """The folder holds job, log, attempt, operator and subtask, so that no two ever share one."""
    told = msgspec.structs.replace(deploy("rocksdb", tmp_path, attempt=7), instance=LogInstance("a1"))
    backend = state_backends(told).make(OPERATOR, SubtaskIndex(0), 1)
    backend.capture(CheckpointId(1))
    assert (tmp_path / "job" / "a1" / "7" / "totals.0").is_dir()
    backend.close()


@pytest.mark.parametrize("preset", ["memory", "fs", "rocksdb"])
def test_each_preset_is_told_the_declared_type_of_the_keys(tmp_path: Path, preset: str) -> None:
    key_type = "str in 4 partitions by murmur2"
    backend = state_backends(deploy(preset, tmp_path)).make(OPERATOR, SubtaskIndex(0), 1, key_type)
    backend.register(ValueState(int, name="total"))
    assert backend.capture(CheckpointId(1)).key_type == key_type
    with pytest.raises(InvalidError, match=key_type):
        backend.set_current_key(None)
    backend.close()
