"""Flink for tests: what is missing of it is fetched before the first test begins, since a test's time is limited.

Where that fails, the tests that try again say why: a test that is skipped says nothing.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.oracle import flink
from tidegate.errors import TidegateError


def pytest_collection_finish(session: pytest.Session) -> None:
    is_needed = any(
        Path(__file__).parent in item.path.parents and item.get_closest_marker("slow") for item in session.items
    )
    if is_needed and not session.config.option.collectonly:
        with suppress(TidegateError):
            flink.ensure_jars()
