"""The bench of the whole commands, also for the tests that are named after a fault."""

from tests.integration.conftest import bench

__all__ = ["bench"]
