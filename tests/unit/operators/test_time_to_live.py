"""States with a time to live in operators: which time they go by, and that what expired is cleared away."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.operators.bench import HandClock, context
from tidegate.elements import Batch
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.time_to_live import LEAST_KEYS
from tidegate.operators.two_inputs import KeyedBroadcastProcessOperator
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.ttl import Ttl

START = 1_700_000_000_000


class ByClock(tg.KeyedProcessFunction[str, int, tuple[str, int]]):
    """Adds up while its sum is younger than ten seconds."""

    sum = tg.ValueState(int, default=0, ttl=Ttl("10s"))
    forever = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        self.sum.update(self.sum.value() + value)
        self.forever.update(self.forever.value() + 1)
        yield ctx.key, self.sum.value()

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        yield ctx.key, -self.sum.value()


class ByEvent(tg.KeyedProcessFunction[str, int, int]):
    sum = tg.ValueState(int, default=0, ttl=Ttl("10s", clock="event"))

    def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterable[int]:
        self.sum.update(self.sum.value() + value)
        return [self.sum.value()]


def backend() -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 128)


def opened(function: Any, state: ObjectStateBackend, clock: HandClock, timers: bool = False) -> KeyedProcessOperator:
    operator = KeyedProcessOperator(function, timers=timers)
    operator.open(context(100, state, clock=clock))
    return operator


def emitted(operator: KeyedProcessOperator, *records: tuple[str, int], at: list[int] | None = None) -> list[Any]:
    batch = Batch([value for _, value in records], [key for key, _ in records], at)
    return [value for output in operator.process(batch) for value in output.values]


def test_by_the_machines_clock_a_state_expires_between_batches() -> None:
    clock = HandClock(START)
    operator = opened(ByClock(), backend(), clock)
    assert emitted(operator, ("a", 1), ("a", 2), ("b", 5)) == [("a", 1), ("a", 3), ("b", 5)]
    clock.milliseconds += 9_999
    assert emitted(operator, ("a", 4)) == [("a", 7)]
    clock.milliseconds += 9_999
    assert emitted(operator, ("a", 1), ("b", 1)) == [("a", 8), ("b", 1)]


STAMPS = [0, 4_000, 13_999, 24_000, 20_000]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_by_event_time_what_expires_does_not_depend_on_how_records_are_cut_into_batches(size: int) -> None:
    operator = opened(ByEvent(), backend(), HandClock(START))
    found: list[int] = []
    for begin in range(0, len(STAMPS), size):
        stamps = STAMPS[begin : begin + size]
        found += emitted(operator, *(("a", 1) for _ in stamps), at=[START + stamp for stamp in stamps])
    assert found == [1, 2, 3, 1, 2], "the fourth comes ten seconds after the third; the fifth is late and counts"


def test_by_event_time_the_machines_clock_and_records_without_timestamps_expire_nothing() -> None:
    clock = HandClock(START)
    operator = opened(ByEvent(), backend(), clock)
    assert emitted(operator, ("a", 1)) == [1]
    clock.milliseconds += 10**9
    assert emitted(operator, ("a", 1)) == [2]


def test_what_nobody_asks_for_any_more_is_cleared_away_a_little_behind_each_batch() -> None:
    clock, state = HandClock(START), backend()
    operator = opened(ByClock(), state, clock)
    emitted(operator, *((f"k{number}", 1) for number in range(100)))
    assert len(list(state.keys("sum"))) == 100
    clock.milliseconds += 20_000
    left = []
    for _ in range(30):
        emitted(operator, ("other", 1))
        left.append(len(set(state.keys("sum")) - {"other"}))
    assert left[0] >= 100 - LEAST_KEYS
    assert left[-1] == 0
    assert len(list(state.keys("forever"))) == 101


def test_timers_see_what_time_it_is_and_outlive_the_state() -> None:
    clock = HandClock(START)

    class Setting(ByClock):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
            ctx.timer_service.register_processing_time_timer(START + value)
            return super().process_element(value, ctx)

    operator = opened(Setting(), backend(), clock, timers=True)
    emitted(operator, ("a", 5_000), ("b", 30_000))
    clock.milliseconds = START + 5_000
    fired = [value for batch in operator.fire_timers(clock.milliseconds, lambda: False) for value in batch.values]
    clock.milliseconds = START + 30_000
    fired += [value for batch in operator.fire_timers(clock.milliseconds, lambda: False) for value in batch.values]
    assert fired == [("a", -5_000), ("b", 0)]


def test_keyed_state_beside_a_broadcast_may_have_a_time_to_live() -> None:
    class Beside(tg.KeyedBroadcastProcessFunction[str, int, int, tuple[str, int]]):
        factor = tg.BroadcastState(str, int)
        sum = tg.ValueState(int, default=0, ttl=Ttl("10s"))

        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
            self.sum.update(self.sum.value() + value * self.factor.get("factor", 1))
            yield ctx.key, self.sum.value()

        def process_broadcast_element(self, value: int, ctx: tg.Context) -> None:
            self.factor.put("factor", value)

    clock = HandClock(START)
    operator = KeyedBroadcastProcessOperator(Beside())
    operator.open(context(100, backend(), clock=clock))
    assert list(operator.process(Batch([10]).through(1))) == []
    assert emitted(operator, ("a", 1)) == [("a", 10)]
    clock.milliseconds += 10_000
    assert list(operator.process(Batch([3]).through(1))) == []
    assert emitted(operator, ("a", 1)) == [("a", 3)]
