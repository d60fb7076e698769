"""Operators with two inputs: connected streams, and what is broadcast beside a stream."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.operators.bench import HandClock, context, rows
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Operator
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.process import ProcessOperator
from tidegate.operators.two_inputs import (
    BroadcastProcessOperator,
    CoProcessOperator,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.operator_state import OperatorStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

NAME = OperatorName("it")


def opened(operator: Operator, unkeyed: OperatorStateBackend | None = None, clock: HandClock | None = None) -> Operator:
    operator.open(context(100, ObjectStateBackend(NAME, SubtaskIndex(0), 1, 128), unkeyed, clock))
    return operator


def first(*values: Any) -> Batch:
    return Batch(list(values))


def second(*values: Any) -> Batch:
    return Batch(list(values)).through(1)


def keyed(*pairs: tuple[str, Any], input: int = 0) -> Batch:
    return Batch([value for _, value in pairs], [key for key, _ in pairs]).through(input)


def emitted(operator: Operator, *batches: Batch) -> list[Any]:
    return [value for batch in batches for _, values in rows(operator.process(batch)) for value in values]


# ---- two streams -----------------------------------------------------------------------------------------------------


class Tagged(tg.CoProcessFunction[int, str, str]):
    def process_element1(self, value: int, ctx: tg.Context) -> Iterator[str]:
        yield f"one {value}"

    def process_element2(self, value: str, ctx: tg.Context) -> Iterable[str] | None:
        return [f"two {value}"] if value else None


def test_each_input_has_its_method() -> None:
    operator = opened(CoProcessOperator(Tagged()))
    assert emitted(operator, first(1, 2), second("a", ""), first(3)) == ["one 1", "one 2", "two a", "one 3"]


class Joined(tg.KeyedCoProcessFunction[str, int, str, tuple[str, int, str]]):
    """Orders wait for the name of their user; an alarm gives them up."""

    waiting = tg.ListState(int)
    name = tg.ValueState(str)

    def process_element1(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, str]]:
        name = self.name.value()
        if name is not None:
            yield ctx.key, value, name
        else:
            self.waiting.add(value)
            ctx.timer_service.register_processing_time_timer(value)

    def process_element2(self, value: str, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, str]]:
        self.name.update(value)
        for order in self.waiting:
            yield ctx.key, order, value
        self.waiting.clear()

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, str]]:
        for order in self.waiting:
            yield ctx.key, order, "nobody"
        self.waiting.clear()


def test_both_inputs_share_the_state_of_their_key() -> None:
    operator = opened(KeyedCoProcessOperator(Joined(), timers=True))
    assert emitted(operator, keyed(("a", 1), ("b", 2))) == []
    assert emitted(operator, keyed(("a", "ann"), input=1)) == [("a", 1, "ann")]
    assert emitted(operator, keyed(("a", 3), ("b", 4))) == [("a", 3, "ann")]
    assert emitted(operator, keyed(("b", "bob"), input=1)) == [("b", 2, "bob"), ("b", 4, "bob")]


def test_connected_streams_have_timers() -> None:
    operator = KeyedCoProcessOperator(Joined(), timers=True)
    opened(operator)
    emitted(operator, keyed(("a", 10), ("b", 20)), keyed(("b", "bob"), input=1))
    assert operator.next_timer == 10
    assert rows(operator.fire_timers(100, lambda: False)) == [(None, [("a", 10, "nobody")])]


# ---- broadcast -------------------------------------------------------------------------------------------------------


class Limits(tg.BroadcastProcessFunction[int, tuple[str, int], str]):
    """Names the limits that a number passes."""

    limits = tg.BroadcastState(str, int)

    def process_element(self, value: int, ctx: tg.Context) -> Iterator[str]:
        yield from (name for name, limit in self.limits.items() if value > limit)

    def process_broadcast_element(self, value: tuple[str, int], ctx: tg.Context) -> list[str]:
        self.limits.put(*value)
        return [f"{value[0]} is set in {ctx.subtask}"]


def test_what_is_broadcast_is_there_for_all_records_that_come_after_it() -> None:
    operator = opened(BroadcastProcessOperator(Limits()))
    assert emitted(operator, first(100)) == []
    assert emitted(operator, second(("low", 10), ("high", 50))) == ["low is set in 1", "high is set in 1"]
    assert emitted(operator, first(20, 100)) == ["low", "low", "high"]
    assert emitted(operator, second(("low", 99)), first(20)) == ["low is set in 1"]


class Writing(Limits):
    def process_element(self, value: int, ctx: tg.Context) -> Iterator[str]:
        self.limits.put("mine", value)
        yield "written"


def test_broadcast_state_is_read_only_in_process_element_whatever_came_before() -> None:
    operator = opened(BroadcastProcessOperator(Writing()))
    for batches in ([first(1)], [second(("low", 1)), first(1)]):
        with pytest.raises(InvalidError, match="broadcast state limits is written outside process_broadcast_element"):
            emitted(operator, *batches)


class Alert(tg.KeyedBroadcastProcessFunction[str, int, int, tuple[str, int]]):
    """Counts a key's values above the limit that was broadcast."""

    limit = tg.BroadcastState(str, int)
    above = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        if value > self.limit.get("limit", 0):
            self.above.update(self.above.value() + 1)
            ctx.timer_service.register_processing_time_timer(value)
            yield ctx.key, self.above.value()

    def process_broadcast_element(self, value: int, ctx: tg.Context) -> list[tuple[str, int]]:
        self.limit.put("limit", value)
        return [("limit", value)]

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        yield ctx.key, -self.above.value() * self.limit.get("limit", 0)


def test_keyed_state_and_broadcast_state_work_together() -> None:
    operator = opened(KeyedBroadcastProcessOperator(Alert(), timers=True))
    assert emitted(operator, keyed(("a", 1), ("b", 1)), second(5), keyed(("a", 5), ("a", 6), ("b", 7))) == [
        ("a", 1),
        ("b", 1),
        ("limit", 5),
        ("a", 2),
        ("b", 2),
    ]


def test_timers_reach_keyed_state_also_behind_something_that_was_broadcast() -> None:
    operator = KeyedBroadcastProcessOperator(Alert(), timers=True)
    opened(operator)
    emitted(operator, keyed(("a", 10)), second(5))
    assert rows(operator.fire_timers(10, lambda: False)) == [(None, [("a", -5)])]


class WritingOnTime(Alert):
    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int]]:
        self.limit.put("limit", 1)
        yield "written", 1


def test_broadcast_state_is_read_only_in_on_timer() -> None:
    operator = KeyedBroadcastProcessOperator(WritingOnTime(), timers=True)
    opened(operator)
    emitted(operator, keyed(("a", 10)), second(5))
    with pytest.raises(InvalidError, match="broadcast state limit is written outside"):
        list(operator.fire_timers(10, lambda: False))


@pytest.mark.parametrize(
    "use",
    [
        lambda function: function.above.value(),
        lambda function: function.above.update(1),
        lambda function: function.above.clear(),
        lambda function: list(function.above),
        lambda function: 1 in function.above,
    ],
)
def test_keyed_state_is_refused_by_name_where_a_record_has_no_key(use: Any) -> None:
    class Keyless(Alert):
        def process_broadcast_element(self, value: int, ctx: tg.Context) -> list[tuple[str, int]]:
            use(self)
            return []

    operator = opened(KeyedBroadcastProcessOperator(Keyless(), timers=True))
    emitted(operator, keyed(("a", 1)))
    with pytest.raises(InvalidError, match="state above is used in process_broadcast_element, where there is no key"):
        emitted(operator, second(5))


def test_what_is_broadcast_has_neither_key_nor_timers() -> None:
    class Keyless(Alert):
        def process_broadcast_element(self, value: int, ctx: Any) -> list[tuple[str, int]]:
            assert not hasattr(ctx, "key")
            assert not hasattr(ctx, "timer_service")
            return [("none", ctx.parallelism)]

    assert emitted(opened(KeyedBroadcastProcessOperator(Keyless(), timers=True)), second(5)) == [("none", 2)]


def test_a_record_that_fails_is_told_for_both_inputs() -> None:
    class Failing(Limits):
        def process_element(self, value: int, ctx: tg.Context) -> Iterator[str]:
            raise ValueError("of the stream")

        def process_broadcast_element(self, value: tuple[str, int], ctx: tg.Context) -> list[str]:
            raise ValueError("of the broadcast")

    for batch, words in (
        (first(7), "on record 7: of the stream"),
        (second(("a", 1)), r"on record .*: of the broadcast"),
    ):
        with pytest.raises(UserCodeError, match=words):
            emitted(opened(BroadcastProcessOperator(Failing())), batch)


# ---- state without keys ----------------------------------------------------------------------------------------------


class Numbered(tg.ProcessFunction[str, tuple[int, str]]):
    """Numbers its records on, over restarts: what was seen is a list of one number."""

    seen = tg.OperatorListState(int)

    def open(self, ctx: tg.Context) -> None:
        self.next = sum(self.seen.get())

    def process_element(self, value: str, ctx: tg.Context) -> list[tuple[int, str]]:
        self.next += 1
        self.seen.update([self.next])
        return [(self.next, value)]


def test_a_function_without_keys_has_state_of_its_subtask_also_in_open() -> None:
    state = OperatorStateBackend(NAME, SubtaskIndex(0), 1)
    operator = opened(ProcessOperator(Numbered()), state)
    assert emitted(operator, first("a", "b")) == [(1, "a"), (2, "b")]
    files, capture = KeptFiles(), state.capture(CheckpointId(1))
    assert capture is not None
    again = OperatorStateBackend(NAME, SubtaskIndex(0), 1)
    taken = OperatorSnapshot(NAME, operator_states=capture.states, operator_handles=capture.store(files))
    again.restore([taken], files)
    assert emitted(opened(ProcessOperator(Numbered()), again), first("c")) == [(3, "c")]


def test_keyed_functions_may_have_state_without_keys_beside_their_keyed_state() -> None:
    class Both(tg.KeyedProcessFunction[str, int, int]):
        mine = tg.ValueState(int, default=0)
        all_of_us = tg.OperatorListState(int)

        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> list[int]:
            self.mine.update(self.mine.value() + value)
            self.all_of_us.add(value)
            return [self.mine.value(), sum(self.all_of_us)]

    operator = opened(KeyedProcessOperator(Both()))
    assert emitted(operator, keyed(("a", 1), ("b", 10), ("a", 100))) == [1, 1, 10, 11, 101, 111]
