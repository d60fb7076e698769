"""Waiting is told after a few seconds and then every ten, with the last reason."""

from tidegate.clock import Now
from tidegate.scheduling.protocol import Tell, WakeAt
from tidegate.scheduling.waiting import Wait


def at(seconds: float) -> Now:
    return Now(seconds, 0.0)


def test_a_short_wait_is_not_told() -> None:
    wait = Wait("the broker", at(100.0))
    assert wait.next == WakeAt(103.0)
    assert wait.told(at(102.9)) == []


def test_a_long_wait_is_told_again_and_again_with_the_last_reason() -> None:
    wait = Wait("the broker", at(100.0))
    assert wait.told(at(103.0)) == [Tell("warning", "waiting for 3 s for the broker: no answer yet"), WakeAt(113.0)]
    wait.failed("connection refused")
    assert wait.told(at(112.0)) == []
    assert wait.told(at(113.5))[0] == Tell("warning", "waiting for 14 s for the broker: connection refused")
    assert wait.next == WakeAt(123.5)
    assert wait.seconds(at(160.0)) == 60.0
