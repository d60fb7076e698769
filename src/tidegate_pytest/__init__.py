"""The pytest plugin: fixtures that make harnesses and close them behind the test. pytest finds it where Tidegate is
installed.

It stands beside the package and not in it, and imports nothing of it before a test asks for a harness: a run of tests
that have nothing to do with Tidegate must not pay for it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate.testing import JobHarness, OperatorHarness


@pytest.fixture
def job_harness() -> "Iterator[Callable[..., JobHarness]]":
    """`job_harness(job, ...)` makes a `tidegate.testing.JobHarness`, with the same arguments."""
    from tidegate.testing import JobHarness

    with ExitStack() as opened:

        def make(program: Any, **options: Any) -> JobHarness:
            return opened.enter_context(JobHarness(program, **options))

        yield make


@pytest.fixture
def operator_harness() -> "Iterator[Callable[..., OperatorHarness]]":
    """`operator_harness(function, ...)` makes a `tidegate.testing.OperatorHarness`, with the same arguments."""
    from tidegate.testing import OperatorHarness

    with ExitStack() as opened:

        def make(under_test: Any, **options: Any) -> OperatorHarness:
            return opened.enter_context(OperatorHarness(under_test, **options))

        yield make
