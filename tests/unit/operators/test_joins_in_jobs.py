"""Jobs with joins, run by the engine itself: without late rows, what is committed in the end is the same whether or not
the job crashed, was restored or went on at another parallelism, anywhere."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.api.programs import NullSink
from tests.unit.runtime.harness import HandSource
from tidegate.operators.joins.rows import Place, TimedRows
from tidegate.testing import JobHarness

SINKS = ["versions", "near", "together"]


class Row(NamedTuple):
    key: str
    at: int
    number: int


def pair(left: Row | None, right: Row | None) -> tuple[Any, Any]:
    return left, right


def program() -> tg.Job:
    job = tg.Job("joins")
    times: tg.WatermarkStrategy[Row] = tg.WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda row: row.at)
    left, right = (
        job.source(HandSource(), name=name, watermarks=times).key_by(lambda row: row.key, key_type=str)
        for name in ("left", "right")
    )
    types = (Row, Row)
    windows = tg.SlidingEventTimeWindows("10ms", "5ms")
    versions = left.temporal_join(right, pair, name="temporal", types=types, how="left", within="8ms")
    near = left.interval_join(right, pair, lower="-4ms", upper="2ms", name="interval", types=types, how="full")
    together = left.window_join(right, windows, pair, name="window", types=types, how="full")
    for stream, name in zip((versions, near, together), SINKS, strict=True):
        stream.sink(NullSink(), name=name)
    return job


rows = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["a", "b", "c"]), st.integers(1, 20))
troubles = st.sampled_from(["checkpoint", "crash", "crash 1", "crash 3", "restart 2"])
steps = st.lists(st.one_of(rows, st.integers(1, 6), troubles), min_size=3, max_size=25)


def committed(steps: list[Any], undisturbed: bool) -> list[list[str]]:
    with JobHarness(program, parallelism=2) as harness:
        now = 0
        for number, step in enumerate(steps):
            if isinstance(step, tuple):
                source, key, after = step
                harness.send(source, Row(key, now + after, number))
            elif isinstance(step, int):
                now += step
                harness.advance_watermark(now)
            elif not undisturbed:
                disturb(harness, step)
        harness.finish()
        assert [harness.records_skipped(name) for name in ("temporal", "interval", "window")] == [0, 0, 0]
        return [sorted(map(repr, harness.committed(sink))) for sink in SINKS]


def disturb(harness: JobHarness, trouble: str) -> None:
    what, _, parallelism = trouble.partition(" ")
    if what == "checkpoint":
        harness.checkpoint()
    elif what == "crash":
        harness.crash(parallelism=int(parallelism) if parallelism else None)
    else:
        harness.restart(parallelism=int(parallelism))


@given(steps=steps)
@settings(max_examples=15, deadline=None)
def test_what_is_committed_does_not_depend_on_crashes_and_parallelism(steps: list[Any]) -> None:
    assert committed(steps, undisturbed=False) == committed(steps, undisturbed=True)


STEPS = [("left", "a", 5), ("right", "a", 4), "checkpoint", 2, "crash 1", ("right", "a", 3), 6, ("left", "a", 9)]


def test_each_join_commits_its_pairs() -> None:
    versions, near, together = committed(STEPS, undisturbed=False)
    left, first, second, last = Row("a", 5, 0), Row("a", 4, 1), Row("a", 5, 5), Row("a", 17, 7)
    assert versions == sorted(map(repr, [(left, second), (last, None)]))
    assert near == sorted(map(repr, [(left, first), (left, second), (last, None)]))
    pairs = [(left, first), (left, second), (left, second)]
    assert together == sorted(map(repr, [*pairs, (None, first), (last, None), (last, None)]))


def test_rows_that_are_not_in_the_state_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_row_outside(self: TimedRows, position: int, place: Place, row: Any) -> None:
        self._order.insert(position, place)
        kept[place] = row

    kept: dict[Place, Any] = {}
    undisturbed = committed(STEPS, undisturbed=True)
    monkeypatch.setattr(TimedRows, "_insert", keep_row_outside)
    monkeypatch.setattr(TimedRows, "get", lambda self, place: kept[place])
    assert committed(STEPS, undisturbed=False) != undisturbed


@pytest.mark.slow
@given(steps=steps)
@settings(max_examples=150, deadline=None)
def test_what_many_jobs_commit_does_not_depend_on_crashes_and_parallelism(steps: list[Any]) -> None:
    assert committed(steps, undisturbed=False) == committed(steps, undisturbed=True)
