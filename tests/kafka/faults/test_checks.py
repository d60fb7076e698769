"""The check of these tests finds every way in which output can be wrong, and leaves right output alone."""

from collections.abc import Callable

import pytest

from tests.kafka.faults.jobs import Output, differences

RIGHT: Output = {"k0-0": [(1, 0), (2, 8), (3, 16)], "k1-1": [(1, 1), (2, 9)]}
Records = list[tuple[int, int]]


def test_right_output_has_no_differences() -> None:
    assert differences(RIGHT, {key: list(records) for key, records in sorted(RIGHT.items(), reverse=True)}) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda own: own[1:], "missing [(1, 0)], too many []", id="removed"),
        pytest.param(lambda own: [], "missing [(1, 0), (2, 8), (3, 16)]", id="all removed"),
        pytest.param(lambda own: [*own, own[0]], "too many [(1, 0)]", id="doubled"),
        pytest.param(lambda own: [own[0], (2, 16), (3, 8)], "missing [(2, 8), (3, 16)]", id="counted in another order"),
        pytest.param(lambda own: [own[0], own[2], own[1]], "out of order", id="reordered"),
    ],
)
def test_wrong_output_is_told_by_key(damage: Callable[[Records], Records], said: str) -> None:
    (problem,) = differences(RIGHT, {**RIGHT, "k0-0": damage(list(RIGHT["k0-0"]))})
    assert problem.startswith("k0-0: ")
    assert said in problem


def test_a_key_that_nobody_fed_is_told() -> None:
    assert differences(RIGHT, {**RIGHT, "k9-9": [(1, 99)]}) == ["k9-9: missing [], too many [(1, 99)]"]
