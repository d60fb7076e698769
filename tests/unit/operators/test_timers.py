"""Timers on processing time: state of a key that calls the function when its time has come."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.operators.bench import HandClock, context, rows
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.contracts import TimerOperator
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.timers import PROCESSING_TIMERS, TimerQueue
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

Fired = list[tuple[str | None, list[Any]]]


def backend(subtask: int = 0, parallelism: int = 1) -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("it"), SubtaskIndex(subtask), parallelism, 128)


def keyed(*pairs: tuple[str, Any], timestamps: list[int] | None = None) -> Batch:
    return Batch([value for _, value in pairs], [key for key, _ in pairs], timestamps)


class Alarm(tg.KeyedProcessFunction[str, int, tuple[str, int, int]]):
    """A positive number registers a timer for that time, a negative one deletes it; counts its key's alarms."""

    count = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
        if value >= 0:
            ctx.timer_service.register_processing_time_timer(value)
        else:
            ctx.timer_service.delete_processing_time_timer(-value)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, int]]:
        self.count.update(self.count.value() + 1)
        yield ctx.key, timestamp, self.count.value()


class Bench:
    """An operator with timers, its state and its clock."""

    def __init__(
        self,
        function: Any = None,
        state: ObjectStateBackend | None = None,
        clock: HandClock | None = None,
        batch_size: int = 100,
    ) -> None:
        self.state = backend() if state is None else state
        self.clock = HandClock() if clock is None else clock
        self.operator = KeyedProcessOperator(Alarm() if function is None else function, timers=True)
        self.operator.open(context(batch_size, self.state, clock=self.clock))

    def put(self, *pairs: tuple[str, Any]) -> Fired:
        return rows(self.operator.process(keyed(*pairs)))

    def fire(self, now: int) -> list[Any]:
        """All that is due at `now`, as one list."""
        self.clock.milliseconds = now
        fired = []
        while self.operator.next_timer is not None and self.operator.next_timer <= now:
            for batch in self.operator.fire_timers(now, lambda: False):
                fired += batch.values
        return fired


def checkpoint(bench: Bench, number: int = 1) -> tuple[OperatorSnapshot, KeptFiles]:
    """What a checkpoint holds of it, in files of its own."""
    files, capture = KeptFiles(), bench.state.capture(CheckpointId(number))
    snapshot = OperatorSnapshot(
        OperatorName("it"), key_type=capture.key_type, states=capture.states, handles=capture.store(files)
    )
    return snapshot, files


def restarted(taken: tuple[OperatorSnapshot, KeptFiles], subtask: int = 0, parallelism: int = 1) -> Bench:
    """What goes on from a checkpoint."""
    state = backend(subtask, parallelism)
    state.restore([taken[0]], taken[1])
    return Bench(state=state)


# ---- firing ----------------------------------------------------------------------------------------------------------


def test_timers_fire_in_the_order_of_their_times_with_their_keys_and_not_before() -> None:
    bench = Bench()
    assert bench.put(("a", 30), ("b", 10), ("a", 20)) == []
    assert bench.operator.next_timer == 10
    assert bench.fire(9) == []
    assert bench.fire(20) == [("b", 10, 1), ("a", 20, 1)]
    assert bench.operator.next_timer == 30
    assert bench.fire(1000) == [("a", 30, 2)]
    assert bench.operator.next_timer is None


def test_a_timer_registered_again_for_the_same_key_and_time_fires_once() -> None:
    bench = Bench()
    bench.put(("a", 10), ("a", 10), ("b", 10), ("a", 10))
    assert bench.fire(10) == [("a", 10, 1), ("b", 10, 1)]
    assert bench.fire(100) == []


def test_a_timer_that_was_deleted_does_not_fire_and_one_that_never_was_is_deleted_in_peace() -> None:
    bench = Bench()
    bench.put(("a", 10), ("b", 10), ("a", -10), ("a", -99))
    assert bench.fire(100) == [("b", 10, 1)]


def test_a_timer_that_was_deleted_and_registered_again_fires_once() -> None:
    bench = Bench()
    bench.put(("a", 10), ("a", -10), ("a", 10))
    assert bench.fire(100) == [("a", 10, 1)]


def test_a_timer_for_a_time_that_is_past_fires_at_once() -> None:
    bench = Bench(clock=HandClock(500))
    bench.put(("a", 10))
    assert bench.fire(500) == [("a", 10, 1)]


def test_equal_times_fire_in_the_order_of_their_keys_whatever_the_order_of_registration() -> None:
    one, other = Bench(), Bench()
    one.put(("a", 5), ("b", 5), ("c", 5))
    other.put(("c", 5), ("a", 5), ("b", 5))
    assert one.fire(5) == other.fire(5) == [("a", 5, 1), ("b", 5, 1), ("c", 5, 1)]


def test_on_timer_may_register_the_next_and_delete_others() -> None:
    class Ticking(tg.KeyedProcessFunction[str, int, int]):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(value)

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterable[int]:
            if timestamp < 30:
                ctx.timer_service.register_processing_time_timer(timestamp + 10)
            ctx.timer_service.delete_processing_time_timer(25)
            return [timestamp]

    bench = Bench(Ticking())
    bench.put(("a", 10), ("a", 25))
    assert bench.fire(1000) == [10, 20, 30]


def test_the_outputs_of_on_timer_have_no_timestamps_and_may_go_to_side_outputs() -> None:
    class Aside(tg.KeyedProcessFunction[str, int, str]):
        late = tg.SideOutput[int]("late")

        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(value)

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[str]:
            assert ctx.timestamp is None
            ctx.output(self.late, timestamp)
            yield ctx.key

    operator = KeyedProcessOperator(Aside(), ("late",), timers=True)
    operator.open(context(100, backend()))
    list(operator.process(keyed(("a", 1), timestamps=[77])))
    fired = list(operator.fire_timers(1, lambda: False))
    assert rows(fired) == [(None, ["a"]), ("late", [1])]
    assert [batch.timestamps for batch in fired] == [None, None]


def test_what_on_timer_yields_leaves_in_batches_before_it_has_returned() -> None:
    class Many(tg.KeyedProcessFunction[str, int, int]):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(value)

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[int]:
            yield from range(10**9)

    bench = Bench(Many(), batch_size=3)
    bench.put(("a", 1))
    outputs = iter(bench.operator.fire_timers(1, lambda: False))
    assert [next(outputs).values, next(outputs).values] == [[0, 1, 2], [3, 4, 5]]


def test_firing_stops_when_it_must_and_goes_on_with_the_next_without_loss() -> None:
    bench = Bench()
    bench.put(*((f"k{number}", 1) for number in range(10)))
    turns = []
    while bench.operator.next_timer is not None:
        turns.append([key for batch in bench.operator.fire_timers(1, lambda: True) for key, _, _ in batch.values])
    assert turns == [[f"k{number}"] for number in range(10)]


def test_one_turn_fires_no_more_than_a_batch_also_when_each_timer_registers_one_that_is_due() -> None:
    class Endless(tg.KeyedProcessFunction[str, int, int]):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(value)

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterable[int]:
            ctx.timer_service.register_processing_time_timer(timestamp - 1)
            return [timestamp]

    bench = Bench(Endless(), batch_size=5)
    bench.put(("a", 100))
    assert rows(bench.operator.fire_timers(1000, lambda: False)) == [(None, [100, 99, 98, 97, 96])]
    assert bench.operator.next_timer == 95


def test_the_time_is_the_clocks_in_whole_milliseconds() -> None:
    times: list[int] = []

    class Reading(Alarm):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            times.append(ctx.timer_service.current_processing_time())

    clock = HandClock(1_700_000_000_123)
    bench = Bench(Reading(), clock=clock)
    bench.put(("a", 1))
    clock.milliseconds += 2
    bench.put(("a", 1))
    assert times == [1_700_000_000_123, 1_700_000_000_125]


def test_an_exception_in_on_timer_names_operator_and_time() -> None:
    class Failing(Alarm):
        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, int]]:
            raise ValueError("no such alarm")

    bench = Bench(Failing())
    bench.put(("a", 12345))
    with pytest.raises(UserCodeError, match="ValueError on timer 12345: no such alarm") as caught:
        bench.fire(12345)
    assert "operator it" in caught.value.failure.where
    assert "on_timer" in caught.value.failure.traceback


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_function_without_on_timer_cannot_register_and_is_told_what_to_define() -> None:
    class Forgetful(tg.KeyedProcessFunction[str, int, int]):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(value)

    operator = KeyedProcessOperator(Forgetful())
    operator.open(context(100, backend()))
    assert operator.next_timer is None
    assert list(operator.fire_timers(10**15, lambda: False)) == []
    with pytest.raises(InvalidError, match="without on_timer wants to register a timer") as caught:
        list(operator.process(keyed(("a", 1))))
    assert "Define on_timer" in caught.value.failure.remedy


@pytest.mark.parametrize("timestamp", [1.5, "10", None, True, 2**63, -(2**63) - 1])
def test_a_time_that_is_no_whole_number_of_milliseconds_is_refused(timestamp: Any) -> None:
    class Wrong(Alarm):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
            ctx.timer_service.register_processing_time_timer(timestamp)

    bench = Bench(Wrong())
    with pytest.raises(InvalidError, match="wants to register a timer for") as caught:
        bench.put(("a", 1))
    assert "int(seconds * 1000)" in caught.value.failure.remedy
    assert bench.operator.next_timer is None


def test_open_has_no_key_to_register_a_timer_for_also_after_a_restore() -> None:
    class Early(Alarm):
        def open(self, ctx: Any) -> None:
            ctx.timer_service.register_processing_time_timer(1)

    with pytest.raises(InvalidError, match="without a current key"):
        Bench(Early())
    bench = Bench()
    bench.put(("a", 1))
    state = backend()
    snapshot, files = checkpoint(bench)
    state.restore([snapshot], files)
    with pytest.raises(InvalidError, match="without a current key"):
        Bench(Early(), state)


# ---- state -----------------------------------------------------------------------------------------------------------


def test_W03_timers_are_found_again_after_a_restore_and_what_is_overdue_fires_once() -> None:
    bench = Bench()
    bench.put(("a", 10), ("b", 20), ("a", 5000), ("b", -20), ("c", 30))
    assert bench.fire(10) == [("a", 10, 1)]
    again = restarted(checkpoint(bench))
    assert again.fire(1000) == [("c", 30, 1)]
    assert again.fire(5000) == [("a", 5000, 2)]
    assert again.operator.next_timer is None


def test_B05_rescaling_moves_timers_with_their_keys() -> None:
    bench = Bench()
    keys = [f"k{number}" for number in range(40)]
    bench.put(*((key, 100 + number) for number, key in enumerate(keys)))
    taken = checkpoint(bench)
    fired = [restarted(taken, subtask, 3).fire(1000) for subtask in range(3)]
    assert all(fired)
    together = [timer for part in fired for timer in part]
    assert sorted(together) == sorted((key, 100 + number, 1) for number, key in enumerate(keys))


def test_a_key_whose_timers_have_all_fired_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.put(("a", 1), ("b", 1), ("b", 2))
    bench.fire(1)
    assert list(bench.state.keys(".timers")) == ["b"]
    bench.fire(2)
    assert list(bench.state.keys(".timers")) == []


def test_the_index_of_timers_that_are_put_off_again_and_again_stays_small() -> None:
    state = backend()
    queue = TimerQueue(state, PROCESSING_TIMERS)
    state.set_current_key("a")
    for number in range(10_000):
        queue.register(10**6 + number, "a")
        if number:
            queue.delete(10**6 + number - 1, "a")
    assert len(queue._times) < 100
    assert list(queue.take_due(10**7, 100, lambda: False)) == [(10**6 + 9_999, "a", None)]


def test_the_index_does_not_grow_when_one_timer_is_registered_again_and_again() -> None:
    state = backend()
    queue = TimerQueue(state, PROCESSING_TIMERS)
    state.set_current_key("a")
    for _ in range(1000):
        queue.register(10, "a")
    assert len(queue._times) == 1


def test_a_keyed_operator_is_one_with_timers_as_the_chain_asks_for_it() -> None:
    assert isinstance(KeyedProcessOperator(Alarm()), TimerOperator)
