"""Watermark alignment: the skew of a group is bounded, and it always goes on, whatever becomes of the messages."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.scheduling.aligned_world import AlignedWorld, Script
from tests.unit.scheduling.manifests import INSTANCE
from tests.unit.scheduling.programs import job_settings
from tidegate.clock import Now
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Watermark
from tidegate.event_time.alignment import AlignedGroup
from tidegate.event_time.progress import EventTimeProgress
from tidegate.graph.physical import PhysicalGraph, build_physical
from tidegate.ids import Attempt, SubtaskIndex, TaskId, VertexName, WorkerIndex
from tidegate.runtime.control import AlignWatermarks, TaskEnded, WatermarkReported
from tidegate.scheduling.alignment import SourceAlignment
from tidegate.scheduling.deployment import Deployment
from tidegate.scheduling.protocol import SendToWorker

MONOTONOUS: tg.WatermarkStrategy[int] = tg.WatermarkStrategy.for_monotonous_timestamps()
MOST_TICKS = 20_000


def aligned(drift: str, interval: str = "1s", group: str = "g") -> tg.WatermarkStrategy[int]:
    return MONOTONOUS.with_watermark_alignment(group, drift, interval)


def script(ends: st.SearchStrategy[bool]) -> st.SearchStrategy[Script]:
    steps = st.lists(st.integers(0, 60), min_size=1, max_size=40)
    return st.builds(Script, steps, st.sampled_from((0.05, 0.3, 1.0, 10.0)), st.sampled_from((0, 0, 20)), ends)


def split_scripts(ends: st.SearchStrategy[bool]) -> st.SearchStrategy[list[list[Script]]]:
    """Of one to three sources, each with some splits or none."""
    return st.lists(st.lists(script(ends), max_size=3), min_size=1, max_size=3)


def world_of(scripts: list[list[Script]], strategies: list[tg.WatermarkStrategy[int]], **more: Any) -> AlignedWorld:
    world = AlignedWorld(strategies, **more)
    for source, task in zip(scripts, world.tasks.values(), strict=True):
        task.assign({f"{task.id.vertex}-{number}": one for number, one in enumerate(source)})
    return world


# ---- the group -----------------------------------------------------------------------------------------------------


def task(name: str, subtask: int = 0) -> TaskId:
    return TaskId(VertexName(name), SubtaskIndex(subtask))


def test_a_group_is_where_its_slowest_task_is_that_is_not_idle() -> None:
    group = AlignedGroup([task("a"), task("b"), task("c")], 25)
    group.told(task("a"), Watermark(500))
    group.told(task("b"), Watermark(300))
    assert group.reached == MIN_WATERMARK
    group.told(task("c"), Watermark(100))
    assert group.reached == 100
    group.told(task("c"), Watermark(100, is_idle=True))
    assert group.reached == 300
    group.ended(task("b"))
    assert group.reached == 500


def test_a_group_never_goes_back_when_somebody_wakes_up_far_behind() -> None:
    group = AlignedGroup([task("a"), task("b")], 25)
    group.told(task("a"), Watermark(500))
    group.told(task("b"), Watermark(MIN_WATERMARK, is_idle=True))
    group.told(task("b"), Watermark(100))
    assert group.reached == 500


def test_all_are_told_once_when_a_group_has_come_a_good_part_further() -> None:
    group = AlignedGroup([task("a"), task("b")], 25)
    group.told(task("a"), Watermark(500))
    assert not group.take_news()
    group.told(task("b"), Watermark(100))
    assert (group.take_news(), group.take_news()) == (True, False)
    group.told(task("b"), Watermark(124))
    assert not group.take_news()
    group.told(task("b"), Watermark(125))
    assert (group.take_news(), group.take_news()) == (True, False)


def graphs(*sources: tuple[str, tg.WatermarkStrategy[int] | None]) -> tuple[SourceAlignment, PhysicalGraph]:
    job = tg.Job("job")
    for name, strategy in sources:
        job.source(CollectionSource([]), name=name, watermarks=strategy).sink(CollectionSink(), name=f"{name}-out")
    graph = job.graph(8)
    physical = build_physical(graph, 2, 8)
    return SourceAlignment(graph, physical), physical


def tasks_of(physical: PhysicalGraph, source: str) -> list[TaskId]:
    return [id for id in physical.tasks if physical.vertex(id.vertex).operators[0] == source]


def test_each_source_has_its_own_drift_and_all_are_told_when_the_last_one_has_reported() -> None:
    alignment, physical = graphs(("a", aligned("1s")), ("b", aligned("5s")), ("plain", MONOTONOUS))
    [a0, a1], [b0, b1] = tasks_of(physical, "a"), tasks_of(physical, "b")
    for number, id in enumerate((a0, a1, b0)):
        assert alignment.reported(WatermarkReported(id, 10_000 * number, False)) == [
            AlignWatermarks(id, MIN_WATERMARK + (5_000 if id == b0 else 1_000))
        ]
    answers = alignment.reported(WatermarkReported(b1, 3_000, False))
    assert {answer.task: answer.bound for answer in answers} == {a0: 1_000, a1: 1_000, b0: 5_000, b1: 5_000}
    assert alignment.reported(WatermarkReported(a0, 249, False)) == [AlignWatermarks(a0, 1_249)]
    assert len(alignment.reported(WatermarkReported(a0, 7_000, False))) == 4
    assert alignment.reported(WatermarkReported(a0, 8_000, False)) == [AlignWatermarks(a0, 4_000)]


def test_groups_do_not_know_of_each_other_and_the_end_of_another_task_is_nothing_to_them() -> None:
    alignment, physical = graphs(("a", aligned("1s", group="x")), ("b", aligned("1s", group="y")), ("c", None))
    for id in (*tasks_of(physical, "b"), *tasks_of(physical, "c")):
        assert alignment.ended(id) == []
    a0, a1 = tasks_of(physical, "a")
    alignment.reported(WatermarkReported(a0, 100, False))
    assert AlignWatermarks(a0, 1_100) in alignment.ended(a1)
    assert AlignWatermarks(a0, 1_200) in alignment.reported(WatermarkReported(a0, 200, False))


def test_an_attempt_answers_reports_and_tells_of_ends() -> None:
    job = tg.Job("job")
    job.source(CollectionSource([]), name="a", watermarks=aligned("1s")).sink(CollectionSink(), name="out")
    graph = job.graph(8)
    physical = build_physical(graph, 2, 8)
    deployment = Deployment(graph, physical, job_settings(), INSTANCE, Attempt(2), graph.fingerprint())
    a0, a1 = tasks_of(physical, "a")

    def sent(message: WatermarkReported | TaskEnded) -> list[tuple[int, object]]:
        outcomes = deployment.received(WorkerIndex(0), message, Now(0.0, 0.0))
        return [(outcome.worker, outcome.message) for outcome in outcomes if isinstance(outcome, SendToWorker)]

    assert sent(WatermarkReported(a1, 100, False)) == [(1, AlignWatermarks(a1, MIN_WATERMARK + 1_000))]
    assert sent(TaskEnded(a0)) == [(0, AlignWatermarks(a0, 1_100)), (1, AlignWatermarks(a1, 1_100))]
    assert sent(TaskEnded(a1)) == []


def test_at_the_end_of_time_there_is_no_bound_beyond_it() -> None:
    alignment, physical = graphs(("a", aligned("1s")))
    a0, a1 = tasks_of(physical, "a")
    alignment.ended(a1)
    answers = alignment.reported(WatermarkReported(a0, MAX_WATERMARK, False))
    assert AlignWatermarks(a0, MAX_WATERMARK) in answers


# ---- the whole -----------------------------------------------------------------------------------------------------


def check_skew(scripts: list[list[Script]], drifts: list[int], seed: int, can_pause: bool) -> AlignedWorld:
    strategies = [aligned(f"{drift}ms", "500ms") for drift in drifts[: len(scripts)]]
    world = world_of(scripts, strategies, random=Random(seed), loss=0.2, delay=5, can_pause=can_pause)
    assert world.run(MOST_TICKS), "it does not go on"
    return world


DRIFTS = st.lists(st.sampled_from((1, 20, 100, 1000)), min_size=3, max_size=3)
BOUNDED = split_scripts(st.just(True))


@given(BOUNDED, DRIFTS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_split_is_read_that_is_too_far_ahead_and_everything_is_read(
    scripts: list[list[Script]], drifts: list[int], seed: int
) -> None:
    assert check_skew(scripts, drifts, seed, can_pause=True).worst_lead <= 0


@given(BOUNDED, DRIFTS, st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_readers_that_cannot_pause_splits_read_everything(
    scripts: list[list[Script]], drifts: list[int], seed: int
) -> None:
    world = check_skew(scripts, drifts, seed, can_pause=False)
    if all(len(source) <= 1 for source in scripts):
        assert world.worst_lead <= 0


@given(split_scripts(st.booleans()), DRIFTS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_group_goes_on_whoever_becomes_idle_or_ends(
    scripts: list[list[Script]], drifts: list[int], seed: int
) -> None:
    strategies = [aligned(f"{drift}ms", "500ms").with_idleness("1s") for drift in drifts[: len(scripts)]]
    assert world_of(scripts, strategies, random=Random(seed), loss=0.2, delay=5).run(MOST_TICKS)


FAST = [Script([10] * 60, 10.0, 0, True)]
SLOW = [Script([10] * 60, 0.3, 0, True)]
"""As many records as `FAST` over the same time, and far slower."""


def lead_of(fast: list[Script], slow: list[Script]) -> int:
    world = world_of([fast, slow], [aligned("50ms", "500ms")] * 2, random=Random(1))
    assert world.run(MOST_TICKS)
    return world.worst_lead


def test_the_check_of_the_skew_finds_a_group_that_is_where_its_fastest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lead_of(FAST, SLOW) <= 0
    furthest = property(lambda group: max(watermark.timestamp for watermark in group._told.values()))
    monkeypatch.setattr(AlignedGroup, "reached", furthest)
    assert lead_of(FAST, SLOW) > 100


def test_the_check_of_the_skew_finds_an_input_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventTimeProgress, "pause_and_resume", lambda progress: ([], []))
    assert lead_of(FAST, SLOW) > 100


def test_the_check_of_going_on_finds_a_group_that_waits_for_those_that_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = [Script([10], 10.0, 0, False)]
    strategies = [aligned("50ms", "500ms").with_idleness("1s")] * 2

    def goes_on() -> bool:
        return world_of([FAST, silent], strategies, random=Random(1)).run(MOST_TICKS)

    assert goes_on()
    told = AlignedGroup.told
    monkeypatch.setattr(AlignedGroup, "told", lambda group, id, mark: told(group, id, Watermark(mark.timestamp)))
    assert not goes_on()
