"""Fixtures for the conformance kit."""

from collections.abc import Iterator

import pytest

from tests.unit.storage.processes import Process
from tidegate.testing.conformance.storage import StartProcess


@pytest.fixture
def start() -> Iterator[StartProcess]:
    """Starts processes, none of which outlives the test."""
    processes: list[Process] = []

    def start_one(*work: object) -> Process:
        processes.append(Process(*work))  # type: ignore[arg-type]
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
