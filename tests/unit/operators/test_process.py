"""Process functions without a key: outputs, side outputs, timestamps, life cycle, failures."""

import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.unit.operators.bench import context, rows, run
from tidegate.api.functions import Context, ProcessFunction, SideOutput
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError
from tidegate.operators.process import ProcessOperator

LATE = SideOutput[str]("late")


class Splitting(ProcessFunction[int, int]):
    """Yields what it gets, twice for even numbers; sends multiples of three, as text, to the side output."""

    def process_element(self, value: int, ctx: Context) -> Iterator[int]:
        yield value
        if value % 3 == 0:
            ctx.output(LATE, str(value))
        if value % 2 == 0:
            yield value


class Returning(ProcessFunction[Any, Any]):
    """Returns its record: lists are several outputs, None is none."""

    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        result: Iterable[Any] | None = value
        return result


class Everything(ProcessFunction[int, str]):
    """Records what it is called with."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def open(self, ctx: Context) -> None:
        self.log.append(("open", ctx.operator, ctx.subtask, ctx.parallelism, ctx.timestamp))

    def process_element(self, value: int, ctx: Context) -> None:
        self.log.append((value, ctx.timestamp))

    def close(self) -> None:
        self.log.append("close")


def split(*batches: Batch, batch_size: int = 100) -> list[Batch]:
    return run(ProcessOperator(Splitting(), ("late",)), *batches, batch_size=batch_size)


def test_main_and_side_outputs_keep_their_order() -> None:
    assert rows(split(Batch([1, 2, 3, 6]))) == [(None, [1, 2, 2, 3, 6, 6]), ("late", ["3", "6"])]


def test_outputs_have_the_timestamps_of_their_records() -> None:
    main, late = split(Batch([1, 2, 3, 6], timestamps=[10, 20, 30, 60]))
    assert main.timestamps == [10, 20, 20, 30, 60, 60]
    assert late.timestamps == [30, 60]


def test_timestamps_are_right_wherever_a_batch_is_cut() -> None:
    numbers = list(range(20))
    for size in range(1, 12):
        batches = split(Batch(numbers, timestamps=[n * 10 for n in numbers]), batch_size=size)
        main = [pair for b in batches if b.tag is None for pair in zip(b.values, b.timestamps or [], strict=True)]
        late = [pair for b in batches if b.tag == "late" for pair in zip(b.values, b.timestamps or [], strict=True)]
        assert main == [(n, n * 10) for n in numbers for _ in range(1 + (n % 2 == 0))]
        assert late == [(str(n), n * 10) for n in numbers if n % 3 == 0]


def test_no_batch_is_larger_than_the_batch_size_and_none_is_empty() -> None:
    for size in (1, 2, 5):
        lengths = [len(batch) for batch in split(Batch(list(range(30))), batch_size=size)]
        assert min(lengths) >= 1
        assert max(lengths) <= size


def test_side_outputs_leave_between_main_batches_and_not_all_at_the_end() -> None:
    tags = [batch.tag for batch in split(Batch([3, 9, 15, 21, 27, 33]), batch_size=2)]
    assert tags.count("late") > 1
    assert tags.index("late") < len(tags) - 2


def test_one_operator_works_on_batch_after_batch() -> None:
    assert rows(split(Batch([1]), Batch([3], timestamps=[5]), Batch([5]))) == [
        (None, [1]),
        (None, [3]),
        ("late", ["3"]),
        (None, [5]),
    ]


def test_what_is_returned_may_be_any_iterable_or_nothing() -> None:
    batch = Batch([[1, 2], None, (3,), iter([4]), []])
    assert rows(run(ProcessOperator(Returning()), batch)) == [(None, [1, 2, 3, 4])]


@pytest.mark.parametrize("value", ["text", b"x", {"a": 1}, 7])
def test_one_record_returned_instead_of_several_is_told(value: Any) -> None:
    with pytest.raises(UserCodeError, match=r"TypeError on record .*(return \[it\]|not iterable)"):
        run(ProcessOperator(Returning()), Batch([value]))


def test_a_record_that_yields_for_ever_can_be_paused_anywhere_and_takes_bounded_memory() -> None:
    class Endless(ProcessFunction[int, int]):
        produced = 0

        def process_element(self, value: int, ctx: Context) -> Iterator[int]:
            while True:
                self.produced += 1
                yield self.produced

    function = Endless()
    operator = ProcessOperator(function)
    operator.open(context(batch_size=10))
    outputs = operator.process(Batch([0]))
    for pulled in range(1, 50):
        assert next(outputs).values == list(range(pulled * 10 - 9, pulled * 10 + 1))
        assert function.produced == pulled * 10


def test_many_side_outputs_of_records_without_main_output_take_bounded_memory() -> None:
    class Aside(ProcessFunction[int, int]):
        def process_element(self, value: int, ctx: Context) -> None:
            ctx.output(LATE, str(value))

    out = run(ProcessOperator(Aside(), ("late",)), Batch(list(range(7)), timestamps=list(range(7))), batch_size=3)
    assert rows(out) == [("late", ["0", "1", "2"]), ("late", ["3", "4", "5"]), ("late", ["6"])]
    assert [batch.timestamps for batch in out] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_side_output_that_is_not_declared_is_an_invalid_program() -> None:
    with pytest.raises(InvalidError, match="operator it has no side output 'late'") as caught:
        run(ProcessOperator(Splitting()), Batch([3]))
    assert "in process_element" in caught.value.failure.traceback


def test_the_function_is_opened_told_who_it_is_and_closed() -> None:
    function = Everything()
    operator = ProcessOperator(function)
    operator.open(context())
    assert list(operator.process(Batch([1, 2], timestamps=[10, 20]))) == []
    assert list(operator.process(Batch([3]))) == []
    assert list(operator.end_of_input()) == []
    operator.close()
    operator.close()
    assert function.log == [("open", "it", 1, 2, None), (1, 10), (2, 20), (3, None), "close"]


def test_a_function_that_was_never_opened_is_not_closed() -> None:
    class Unopenable(Everything):
        def open(self, ctx: Context) -> None:
            raise ConnectionError("nobody there")

    function = Unopenable()
    operator = ProcessOperator(function)
    operator.close()
    with pytest.raises(UserCodeError, match="ConnectionError in open: nobody there") as caught:
        operator.open(context())
    operator.close()
    assert caught.value.failure.where == "operator it, subtask 1, attempt 3"
    assert function.log == []


def test_a_close_that_raises_is_reported_as_user_code() -> None:
    class Unclosable(Everything):
        def close(self) -> None:
            raise ConnectionError("gone")

    operator = ProcessOperator(Unclosable())
    operator.open(context())
    with pytest.raises(UserCodeError, match="ConnectionError in close: gone"):
        operator.close()


class Failing(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: Context) -> Iterator[int]:
        yield value
        if value == 2:
            raise ValueError("two")


def test_a_failure_in_the_middle_of_a_generator_names_the_record_and_shows_the_users_frames_first() -> None:
    with pytest.raises(UserCodeError) as caught:
        run(ProcessOperator(Failing()), Batch([1, 2, 3]))
    assert caught.value.failure.message == "ValueError on record 2: two"
    frames = [line for line in caught.value.failure.traceback.splitlines() if line.strip().startswith("File ")]
    assert len(frames) == 1
    assert "in process_element" in frames[0]
    assert "in process_element" in "".join(traceback.format_exception(caught.value))


def test_what_was_emitted_before_the_failing_record_came_out_in_whole_batches_only() -> None:
    operator = ProcessOperator(Failing())
    operator.open(context(batch_size=1))
    outputs = operator.process(Batch([1, 2, 3]))
    assert [next(outputs).values, next(outputs).values] == [[1], [2]]
    with pytest.raises(UserCodeError):
        next(outputs)


def test_stopiteration_out_of_a_process_function_does_not_end_the_batch_silently() -> None:
    class Stopping(ProcessFunction[int, int]):
        def process_element(self, value: int, ctx: Context) -> list[int]:
            return [next(iter(()))]

    with pytest.raises(UserCodeError, match="StopIteration on record 1"):
        run(ProcessOperator(Stopping()), Batch([1, 2]))
