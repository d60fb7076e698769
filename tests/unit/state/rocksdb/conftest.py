"""Fixtures of the RocksDB backend's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.rocksdb.tools import Attempts, make_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with make_folder() as path:
        yield Path(path)


@pytest.fixture
def attempts(folder: Path) -> Iterator[Attempts]:
    made = Attempts(folder)
    yield made
    made.close()
