"""Commits that nobody reports must not stop the job without a word."""

from tests.unit.checkpoint.test_coordinator import READER, SINKS, appending, at, make, reported, triggered
from tidegate.checkpoint import coordinator as c
from tidegate.errors import ErrorKind


def test_a_task_that_never_reports_its_commits_fails_the_attempt_and_is_named() -> None:
    found = make()
    triggered(found)
    appending(found, 6, 11.0)
    found.handle(c.AppendWon(), at(12.0))
    found.handle(reported(READER, 6), at(13.0))
    found.handle(reported(SINKS[0], 6), at(13.0))
    assert found.handle(c.Wake(), at(12.0 + c.REPORT_PATIENCE - 0.1)) == []
    [failed] = found.handle(c.Wake(), at(12.0 + c.REPORT_PATIENCE))
    assert isinstance(failed, c.FailAttempt)
    assert failed.failure.kind is ErrorKind.UNAVAILABLE
    assert str(SINKS[1]) in failed.failure.message
    assert str(SINKS[0]) not in failed.failure.message
