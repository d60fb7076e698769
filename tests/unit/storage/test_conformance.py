"""The storages pass the conformance kit, and wrong ones do not."""

from functools import partial
from pathlib import Path

import pytest

from tests.unit.storage.wrong_storages import CheckThenWriteStorage, TearingStorage
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.testing.conformance.storage import Opener, SharedStorageConformance, StartProcess, StorageConformance


class TestMemoryStorage(StorageConformance):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()


class TestLocalStorage(SharedStorageConformance):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(LocalStorage, tmp_path / "a new folder" / "with spaces")

    @pytest.fixture
    def storage(self, opener: Opener) -> LocalStorage:
        storage = opener()
        assert isinstance(storage, LocalStorage)
        return storage


def test_the_kit_notices_a_storage_that_checks_and_then_writes(tmp_path: Path, start: StartProcess) -> None:
    opener = partial(CheckThenWriteStorage, tmp_path)
    with pytest.raises(AssertionError, match="was won by"):
        SharedStorageConformance().test_of_racing_writers_exactly_one_wins_each_path(opener(), opener, start)


def test_the_kit_notices_a_storage_whose_writes_are_visible_before_they_are_whole(
    tmp_path: Path, start: StartProcess
) -> None:
    opener = partial(TearingStorage, tmp_path)
    with pytest.raises(AssertionError, match="not whole"):
        SharedStorageConformance().test_a_killed_writer_leaves_nothing_torn(opener(), opener, start)
