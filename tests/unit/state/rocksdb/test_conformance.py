"""The RocksDB backend keeps every promise of the port: to user code, and to the engine."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tidegate.ids import SubtaskIndex
from tidegate.state.object_capture import MAX_VALUE_BYTES
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_backend import StateBackendConformance
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, OPERATOR
from tidegate.testing.conformance.state_partitions import StatePartitionConformance
from tidegate.testing.conformance.state_ttl import StateTtlConformance


class _Rocks:
    """With a cache that holds what a test does."""

    cache_bytes = 1 << 20

    @pytest.fixture(autouse=True)
    def _folders(self, folder: Path) -> Any:
        self.memory = RocksMemory(RocksMemory.LIMIT_MIN)
        # Each in a tree of its own: none finds the files of another.
        self.folders = (folder / str(number) / "1" / "under-test.0" for number in count(1))
        self.made: list[RocksStateBackend] = []
        yield
        for backend in self.made:
            backend.close()

    def make(
        self,
        subtask: SubtaskIndex,
        parallelism: int,
        max_parallelism: int,
        key_type: str = "",
        value_limit: int = MAX_VALUE_BYTES,
    ) -> RocksStateBackend:
        made = RocksStateBackend(
            OPERATOR,
            subtask,
            parallelism,
            max_parallelism,
            next(self.folders),
            self.memory,
            key_type=key_type,
            cache_bytes=self.cache_bytes,
            value_limit=value_limit,
        )
        self.made.append(made)
        return made


class TestRocksStateBackend(_Rocks, StateBackendConformance, StateTtlConformance):
    def limited(self, max_value_bytes: int) -> RocksStateBackend:
        return self.make(SubtaskIndex(0), 1, MAX_PARALLELISM, value_limit=max_value_bytes)

    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> RocksStateBackend:
        return self.make(subtask, parallelism, max_parallelism)


class TestWithoutACache(TestRocksStateBackend):
    """Everything is written and read again with each new key."""

    cache_bytes = 0


class TestPartitionedKeys(_Rocks, StatePartitionConformance):
    def partitioned(
        self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int, key_type: str
    ) -> RocksStateBackend:
        return self.make(subtask, parallelism, max_parallelism, key_type)
