"""Window functions with a context: what they know, what they may write, and what becomes of their state."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.operators.rescaling import Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import OperatorName

MINUTES = tg.TumblingEventTimeWindows("10ms")
SUM: tg.Aggregate[int, int, int] = tg.Aggregate(
    type=int,
    create=int,
    add=lambda total, value: total + value,
    merge=lambda one, other: one + other,
    result=lambda total: total,
)


def subtasks_of(make: Callable[[tg.KeyedStream[str, int]], Any]) -> Subtasks:
    """The operator that `make` names 'windows'."""
    job = tg.Job("windows")
    stream: tg.Stream[int] = job.source(HandSource(), name="src")
    make(stream.key_by(lambda value: "key"))
    return Subtasks(job._builder.node(OperatorName("windows")))


class Change(tg.ProcessWindowFunction[str, int, Any]):
    """Tells how a window differs from the one before, how often it was told, and what it forgets."""

    cleared = tg.SideOutput[Any]("cleared")
    told = tg.SideOutput[Any]("told")
    last = tg.ValueState(int, default=0)
    times = tg.WindowState(int, default=0)

    def process(self, ctx: tg.WindowContext[str], records: list[int]) -> Iterator[Any]:
        self.times.update(self.times.value() + 1)
        ctx.output(self.told, (ctx.window.start, self.times.value()))
        yield ctx.window.start, sum(records) - self.last.value()
        self.last.update(sum(records))

    def clear(self, ctx: tg.WindowContext[str]) -> None:
        cleared.append((ctx.key, ctx.window.start, self.times.value(), self.last.value()))


cleared: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_cleared() -> None:
    cleared.clear()


@pytest.mark.parametrize("trigger", [None, tg.EventTimeTrigger(early=tg.NeverTrigger())])
def test_state_of_the_key_goes_on_and_state_of_the_window_goes_with_it(trigger: tg.Trigger | None) -> None:
    subtasks = subtasks_of(
        lambda keyed: keyed.window(MINUTES, trigger=trigger, allowed_lateness="10ms").aggregate(
            SUM, Change(), name="windows"
        )
    )
    subtasks.batch([("a", 1, 5), ("a", 12, 7), ("b", 2, 1)])
    told = [(None, 9, (0, 5)), (None, 9, (0, 1)), ("told", 9, (0, 1)), ("told", 9, (0, 1))]
    assert sorted(subtasks.watermark(9), key=str) == sorted(told, key=str)
    subtasks.move(3)
    assert subtasks.batch([("a", 3, 1)]) == [(None, 9, (0, 1)), ("told", 9, (0, 2))]
    subtasks.move(1)
    assert cleared == []
    assert subtasks.watermark(19) == [(None, 19, (10, 1)), ("told", 19, (10, 1))]
    assert cleared == [("a", 0, 2, 6), ("b", 0, 1, 1)]
    subtasks.end()
    assert cleared[2:] == [("a", 10, 1, 7)]
    assert subtasks.left_of() == {"last": 2}


class Told(tg.ProcessWindowFunction[str, int, Any]):
    def process(self, ctx: tg.WindowContext[str], records: list[int]) -> Any:
        return [(ctx.key, tuple(ctx.window), records, ctx.current_watermark(), ctx.current_processing_time())]


@pytest.mark.parametrize(
    ("assigner", "window"),
    [
        (MINUTES, (0, 10)),
        (tg.EventTimeSessionWindows("5ms"), (1, 7)),
        (tg.SlidingEventTimeWindows("10ms", "10ms"), (0, 10)),
        (tg.GlobalWindows(), ()),
    ],
)
@pytest.mark.parametrize("trigger", [None, tg.EventTimeTrigger(early=tg.NeverTrigger())])
def test_a_window_function_knows_key_window_records_and_both_times(
    assigner: Any, window: tuple[int, ...], trigger: tg.Trigger | None
) -> None:
    subtasks = subtasks_of(
        lambda keyed: keyed.window(assigner, trigger=trigger).process(Told(), name="windows", type=int)
    )
    subtasks.time(123)
    subtasks.batch([("a", 1, 5), ("a", 2, 6)])
    reached = subtasks.watermark(20) or subtasks.end()
    assert [row for _, _, row in reached] == [("a", window, [5, 6], subtasks.reached, 123)]


def test_windows_by_the_clock_tell_event_time_and_their_own() -> None:
    windows = tg.TumblingProcessingTimeWindows("10ms")
    subtasks = subtasks_of(lambda keyed: keyed.window(windows).process(Told(), name="windows", type=int))
    subtasks.time(13)
    subtasks.watermark(4)
    subtasks.batch([("a", None, 5)])
    assert subtasks.time(19) == []
    assert subtasks.time(20) == [(None, None, ("a", (10, 20), [5], 4, 20))]
    assert subtasks.left() == 0


def test_a_reduction_and_a_count_window_may_end_in_a_window_function_too() -> None:
    subtasks = subtasks_of(
        lambda keyed: keyed.count_window(2).reduce(lambda a, b: a + b, Told(), name="windows", type=int)
    )
    assert [row[:3] for _, _, row in subtasks.batch([("a", 1, 5), ("a", 2, 6)])] == [("a", (0, 2), [11])]


def test_a_plain_function_writes_to_the_side_outputs_that_are_named() -> None:
    tag = tg.SideOutput[int]("large")

    def told(ctx: tg.WindowContext[str], records: list[int]) -> None:
        ctx.output(tag, max(records))

    subtasks = subtasks_of(
        lambda keyed: keyed.window(MINUTES).process(told, name="windows", type=int, side_outputs=[tag])
    )
    subtasks.batch([("a", 1, 5), ("a", 2, 6)])
    assert subtasks.watermark(9) == [("large", 9, 6)]


def test_results_leave_in_batches_also_when_one_window_gives_many() -> None:
    def many(ctx: tg.WindowContext[str], records: list[int]) -> Iterator[int]:
        yield from range(8)

    subtasks = subtasks_of(lambda keyed: keyed.window(MINUTES).process(many, name="windows", type=int))
    subtasks.batch([("a", 1, 5)])
    # The bench refuses batches of more than three.
    assert subtasks.watermark(9) == [(None, 9, number) for number in range(8)]


class Pair:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


class PairSerializer:
    id = "pair"
    version = 1

    def encode(self, value: Pair) -> bytes:
        return str(value.value).encode()

    def decode(self, data: bytes, version: int) -> Pair:
        return Pair(int(data))


@pytest.mark.parametrize("kind", [tg.pickled(Pair), tg.serialized(Pair, PairSerializer())])
@pytest.mark.parametrize("windows", [tg.SlidingEventTimeWindows("10ms", "5ms"), tg.EventTimeSessionWindows("9ms")])
def test_records_that_are_pickled_or_written_by_the_program_are_kept_as_they_are(kind: Any, windows: Any) -> None:
    subtasks = subtasks_of(
        lambda keyed: keyed.window(windows).process(lambda ctx, records: [records], name="windows", type=kind)
    )
    subtasks.batch([("a", 6, Pair(1)), ("a", 7, Pair(2))])
    subtasks.move(2)
    subtasks.batch([("a", 8, Pair(3))])
    given = [row for _, _, row in subtasks.end()]
    assert given[-1] == [Pair(1), Pair(2), Pair(3)]
    assert subtasks.left() == 0


class NewPairSerializer(PairSerializer):
    version = 2

    def encode(self, value: Pair) -> bytes:
        return b"new " + super().encode(value)

    def decode(self, data: bytes, version: int) -> Pair:
        return Pair(int(data) if version == 1 else int(data.removeprefix(b"new ")))


def test_records_that_an_earlier_version_of_the_programs_serializer_wrote_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(serializer: PairSerializer) -> Subtasks:
        kind: Any = tg.serialized(Pair, serializer)
        return subtasks_of(
            lambda keyed: keyed.window(MINUTES).process(lambda ctx, records: [records], name="windows", type=kind)
        )

    subtasks = of(PairSerializer())
    subtasks.batch([("a", 6, Pair(1)), ("a", 7, Pair(2))])
    monkeypatch.setattr(subtasks, "_node", of(NewPairSerializer())._node)
    subtasks.move()
    subtasks.move()
    subtasks.batch([("a", 8, Pair(3))])
    assert [row for _, _, row in subtasks.end()] == [[Pair(1), Pair(2), Pair(3)]]


def test_a_record_of_another_class_than_the_pickled_one_is_refused_at_the_barrier() -> None:
    kind: Any = tg.pickled(Pair)
    subtasks = subtasks_of(
        lambda keyed: keyed.window(MINUTES).process(lambda ctx, records: [records], name="windows", type=kind)
    )
    subtasks.batch([("a", 1, "text")])
    with pytest.raises(InvalidError, match="was given a str"):
        subtasks.move()


class Broken(tg.Trigger):
    def on_element(self, value: Any, timestamp: Any, window: Any, ctx: tg.TriggerContext) -> Any:
        if value == 2:
            ctx.register_event_time_timer(1.5)  # type: ignore[arg-type]
        return None


@pytest.mark.parametrize(("value", "said"), [(1, "the trigger returned None"), (2, "a timer for 1.5")])
def test_what_a_trigger_does_wrong_fails_with_its_name_and_the_window(value: int, said: str) -> None:
    subtasks = subtasks_of(lambda keyed: keyed.window(MINUTES, trigger=Broken()).aggregate(SUM, name="windows"))
    with pytest.raises((UserCodeError, InvalidError), match=said):
        subtasks.batch([("a", 1, value)])


class Delta(tg.Trigger):
    """When a value differs from the last that was told by more than two, and once more a while later."""

    state_type = int | None

    def on_element(self, value: Any, timestamp: Any, window: Any, ctx: tg.TriggerContext) -> tg.TriggerResult:
        if ctx.state is not None and abs(value - ctx.state) <= 2:
            return tg.TriggerResult.CONTINUE
        ctx.state = value
        ctx.register_event_time_timer(timestamp + 3)
        ctx.register_event_time_timer(timestamp + 4)
        ctx.delete_event_time_timer(timestamp + 3)
        return tg.TriggerResult.FIRE

    def on_event_time(self, timestamp: int, window: Any, ctx: tg.TriggerContext) -> tg.TriggerResult:
        return tg.TriggerResult.FIRE_AND_PURGE


def test_a_trigger_of_ones_own_has_state_and_timers_that_survive() -> None:
    subtasks = subtasks_of(
        lambda keyed: keyed.window(tg.GlobalWindows(), trigger=Delta()).aggregate(SUM, name="windows")
    )
    assert subtasks.batch([("a", 1, 10), ("a", 2, 11), ("a", 3, 15)]) == [(None, 1, 10), (None, 3, 36)]
    subtasks.move(2)
    assert subtasks.batch([("a", 4, 16)]) == []
    assert subtasks.watermark(6) == [(None, 5, 52)]
    assert subtasks.batch([("a", 7, 16)]) == []
    assert subtasks.watermark(7) == [(None, 7, 16)]
