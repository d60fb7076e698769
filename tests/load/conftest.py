"""The fixtures of whole jobs on the embedded log, and patience: these tests take longer than what looks for hangs."""

import faulthandler

import pytest

from tests.integration.conftest import bench

__all__ = ["bench"]


@pytest.fixture(autouse=True)
def no_stacks_after_a_while() -> None:
    """They would be those of a hang; a test's own time-out remains."""
    faulthandler.cancel_dump_traceback_later()
