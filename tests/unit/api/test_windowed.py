"""What a program says about windows: what it may, what is refused where it stands, and what two jobs do not share."""

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.unit.operators.rescaling import Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.errors import InvalidError, UserCodeError

COUNT: tg.Aggregate[Any, int, int] = tg.Aggregate(
    type=int,
    create=int,
    add=lambda count, _: count + 1,
    merge=lambda one, other: one + other,
    result=lambda count: count,
)

MINUTES = tg.TumblingEventTimeWindows("1m")


class Unmerged(tg.Trigger):
    def on_element(self, value: Any, timestamp: Any, window: Any, ctx: tg.TriggerContext) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE


class Changing(Unmerged):
    state_type = list[int]


class Last(tg.ProcessWindowFunction[str, Any, str]):
    seen = tg.WindowState(int, default=0)
    last = tg.ValueState(str, default="")

    def process(self, ctx: tg.WindowContext[str], records: list[Any]) -> list[str]:
        return [self.last.value()]


def keyed() -> tg.KeyedStream[str, str]:
    job = tg.Job("windows")
    stream: tg.Stream[str] = job.source(HandSource(), name="src")
    return stream.key_by(lambda text: text)


def states_of(stream: tg.Stream[Any]) -> list[str]:
    return [state.name for state in stream._builder.node(stream._operator).states]


def test_windows_that_are_cut_in_another_way_do_not_share_their_state() -> None:
    minutes = keyed().window(tg.TumblingEventTimeWindows("1m")).aggregate(COUNT, name="counts")
    hours = keyed().window(tg.TumblingEventTimeWindows("1h")).aggregate(COUNT, name="counts")
    sliding = keyed().window(tg.SlidingEventTimeWindows("1h", "1m")).aggregate(COUNT, name="counts")
    assert states_of(minutes) == [".event-timers", ".windows-tumbling-windows-of-1m"]
    names = {tuple(states_of(stream)) for stream in (minutes, hours, sliding)}
    assert len(names) == 3


def test_what_a_window_keeps_says_how_it_is_cut_and_triggered_but_not_with_which_numbers() -> None:
    def names(trigger: tg.Trigger | None, windows: Any = MINUTES) -> list[str]:
        return states_of(keyed().window(windows, trigger=trigger).aggregate(COUNT, Last(), name="it"))

    cut = "tumbling-windows-of-1m"
    assert names(None) == [".event-timers", f".window-state-seen-{cut}", f".windows-{cut}", "last"]
    assert names(tg.EventTimeTrigger()) == names(None)
    purging = tg.PurgingTrigger(tg.EventTimeTrigger(early=tg.CountTrigger(3)))
    how = f"{cut}-PurgingTrigger-of-EventTimeTrigger-with-early-CountTrigger"
    states = [".event-timers", ".timers", f".triggers-{how}", f".window-state-seen-{cut}", f".windows-{how}", "last"]
    assert names(purging) == states
    assert names(tg.CountTrigger(3)) == names(tg.CountTrigger(4))
    by_clock = tg.TumblingProcessingTimeWindows("1m")
    assert names(tg.ProcessingTimeTrigger(), by_clock) == names(None, by_clock)
    assert names(None, by_clock)[0] == ".timers"


def test_a_count_window_keeps_accumulators_and_how_many_records_a_key_has_had() -> None:
    stream = keyed().count_window(10, 5).aggregate(COUNT, name="it")
    assert states_of(stream) == [".counts", ".windows-windows-of-10-records-every-5"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: keyed().window("1m"), "window was given str"),  # type: ignore[arg-type]
        (lambda: keyed().window(tg.EventTimeSessionWindows("1m"), allowed_lateness="soon"), "allowed_lateness: 'soon'"),
        (lambda: keyed().window(tg.EventTimeSessionWindows("1m"), late="late"), "late='late' is no side output"),  # type: ignore[arg-type]
        (lambda: tg.TumblingEventTimeWindows("0"), "size of a window: '0' is no time at all"),
        (lambda: tg.TumblingEventTimeWindows("5h", zone="Europe/Berlin"), "do not fit into days"),
        (lambda: tg.TumblingEventTimeWindows("1d", zone="Mars/Olympus"), "'Mars/Olympus' is not a time zone"),
        (lambda: tg.SlidingEventTimeWindows("1m", "2m"), "leave gaps"),
        (lambda: keyed().window(tg.EventTimeSessionWindows("1m")).aggregate(sum, name="it"), "an aggregate is needed"),  # type: ignore[call-overload]
        (lambda: keyed().window(tg.EventTimeSessionWindows("1m")).reduce(lambda a, b: a, name="it"), "not known"),
        (lambda: keyed().window(tg.GlobalWindows), "window was given GlobalWindows"),  # type: ignore[arg-type]
        (lambda: keyed().window(tg.GlobalWindows(), allowed_lateness="1s"), "no record comes late to global windows"),
        (
            lambda: keyed().window(tg.TumblingProcessingTimeWindows("1m"), late=tg.SideOutput("late")),
            "no record comes late to tumbling windows of 1m of processing time",
        ),
        (lambda: keyed().window(MINUTES, trigger=tg.CountTrigger), "window was given the class CountTrigger"),  # type: ignore[arg-type]
        (lambda: keyed().window(MINUTES, trigger="count"), "window was given str"),  # type: ignore[arg-type]
        (lambda: keyed().window(tg.EventTimeSessionWindows("1m"), trigger=Unmerged()), "cannot merge what it keeps"),
        (
            lambda: keyed().window(
                tg.EventTimeSessionWindows("1m"), trigger=tg.PurgingTrigger(tg.EventTimeTrigger(early=Unmerged()))
            ),
            "cannot merge what it keeps",
        ),
        (
            lambda: keyed().window(
                tg.TumblingProcessingTimeWindows("1m"),
                trigger=tg.ProcessingTimeoutTrigger(tg.ContinuousEventTimeTrigger("1s"), "1s"),
            ),
            "have no time in common",
        ),
        (lambda: keyed().window(MINUTES, trigger=Changing()).aggregate(COUNT, name="it"), "whose values can change"),
        (lambda: tg.CountTrigger(0), r"CountTrigger\(0\) counts no records"),
        (lambda: tg.ContinuousEventTimeTrigger("0"), "interval of a ContinuousEventTimeTrigger: '0' is no time"),
        (
            lambda: tg.ProcessingTimeoutTrigger(tg.NeverTrigger(), "soon"),
            "timeout of a ProcessingTimeoutTrigger: 'soon'",
        ),
        (lambda: tg.PurgingTrigger(tg.NeverTrigger), "a PurgingTrigger was given the class NeverTrigger"),  # type: ignore[arg-type]
        (lambda: tg.EventTimeTrigger(late=3), "late of an EventTimeTrigger was given int"),  # type: ignore[arg-type]
        (lambda: keyed().count_window(0), "size of a count window: 0 is no number of records"),
        (lambda: keyed().count_window(2, 3), "windows of 2 records every 3 leave some out"),
        (
            lambda: keyed().window(MINUTES).aggregate(COUNT, name="it", side_outputs=[tg.SideOutput("a")]),  # type: ignore[call-overload]
            "no window function that could write to them",
        ),
        (lambda: keyed().window(MINUTES).aggregate(COUNT, Last, name="it"), "was given the class Last instead"),  # type: ignore[arg-type]
        (
            lambda: keyed().window(tg.EventTimeSessionWindows("1m")).process(Last(), name="it", type=str),
            r"Last declares a WindowState \(seen\), and sessions become one",
        ),
        (lambda: tg.WindowState(list[int], default=[]), "would be shared by all keys"),
    ],
)
def test_what_cannot_be_a_window_is_refused_where_it_is_written(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        make()


def test_a_day_in_which_the_clocks_change_is_a_window_of_23_or_25_hours() -> None:
    days = tg.TumblingEventTimeWindows("1d", zone="Europe/Berlin")
    noon = {"2026-03-29": 1774778400000, "2026-03-30": 1774864800000, "2026-10-25": 1792926000000}
    hours = {day: (days.pane_of(at).end - days.pane_of(at).start) / 3_600_000 for day, at in noon.items()}
    assert hours == {"2026-03-29": 23.0, "2026-03-30": 24.0, "2026-10-25": 25.0}


def test_panes_of_a_calendar_follow_each_other_without_a_gap_over_years() -> None:
    days = tg.TumblingEventTimeWindows("6h", zone="America/New_York")
    at, end = 1_700_000_000_000, 1_770_000_000_000
    while at < end:
        pane = days.pane_of(at)
        assert pane.start <= at < pane.end
        assert days.pane_of(pane.end).start == pane.end
        at = pane.end


def emitted(function: Callable[[tg.WindowContext[str], list[str]], Any]) -> list[Any]:
    """What `function` gives for one window."""
    stream = keyed().window(tg.TumblingEventTimeWindows("10ms")).process(function, name="it", type=str)
    subtasks = Subtasks(stream._builder.node(stream._operator))
    subtasks.batch([("key", 3, "a"), ("key", 5, "b")])
    return [value for _, _, value in subtasks.end()]


def test_a_window_function_may_give_nothing_and_may_not_give_one_text() -> None:
    assert emitted(lambda context, records: None) == []
    assert emitted(lambda context, records: [f"{context.key} {context.window.start} {'+'.join(records)}"]) == [
        "key 0 a+b"
    ]
    with pytest.raises(UserCodeError, match="would be taken apart"):
        emitted(lambda context, records: "text")
