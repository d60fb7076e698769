"""One function, or a piece of a job, in a harness of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import LATE, SUM, Order, Silence, Total, told, user_of
from tidegate.errors import InvalidError, UserCodeError
from tidegate.testing import OperatorHarness, Record

BIG = tg.SideOutput[int]("big")


class Doubled(tg.ProcessFunction[int, int]):
    big = BIG

    def process_element(self, value: int, ctx: tg.Context) -> Iterator[int]:
        if value > 100:
            ctx.output(self.big, value)
        yield 2 * value


class Reminder(tg.KeyedProcessFunction[str, Order, str]):
    """Ten milliseconds of event time later."""

    count = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        self.count.update(self.count.value() + 1)
        assert ctx.timestamp is not None
        ctx.timer_service.register_event_time_timer(ctx.timestamp + 10)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        yield f"{ctx.key} {self.count.value()} at {timestamp}"


class Both(tg.CoProcessFunction[int, str, str]):
    def process_element1(self, value: int, ctx: tg.Context) -> list[str]:
        return [f"number {value}"]

    def process_element2(self, value: str, ctx: tg.Context) -> list[str]:
        return [f"text {value}"]


class Matched(tg.KeyedCoProcessFunction[str, Order, str, str]):
    orders = tg.ListState(Order)

    def process_element1(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        self.orders.add(value)

    def process_element2(self, value: str, ctx: tg.KeyedContext[str]) -> list[str]:
        return [f"{value} has {len(self.orders.get())}"]


class Limited(tg.KeyedBroadcastProcessFunction[str, Order, int, Order]):
    limit = tg.BroadcastState(str, int)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> list[Order]:
        return [value] if value.amount <= self.limit.get("limit", 0) else []

    def process_broadcast_element(self, value: int, ctx: tg.Context) -> None:
        self.limit.put("limit", value)


class Scaled(tg.BroadcastProcessFunction[int, int, int]):
    by = tg.BroadcastState(str, int)

    def process_element(self, value: int, ctx: tg.Context) -> list[int]:
        return [value * self.by.get("by", 1)]

    def process_broadcast_element(self, value: int, ctx: tg.Context) -> None:
        self.by.put("by", value)


def test_a_process_function_gives_outputs_and_side_outputs() -> None:
    with OperatorHarness(Doubled()) as harness:
        harness.process_element(5)
        assert harness.take_output() == [10]
        harness.process_element(200, 7)
        assert harness.take_output() == [400]
        assert harness.take_output() == []
        assert harness.output() == [10, 400]
        assert harness.side_output(BIG) == harness.side_output("big") == [200]
        assert harness.records() == [Record(10, 0), Record(400, 7)]
        assert harness.side_records(BIG) == [Record(200, 7)]


def test_a_side_output_that_nobody_declares_is_refused() -> None:
    with OperatorHarness(Doubled()) as harness, pytest.raises(InvalidError, match="no side output 'small'"):
        harness.side_output("small")


def test_a_keyed_function_has_state_and_timers_of_event_time() -> None:
    with OperatorHarness(Reminder(), key=user_of) as harness:
        harness.process_element(Order("ann", 1), 5)
        harness.process_element(Order("ann", 1), 8)
        harness.process_element(Order("bob", 1), 6)
        assert harness.state("count") == {"ann": 2, "bob": 1}
        harness.advance_watermark(15)
        assert harness.records() == [Record("ann 2 at 15", 15)]
        harness.advance_watermark(17)
        assert harness.take_output() == ["ann 2 at 15", "bob 1 at 16"]
        harness.end_input()
        assert harness.take_output() == ["ann 2 at 18"]
        assert not harness.states()[".event-timers"]


def test_timers_of_processing_time_fire_when_the_clock_comes_to_them() -> None:
    with OperatorHarness(Silence(), key=user_of, processing_time=1000) as harness:
        harness.process_element(Order("ann", 1))
        harness.advance_processing_time("59s")
        assert harness.output() == []
        harness.advance_processing_time("1h")
        assert harness.output() == ["ann is silent at 61000, 61000"]
        assert harness.processing_time == 3_660_000


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_snapshot_is_restored_at_any_parallelism_and_what_came_since_is_forgotten(parallelism: int) -> None:
    with OperatorHarness(Reminder(), key=user_of, parallelism=2) as harness:
        for user in "abcd":
            harness.process_element(Order(user, 1), 5)
        harness.advance_watermark(3)
        harness.snapshot()
        harness.process_element(Order("a", 1), 6)
        harness.advance_watermark(15)
        assert len(harness.output()) == 4
        harness.restore(parallelism=parallelism)
        assert harness.take_output() == []
        assert harness.state("count") == dict.fromkeys("abcd", 1)
        harness.advance_watermark(100)
        assert sorted(harness.take_output()) == [f"{user} 1 at 15" for user in "abcd"]


def test_a_restore_without_a_snapshot_begins_anew() -> None:
    with OperatorHarness(Total(), key=user_of) as harness:
        harness.process_element(Order("ann", 1))
        assert harness.take_output() == ["ann 1"]
        harness.restore()
        assert harness.state("total") == {}
        harness.process_element(Order("ann", 2))
        assert harness.take_output() == ["ann 2"]


def test_two_inputs_are_told_apart() -> None:
    with OperatorHarness(Both()) as harness:
        harness.process_element1(1)
        harness.process_element2("two")
        assert harness.output() == ["number 1", "text two"]
    with OperatorHarness(Matched(), key=(user_of, str.lower)) as harness:
        harness.process_element1(Order("ann", 1))
        harness.process_element2("Ann")
        harness.process_element2("Bob")
        assert harness.output() == ["Ann has 1", "Bob has 0"]


def test_what_is_broadcast_comes_to_every_subtask() -> None:
    with OperatorHarness(Limited(), key=user_of, parallelism=3) as harness:
        harness.process_broadcast_element(5)
        assert harness.state("limit") == {subtask: {"limit": 5} for subtask in range(3)}
        for user in "abcd":
            harness.process_element(Order(user, 5))
            harness.process_element(Order(user, 6))
        assert harness.output() == [Order(user, 5) for user in "abcd"]
    with OperatorHarness(Scaled()) as harness:
        harness.process_broadcast_element(3)
        harness.process_element(7)
        assert harness.output() == [21]


def test_event_time_of_one_input_waits_for_the_other() -> None:
    def windowed(one: tg.Stream[Order], other: tg.Stream[Order]) -> tg.Stream[str]:
        both = one.union(other, name="both").key_by(user_of)
        return both.window(tg.TumblingEventTimeWindows("10ms"), late=LATE).aggregate(SUM, told, name="sum")

    with OperatorHarness(windowed) as harness:
        harness.process_element1(Order("ann", 1), 5)
        harness.process_element2(Order("ann", 2), 6)
        harness.advance_watermark(20, input=1)
        assert harness.output() == []
        harness.advance_watermark(9, input=2)
        assert harness.output() == ["ann 0-10: 3"]
        harness.process_element1(Order("ann", 4), 9)
        assert harness.side_output(LATE) == [Order("ann", 4)]
        assert harness.records_skipped("sum") == 0
        assert harness.state(".event-timers", "sum") == {}


def test_what_the_function_raises_is_raised_by_the_call() -> None:
    with OperatorHarness(Total(), key=user_of) as harness:
        harness.process_element(Order("ann", 1))
        harness.snapshot()
        with pytest.raises(UserCodeError, match="nobody earns"):
            harness.process_element(Order("ann", -1))
        harness.restore()
        harness.process_element(Order("ann", 1))
        assert harness.output() == ["ann 1", "ann 2"]


@pytest.mark.parametrize(
    ("under_test", "key"),
    [
        (Total(), None),
        (Total(), (user_of, user_of)),
        (Matched(), (user_of,)),
        (Limited(), None),
        (Total, user_of),
        (5, None),
    ],
)
def test_what_cannot_be_tested_is_refused(under_test: Any, key: Any) -> None:
    with pytest.raises(InvalidError, match=r"keys|given"):
        OperatorHarness(under_test, key=key)
