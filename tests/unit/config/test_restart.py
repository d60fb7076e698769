"""Restart strategies are read from text, written back, and cross the wire as data; impossible ones are refused."""

import msgspec
import pytest

from tidegate.config import ExponentialDelay, FailureRate, FixedDelay, RestartNone, RestartStrategy, parse_restart
from tidegate.errors import InvalidError

READ = [
    ("none", RestartNone()),
    ("fixed-delay:3:10s", FixedDelay(3, 10.0)),
    ("failure-rate:5:1m:500ms", FailureRate(5, 60.0, 0.5)),
    ("exponential-delay:1s:1m:5m", ExponentialDelay()),
    ("exponential-delay:2s:30s:10m", ExponentialDelay(2.0, 30.0, reset_after=600.0)),
]


@pytest.mark.parametrize(("text", "strategy"), READ)
def test_a_strategy_is_read_from_its_text_and_written_back(text: str, strategy: RestartStrategy) -> None:
    assert parse_restart(text) == strategy
    assert str(strategy) == text


@pytest.mark.parametrize("strategy", [strategy for _, strategy in READ])
def test_a_strategy_crosses_a_process_boundary_as_it_is(strategy: RestartStrategy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(strategy), type=RestartStrategy) == strategy


def test_what_is_left_out_of_an_exponential_delay_has_its_default() -> None:
    assert parse_restart("exponential-delay") == ExponentialDelay(1.0, 60.0, 2.0, 0.1, 300.0)
    assert parse_restart("exponential-delay:2s:30s") == ExponentialDelay(2.0, 30.0)


def test_what_has_no_text_form_is_shown_beside_it() -> None:
    assert str(ExponentialDelay(multiplier=3.0)) == "exponential-delay:1s:1m:5m (multiplier 3.0, jitter 0.1)"


def test_a_strategy_that_is_data_already_is_taken_as_it_is() -> None:
    strategy = ExponentialDelay(multiplier=3.0)
    assert parse_restart(strategy) is strategy


@pytest.mark.parametrize(
    "text", ["", "always", "none:1", "fixed-delay", "fixed-delay:3", "exponential-delay:1s", 3, None]
)
def test_what_is_no_strategy_is_refused_with_all_forms(text: object) -> None:
    with pytest.raises(InvalidError, match="is not a restart strategy") as error:
        parse_restart(text)
    assert "fixed-delay:N:DELAY" in error.value.failure.remedy


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fixed-delay:0:1s", "'0' is not a whole number of at least 1"),
        ("fixed-delay:3:soon", "'soon' is not a duration"),
        ("failure-rate:3:0:1s", "a time to count them in"),
        ("exponential-delay:2m:1m", "an initial one within the maximum"),
        ("exponential-delay:0:1m", "delays above 0"),
        ("exponential-delay:1s:1m:0", "a time of health"),
    ],
)
def test_impossible_numbers_are_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        parse_restart(text)


@pytest.mark.parametrize("wrong", [{"multiplier": 0.5}, {"jitter": 1.0}, {"jitter": -0.1}])
def test_impossible_numbers_in_python_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidError, match="exponential-delay needs"):
        ExponentialDelay(**wrong)
