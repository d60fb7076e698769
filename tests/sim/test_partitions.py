"""Worlds whose input keeps keys together, and whose job makes use of it: whatever dies, is late or is lost, and at
whatever parallelism the job goes on, each record counts once, and a savepoint of it leads to the same end."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tidegate.operators.partitioned import PartitionCheck
from tidegate.testing.sim import job, world
from tidegate.testing.sim.job import Event
from tidegate.testing.sim.swarm import JobShape, Swarm, draw_swarm
from tidegate.testing.sim.world import Result, World

DRIFTS = (None, "30ms", None, "200ms")


@contextmanager
def co_partitioned(seed: int) -> Iterator[None]:
    """Makes the world of that seed one, and those that go on from its savepoints. Some are aligned."""

    def draw(random: Random) -> Swarm:
        swarm = draw_swarm(random)
        drift = DRIFTS[seed % len(DRIFTS)]
        swarm.shape = dataclasses.replace(swarm.shape, is_co_partitioned=True, max_drift=drift)
        return swarm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "draw_swarm", draw)
        yield


def run(seed: int) -> Result:
    with co_partitioned(seed):
        return World(seed).run()


@pytest.mark.parametrize("seed", range(8))
def test_a_seed_holds_with_co_partitioned_keys(seed: int) -> None:
    assert run(seed).violation is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hundreds_of_seeds_hold_with_co_partitioned_keys() -> None:
    assert [result for result in map(run, range(2000, 2600)) if result.violation is not None] == []


def misplaced(seed: int) -> World:
    """One whose topics have their partitions in another order than the keys say."""
    make_input = job.make_input

    def moved(shape: JobShape, random: Random) -> dict[str, list[list[Event]]]:
        return {topic: partitions[1:] + partitions[:1] for topic, partitions in make_input(shape, random).items()}

    with co_partitioned(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "make_input", moved)
        return World(seed)


@pytest.mark.parametrize("seed", [1, 2, 4, 5])
def test_S24_an_input_with_other_partitions_than_the_keys_say_stops_the_job_before_any_output(seed: int) -> None:
    """At every parallelism: seed 1 has one subtask alone."""
    made = misplaced(seed)
    assert "murmur2 it belongs to partition" in (made.run().violation or "")
    assert not any(made._ids_out())


def test_S24_without_the_check_the_wrong_totals_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionCheck, "check", lambda self, keys: None)
    violations = [misplaced(seed).run().violation for seed in (2, 5)]
    assert all(violations), violations
