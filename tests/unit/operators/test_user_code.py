"""What a person reads when the user's function raises: their own frames, the record, the place."""

from typing import Any

import pytest

from tests.unit.operators.bench import context, run
from tidegate.elements import Batch
from tidegate.errors import ErrorKind, InvalidError, UserCodeError
from tidegate.operators.stateless import MapOperator
from tidegate.operators.user_code import call_each, copy_function, describe, raise_user_error, user_traceback


def price_of(order: dict[str, int]) -> int:
    return look_up(order, "price")


def look_up(order: dict[str, int], field: str) -> int:
    return order[field]


def failure_of(function: Any, value: Any) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        run(MapOperator(function), Batch([value]))
    return caught.value


def test_the_traceback_begins_with_the_users_first_frame_and_has_none_of_the_engine() -> None:
    traceback = failure_of(price_of, {"amount": 1}).failure.traceback
    frames = [line.strip() for line in traceback.splitlines() if line.strip().startswith("File ")]
    assert [frame.rpartition(" in ")[2] for frame in frames] == ["price_of", "look_up"]
    assert all(__file__ in frame for frame in frames)
    assert traceback.rstrip().endswith("KeyError: 'price'")


def test_the_error_names_operator_subtask_attempt_exception_and_record() -> None:
    error = failure_of(price_of, {"amount": 1})
    assert error.failure.where == "operator it, subtask 1, attempt 3"
    assert error.failure.message == "KeyError on record {'amount': 1}: 'price'"
    assert error.failure.kind is ErrorKind.USER_CODE
    assert str(error).startswith("Traceback (most recent call last):")
    assert isinstance(error.__cause__, KeyError)


def test_a_builtin_that_raises_has_no_frames_but_its_message() -> None:
    error = failure_of(int, "x")
    assert error.failure.traceback == ""
    assert "ValueError on record 'x': invalid literal for int() with base 10: 'x'" in str(error)


def test_what_the_exception_was_raised_from_is_shown_too() -> None:
    def wrapping(order: dict[str, int]) -> int:
        try:
            return price_of(order)
        except KeyError as error:
            raise ValueError("no price") from error

    traceback = failure_of(wrapping, {}).failure.traceback
    assert traceback.index("KeyError: 'price'") < traceback.index("ValueError: no price")


def test_a_long_record_is_shortened_and_one_that_cannot_be_shown_is_no_second_error() -> None:
    class Unshowable:
        def __repr__(self) -> str:
            raise RuntimeError

    assert len(describe("x" * 10_000)) <= 200
    assert len(describe([["y" * 10_000] * 100] * 100)) <= 200
    assert "Unshowable" in describe(Unshowable())


def test_an_error_of_tidegates_own_keeps_its_kind_and_gets_the_place() -> None:
    def configured(_: int) -> int:
        raise InvalidError("no such table", remedy="Create it.")

    with pytest.raises(InvalidError) as caught:
        run(MapOperator(configured), Batch([1]))
    failure = caught.value.failure
    assert (failure.message, failure.remedy) == ("no such table", "Create it.")
    assert failure.where == "operator it, subtask 1, attempt 3"
    assert "in configured" in failure.traceback
    assert caught.value.exit_code == 2


def test_a_place_that_is_known_already_is_kept() -> None:
    error = InvalidError("bad", where="operator other")
    with pytest.raises(InvalidError) as caught:
        raise_user_error(error, context(), "in open")
    assert caught.value.failure.where == "operator other"


def test_without_any_frame_of_the_user_there_is_no_traceback() -> None:
    assert user_traceback(ValueError("alone")) == ""


def test_calling_each_gives_results_and_the_positions_that_were_left_out() -> None:
    failed: list[tuple[Any, str]] = []
    results, left_out = call_each(
        lambda v: 12 // v, [0, 3, 0, 4, 0], lambda value, error: failed.append((value, type(error).__name__))
    )
    assert (results, left_out) == ([4, 3], [0, 2, 4])
    assert failed == [(0, "ZeroDivisionError")] * 3


def test_calling_each_stops_where_the_decision_raises() -> None:
    calls: list[int] = []

    def fail(value: Any, error: Exception) -> None:
        raise error

    def call(value: int) -> float:
        calls.append(value)
        return 1 / value

    with pytest.raises(ZeroDivisionError):
        call_each(call, [1, 0, 2], fail)
    assert calls == [1, 0]


def test_a_copied_function_shares_nothing_that_changes() -> None:
    class Counting:
        def __init__(self) -> None:
            self.seen: list[int] = []

    original = Counting()
    copied = copy_function(original, context().operator)
    copied.seen.append(1)
    assert original.seen == []


def test_what_cannot_be_copied_is_refused_with_the_reason() -> None:
    class Locked:
        def __init__(self) -> None:
            self.numbers = (n for n in range(3))

    with pytest.raises(InvalidError, match=r"Locked of operator it cannot be copied.*generator") as caught:
        copy_function(Locked(), context().operator)
    assert "`open`" in caught.value.failure.remedy
