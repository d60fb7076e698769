"""What stands in for the sources and sinks of a job under test keeps the promises of real ones."""

from collections.abc import Sequence

import pytest

from tidegate.errors import InternalError, InvalidError
from tidegate.operators.contracts import Sink, Source
from tidegate.operators.reaching import open_recovery
from tidegate.testing import CollectSink, EndOfInput, Record, ScriptedSource
from tidegate.testing.conformance.sink import TransactionalSinkConformance
from tidegate.testing.conformance.source import SourceConformance
from tidegate.testing.harness.feed import Feed, FeedSource
from tidegate.testing.harness.sink import Collected


class TestCollected(TransactionalSinkConformance):
    def sink(self) -> Sink:
        if not hasattr(self, "kept"):
            self.kept = Collected()
        return self.kept

    def read_committed(self) -> list[str]:
        return self.kept.committed if hasattr(self, "kept") else []

    def read_everything(self) -> list[str]:
        return self.kept.output


class TestFeedSource(SourceConformance):
    unbounded = False
    grows = False

    def create(self, splits: int) -> None:
        self.splits = splits
        self.feed = Feed()

    def append(self, split: int, values: Sequence[str | None]) -> None:
        for value in values:
            self.feed.add("src", Record(value, split=split))

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        if "src" not in self.feed.ends:
            self.feed.add("src", EndOfInput())
        self.feed.allowed = len(self.feed.elements)
        return FeedSource(self.feed, "src", self.splits)


def test_a_recovery_finds_the_sink_by_what_a_manifest_says_of_it() -> None:
    sink = Collected()
    recovery = open_recovery(sink.recovery_spec)
    sink.begin("app:log:1:out:0:0")
    assert recovery.describe is not None


def test_a_recovery_of_a_sink_that_is_gone_says_so() -> None:
    spec = Collected().recovery_spec
    with pytest.raises(InternalError, match="is gone"):
        open_recovery(spec)


def test_a_scripted_source_and_a_collect_sink_refuse_to_run_elsewhere() -> None:
    for refused in (lambda: ScriptedSource().discover(None), lambda: CollectSink().open_recovery()):
        with pytest.raises(InvalidError, match="works in a JobHarness only"):
            refused()


@pytest.mark.parametrize(("script", "splits"), [([Record(1, split=1)], 1), ([], 0), ([Record(1, split=-1)], 2)])
def test_a_script_for_splits_that_are_not_there_is_refused(script: list[Record], splits: int) -> None:
    with pytest.raises(InvalidError, match="split"):
        ScriptedSource(script, splits=splits)
