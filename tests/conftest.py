"""What holds in every test: nothing reaches the user's home, and nothing that one test sets reaches the next."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tidegate import failpoints

# The same examples in every run, so that a red test says something about the change.
# `--hypothesis-profile=explore` looks further.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("repeatable"), derandomize=False, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def own_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No setting of the user's machine reaches a test; default folders lie in the test's own."""
    for name in sorted(os.environ):
        if name.startswith("TIDEGATE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
    if not {"kafka", "hdfs", "oracle"} & set(request.path.parts):
        # Those find their jars in the user's cache.
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))


@pytest.fixture(autouse=True)
def disarmed_fail_points() -> Iterator[None]:
    """A fail point armed by one test must not kill the next."""
    yield
    failpoints.arm(None)
