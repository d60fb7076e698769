"""Whole jobs of windows, joins and their like give the same when processes die at any moment and start again at another
parallelism: what is committed is what a run that nothing happened to commits, record for record."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import AdvanceProcessingTime, Checkpoint, CollectSink, Crash, JobHarness, Record, Restart
from tidegate.testing import ScriptedSource as Scripted

Row = tuple[str, int, int]
"""Key, number, timestamp in milliseconds."""
OUT_OF_ORDERNESS = 5
SPLITS = 2
IN_TIME = tg.WatermarkStrategy.for_bounded_out_of_orderness(f"{OUT_OF_ORDERNESS}ms").with_timestamp_assigner(
    lambda row: row[2]
)
NUMBERS: tg.Aggregate[Row, list[int], list[int]] = tg.Aggregate(
    type=list[int],
    create=list,
    add=lambda numbers, row: [*numbers, row[1]],
    merge=lambda one, other: [*one, *other],
    result=sorted,
)


def told(key: str, window: Any, numbers: list[int]) -> Any:
    return key, window.start, window.end, numbers


def pair(left: Row | None, right: Row | None) -> Any:
    return left and left[:2], right and right[:2]


def key_of(row: Row) -> str:
    return row[0]


def rows_of(ctx: Any, rows: list[Row]) -> Iterator[Any]:
    yield ctx.key, ctx.window.start, ctx.window.end, sorted(row[1] for row in rows)


class Later(tg.KeyedProcessFunction[str, Row, Any]):
    """Puts each record out again when event time has come to ten milliseconds after it."""

    rows = tg.MapState(int, list[int])

    def process_element(self, value: Row, ctx: tg.KeyedContext[str]) -> None:
        at = value[2] + 10
        self.rows.put(at, [*self.rows.get(at, []), value[1]])
        ctx.timer_service.register_event_time_timer(at)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[Any]:
        yield ctx.key, timestamp, sorted(self.rows.get(timestamp))
        self.rows.remove(timestamp)


Rows = tg.Stream[Row]
TYPES = (Row, Row)


def timers(one: Rows) -> tg.Stream[Any]:
    return one.key_by(key_of).process(Later(), name="it")


def tumbling(one: Rows) -> tg.Stream[Any]:
    return one.key_by(key_of).window(tg.TumblingEventTimeWindows("10ms")).aggregate(NUMBERS, told, name="it")


def sliding(one: Rows) -> tg.Stream[Any]:
    return one.key_by(key_of).window(tg.SlidingEventTimeWindows("12ms", "4ms")).aggregate(NUMBERS, told, name="it")


def sessions(one: Rows) -> tg.Stream[Any]:
    return one.key_by(key_of).window(tg.EventTimeSessionWindows("4ms")).process(rows_of, name="it", type=Row)


def with_trigger(one: Rows) -> tg.Stream[Any]:
    trigger = tg.PurgingTrigger(tg.EventTimeTrigger())
    windows = one.key_by(key_of).window(tg.EventTimeSessionWindows("4ms"), trigger=trigger)
    return windows.aggregate(NUMBERS, told, name="it")


def asynchronous(one: Rows) -> tg.Stream[Any]:
    answers = one.async_map(asked, name="asked", type=Row, capacity=3, ordered=False)
    return tumbling(answers)


def without_duplicates(one: Rows) -> tg.Stream[Any]:
    # Which one passes depends on how fast splits are read; that one does, and when, does not.
    return one.map(lambda row: (row[0], 0, row[2] // 10 * 10)).key_by(lambda row: row).deduplicate("1ms", name="it")


def interval_join(one: Rows, other: Rows) -> tg.Stream[Any]:
    return one.key_by(key_of).interval_join(
        other.key_by(key_of), pair, lower="-4ms", upper="6ms", name="it", types=TYPES, how="full"
    )


def temporal_join(one: Rows, other: Rows) -> tg.Stream[Any]:
    # Of two versions with one timestamp the later one holds, and which that is depends on how fast splits are read.
    versions = other.key_by(key_of).process(FirstOfEach(), name="first").key_by(key_of)
    return one.key_by(key_of).temporal_join(versions, pair, name="it", types=TYPES, how="left", within="15ms")


def window_join(one: Rows, other: Rows) -> tg.Stream[Any]:
    windows = tg.SlidingEventTimeWindows("8ms", "4ms")
    return one.key_by(key_of).window_join(other.key_by(key_of), windows, pair, name="it", types=TYPES, how="full")


OF_ONE: list[Callable[[Rows], tg.Stream[Any]]] = [
    timers, tumbling, sliding, sessions, with_trigger, asynchronous, without_duplicates,
]  # fmt: skip
OF_TWO: list[Callable[[Rows, Rows], tg.Stream[Any]]] = [interval_join, temporal_join, window_join]
SHAPES: dict[str, Callable[..., tg.Stream[Any]]] = {shape.__name__: shape for shape in (*OF_ONE, *OF_TWO)}


class FirstOfEach(tg.KeyedProcessFunction[str, Row, Row]):
    """Of records with one timestamp only one."""

    seen = tg.MapState(int, bool)

    def process_element(self, value: Row, ctx: tg.KeyedContext[str]) -> Iterator[Row]:
        if value[2] not in self.seen:
            self.seen.put(value[2], True)
            yield (value[0], 0, value[2])


async def asked(row: Row) -> Row:
    return row


def program(shape: str) -> tg.Job:
    job = tg.Job("jobs")
    streams = [job.source(Scripted(splits=SPLITS), name=name, watermarks=IN_TIME) for name in names_of(shape)]
    SHAPES[shape](*streams).sink(CollectSink(), name="out")
    return job


def names_of(shape: str) -> tuple[str, ...]:
    return ("one", "other") if SHAPES[shape] in OF_TWO else ("one",)


@st.composite
def scripts(draw: st.DrawFn) -> list[Record]:
    """Records of which none is late: each split goes on in time, and may fall back by less than is allowed."""
    moments = [0] * SPLITS
    script = []
    for number in range(draw(st.integers(0, 14))):
        split = draw(st.integers(0, SPLITS - 1))
        moments[split] += draw(st.integers(0, 9))
        stamp = moments[split] - draw(st.integers(0, OUT_OF_ORDERNESS))
        script.append(Record((draw(st.sampled_from("abc")), number, stamp), split=split))
    return script


events = st.one_of(
    st.just(Checkpoint()),
    st.builds(Crash, st.sampled_from([None, 1, 2, 3])),
    st.builds(Restart, st.sampled_from([None, 1, 2, 3])),
    st.just(AdvanceProcessingTime("1s")),
)


def disturbed(draw: st.DataObject, script: list[Record]) -> list[Any]:
    mixed: list[Any] = list(script)
    for event in draw.draw(st.lists(events, max_size=5)):
        mixed.insert(draw.draw(st.integers(0, len(mixed))), event)
    return mixed


def committed(shape: str, script: dict[str, list[Any]], parallelism: int, batch_size: int) -> Counter[str]:
    sources = {name: Scripted(entries, splits=SPLITS) for name, entries in script.items()}
    with JobHarness(
        lambda: program(shape), sources=sources, parallelism=parallelism, batch_size=batch_size, max_parallelism=8
    ) as harness:
        harness.finish()
        return Counter(map(repr, harness.committed("out")))


def check(shape: str, data: st.DataObject) -> None:
    script = {name: data.draw(scripts(), label=name) for name in names_of(shape)}
    expected = committed(shape, script, 1, 1)
    parallelism, batch_size = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    with_deaths = {name: disturbed(data, entries) for name, entries in script.items()}
    assert committed(shape, with_deaths, parallelism, batch_size) == expected


class Forgetful(tg.KeyedProcessFunction[str, Row, Row]):
    """Lets the first record of each key pass, and knows them by an attribute, which dies with its process."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def process_element(self, value: Row, ctx: tg.KeyedContext[str]) -> Iterator[Row]:
        if ctx.key not in self.seen:
            self.seen.add(ctx.key)
            yield value


def test_what_a_death_doubles_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = lambda one: one.key_by(key_of).process(Forgetful(), name="it")  # noqa: E731
    monkeypatch.setitem(SHAPES, "forgetful", shape)
    script = [Record(("a", 0, 1)), Record(("a", 1, 2))]
    expected = committed("forgetful", {"one": script}, 1, 1)
    assert committed("forgetful", {"one": [script[0], Crash(), script[1]]}, 1, 1) == expected
    assert committed("forgetful", {"one": [script[0], Checkpoint(), Crash(), script[1]]}, 1, 1) != expected


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_deaths_and_another_parallelism_change_nothing(shape: str, data: st.DataObject) -> None:
    check(shape, data)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_many_deaths_change_nothing(shape: str, data: st.DataObject) -> None:
    check(shape, data)
