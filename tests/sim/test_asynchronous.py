"""Worlds with an asynchronous operator: whatever dies, is late or is lost while calls are in flight, each record counts
once and in time."""

import dataclasses
from random import Random

import pytest

from tidegate.operators.asynchronous import AsyncOperator, Waiting
from tidegate.testing.sim import world
from tidegate.testing.sim.swarm import Swarm, draw_swarm
from tidegate.testing.sim.world import Result, World

CALLS = (3, 8, 20)
"""At once."""


def run(seed: int) -> Result:
    """The world of that seed, with calls."""

    def draw(random: Random) -> Swarm:
        swarm = draw_swarm(random)
        swarm.shape = dataclasses.replace(swarm.shape, calls=CALLS[seed % len(CALLS)])
        return swarm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "draw_swarm", draw)
        return World(seed).run()


@pytest.mark.parametrize("seed", range(6))
def test_a_seed_holds_with_calls_in_flight(seed: int) -> None:
    assert run(seed).violation is None


def test_the_same_seed_has_the_same_trace() -> None:
    assert run(2).digest == run(2).digest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_seeds_hold_with_calls_in_flight() -> None:
    assert [result for result in map(run, range(1000, 1300)) if result.violation is not None] == []


def loses(restored: list[Waiting]) -> list[Waiting]:
    return restored[1:]


def doubles(restored: list[Waiting]) -> list[Waiting]:
    return restored[:1] + restored


@pytest.mark.parametrize("change", [loses, doubles])
def test_requests_that_are_restored_wrongly_are_found(change: object, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = AsyncOperator.restored

    def wrongly(operator: AsyncOperator) -> tuple[list[Waiting], int]:
        waiting, reached = restored(operator)
        assert callable(change)
        return change(waiting), reached

    monkeypatch.setattr(AsyncOperator, "restored", wrongly)
    assert any(run(seed).violation is not None for seed in range(12))
