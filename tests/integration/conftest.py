"""What the tests of whole commands share: a bench for the totals job that is cleared away whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.mediums import LogMedium
from tests.integration.running import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, LogMedium(tmp_path / "log"))
    try:
        yield made
    finally:
        made.clear()
