"""What a program says about windows: what it may, what is refused where it stands, and what two jobs do not share."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import HandSource
from tidegate.errors import InvalidError

COUNT: tg.Aggregate[Any, int, int] = tg.Aggregate(
    type=int,
    create=int,
    add=lambda count, _: count + 1,
    merge=lambda one, other: one + other,
    result=lambda count: count,
)


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


def emitted(function: Callable[[tg.WindowContext, list[str]], Any]) -> list[Any]:
    """What `function` gives for one window."""
    stream = keyed().window(tg.TumblingEventTimeWindows("10ms")).process(function, name="it", type=str)
    operator: Any = stream._builder.node(stream._operator).factory()  # type: ignore[misc]
    window = tg.TimeWindow(0, 10)
    outputs: Iterable[Any] = operator._spec.emit("key", window, ["a", "b"])
    return list(outputs)


def test_a_window_function_may_give_nothing_and_may_not_give_one_text() -> None:
    assert emitted(lambda context, records: None) == []
    assert emitted(lambda context, records: [f"{context.key} {context.window.start} {'+'.join(records)}"]) == [
        "key 0 a+b"
    ]
    with pytest.raises(TypeError, match="would be taken apart"):
        emitted(lambda context, records: "text")
