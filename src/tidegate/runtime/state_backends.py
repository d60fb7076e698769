"""Which keyed state backend an operator gets: the live half of the preset that the job is configured with, and where on
this machine it may keep files."""

from pathlib import Path
from typing import Protocol

from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.runtime.control import Deploy
from tidegate.runtime.local_folder import remove_earlier_logs
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend, remove_old_attempts

ROCKSDB = "rocksdb"


class StateBackends(Protocol):
    """Makes the backends of the tasks of one worker."""

    def make(
        self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int, key_type: str = ""
    ) -> KeyedStateBackend:
        """key_type: of the keys, where it was declared, as it is stored; co-partitioned keys must be."""
        ...

    def tidy(self) -> None:
        """Remove what earlier attempts left on this machine. Blocks; nobody restores any more."""
        ...


class ObjectBackends:
    """Objects in memory. Where checkpoints are in the JobManager's memory, each is small and says everything."""

    def __init__(self, deploy: Deploy) -> None:
        self._max_parallelism = deploy.max_parallelism
        self._is_incremental = not deploy.options.state_in_job_manager
        self._checks_mutation = deploy.options.checks_mutation

    def make(
        self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int, key_type: str = ""
    ) -> KeyedStateBackend:
        return ObjectStateBackend(
            operator,
            subtask,
            parallelism,
            self._max_parallelism,
            key_type=key_type,
            is_incremental=self._is_incremental,
            checks_mutation=self._checks_mutation,
        )

    def tidy(self) -> None:
        """Nothing is left."""


class RocksBackends:
    """Databases in `<local folder>/<job>/<log instance>/<attempt>/<operator>.<subtask>`."""

    def __init__(self, deploy: Deploy) -> None:
        self._root = Path(deploy.options.local_dir) / deploy.job / deploy.instance
        self._storage = deploy.storage
        self._attempt = deploy.attempt
        self._max_parallelism = deploy.max_parallelism
        self._memory = RocksMemory(deploy.options.local_memory)

    def make(
        self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int, key_type: str = ""
    ) -> KeyedStateBackend:
        folder = self._root / str(self._attempt) / f"{operator}.{subtask}"
        return RocksStateBackend(
            operator, subtask, parallelism, self._max_parallelism, folder, self._memory, key_type=key_type
        )

    def tidy(self) -> None:
        remove_old_attempts(self._root, self._attempt)
        remove_earlier_logs(self._root, self._storage)


def state_backends(deploy: Deploy) -> StateBackends:
    """Those of the configured preset."""
    return RocksBackends(deploy) if deploy.options.state_backend == ROCKSDB else ObjectBackends(deploy)
