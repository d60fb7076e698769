"""Whole worlds on the simulated Kafka: the connector that is shipped, under faults that only Kafka has."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.sim.mutations.kafka import aborts_by_ending_the_transaction
from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import Committable, Committed, Outcome
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.config.restart import FixedDelay
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.client import PartitionProducer, TransactionAdmin, TransactionState, partition_of
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.connectors.kafka.source import KafkaSourceReader
from tidegate.errors import UnavailableError
from tidegate.ids import TransactionalId
from tidegate.testing.sim.broker.codes import BrokerError
from tidegate.testing.sim.broker.partition import Batch, Record
from tidegate.testing.sim.kafka.medium import KafkaMedium
from tidegate.testing.sim.world import World, run_seed

SEEDS = range(500, 515)
SCRIPTED = 4
"""A seed whose output has several partitions."""


def calm_world(seed: int = SCRIPTED) -> World:
    """Without any fault but those of the script."""
    world = World(seed, "kafka")
    swarm = world.swarm
    swarm.heal()
    swarm.restart = FixedDelay(1000, 0.05)
    swarm.checkpoints = CoordinatorSettings(interval=0.2, timeout=5.0, min_pause=0.0, tolerable_failures=1)
    swarm.input_seconds, swarm.sink_eagerness, swarm.parallelisms = 3.0, 0.9, (2,)
    return world


def medium_of(world: World) -> KafkaMedium:
    assert isinstance(world.ground.service, KafkaMedium)
    return world.ground.service


def until(world: World, reached: Callable[[], bool]) -> None:
    assert world.scheduler.run(reached, world.scheduler.seconds + 100.0, 1_000_000), "it never came to that"


def to_the_end(world: World) -> None:
    until(world, lambda: world.is_over)
    if world.scheduler.violation is None:
        world.check_end()


def after_a_checkpoint(world: World) -> None:
    world.supervisor.start()
    until(world, lambda: len(world.log.completed) > 0)


# ---- seeds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_holds_on_kafka(seed: int) -> None:
    assert run_seed(seed, medium="kafka").violation is None


def test_another_process_gives_the_same_trace_on_kafka() -> None:
    """Nothing may depend on the order of a set of texts."""
    seeds = (500,)
    code = (
        f"from tidegate.testing.sim.world import run_seed\nfor seed in {seeds}: print(run_seed(seed, medium='kafka'))"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    assert traces == {"".join(f"{run_seed(seed, medium='kafka')}\n" for seed in seeds)}


# ---- what checkers see of the cluster ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished() -> World:
    world = calm_world()
    world.supervisor.start()
    to_the_end(world)
    assert world.scheduler.violation is None
    return world


def test_positions_count_records_and_not_what_is_between_them() -> None:
    medium = calm_world().ground.service
    assert isinstance(medium, KafkaMedium)
    medium.traits.gaps = 1.0
    medium.create_topic("gaps", 1)
    medium.append("gaps", 0, range(20))
    log = medium.cluster.topics["gaps"].partitions[0]
    assert log.end >= 40
    seen = [medium.count_before("gaps", 0, position) for position in range(log.end + 1)]
    assert (seen[0], seen[-1], seen) == (0, 20, sorted(seen))
    assert [len(log.fetch(0, 99, "read_committed", position)[0]) for position in range(log.end + 1)] == seen


def test_a_record_that_is_there_twice_is_found_on_kafka(finished: World) -> None:
    name = finished.swarm.shape.output_topics[0]
    number, values = next((number, part) for number, part in enumerate(finished.ground.service.visible(name)) if part)
    finished.scheduler.violation = None
    finished.ground.service.append(name, number, [values[0]])
    finished.output.check_complete()
    log = medium_of(finished).cluster.topics[name].partitions[number].log
    while not log.pop().is_visible:
        """The marker behind it."""
    assert finished.scheduler.violation is not None


def test_a_record_that_is_missing_is_found_on_kafka(finished: World) -> None:
    log = next(part.log for part in topic(finished, finished.swarm.shape.output_topics[0]) if part.log)
    place = next(offset for offset, stored in enumerate(log) if stored.is_visible)
    finished.scheduler.violation = None
    record, log[place].record = log[place].record, None
    finished.output.check_complete()
    log[place].record = record
    assert "are missing at the end" in str(finished.scheduler.violation)


def test_a_transaction_that_only_a_partition_knows_is_found(finished: World) -> None:
    partition = topic(finished, finished.swarm.shape.output_topics[0])[0]
    partition.append(Batch(999, 0, 0, [Record(b"nobody's")]))
    finished.scheduler.violation = None
    assert [one.id for one in finished.ground.service.ongoing()] == ["a transaction that hangs"]
    finished.check_end()
    partition.write_marker(999, 0, commit=False, coordinator_epoch=0)
    assert "is still open at the end" in str(finished.scheduler.violation)


# ---- scripts -------------------------------------------------------------------------------------------------------


def the_next_commit_loses_its_markers(world: World) -> None:
    world.supervisor.start()
    medium_of(world).mishaps()["broker forgets markers"]()
    to_the_end(world)


def open_in_partitions(world: World) -> list[PartitionProducer]:
    """Of the transactions that the coordinator has open, what output partitions know; none before one has records."""
    cluster = medium_of(world).cluster
    found = cluster.coordinator.ids(TransactionState.ONGOING)
    owners = {(entry.producer_id, entry.epoch) for entry in map(cluster.coordinator.entries.__getitem__, found)}
    partitions = [
        partition_of(partition.name) for name in world.swarm.shape.output_topics for partition in topic(world, name)
    ]
    rows = [row for at in partitions for row in cluster.producers(at) if (row.producer_id, row.epoch) in owners]
    return rows if any(row.first_open_offset is not None for row in rows) else []


def a_worker_is_presumed_dead_and_lives_on(world: World) -> None:
    world.swarm.zombies = 1.0
    after_a_checkpoint(world)
    # In the middle of a transaction: what the worker still has to write comes behind its end.
    world.scheduler.run(lambda: False, world.scheduler.seconds + 0.05, 1_000_000)
    manager = world.supervisor.running[0]
    manager.cluster.presume_dead(manager.cluster.workers[0])
    to_the_end(world)


def an_administrator_aborts_what_is_open(world: World) -> None:
    """With WriteTxnMarkers, past the coordinator, in the middle of a transaction."""
    cluster = medium_of(world).cluster
    world.supervisor.start()
    until(world, lambda: bool(open_in_partitions(world)))
    for row in open_in_partitions(world):
        cluster.mark(row.partition, row.producer_id, row.epoch, commit=False, coordinator_epoch=row.coordinator_epoch)
    to_the_end(world)


def topic(world: World, name: str) -> Sequence[Any]:
    return medium_of(world).cluster.topics[name].partitions


def an_initialisation_of_a_dead_attempt_arrives(world: World) -> None:
    """Of an id that was prepared and committed, and of one that is open, long after their attempt."""
    after_a_checkpoint(world)
    coordinator = medium_of(world).cluster.coordinator
    ids = list(coordinator.entries)
    world.supervisor.running[0].process.kill("the script wants it")
    before = world.log.manifests[-1].checkpoint
    until(world, lambda: world.log.manifests[-1].checkpoint > before)
    for id in ids:
        parsed = TransactionalId.parse(id)
        assert parsed is not None
        try:
            coordinator.initialise(id, 1000)
        except BrokerError:
            continue
    to_the_end(world)


def the_offsets_of_the_group_are_old(world: World) -> None:
    """Committing them is best effort; meanwhile a checkpoint completes, and the job is started again."""
    world.supervisor.start()
    groups = medium_of(world).cluster.groups
    until(world, lambda: bool(groups))
    until(world, lambda: any(is_behind(known, world.log.manifests[-1]) for known in groups.values()))
    world.supervisor.running[0].process.kill("the script wants it")
    to_the_end(world)


def is_behind(known: Mapping[Any, int], manifest: Manifest) -> bool:
    """Whether a group's offsets are older than the positions of a checkpoint."""
    positions = {partition_of(split.id): split.position for record in manifest.operators for split in record.splits}
    return any(known.get(partition, position) < position for partition, position in positions.items())


def the_coordinator_is_away_again_and_again(world: World) -> None:
    world.supervisor.start()
    mishaps = medium_of(world).mishaps()
    for number in range(8):
        name = "coordinator moves" if number % 2 else "broker restarts"
        world.scheduler.plan(0.1 + 0.4 * number, name, mishaps[name])
    to_the_end(world)


SCRIPTS = [
    the_next_commit_loses_its_markers,
    a_worker_is_presumed_dead_and_lives_on,
    an_administrator_aborts_what_is_open,
    an_initialisation_of_a_dead_attempt_arrives,
    the_offsets_of_the_group_are_old,
    the_coordinator_is_away_again_and_again,
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_well(script: Callable[[World], None]) -> None:
    world = calm_world()
    script(world)
    assert world.scheduler.violation is None
    assert world.log.is_finished


# ---- errors that the scripts find ----------------------------------------------------------------------------------


def believes_the_coordinator_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "_hanging", lambda admin, prepared: [])


def asks_only_the_coordinator_when_it_prepares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "problems", lambda prepared, producers: "")
    patch.setattr(outcomes, "cut_off", lambda sequences: "")


def trusts_group_offsets(patch: pytest.MonkeyPatch) -> None:
    right = KafkaSourceReader._begin

    def wrong(self: Any, splits: Any) -> None:
        known = self._consumer.line.cluster.groups.get(self._consumer.group, {})
        moved = [msgspec.structs.replace(one, position=known.get(partition_of(one.id), one.position)) for one in splits]
        right(self, moved)

    patch.setattr(KafkaSourceReader, "_begin", wrong)


@pytest.mark.parametrize(
    ("error", "script"),
    [
        (aborts_by_ending_the_transaction, a_worker_is_presumed_dead_and_lives_on),
        (believes_the_coordinator_alone, the_next_commit_loses_its_markers),
        (asks_only_the_coordinator_when_it_prepares, an_administrator_aborts_what_is_open),
        (trusts_group_offsets, the_offsets_of_the_group_are_old),
    ],
)
def test_an_error_is_found_by_its_script(
    error: Callable[[pytest.MonkeyPatch], None], script: Callable[[World], None]
) -> None:
    world = calm_world()
    with pytest.MonkeyPatch.context() as patch:
        error(patch)
        script(world)
    assert world.scheduler.violation is not None


def takes_an_error_for_a_commit(patch: pytest.MonkeyPatch) -> None:
    def wrong(admin: TransactionAdmin, committable: Committable, *others: object) -> Outcome:
        prepared = Prepared.of(committable)
        try:
            admin.commit(prepared.id, prepared.producer_id, prepared.epoch)
        except UnavailableError:
            return Committed()
        return Committed()

    patch.setattr(outcomes, "commit", wrong)


def writes_before_the_last_transaction_is_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SinkTransactions, "is_writable", property(lambda self: self.current is not None))


@pytest.mark.parametrize(
    ("error", "seeds"),
    [
        (takes_an_error_for_a_commit, range(5)),
        (writes_before_the_last_transaction_is_flushed, range(40)),
    ],
)
def test_an_error_is_found_by_a_seed(error: Callable[[pytest.MonkeyPatch], None], seeds: range) -> None:
    with pytest.MonkeyPatch.context() as patch:
        error(patch)
        assert any(run_seed(seed, medium="kafka").violation is not None for seed in seeds)
