"""The RocksDB backend against plain dicts, in a world that deletes files as soon as it may."""

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

from tests.unit.state.rocksdb.tools import make_folder
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_model import StateModel


class RocksModel(StateModel):
    """Attempts follow each other in one folder, as on one machine: each finds what the one before left."""

    cache_bytes = 8 * 1024

    def __init__(self) -> None:
        super().__init__()
        self.folder = make_folder()
        self.attempt = 0
        self.memory = RocksMemory(RocksMemory.LIMIT_MIN)

    def deploy(self, parallelism: int, snapshots: list[OperatorSnapshot]) -> None:
        self.attempt += 1
        super().deploy(parallelism, snapshots)

    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> RocksStateBackend:
        return RocksStateBackend(
            OperatorName("under-test"),
            subtask,
            parallelism,
            max_parallelism,
            Path(self.folder.name) / str(self.attempt) / f"under-test.{subtask}",
            self.memory,
            key_type=self.key_type,
            cache_bytes=self.cache_bytes,
        )

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class PartitionedRocksModel(RocksModel):
    key_type = "str in 3 partitions by murmur2"


SETTINGS = settings(
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Each step opens databases: making a failing run shorter would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)

TestRocksAgainstDicts = RocksModel.TestCase
TestRocksAgainstDicts.settings = settings(SETTINGS, max_examples=20)
TestPartitionedRocksAgainstDicts = PartitionedRocksModel.TestCase
TestPartitionedRocksAgainstDicts.settings = settings(SETTINGS, max_examples=10)
