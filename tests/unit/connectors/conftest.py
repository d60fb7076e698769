"""An embedded log with a topic of two partitions and a clock that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.connectors.clocks import HandClock
from tidegate.local import LocalLog


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log", clock=clock) as log:
        log.create_topic("t", 2)
        yield log
