"""HDFS for tests: one minicluster that all share, and one of its own for tests that kill it.

Where it cannot be started, the tests that need it fail with the reason: a test that is skipped says nothing.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hdfs.java import ensure_jars
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.proxy import Proxy
from tests.unit.storage.conftest import start
from tidegate.errors import TidegateError

__all__ = ["start"]

SHORT_LISTINGS = {"dfs.ls.limit": "3"}
"""So that the listing of any folder with more than three entries comes in several parts."""

_numbers = itertools.count()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch what is missing before the first test begins, since a test's time is limited. Where that fails, the tests
    that try again say why."""
    is_needed = any(Path(__file__).parent in item.path.parents for item in session.items)
    if is_needed and not session.config.option.collectonly:
        with suppress(TidegateError):
            ensure_jars()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """Started when the first test asks for it. Folders are the test's own: see `folder`. Nobody kills, pauses or
    administers it."""
    yield from _running(MiniCluster(tmp_path_factory.mktemp("hdfs"), SHORT_LISTINGS))


@pytest.fixture(scope="module")
def mortal_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """One of the module's own, to be killed and paused. A test leaves it running."""
    yield from _running(MiniCluster(tmp_path_factory.mktemp("mortal-hdfs")))


def _running(cluster: MiniCluster) -> Iterator[MiniCluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def folder() -> str:
    """A path that no other test uses, with characters that have to be quoted."""
    return f"tests/{next(_numbers)}/check points+ü%20"


@pytest.fixture
def proxy(hdfs: MiniCluster) -> Iterator[Proxy]:
    """In front of the NameNode."""
    with Proxy(hdfs.address) as between:
        yield between
