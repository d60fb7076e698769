"""Scripts are played entry by entry; markers happen once, wherever they stand."""

from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import Order, Silence, totals, windows
from tidegate.errors import InvalidError
from tidegate.testing import (
    AdvanceProcessingTime,
    Checkpoint,
    CollectSink,
    Crash,
    EndOfInput,
    JobHarness,
    Record,
    Restart,
    ScriptedSource,
    Watermark,
)

NO_WATERMARKS = tg.WatermarkStrategy[Order].no_watermarks()


def copying(*names: str) -> tg.Job:
    """Two sources and more, all into one sink."""
    job = tg.Job("copying")
    first, *others = (job.source(ScriptedSource(), name=name) for name in names)
    (first.union(*others, name="all") if others else first).sink(CollectSink(), name="out")
    return job


def test_what_is_no_marker_is_the_value_of_a_record() -> None:
    with JobHarness(copying("one"), sources={"one": [1, Record(2, 5), "three", None]}) as harness:
        assert harness.output() == []
        harness.run()
        assert harness.sink().records == [Record(1), Record(2, 5), Record("three"), Record(None)]


def test_sources_take_turns_with_their_scripts() -> None:
    scripts = {"one": [1, 2, 3], "two": [10, 20, 30, 40]}
    with JobHarness(copying("one", "two"), sources=scripts) as harness:
        harness.finish()
        assert harness.committed() == [1, 10, 2, 20, 3, 30, 40]


def test_a_script_may_stand_in_the_job_and_another_in_its_place() -> None:
    job = tg.Job("own")
    job.source(ScriptedSource([1, 2]), name="in").sink(CollectSink(), name="out")
    for sources, expected in (({}, [1, 2]), ({"in": ScriptedSource([3])}, [3])):
        with JobHarness(job, sources=sources) as harness:
            harness.finish()
            assert harness.committed() == expected


def test_every_marker_does_what_it_is_called() -> None:
    script = [
        Record(Order("ann", 1), 5),
        Record(Order("ann", 2), 15),
        Checkpoint(),
        Watermark(9),
        Crash(parallelism=2),
        Record(Order("bob", 4), 9),
        Restart(parallelism=3),
        Watermark(19),
        EndOfInput(),
    ]
    with JobHarness(windows(NO_WATERMARKS), sources={"orders": script}) as harness:
        harness.run()
        assert harness.is_finished
        assert harness.committed("out") == ["ann 0-10: 1", "ann 10-20: 2"]
        assert harness.committed("late") == [Order("bob", 4)]


def test_a_clock_in_a_script_goes_on() -> None:
    script = [Order("ann", 1), AdvanceProcessingTime("59s"), Order("bob", 1), AdvanceProcessingTime("1s")]
    with JobHarness(totals(Silence()), sources={"orders": script}) as harness:
        harness.run()
        assert harness.output() == ["ann is silent at 60000, 60000"]
        assert harness.processing_time == 60_000


def test_a_crash_in_a_script_happens_once_and_records_around_it_come_again() -> None:
    script = [Order("ann", 1), Checkpoint(), Order("ann", 2), Crash(), Order("ann", 4), Crash(), Order("ann", 8)]
    with JobHarness(totals(), sources={"orders": script}) as harness:
        harness.run()
        assert harness.committed() == ["ann 1"]
        assert harness.output() == ["ann 1", "ann 3", "ann 7", "ann 15"]
        harness.finish()
        assert harness.committed() == ["ann 1", "ann 3", "ann 7", "ann 15"]


def test_a_test_may_send_between_two_scripts_and_play_on() -> None:
    with JobHarness(copying("one", "two"), sources={"two": [10]}) as harness:
        harness.send("one", 1)
        harness.run()
        harness.send("one", 2)
        harness.run()
        assert harness.output() == [1, 10, 2]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
@pytest.mark.parametrize("snapshots", [False, True])
def test_nothing_depends_on_how_a_script_is_cut(batch_size: int, snapshots: bool) -> None:
    script: list[Any] = [Record(Order("ann", 1), at, at % 2) for at in range(12)]
    script[5:5] = [Checkpoint()]
    script[9:9] = [Crash(parallelism=2), Restart(parallelism=1)]
    source = ScriptedSource(script, splits=2)
    with JobHarness(
        windows(NO_WATERMARKS),
        sources={"orders": source},
        batch_size=batch_size,
        snapshot_every_element=snapshots,
    ) as harness:
        harness.finish()
        assert harness.committed("out") == ["ann 0-10: 10", "ann 10-20: 2"]


def test_records_without_a_timestamp_have_none_in_event_time() -> None:
    script = [Record(Order("ann", 1), 5), Record(Order("ann", 1))]
    with JobHarness(windows(NO_WATERMARKS), sources={"orders": script}, batch_size=2) as harness:
        with pytest.raises(InvalidError, match="have no timestamps"):
            harness.run()
        assert harness.state("sum", ".windows-tumbling-windows-of-10ms") == {"ann": {(0, 10): 1}}


def test_a_watermark_in_the_script_of_a_source_without_any_is_refused() -> None:
    with (
        JobHarness(copying("one"), sources={"one": [Watermark(5)]}) as harness,
        pytest.raises(InvalidError, match="source 'one' has no watermarks"),
    ):
        harness.run()
