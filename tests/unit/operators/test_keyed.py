"""Keyed process functions and reduce, on the real object state backend."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from tests.unit.operators.bench import context, rows
from tidegate.api.functions import Context, KeyedContext, KeyedProcessFunction, SideOutput
from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, UserCodeError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Operator
from tidegate.operators.keyed import KeyedProcessOperator, ReduceOperator
from tidegate.state.backend import Capture
from tidegate.state.descriptors import ListState, MapState, ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles, Taken


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


class RunningTotal(KeyedProcessFunction[str, int, Total]):
    total = ValueState(int, default=0)

    def process_element(self, value: int, ctx: KeyedContext[str]) -> Iterator[Total]:
        self.total.update(self.total.value() + value)
        yield Total(ctx.key, self.total.value())


def backend() -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 128)


def restore(fresh: ObjectStateBackend, capture: Capture) -> None:
    """Give a fresh backend what a capture holds."""
    files = KeptFiles()
    fresh.restore([Taken(capture, files).snapshot(range(128))], files)


def opened(operator: Operator, state: ObjectStateBackend | None = None, batch_size: int = 100) -> Operator:
    operator.open(context(batch_size, state or backend()))
    return operator


def keyed(*pairs: tuple[str, Any], timestamps: list[int] | None = None) -> Batch:
    return Batch([value for _, value in pairs], [key for key, _ in pairs], timestamps)


def test_each_key_has_its_own_state_over_batches() -> None:
    operator = opened(KeyedProcessOperator(RunningTotal()))
    first = list(operator.process(keyed(("a", 1), ("b", 10), ("a", 2))))
    second = list(operator.process(keyed(("b", 5), ("c", 7))))
    assert rows(first) == [(None, [Total("a", 1), Total("b", 10), Total("a", 3)])]
    assert rows(second) == [(None, [Total("b", 15), Total("c", 7)])]
    assert first[0].keys is None


def test_state_captured_between_two_batches_is_all_that_a_new_operator_needs() -> None:
    state = backend()
    operator = opened(KeyedProcessOperator(RunningTotal()), state)
    list(operator.process(keyed(("a", 1), ("b", 10))))
    capture = state.capture(CheckpointId(1))
    list(operator.process(keyed(("a", 100))))

    restored = backend()
    restore(restored, capture)
    again = opened(KeyedProcessOperator(RunningTotal()), restored)
    assert rows(again.process(keyed(("a", 2), ("b", 2)))) == [(None, [Total("a", 3), Total("b", 12)])]


def test_two_subtasks_in_one_process_do_not_share_state() -> None:
    one, other = opened(KeyedProcessOperator(RunningTotal())), opened(KeyedProcessOperator(RunningTotal()))
    list(one.process(keyed(("a", 100))))
    assert rows(other.process(keyed(("a", 1)))) == [(None, [Total("a", 1)])]


def test_the_key_is_right_also_in_a_generator_that_is_paused_between_its_outputs() -> None:
    class Parts(KeyedProcessFunction[str, int, tuple[str, int]]):
        emitted = ValueState(int, default=0)

        def process_element(self, value: int, ctx: KeyedContext[str]) -> Iterator[tuple[str, int]]:
            for _ in range(value):
                self.emitted.update(self.emitted.value() + 1)
                yield ctx.key, self.emitted.value()

    operator = opened(KeyedProcessOperator(Parts()), batch_size=1)
    out = [batch.values[0] for batch in operator.process(keyed(("a", 2), ("b", 3), ("a", 1)))]
    assert out == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("a", 3)]


def test_all_kinds_of_state_side_outputs_and_timestamps_work_together() -> None:
    class Everything(KeyedProcessFunction[str, int, str]):
        recent = ListState(int)
        counts = MapState(int, int)
        repeated = SideOutput[int]("repeated")

        def process_element(self, value: int, ctx: KeyedContext[str]) -> Iterable[str]:
            if value in self.counts:
                ctx.output(self.repeated, value)
            self.counts.put(value, (self.counts.get(value) or 0) + 1)
            self.recent.add(value)
            return [f"{ctx.key}@{ctx.timestamp}: {self.recent.get()}"]

    operator = opened(KeyedProcessOperator(Everything(), ("repeated",)))
    main, side = operator.process(keyed(("a", 1), ("b", 1), ("a", 1), timestamps=[10, 20, 30]))
    assert main.values == ["a@10: [1]", "b@20: [1]", "a@30: [1, 1]"]
    assert main.timestamps == [10, 20, 30]
    assert (side.tag, side.values, side.timestamps) == ("repeated", [1], [30])


def test_state_in_open_is_refused_because_there_is_no_key_yet() -> None:
    class Early(RunningTotal):
        def open(self, ctx: Context) -> None:
            self.total.value()

    with pytest.raises(InvalidError, match="operator it, subtask 1, attempt 3"):
        opened(KeyedProcessOperator(Early()))


def test_a_failure_names_record_and_place() -> None:
    class Failing(RunningTotal):
        def process_element(self, value: int, ctx: KeyedContext[str]) -> Iterator[Total]:
            yield Total(ctx.key, 1 // value)

    with pytest.raises(UserCodeError, match="ZeroDivisionError on record 0") as caught:
        list(opened(KeyedProcessOperator(Failing())).process(keyed(("a", 1), ("b", 0))))
    assert caught.value.failure.where == "operator it, subtask 1, attempt 3"


def test_a_value_of_another_type_than_declared_is_an_invalid_program_and_shows_where() -> None:
    class Wrong(RunningTotal):
        def process_element(self, value: int, ctx: KeyedContext[str]) -> Iterator[Total]:
            self.total.update("text")  # type: ignore[arg-type]
            yield Total(ctx.key, 0)

    with pytest.raises(InvalidError) as caught:
        list(opened(KeyedProcessOperator(Wrong())).process(keyed(("a", 1))))
    assert "in process_element" in caught.value.failure.traceback


def add(so_far: int, value: int) -> int:
    return so_far + value


def reduce_with(function: Any, declared: Any = int) -> Operator:
    return opened(ReduceOperator(function, ValueState(declared, name="value")))


def test_reduce_emits_for_every_record_what_its_key_has_come_to() -> None:
    operator = reduce_with(add)
    (first,) = operator.process(keyed(("a", 1), ("b", 10), ("a", 2), timestamps=[7, 8, 9]))
    (second,) = operator.process(keyed(("a", 3)))
    assert (first.values, first.timestamps, first.keys) == ([1, 10, 3], [7, 8, 9], None)
    assert second.values == [6]


def test_reduce_takes_a_false_value_for_a_value() -> None:
    (out,) = reduce_with(add).process(keyed(("a", 0), ("a", 0), ("a", 5)))
    assert out.values == [0, 0, 5]


def test_reduce_goes_on_from_captured_state() -> None:
    state = backend()
    operator = opened(ReduceOperator(add, ValueState(int, name="value")), state)
    list(operator.process(keyed(("a", 40))))
    restored = backend()
    restore(restored, state.capture(CheckpointId(1)))
    again = opened(ReduceOperator(add, ValueState(int, name="value")), restored)
    assert rows(again.process(keyed(("a", 2)))) == [(None, [42])]


def test_a_reduce_function_that_returns_nothing_is_told() -> None:
    with pytest.raises(UserCodeError, match="TypeError on record 2: the reduce function returned None"):
        list(reduce_with(lambda so_far, value: None).process(keyed(("a", 1), ("a", 2))))


def test_a_failing_reduce_names_the_record_and_shows_the_users_frames_first() -> None:
    def divide(so_far: int, value: int) -> int:
        return so_far // value

    with pytest.raises(UserCodeError, match="ZeroDivisionError on record 0") as caught:
        list(reduce_with(divide).process(keyed(("a", 1), ("a", 0))))
    frames = [line for line in caught.value.failure.traceback.splitlines() if line.strip().startswith("File ")]
    assert len(frames) == 1
    assert "in divide" in frames[0]


@pytest.mark.parametrize(
    "make", [lambda: KeyedProcessOperator(RunningTotal()), lambda: ReduceOperator(add, ValueState(int, name="value"))]
)
def test_what_the_engine_owes_a_keyed_operator_is_checked(make: Any) -> None:
    with pytest.raises(InternalError, match="without state"):
        make().open(context())
    with pytest.raises(InternalError, match="without keys"):
        list(opened(make()).process(Batch([1])))
