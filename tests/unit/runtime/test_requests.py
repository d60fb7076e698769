"""Requests in a queue: order, capacity, time-outs and retries, against a model that is written for clarity."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.runtime.requests_model import ACTIONS, RETRIES, Action, compare
from tidegate.elements import Batch, EndOfInput, Watermark
from tidegate.errors import InternalError, UserCodeError
from tidegate.operators.asynchronous import CallPolicy, CallTimeout, Waiting
from tidegate.runtime.requests import CancelCall, Command, GiveUp, RequestQueue, StartCall


def policy(**changes: Any) -> CallPolicy:
    return CallPolicy(**{"capacity": 3, "concurrency": 3} | changes)


def started(commands: Sequence[Command]) -> dict[Any, int]:
    """The numbers of the calls that begin, by record."""
    return {command.record: command.call for command in commands if isinstance(command, StartCall)}


def all_of(queue: RequestQueue, most: int = 100) -> list[Any]:
    """Everything that may go on: results, watermarks, the end."""
    found: list[Any] = []
    while (element := queue.take(most)) is not None:
        found += [answer.result for answer in element.values] if isinstance(element, Batch) else [element]
    return found


# ---- single rules --------------------------------------------------------------------------------------------------


def test_results_keep_the_order_of_the_records() -> None:
    queue = RequestQueue(policy())
    queue.put(Batch(["a", "b", "c"]))
    calls = started(queue.commands(0.0))
    queue.answered(calls["c"], "C", None, 0.0)
    queue.answered(calls["b"], "B", None, 0.0)
    assert all_of(queue) == []
    queue.answered(calls["a"], "A", None, 0.0)
    assert all_of(queue) == ["A", "B", "C"]


def test_without_order_results_come_as_they_are_ready_but_not_across_a_watermark() -> None:
    queue = RequestQueue(policy(capacity=4, concurrency=4, ordered=False))
    queue.put(Batch(["a", "b"]))
    queue.put_watermark(Watermark(5))
    queue.put(Batch(["c", "d"]))
    calls = started(queue.commands(0.0))
    for name in ("d", "b"):
        queue.answered(calls[name], name.upper(), None, 0.0)
    assert all_of(queue) == ["B"]
    queue.answered(calls["a"], "A", None, 0.0)
    assert all_of(queue) == ["A", Watermark(5), "D"]


def test_results_have_the_timestamps_of_their_records_and_batches_have_all_or_none() -> None:
    queue = RequestQueue(policy())
    queue.put(Batch(["a", "b"], None, [7, 8]))
    queue.put(Batch(["c"]))
    for call in started(queue.commands(0.0)).values():
        queue.answered(call, call, None, 0.0)
    first, second = queue.take(9), queue.take(9)
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert (first.timestamps, second.timestamps) == ([7, 8], None)


def test_no_more_are_called_than_there_is_capacity_for_and_answered_ones_count() -> None:
    queue = RequestQueue(policy(capacity=2, concurrency=2))
    queue.put(Batch(["a", "b", "c"]))
    assert not queue.has_room
    calls = started(queue.commands(0.0))
    assert list(calls) == ["a", "b"]
    queue.answered(calls["b"], "B", None, 0.0)
    assert queue.commands(0.0) == []
    queue.answered(calls["a"], "A", None, 0.0)
    assert all_of(queue) == ["A", "B"]
    assert list(started(queue.commands(0.0))) == ["c"]
    assert queue.has_room


def test_a_call_that_takes_too_long_is_cancelled_and_its_place_is_taken_until_it_ends() -> None:
    queue = RequestQueue(policy(capacity=2, concurrency=1, timeout=5.0))
    queue.put(Batch(["a", "b"]))
    call = started(queue.commands(0.0))["a"]
    assert queue.wake_at == 5.0
    assert queue.commands(4.9) == []
    cancel, give_up = queue.commands(5.0)
    assert cancel == CancelCall(call)
    assert isinstance(give_up, GiveUp)
    assert isinstance(give_up.answer.error, CallTimeout)
    assert str(give_up.answer.error) == "the call took longer than 5 s"
    queue.answered(call, "too late", None, 6.0)
    assert list(started(queue.commands(6.0))) == ["b"]


def test_calls_that_never_end_take_no_more_places_than_there_are_and_that_is_said() -> None:
    queue = RequestQueue(policy(concurrency=2, timeout=5.0))
    queue.put(Batch(["a", "b", "c"]))
    queue.commands(0.0)
    assert started(queue.commands(5.0)) == {}
    assert queue.wake_at == 10.0
    queue.commands(9.9)
    with pytest.raises(
        UserCodeError, match=r"(?s)still running, as many as there may be at once: 2.*timeout of its own"
    ):
        queue.commands(10.0)


def test_calls_that_never_end_harm_nobody_while_nothing_is_to_be_called() -> None:
    queue = RequestQueue(policy(concurrency=1, timeout=5.0))
    queue.put(Batch(["a"]))
    queue.commands(0.0)
    queue.commands(5.0)
    assert queue.commands(1000.0) == []
    assert queue.wake_at is None


def test_a_failed_call_is_tried_again_after_a_pause_that_grows() -> None:
    queue = RequestQueue(policy(retries=RETRIES))
    queue.put(Batch(["a"]))
    for moment in (0.0, 1.0, 3.0):
        if moment:
            assert queue.wake_at == moment
            assert queue.commands(moment - 0.1) == []
        queue.answered(started(queue.commands(moment))["a"], None, ConnectionError(str(moment)), moment)
    (give_up,) = queue.commands(3.0)
    assert isinstance(give_up, GiveUp)
    assert (str(give_up.answer.error), give_up.answer.tries) == ("3.0", 3)


@pytest.mark.parametrize(("error", "again"), [(ValueError(), False), (MemoryError(), False), (CallTimeout(), True)])
def test_only_what_is_worth_it_and_what_took_too_long_is_tried_again(error: Exception, again: bool) -> None:
    queue = RequestQueue(policy(retries=RETRIES))
    queue.put(Batch(["a"]))
    queue.answered(started(queue.commands(0.0))["a"], None, error, 0.0)
    commands = queue.commands(1.0)
    assert started(commands) == ({"a": 1} if again else {})


def test_an_answer_of_a_call_that_was_given_up_is_not_taken_for_that_of_the_next() -> None:
    queue = RequestQueue(policy(timeout=5.0, retries=RETRIES))
    queue.put(Batch(["a"]))
    first = started(queue.commands(0.0))["a"]
    queue.commands(5.0)
    second = started(queue.commands(6.0))["a"]
    queue.answered(first, "of the first", None, 6.5)
    assert all_of(queue) == []
    queue.answered(second, "of the second", None, 7.0)
    assert all_of(queue) == ["of the second"]


def test_watermarks_never_go_back_say_nothing_twice_and_become_one_where_no_record_lies_between() -> None:
    queue = RequestQueue(policy(), 10)
    queue.put(Batch(["a"]))
    for watermark in (Watermark(5), Watermark(12), Watermark(20, True), Watermark(15), Watermark(20)):
        queue.put_watermark(watermark)
    queue.put_end(EndOfInput())
    queue.answered(started(queue.commands(0.0))["a"], "A", None, 0.0)
    assert all_of(queue) == ["A", Watermark(20), EndOfInput()]


def test_many_watermarks_behind_a_slow_call_take_no_room() -> None:
    queue = RequestQueue(policy())
    queue.put(Batch(["a"]))
    for moment in range(10_000):
        queue.put_watermark(Watermark(moment))
    assert len(queue._segments) == 2


def test_many_quick_calls_beside_a_slow_one_leave_nothing_behind() -> None:
    queue = RequestQueue(policy(ordered=False, timeout=1000.0))
    queue.put(Batch(["slow"]))
    queue.commands(0.0)
    for number in range(5_000):
        queue.put(Batch([number]))
        queue.answered(started(queue.commands(1.0))[number], number, None, 1.0)
        assert all_of(queue) == [number]
    assert len(queue._deadlines) < 100
    assert queue.wake_at == 1000.0


def test_a_long_ordered_segment_costs_no_more_per_record_and_keeps_nothing() -> None:
    queue = RequestQueue(policy(capacity=20_000, concurrency=20_000))
    queue.put(Batch(list(range(20_000))))
    for record, call in started(queue.commands(0.0)).items():
        queue.answered(call, record, None, 0.0)
    assert all_of(queue, 1) == list(range(20_000))
    (segment,) = queue._segments
    assert (len(segment.requests), len(segment.answered)) == (0, 0)


def test_what_waits_is_what_did_not_go_on_with_the_watermark_that_it_came_behind() -> None:
    queue = RequestQueue(policy(capacity=4, concurrency=4), 3)
    queue.put(Batch(["a", "b"], None, [1, 2]))
    queue.put_watermark(Watermark(9))
    queue.put(Batch(["c", "d"]))
    calls = started(queue.commands(0.0))
    for name in ("a", "c"):
        queue.answered(calls[name], name, None, 0.0)
    assert all_of(queue) == ["a"]
    assert queue.waiting == [Waiting("b", 2, 3), Waiting("c", None, 9), Waiting("d", None, 9)]


def test_what_is_restored_goes_on_as_it_would_have() -> None:
    queue = RequestQueue(policy(), 3)
    queue.restore([Waiting("b", 2, 3), Waiting("c", None, 9)], 12)
    queue.put(Batch(["d"]))
    calls = started(queue.commands(0.0))
    assert list(calls) == ["b", "c", "d"]
    for record, call in calls.items():
        queue.answered(call, record, None, 0.0)
    assert all_of(queue) == ["b", Watermark(9), "c", Watermark(12), "d"]


def test_a_second_answer_of_a_call_is_an_error() -> None:
    queue = RequestQueue(policy())
    queue.put(Batch(["a"]))
    queue.commands(0.0)
    queue.answered(0, "A", None, 0.0)
    with pytest.raises(InternalError, match="call 0, which does not run"):
        queue.answered(0, "A", None, 0.0)


# ---- the model -----------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    CallPolicy,
    capacity=st.integers(1, 5),
    concurrency=st.integers(1, 5),
    timeout=st.sampled_from([None, 2.0, 30.0]),
    retries=st.sampled_from([None, RETRIES]),
    ordered=st.booleans(),
)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(POLICIES, st.lists(ACTIONS, max_size=25))
@example(CallPolicy(1, 1, 2.0, RETRIES), [("put", 4), ("wait", 3.0), ("answer", 0, "well"), ("watermark", 5, False)])
def test_the_queue_does_what_the_model_does(policy: CallPolicy, actions: list[Action]) -> None:
    compare(policy, actions)


@pytest.mark.slow
@settings(QUICK, max_examples=10_000)
@given(POLICIES, st.lists(ACTIONS, max_size=60))
def test_the_queue_does_what_the_model_does_at_length(policy: CallPolicy, actions: list[Action]) -> None:
    compare(policy, actions)


class Loses(RequestQueue):
    def put(self, batch: Batch) -> None:
        super().put(batch.slice(0, max(1, len(batch) - 1)))


class Doubles(RequestQueue):
    def put(self, batch: Batch) -> None:
        super().put(Batch([*batch.values, batch.values[-1]]))


class Swaps(RequestQueue):
    def take(self, most: int) -> Batch | Watermark | EndOfInput | None:
        taken = super().take(most)
        return Batch(taken.values[::-1]) if isinstance(taken, Batch) else taken


class Changes(RequestQueue):
    def answered(self, call: int, result: object, error: Exception | None, now: float) -> None:
        super().answered(call, None if call == 2 else result, error, now)


class Forgets(RequestQueue):
    def put_watermark(self, watermark: Watermark) -> None:
        if watermark.timestamp != 7:
            super().put_watermark(watermark)


@pytest.mark.parametrize("wrong", [Loses, Doubles, Swaps, Changes, Forgets])
def test_the_model_finds_a_queue_that_does_something_else(wrong: type[RequestQueue]) -> None:
    actions: list[Action] = [("put", 3), ("watermark", 7, False), ("put", 1), *[("answer", 0, "well")] * 4, ("take", 3)]
    right = CallPolicy(4, 4)
    compare(right, actions)
    with pytest.raises(AssertionError):
        compare(right, actions, wrong)
