"""map, filter, flat_map, key_by and union: records, timestamps, order, and every `on_error=`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.operators.bench import context, rows, run
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError
from tidegate.operators.contracts import Operator
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapOperator,
    UnionOperator,
)
from tidegate.operators.user_code import OnError

SKIP = OnError(skip=True)
ASIDE = OnError(tag="dead")


def accept(keys: list[Any]) -> None:
    pass


def inverse(number: int) -> float:
    return 12 / number


def odd_inverse(number: int) -> bool:
    """True for 4 alone of 2, 3 and 4."""
    return 12 // number % 2 == 1


def repeated(number: int) -> Iterator[int]:
    for i in range(abs(number)):
        if number < 0 and i == 1:
            raise ValueError(f"negative {number}")
        yield number


def test_map_emits_one_result_a_record_with_its_timestamp() -> None:
    (out,) = run(MapOperator(lambda v: v * 2), Batch([1, 2, 3], timestamps=[10, 20, 30]))
    assert (out.values, out.timestamps, out.keys, out.tag) == ([2, 4, 6], [10, 20, 30], None, None)


def test_filter_keeps_records_and_timestamps_together() -> None:
    (out,) = run(FilterOperator(lambda v: v % 2), Batch([1, 2, 3], timestamps=[10, 20, 30]))
    assert (out.values, out.timestamps) == ([1, 3], [10, 30])


def test_a_filter_that_lets_nothing_pass_emits_no_batch() -> None:
    assert run(FilterOperator(lambda v: False), Batch([1, 2])) == []


def test_a_filter_whose_result_is_neither_true_nor_false_is_user_code_that_failed() -> None:
    class Undecided:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    with pytest.raises(UserCodeError, match=r"ValueError when asking .* ambiguous"):
        run(FilterOperator(lambda v: Undecided()), Batch([1]))


def test_flat_map_emits_all_outputs_in_order_with_their_records_timestamps() -> None:
    (out,) = run(FlatMapOperator(repeated), Batch([2, 0, 1, 3], timestamps=[10, 20, 30, 40]))
    assert (out.values, out.timestamps) == ([2, 2, 1, 3, 3, 3], [10, 10, 30, 40, 40, 40])


def test_flat_map_outputs_leave_in_batches_of_the_batch_size() -> None:
    out = run(FlatMapOperator(repeated), Batch([3, 4], timestamps=[1, 2]), batch_size=2)
    assert rows(out) == [(None, [3, 3]), (None, [3, 4]), (None, [4, 4]), (None, [4])]
    assert [batch.timestamps for batch in out] == [[1, 1], [1, 2], [2, 2], [2]]


def test_a_flat_map_that_yields_for_ever_can_be_paused_anywhere_and_takes_bounded_memory() -> None:
    produced = 0

    def endless(_: int) -> Iterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    operator = FlatMapOperator(endless)
    operator.open(context(batch_size=10))
    outputs = operator.process(Batch([0]))
    for pulled in range(1, 50):
        assert len(next(outputs)) == 10
        assert produced == pulled * 10


def test_key_by_fills_the_keys_and_asks_the_checker() -> None:
    seen: list[list[Any]] = []
    operator = KeyByOperator(lambda v: v[0], seen.append)
    (out,) = run(operator, Batch(["anna", "bert"], timestamps=[1, 2]))
    assert (out.values, out.keys, out.timestamps) == (["anna", "bert"], ["a", "b"], [1, 2])
    assert seen == [["a", "b"]]


def test_key_by_passes_on_what_the_checker_raises() -> None:
    def refuse(keys: list[Any]) -> None:
        raise InvalidError(f"{keys[0]!r} cannot be a key")

    with pytest.raises(InvalidError, match=r"operator it, subtask 1, attempt 3: 1\.5 cannot be a key"):
        run(KeyByOperator(lambda v: 1.5, refuse), Batch([1]))


def test_union_makes_main_output_of_what_was_a_side_output() -> None:
    (out,) = run(UnionOperator(), Batch([1, 2], timestamps=[3, 4], tag="large"))
    assert (out.values, out.timestamps, out.tag) == ([1, 2], [3, 4], None)


def test_records_that_came_as_a_side_output_leave_as_main_output() -> None:
    batch = Batch([1, 2], tag="large")
    operators: list[Operator] = [
        MapOperator(str),
        FilterOperator(bool),
        FlatMapOperator(lambda v: [v]),
        KeyByOperator(str, accept),
    ]
    for operator in operators:
        assert [out.tag for out in run(operator, batch)] == [None]


def test_the_input_batch_is_never_changed() -> None:
    batch = Batch([2, 0, 3], timestamps=[1, 2, 3])
    for make in (MapOperator, FilterOperator, FlatMapOperator):
        run(make(inverse if make is not FlatMapOperator else repeated, SKIP), batch)
    run(KeyByOperator(inverse, accept, SKIP), batch)
    assert (batch.values, batch.timestamps, batch.keys) == ([2, 0, 3], [1, 2, 3], None)


EACH: list[tuple[Any, Any, Any, list[Any]]] = [
    (MapOperator(inverse), MapOperator(inverse, SKIP), MapOperator(inverse, ASIDE), [4.0, 3.0, 6.0]),
    (FilterOperator(odd_inverse), FilterOperator(odd_inverse, SKIP), FilterOperator(odd_inverse, ASIDE), [4]),
    (
        KeyByOperator(inverse, accept),
        KeyByOperator(inverse, accept, SKIP),
        KeyByOperator(inverse, accept, ASIDE),
        [3, 4, 2],
    ),
    (
        FlatMapOperator(lambda v: [inverse(v)]),
        FlatMapOperator(lambda v: [inverse(v)], SKIP),
        FlatMapOperator(lambda v: [inverse(v)], ASIDE),
        [4.0, 3.0, 6.0],
    ),
]


@pytest.mark.parametrize(("failing", "skipping", "sending", "expected"), EACH)
def test_on_error_decides_about_each_failing_record(failing: Any, skipping: Any, sending: Any, expected: Any) -> None:
    batch = Batch([0, 3, 0, 4, 2, 0], timestamps=[1, 2, 3, 4, 5, 6])
    with pytest.raises(UserCodeError, match="ZeroDivisionError on record 0"):
        run(failing, batch)

    (main,) = run(skipping, batch)
    assert main.values == expected
    assert skipping.records_skipped == 3

    main, dead = run(sending, batch)
    assert main.values == expected
    assert main.timestamps is not None
    assert len(main.timestamps) == len(main.values)
    assert (dead.values, dead.timestamps, dead.tag) == ([0, 0, 0], [1, 3, 6], "dead")
    assert sending.records_skipped == 0


def test_timestamps_and_keys_stay_with_their_records_when_others_are_left_out() -> None:
    (out,) = run(KeyByOperator(inverse, accept, SKIP), Batch([3, 0, 4], timestamps=[10, 20, 30]))
    assert (out.values, out.keys, out.timestamps) == ([3, 4], [4.0, 3.0], [10, 30])
    (out,) = run(MapOperator(inverse, SKIP), Batch([3, 0, 4], timestamps=[10, 20, 30]))
    assert (out.values, out.timestamps) == ([4.0, 3.0], [10, 30])


@pytest.mark.parametrize("kind", [MapOperator, FilterOperator, FlatMapOperator])
@pytest.mark.parametrize("policy", [SKIP, ASIDE])
def test_a_function_is_called_once_for_each_record_whatever_fails(kind: Any, policy: OnError) -> None:
    calls: list[int] = []

    def picky(number: int) -> list[int]:
        calls.append(number)
        if number % 3 == 0:
            raise ValueError(number)
        return [number]

    run(kind(picky, policy), Batch(list(range(10))))
    assert calls == list(range(10))


def test_a_batch_of_which_every_record_fails_emits_only_the_side_output() -> None:
    assert run(MapOperator(inverse, SKIP), Batch([0, 0])) == []
    assert rows(run(MapOperator(inverse, ASIDE), Batch([0, 0]))) == [("dead", [0, 0])]


def test_a_record_that_fails_in_the_middle_of_its_outputs_leaves_none_when_it_goes_to_the_side_output() -> None:
    out = run(FlatMapOperator(repeated, ASIDE), Batch([1, -5, 2]), batch_size=1)
    assert rows(out) == [(None, [1]), (None, [2]), (None, [2]), ("dead", [-5])]


def test_being_out_of_memory_is_never_skipped() -> None:
    def exhausting(_: int) -> int:
        raise MemoryError

    with pytest.raises(UserCodeError, match="MemoryError"):
        run(MapOperator(exhausting, SKIP), Batch([1]))


@pytest.mark.parametrize("position", [0, 1, 2])
def test_stopiteration_out_of_a_function_does_not_end_the_batch_silently(position: int) -> None:
    def stops(number: int) -> list[int]:
        if number == position:
            raise StopIteration
        return [number]

    for kind in (MapOperator, FilterOperator, FlatMapOperator):
        with pytest.raises(UserCodeError, match=rf"on record {position}\b") as caught:
            run(kind(stops), Batch([0, 1, 2]))
        assert "StopIteration" in caught.value.failure.message
    rest = [number for number in (0, 1, 2) if number != position]
    assert rows(run(FlatMapOperator(stops, SKIP), Batch([0, 1, 2]))) == [(None, rest)]
    assert rows(run(FilterOperator(stops, SKIP), Batch([0, 1, 2]))) == [(None, rest)]


@pytest.mark.parametrize("outputs", ["text", b"bytes", {"a": 1}])
def test_a_flat_map_that_returns_one_record_instead_of_several_is_told(outputs: Any) -> None:
    with pytest.raises(UserCodeError, match=rf"one {type(outputs).__name__}.*return \[it\]"):
        run(FlatMapOperator(lambda _: outputs), Batch([1]))


def test_a_flat_map_that_returns_nothing_is_told() -> None:
    with pytest.raises(UserCodeError, match="'NoneType' object is not iterable"):
        run(FlatMapOperator(lambda _: None), Batch([1]))
