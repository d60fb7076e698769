"""A machine on which workers of one attempt after another keep copies of what they store elsewhere."""

from pathlib import Path

import msgspec

from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.runtime.control import Deploy, RuntimeOptions
from tidegate.runtime.local_copies import LocalCopies, local_copies
from tidegate.runtime.snapshots import OperatorFiles
from tidegate.storage.memory import MemoryStorage

REMOTE = "s3://bucket/flows"
NAME = OperatorName("totals")
GROUPS = range(8)
DATA = bytes(range(256)) * 50


class CountingStorage(MemoryStorage):
    """Remembers what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def deploy_of(local: Path, attempt: int = 1, storage: str = REMOTE, *, local_recovery: bool = True) -> Deploy:
    options = RuntimeOptions(inline_limit=8, local_dir=str(local), local_recovery=local_recovery)
    return Deploy(
        job=JobName("job"),
        attempt=Attempt(attempt),
        instance=LogInstance("log"),
        parallelism=1,
        max_parallelism=8,
        restored=(),
        peers=("",),
        options=options,
        storage=storage,
        last_checkpoint=CheckpointId(0),
    )


class Machine:
    """One on which attempts follow each other, and a storage elsewhere."""

    def __init__(self, local: Path) -> None:
        self.local = local
        self.storage = CountingStorage()

    def attempt(self, number: int, log: str = "log", storage: str = REMOTE) -> "WorkerOnMachine":
        deploy = deploy_of(self.local, number, storage)
        return WorkerOnMachine(self, msgspec.structs.replace(deploy, instance=LogInstance(log)))

    @property
    def copies(self) -> list[Path]:
        return sorted(path for path in self.local.glob("*/*/copies/*/*/*") if path.is_file())


class WorkerOnMachine:
    """A worker of one attempt."""

    def __init__(self, machine: Machine, deploy: Deploy) -> None:
        self._machine = machine
        self.deploy = deploy
        made = local_copies(deploy)
        assert made is not None
        self.copies: LocalCopies = made

    def files(self, subtask: int = 0, operator: OperatorName = NAME) -> OperatorFiles:
        task = TaskId(VertexName(operator), SubtaskIndex(subtask))
        store = CheckpointStore(self._machine.storage, JobName("job"))
        copies = self.copies.of(operator, task.subtask)
        return OperatorFiles(store, task, operator, self.deploy.attempt, self.deploy.options, copies)

    def complete(self, checkpoint: int) -> None:
        self.copies.tidy(CheckpointId(checkpoint))


def write(files: OperatorFiles, part: str, data: bytes = DATA) -> StateHandle:
    return files.write(part, data, GROUPS)


def named(files: OperatorFiles, checkpoint: int, *handles: StateHandle) -> None:
    files.named(CheckpointId(checkpoint), handles)


def name_of(handle: StateHandle) -> str:
    return f"{handle.checksum}-{handle.size}"


def names(machine: Machine) -> list[str]:
    return sorted(path.name for path in machine.copies)
