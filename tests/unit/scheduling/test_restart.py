"""Whether a failed attempt is followed by another, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.restart import ExponentialDelay, FailureRate, FixedDelay, RestartNone, RestartStrategy
from tidegate.scheduling.restart import RestartPolicy


def policy(strategy: RestartStrategy, random: float = 0.5) -> RestartPolicy:
    return RestartPolicy(strategy, lambda: random)


def test_none_restarts_never() -> None:
    assert policy(RestartNone()).on_failure(0.0) is None


def test_fixed_delay_restarts_as_often_as_it_says_and_then_never() -> None:
    found = policy(FixedDelay(3, 2.5))
    assert [found.on_failure(t * 1000.0) for t in range(5)] == [2.5, 2.5, 2.5, None, None]


def test_C18_failure_rate_allows_as_many_failures_within_the_time_as_it_says() -> None:
    found = policy(FailureRate(2, 60.0, 1.0))
    assert [found.on_failure(t) for t in (0.0, 10.0)] == [1.0, 1.0]
    assert found.on_failure(59.9) is None


def test_a_failure_that_is_the_whole_time_ago_does_not_count_any_more() -> None:
    found = policy(FailureRate(2, 60.0, 1.0))
    assert [found.on_failure(t) for t in (0.0, 10.0, 60.0, 70.0)] == [1.0, 1.0, 1.0, 1.0]


def test_exponential_delay_grows_to_its_maximum_and_restarts_for_ever() -> None:
    found = policy(ExponentialDelay(1.0, 10.0, 2.0, 0.1, 300.0))
    assert [found.on_failure(float(t)) for t in range(7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize(("healthy", "delay"), [(299.9, 4.0), (300.0, 1.0), (10_000.0, 1.0)])
def test_C18_exponential_delay_begins_anew_after_enough_health(healthy: float, delay: float) -> None:
    found = policy(ExponentialDelay(1.0, 60.0, 2.0, 0.1, 300.0))
    found.on_failure(0.0)
    found.on_failure(1.0)
    found.on_running(5.0)
    assert found.on_failure(5.0 + healthy) == delay


def test_time_without_a_running_attempt_is_no_health() -> None:
    found = policy(ExponentialDelay(1.0, 60.0, 2.0, 0.1, 300.0))
    found.on_running(0.0)
    found.on_failure(1.0)
    assert found.on_failure(5000.0) == 2.0


@given(random=st.floats(0.0, 1.0), jitter=st.floats(0.0, 0.99), failures=st.integers(1, 12))
def test_C18_each_delay_is_changed_by_at_most_the_jitter(random: float, jitter: float, failures: int) -> None:
    found = policy(ExponentialDelay(1.0, 60.0, 2.0, jitter, 300.0), random)
    delay = 0.0
    for count in range(failures):
        delay = found.on_failure(float(count)) or 0.0
    plain = min(2.0 ** (failures - 1), 60.0)
    assert plain * (1 - jitter) - 1e-9 <= delay <= plain * (1 + jitter) + 1e-9
    assert delay > 0


def test_chance_reaches_both_ends_of_the_jitter() -> None:
    strategy = ExponentialDelay(10.0, 60.0, 2.0, 0.2, 300.0)
    assert [policy(strategy, random).on_failure(0.0) for random in (0.0, 0.5, 1.0)] == [8.0, 10.0, 12.0]
