"""Worlds whose sources are aligned: whatever dies, is late or is lost, the job ends, and each record counts once."""

import dataclasses

import pytest

from tidegate.event_time.alignment import AlignedGroup
from tidegate.event_time.progress import EventTimeProgress
from tidegate.testing.sim.world import Result, World

DRIFTS = ("1ms", "30ms", "200ms")
"""Events of the simulated input are ten milliseconds apart."""


def run(seed: int) -> Result:
    world = World(seed)
    world.swarm.shape = dataclasses.replace(world.swarm.shape, max_drift=DRIFTS[seed % len(DRIFTS)])
    return world.run()


@pytest.mark.parametrize("seed", range(8))
def test_a_seed_holds_with_aligned_sources(seed: int) -> None:
    assert run(seed).violation is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_seeds_hold_with_aligned_sources() -> None:
    assert [result for result in map(run, range(1000, 1500)) if result.violation is not None] == []


def test_splits_do_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[str] = []
    pause_and_resume = EventTimeProgress.pause_and_resume

    def noting(progress: EventTimeProgress) -> tuple[list[str], list[str]]:
        found = pause_and_resume(progress)
        paused.extend(found[0])
        return found

    monkeypatch.setattr(EventTimeProgress, "pause_and_resume", noting)
    assert run(4).violation is None
    assert len(paused) > 10


@pytest.mark.slow
def test_a_group_that_does_not_go_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlignedGroup, "reached", 0)
    assert "not live" in (run(4).violation or "")
