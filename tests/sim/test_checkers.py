"""Each checker finds what it is there for: a run's record removed, doubled or changed behind the engine's back."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.sim.test_scenarios import calm_world, started, until
from tidegate.checkpoint.log import Completed, Entry, Finished, ProcessRecord, Takeover
from tidegate.checkpoint.manifest import OperatorRecord
from tidegate.checkpoint.recovery import named_by
from tidegate.checkpoint.store import encode_entry
from tidegate.ids import Attempt, CheckpointId, LogPosition
from tidegate.scheduling import protocol as p
from tidegate.scheduling.job import Phase
from tidegate.testing.sim.checkers import check_left_files
from tidegate.testing.sim.job import Total
from tidegate.testing.sim.log_service import Record, TransactionState
from tidegate.testing.sim.world import World

COMMITTED = TransactionState.COMPLETE_COMMIT
SEED = 155
"""With several checkpoints, and an order that readers can rely on."""


@pytest.fixture
def world() -> World:
    """A finished world in which nothing is wrong."""
    finished = World(SEED)
    assert finished.run().violation is None
    assert finished.output.keeps_order
    return finished


def output(world: World) -> list[Record]:
    partitions = world.ground.service.topics["out-0"]
    return max((partition.records for partition in partitions), key=len)


def is_committed(record: Record) -> bool:
    return record.transaction is not None and record.transaction.state is COMMITTED


def fourth(world: World) -> int:
    """Where the fourth committed record of the output is."""
    return [i for i, record in enumerate(output(world)) if is_committed(record)][3]


def replaced(world: World, **changes: object) -> None:
    records, place = output(world), fourth(world)
    records[place] = Record(msgspec.structs.replace(records[place].value, **changes), records[place].transaction)


def swapped(world: World) -> None:
    records = output(world)
    first = next(i for i, record in enumerate(records) if _follows(records, i))
    records[first], records[first + 1] = records[first + 1], records[first]


def _follows(records: list[Record], index: int) -> bool:
    one: Total = records[index].value
    other: Total = records[index + 1].value
    return one.key == other.key and is_committed(records[index]) and is_committed(records[index + 1])


OUTPUT: dict[str, Callable[[World], object]] = {
    "removed": lambda world: output(world).pop(fourth(world)),
    "the last removed": lambda world: output(world).pop(),
    "doubled": lambda world: output(world).append(output(world)[fourth(world)]),
    "another total": lambda world: replaced(world, total=-1, listed=-1),
    "another count": lambda world: replaced(world, count=99, remembered=99),
    "another key": lambda world: replaced(world, key="nobody"),
    "a state left behind": lambda world: replaced(world, remembered=0),
    "two in the wrong order": swapped,
}


@pytest.mark.parametrize("change", OUTPUT)
def test_output_that_was_changed_is_found(world: World, change: str) -> None:
    OUTPUT[change](world)
    world.output.committed()
    world.output.seen()
    world.output.check_complete()
    assert world.scheduler.violation is not None


def test_output_that_was_not_changed_is_right(world: World) -> None:
    world.output.committed()
    world.output.seen()
    world.output.check_complete()
    assert world.scheduler.violation is None


def test_a_commit_that_no_checkpoint_names_is_found(world: World) -> None:
    transaction = world.ground.service.begin("sim:elsewhere:1:out-0:0:0", 60.0)
    world.ground.service.write(transaction, [("out-0", 0, output(world)[0].value)])
    world.ground.service.commit(transaction.id, transaction.epoch)
    assert "no completed checkpoint names it" in str(world.scheduler.violation)


def test_an_id_that_is_used_again_while_the_newest_checkpoint_names_it_is_found(world: World) -> None:
    named = named_by(world.log.manifests[-1])
    assert named
    world.ground.service.begin(min(named), 60.0)
    assert "is used again" in str(world.scheduler.violation)


def test_an_id_that_no_checkpoint_names_any_more_may_be_used_again(world: World) -> None:
    older = sorted(id for manifest in world.log.manifests[:-1] for id in named_by(manifest))
    free = [id for id in older if id not in named_by(world.log.manifests[-1])]
    world.ground.service.begin(free[0], 60.0)
    assert world.scheduler.violation is None


def test_a_transaction_that_is_named_again_with_the_epoch_of_then_is_found(world: World) -> None:
    entry = newest(world)
    assert isinstance(entry.body, Completed)
    manifest = msgspec.structs.replace(entry.body.manifest, checkpoint=CheckpointId(1000))
    appended(world, msgspec.structs.replace(entry, body=Completed(manifest)))
    assert "and an earlier one named epoch" in str(world.scheduler.violation)


def test_a_transaction_of_another_attempt_is_found(world: World) -> None:
    entry = newest(world)
    assert isinstance(entry.body, Completed)
    manifest = msgspec.structs.replace(entry.body.manifest, checkpoint=CheckpointId(1000), attempt=Attempt(99))
    appended(world, msgspec.structs.replace(entry, body=Completed(manifest)))
    assert "which is not an id of this attempt" in str(world.scheduler.violation)


def test_a_transaction_that_is_left_open_is_found(world: World) -> None:
    transaction = world.ground.service.begin("sim:elsewhere:1:out-0:0:0", 60.0)
    world.ground.service.write(transaction, [("out-0", 0, output(world)[0].value)])
    transaction.start = 0.0
    world.check_end()
    assert "is still open at the end" in str(world.scheduler.violation)


def newest(world: World) -> Entry:
    return world.log.completed[-1]


def appended(world: World, entry: Entry, above: int = 1) -> None:
    position = LogPosition(max(world.log.entries) + above)
    entry = msgspec.structs.replace(entry, position=position)
    world.ground.blobs.put_if_absent(f"sim/log/{position:020d}.json", encode_entry(entry))


def with_manifest(world: World, **changes: Any) -> Entry:
    entry = newest(world)
    assert isinstance(entry.body, Completed)
    changes = {"checkpoint": 1000, "operators": entry.body.manifest.operators, **changes}
    manifest = msgspec.structs.replace(entry.body.manifest, **changes)
    settled = msgspec.structs.replace(manifest, operators=tuple(map(without_pending, manifest.operators)))
    return msgspec.structs.replace(entry, body=Completed(settled))


def without_pending(operator: OperatorRecord) -> OperatorRecord:
    """What it names is committed since."""
    subtasks = tuple(
        msgspec.structs.replace(record, snapshot=msgspec.structs.replace(record.snapshot, pending=()))
        for record in operator.subtasks
    )
    return msgspec.structs.replace(operator, subtasks=subtasks)


def without_a_split(world: World) -> Entry:
    entry = newest(world)
    assert isinstance(entry.body, Completed)
    operators = tuple(
        msgspec.structs.replace(operator, subtasks=()) if operator.name.startswith("in-") else operator
        for operator in entry.body.manifest.operators
    )
    return with_manifest(world, operators=operators)


def without_state(world: World) -> Entry:
    entry = newest(world)
    assert isinstance(entry.body, Completed)
    operators = tuple(
        msgspec.structs.replace(operator, subtasks=operator.subtasks[1:]) if operator.name == "totals" else operator
        for operator in entry.body.manifest.operators
    )
    return with_manifest(world, operators=operators)


LOG: dict[str, Callable[[World], None]] = {
    "a hole": lambda world: appended(world, newest(world), above=2),
    "a checkpoint again": lambda world: appended(world, newest(world)),
    "an entry of somebody who did not take over": lambda world: appended(
        world, msgspec.structs.replace(with_manifest(world), nonce="stranger")
    ),
    "an attempt again": lambda world: appended(
        world, msgspec.structs.replace(newest(world), attempt=Attempt(1), body=Takeover("host", ANY_PROCESS))
    ),
    "a split missing": lambda world: appended(world, without_a_split(world)),
    "state missing": lambda world: appended(world, without_state(world)),
    "the newest checkpoint deleted": lambda world: world.ground.blobs.delete(
        f"sim/log/{newest(world).position:020d}.json"
    ),
    "no entry": lambda world: world.ground.blobs.put_if_absent(f"sim/log/{max(world.log.entries) + 1:020d}.json", b"{"),
}
ANY_PROCESS = ProcessRecord(1, 1)


@pytest.mark.parametrize("change", LOG)
def test_a_log_that_was_changed_is_found(world: World, change: str) -> None:
    LOG[change](world)
    assert world.scheduler.violation is not None


def test_the_right_next_entry_is_right(world: World) -> None:
    appended(world, with_manifest(world))
    assert world.scheduler.violation is None


def test_a_file_that_is_left_over_or_missing_is_found(world: World) -> None:
    world.ground.blobs.put_if_absent("sim/chk-1-77/totals.0.keyed-0", b"nobody's")
    world.log.check_files(excused=[])
    assert "is left over" in str(world.scheduler.violation)


def test_a_file_of_a_checkpoint_in_the_log_that_is_deleted_is_found() -> None:
    world = calm_world()
    world.supervisor.start()
    until(world, lambda: len(world.log.manifests) > 0 and bool(world.log.manifests[-1].files))
    world.ground.blobs.delete(f"sim/{min(world.log.manifests[-1].files)}")
    assert "and a checkpoint in the log names it" in str(world.scheduler.violation)


def test_what_is_replaced_is_found(world: World) -> None:
    path = f"sim/log/{newest(world).position:020d}.json"
    world.ground.blobs.replace(path, world.ground.blobs.memory.read(path))
    assert "was replaced" in str(world.scheduler.violation)


def test_an_entry_that_is_retained_and_deleted_is_found() -> None:
    world = calm_world()
    world.swarm.retained = world.log.retained = 3
    world.supervisor.start()
    until(world, lambda: len(world.log.completed) == 3)
    world.ground.blobs.delete(f"sim/log/{world.log.completed[0].position:020d}.json")
    assert "are all that is retained" in str(world.scheduler.violation)


def test_what_was_not_retained_may_be_deleted_late_when_another_has_begun_anew() -> None:
    world = calm_world()
    world.swarm.retained = 3
    world.supervisor.start()
    until(world, lambda: len(world.log.completed) == 3)
    world.log.retained = 2
    first, second, _ = world.log.completed
    appended(world, msgspec.structs.replace(first, attempt=Attempt(9), body=Takeover("host", ANY_PROCESS, fresh=True)))
    world.ground.blobs.delete(f"sim/log/{first.position:020d}.json")
    assert world.scheduler.violation is None
    world.ground.blobs.delete(f"sim/log/{second.position:020d}.json")
    assert "are all that is retained" in str(world.scheduler.violation)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_file_that_is_left_by_whoever_recorded_an_end_is_found(is_finished: bool) -> None:
    world = calm_world()
    manager = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    until(world, lambda: is_finished is False or manager.phase == Phase.SETTLING.value or world.is_over)
    world.ground.blobs.created_at["sim/shared/1/totals.0.keyed-0"] = 0.0
    world.supervisor.has_given_up = True  # nobody starts it again
    if not is_finished:
        manager.deliver(p.StopWanted())
    until(world, lambda: manager.phase == Phase.RECORDING_END.value)
    until(world, lambda: not manager.process.is_alive or manager.exit_code is not None)
    assert world.scheduler.violation is None
    world.ground.blobs.memory.write("sim/shared/1/totals.0.keyed-0", b"nobody's")
    check_left_files(world.log, world.ground.blobs.created_at, manager, world.scheduler.violated)
    assert "has ended and left shared/1/totals.0.keyed-0" in str(world.scheduler.violation)


def test_a_process_that_lives_on_when_all_is_over_is_found(world: World) -> None:
    world.ground.new_process("nobody's")
    world._come_to_rest()
    assert "nobody's are still alive" in str(world.scheduler.violation)


def test_a_finished_job_that_is_started_again_says_so_and_does_nothing(world: World) -> None:
    entries = dict(world.log.entries)
    world.supervisor.start()
    assert world.scheduler.run(lambda: world.is_over, world.scheduler.seconds + 60.0, 10_000_000)
    assert world.supervisor.managers[-1].exit_code == 0
    assert world.log.entries == entries
    assert world.scheduler.violation is None


def test_a_finished_log_is_seen_as_finished(world: World) -> None:
    assert world.log.is_finished
    assert isinstance(world.log.entries[max(world.log.entries)].body, Finished)
