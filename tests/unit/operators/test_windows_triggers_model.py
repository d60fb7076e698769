"""Every trigger with every kind of window gives what a short model gives: records out of order, late and too late,
watermarks and the clock in between, cut into batches anyhow, put into a checkpoint and taken out again anywhere and at
another parallelism."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.rescaling import Given, Subtasks
from tests.unit.operators.windows_model import (
    Count,
    EveryClock,
    EveryEvent,
    Model,
    Never,
    OnClock,
    OnTime,
    Purging,
    Result,
    Timeout,
)
from tests.unit.runtime.harness import HandSource
from tidegate.event_time.triggers import Trigger
from tidegate.ids import OperatorName
from tidegate.operators.windows import panes
from tidegate.operators.windows.open_windows import KeyWindows
from tidegate.operators.windows.triggered import TriggeredWindowOperator

Steps = list[Any]
Pair = tuple[Callable[[], Trigger | None], Callable[[], Any]]
"""The trigger, and what the model has for it."""

ASSIGNERS: dict[str, Any] = {
    "tumbling": tg.TumblingEventTimeWindows("10ms", offset="3ms"),
    "sliding": tg.SlidingEventTimeWindows("10ms", "4ms"),
    "sessions": tg.EventTimeSessionWindows("7ms"),
    "tumbling by the clock": tg.TumblingProcessingTimeWindows("10ms"),
    "sliding by the clock": tg.SlidingProcessingTimeWindows("10ms", "4ms", offset="1ms"),
    "sessions by the clock": tg.ProcessingTimeSessionWindows("7ms"),
    "global": tg.GlobalWindows(),
}
BY_CLOCK = {name for name, assigner in ASSIGNERS.items() if assigner.domain == "processing"}
CLOCK_TRIGGERS: dict[str, Pair] = {
    "count": (lambda: tg.CountTrigger(3), lambda: Count(3)),
    "purging count": (lambda: tg.PurgingTrigger(tg.CountTrigger(2)), lambda: Purging(Count(2))),
    "never": (tg.NeverTrigger, Never),
    "clock": (tg.ProcessingTimeTrigger, OnClock),
    "purging clock": (lambda: tg.PurgingTrigger(tg.ProcessingTimeTrigger()), lambda: Purging(OnClock())),
    "continuous clock": (lambda: tg.ContinuousProcessingTimeTrigger("4ms"), lambda: EveryClock(4)),
    "so many or so long": (
        lambda: tg.PurgingTrigger(tg.ProcessingTimeoutTrigger(tg.CountTrigger(4), "5ms")),
        lambda: Purging(Timeout(Count(4), 5, False)),
    ),
    "so long after the last": (
        lambda: tg.ProcessingTimeoutTrigger(tg.ContinuousProcessingTimeTrigger("9ms"), "5ms", reset_on_record=True),
        lambda: Timeout(EveryClock(9), 5, True),
    ),
}
EVENT_TRIGGERS: dict[str, Pair] = {
    "none": (lambda: None, OnTime),
    "on time": (lambda: tg.EventTimeTrigger(early=tg.NeverTrigger()), OnTime),
    "purging on time": (lambda: tg.PurgingTrigger(tg.EventTimeTrigger()), lambda: Purging(OnTime())),
    "early count, no late": (
        lambda: tg.EventTimeTrigger(early=tg.CountTrigger(2), late=tg.NeverTrigger()),
        lambda: OnTime(Count(2), Never()),
    ),
    "early purge, late count": (
        lambda: tg.EventTimeTrigger(early=tg.PurgingTrigger(tg.CountTrigger(2)), late=tg.CountTrigger(2)),
        lambda: OnTime(Purging(Count(2)), Count(2)),
    ),
    "early and late by the clock": (
        lambda: tg.EventTimeTrigger(
            early=tg.ContinuousProcessingTimeTrigger("3ms"), late=tg.ContinuousProcessingTimeTrigger("5ms")
        ),
        lambda: OnTime(EveryClock(3), EveryClock(5)),
    ),
    "early by event time, with a timeout": (
        lambda: tg.EventTimeTrigger(
            early=tg.ProcessingTimeoutTrigger(tg.ContinuousEventTimeTrigger("3ms"), "4ms"),
        ),
        lambda: OnTime(Timeout(EveryEvent(3), 4, False)),
    ),
    "continuous event time": (lambda: tg.ContinuousEventTimeTrigger("4ms"), lambda: EveryEvent(4)),
    "closed by the clock": (
        lambda: tg.PurgingTrigger(tg.ProcessingTimeoutTrigger(tg.EventTimeTrigger(), "6ms", reset_on_record=True)),
        lambda: Purging(Timeout(OnTime(), 6, True)),
    ),
}
TRIGGERS = CLOCK_TRIGGERS | EVENT_TRIGGERS
COMBINATIONS = [
    (windows, trigger)
    for windows in ASSIGNERS
    for trigger in (CLOCK_TRIGGERS if windows in BY_CLOCK else TRIGGERS)
    if (windows, trigger) != ("global", "none")
]
DEFAULTS: list[tuple[str, Callable[[], Any]]] = [
    *((windows, OnClock) for windows in sorted(BY_CLOCK)),
    ("global", lambda: Purging(OnTime())),
]

records = st.tuples(st.sampled_from(["a", "b", "", "c"]), st.integers(0, 60))
steps_of_all_kinds = st.lists(
    st.one_of(
        st.lists(records, min_size=1, max_size=6),
        st.tuples(st.just("watermark"), st.integers(-5, 70)),
        st.tuples(st.just("time"), st.integers(0, 50)),
        st.tuples(st.just("move"), st.integers(1, 3)),
    ),
    max_size=14,
)


def node_of(windows: str, trigger: Trigger | None, lateness: int) -> Any:
    job = tg.Job("windows")
    stream = job.source(HandSource(), name="src").key_by(lambda record: record)
    assigner = ASSIGNERS[windows]
    late = {"allowed_lateness": f"{lateness}ms", "late": tg.SideOutput[Any]("late")}
    given: dict[str, Any] = late if assigner.domain == "event" else {}
    stream.window(assigner, trigger=trigger, **given).process(rows_of, name="windows", type=int)
    return job._builder.node(OperatorName("windows"))


def rows_of(ctx: tg.WindowContext[str], numbers: list[int]) -> Iterator[tuple[Any, ...]]:
    yield ctx.key, tuple(ctx.window), tuple(sorted(numbers))


def results_in(given: list[Given]) -> list[Result]:
    return [Result(row[0], row[1], row[2], timestamp) for tag, timestamp, row in given if tag is None]


def check(subtasks: Subtasks, model: Model, steps: Steps) -> None:
    """What `subtasks` give is what `model` gives, step by step, and then at the end."""
    number = 0
    for step in [*steps, ("end", 0)]:
        given: list[Given] = []
        expected: list[Result] = []
        match step:
            case ("move", int(parallelism)):
                subtasks.move(parallelism)
            case ("watermark", int(watermark)):
                given, expected = subtasks.watermark(watermark), list(model.event_time(watermark))
            case ("time", int(now)):
                given, expected = subtasks.time(now), list(model.clock_time(now))
            case ("end", _):
                given, expected = subtasks.end(), list(model.end())
            case list(rows):
                given = subtasks.batch([(key, stamp, number + place) for place, (key, stamp) in enumerate(rows)])
                expected = [r for place, row in enumerate(rows) for r in model.record(row, number + place)]
                number += len(rows)
        compare(results_in(given), expected, in_order=subtasks.parallelism == 1 and not is_grouped(subtasks, step))
        assert sorted(value for tag, _, value in given if tag == "late") == sorted(model.too_late)
        model.too_late.clear()
        check_state(subtasks, model)


def is_grouped(subtasks: Subtasks, step: Any) -> bool:
    """Whether the operator handles the records of a batch key by key."""
    return isinstance(step, list) and not isinstance(subtasks.operators[0], TriggeredWindowOperator)


def compare(given: list[Result], expected: list[Result], in_order: bool) -> None:
    if in_order:
        assert given == expected
    # What keys give does not depend on each other, and each gives it in the order of time.
    for key in sorted({result.key for result in (*given, *expected)}):
        assert [r for r in given if r.key == key] == [r for r in expected if r.key == key]


def check_state(subtasks: Subtasks, model: Model) -> None:
    """There are as many windows in the state as the model has, and no more timers than they need."""
    left = subtasks.left_of()
    filled = sum(1 for one in model.windows.values() if one.numbers)
    if isinstance(subtasks.operators[0], TriggeredWindowOperator):
        accumulators = sum(count for name, count in left.items() if name.startswith(".windows"))
        assert accumulators == filled
        kept = sum(count for name, count in left.items() if name.startswith(".triggers"))
        assert filled <= kept <= len(model.windows)
        assert model.domain == "none" or kept == len(model.windows)
    if not model.windows:
        assert subtasks.left() == 0


def run(windows: str, trigger: str, lateness: int, steps: Steps) -> None:
    make, make_model = TRIGGERS[trigger]
    lateness = lateness if ASSIGNERS[windows].domain == "event" else 0
    check(Subtasks(node_of(windows, make(), lateness)), Model(ASSIGNERS[windows], make_model, lateness), steps)


@pytest.mark.parametrize(("windows", "trigger"), COMBINATIONS)
@given(steps=steps_of_all_kinds, lateness=st.sampled_from([0, 6]))
@settings(max_examples=16)
def test_W05_W09_triggers_are_what_the_model_says_and_leave_nothing(
    windows: str, trigger: str, lateness: int, steps: Steps
) -> None:
    run(windows, trigger, lateness, steps)


@pytest.mark.slow
@pytest.mark.parametrize(("windows", "trigger"), COMBINATIONS)
@given(steps=steps_of_all_kinds, lateness=st.sampled_from([0, 1, 6, 30]))
@settings(max_examples=120)
def test_W05_W09_triggers_are_what_the_model_says_in_many_more_ways(
    windows: str, trigger: str, lateness: int, steps: Steps
) -> None:
    run(windows, trigger, lateness, steps)


@pytest.mark.parametrize(("windows", "make_model"), DEFAULTS)
@given(steps=steps_of_all_kinds)
@settings(max_examples=40)
def test_windows_without_a_trigger_are_what_the_model_says(
    windows: str, make_model: Callable[[], Any], steps: Steps
) -> None:
    check(Subtasks(node_of(windows, None, 0)), Model(ASSIGNERS[windows], make_model, 0), steps)


@given(steps=steps_of_all_kinds, lateness=st.sampled_from([0, 6]))
@settings(max_examples=40)
def test_windows_of_which_panes_are_looked_for_are_what_the_model_says(
    monkeypatch: pytest.MonkeyPatch, steps: Steps, lateness: int
) -> None:
    monkeypatch.setattr(panes, "MANY_PANES", 1)
    run("sliding", "none", lateness, steps)


def test_windows_of_millions_of_panes_are_put_together_of_those_that_are_there() -> None:
    windows = tg.SlidingEventTimeWindows("10000001ms", "5000000ms")
    job = tg.Job("windows")
    keyed = job.source(HandSource(), name="src").key_by(lambda record: record)
    keyed.window(windows).process(rows_of, name="windows", type=int)
    subtasks = Subtasks(job._builder.node(OperatorName("windows")))
    subtasks.batch([("a", 5_000_000, 1), ("a", 0, 2), ("a", 9_999_999, 3)])
    spans = [(row[1], row[2]) for _, _, row in subtasks.end()]
    assert spans == [
        ((-10_000_000, 1), (2,)),
        ((-5_000_000, 5_000_001), (1, 2)),
        ((0, 10_000_001), (1, 2, 3)),
        ((5_000_000, 15_000_001), (1, 3)),
    ]
    assert subtasks.left() == 0


# ---- the comparison itself -----------------------------------------------------------------------------------------

BRIDGE: Steps = [[("a", 1)], [("a", 13)], ("move", 2), [("a", 7)], ("watermark", 5), ("watermark", 30), ("move", 1)]
"""Two sessions that a third record joins, behind a restore."""
PURGED: Steps = [[("a", 1), ("a", 2)], ("move", 1), [("a", 6)], ("watermark", 9), ("watermark", 40)]
"""A session that has forgotten its records and is still there."""


def forgets_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tg.ContinuousEventTimeTrigger, "on_merge", lambda self, window, ctx: None)


def forgets_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tg.CountTrigger, "merge", lambda self, one, other: one)


def forgets_purged_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeyWindows.store

    def without_purged(self: KeyWindows, *arguments: Any) -> None:
        self.open = {window: one for window, one in self.open.items() if one.accumulator is not None}
        store(self, *arguments)

    monkeypatch.setattr(KeyWindows, "store", without_purged)


def leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriggeredWindowOperator, "_cleanup", lambda self, window: None)


def drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriggeredWindowOperator, "_merged", lambda self, one, other: one)


def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriggeredWindowOperator, "_merged", lambda self, one, other: [*one, *other, *other[:1]])


def changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriggeredWindowOperator, "_merged", lambda self, one, other: [*one[:-1], 99, *other])


@pytest.mark.parametrize(
    ("mutate", "trigger", "steps"),
    [
        (forgets_timers, "continuous event time", BRIDGE),
        (forgets_states, "count", BRIDGE),
        (forgets_purged_sessions, "early purge, late count", PURGED),
        (leaks, "on time", BRIDGE),
        (drops, "on time", BRIDGE),
        (doubles, "on time", BRIDGE),
        (changes, "on time", BRIDGE),
    ],
)
def test_the_comparison_finds_an_operator_that_forgets_leaks_drops_doubles_or_changes(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], trigger: str, steps: Steps
) -> None:
    run("sessions", trigger, 0, steps)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run("sessions", trigger, 0, steps)
