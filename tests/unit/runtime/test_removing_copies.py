"""Copies of stored state go when no checkpoint needs them; with the workers that write, read and remove them."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.copying_machine import (
    DATA,
    GROUPS,
    REMOTE,
    CountingStorage,
    Machine,
    name_of,
    named,
    names,
    write,
)
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource, by_key, totals_job, totals_of
from tidegate.checkpoint.protocol import StateHandle
from tidegate.connectors.collections import CollectionSink
from tidegate.runtime.control import RestoredOperator
from tidegate.state.backend import SnapshotFiles
from tidegate.storage.memory import MemoryStorage


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "local")


def test_what_neither_the_completed_checkpoint_nor_a_later_capture_names_is_removed(machine: Machine) -> None:
    worker = machine.attempt(1)
    files = worker.files()
    first, second, third = (write(files, f"{n}-0", bytes([n]) * 100) for n in (1, 2, 3))
    named(files, 1, first)
    worker.complete(1)
    named(files, 2, first, second)
    named(files, 3, second, third)
    worker.complete(2)
    assert names(machine) == sorted(map(name_of, (first, second, third)))
    worker.complete(3)
    assert names(machine) == sorted(map(name_of, (second, third)))


def test_a_checkpoint_of_which_a_subtask_has_no_capture_removes_nothing_of_it(machine: Machine) -> None:
    worker = machine.attempt(1)
    files = worker.files()
    handle = write(files, "1-0")
    named(files, 1, handle)
    for checkpoint in (1, 2, 3):
        worker.complete(checkpoint)
    assert names(machine) == [name_of(handle)]


def test_what_was_written_for_a_checkpoint_that_failed_goes_after_two_that_complete(machine: Machine) -> None:
    worker = machine.attempt(1)
    files = worker.files()
    failed, good = write(files, "1-0"), write(files, "2-0", DATA * 2)
    for checkpoint, left in ((2, [failed, good]), (3, [good])):
        named(files, checkpoint, good)
        worker.complete(checkpoint)
        assert names(machine) == sorted(map(name_of, left))


class LongMerge:
    """Writes its second file when two more checkpoints have completed."""

    def __init__(self, checkpoints: Callable[[], None]) -> None:
        self._checkpoints = checkpoints
        self.made: list[StateHandle] = []

    def run(self, files: SnapshotFiles) -> None:
        self.made.append(files.write("1-merged-1", DATA * 3, GROUPS))
        self._checkpoints()
        self.made.append(files.write("1-merged-2", DATA * 4, GROUPS))

    def finish(self, error: BaseException | None) -> None:
        """Nobody asks."""


def test_what_a_merge_makes_stays_until_a_capture_can_name_it_and_goes_when_none_does(machine: Machine) -> None:
    worker = machine.attempt(1)
    files = worker.files()
    old = write(files, "1-0")

    def complete(checkpoint: int, *handles: StateHandle) -> None:
        named(files, checkpoint, *handles)
        worker.complete(checkpoint)

    def complete_two() -> None:
        complete(2, old)
        complete(3, old)

    merge = LongMerge(complete_two)
    complete(1, old)
    files.maintain(merge)
    complete(4, old)
    assert names(machine) == sorted(map(name_of, (old, *merge.made)))
    complete(5, *merge.made)
    assert names(machine) == sorted(map(name_of, merge.made))
    complete(6, old)
    assert names(machine) == []


def test_what_earlier_attempts_left_goes_when_a_checkpoint_has_completed_but_for_what_is_still_named(
    machine: Machine,
) -> None:
    before, after = machine.attempt(9), machine.attempt(10)
    kept, needless = write(before.files(2), "1-0"), write(before.files(1), "1-1", DATA * 2)
    newer = machine.local / "job" / "log" / "copies" / "11" / "totals.0" / "of-a-successor"
    newer.parent.mkdir(parents=True)
    newer.touch()
    database = machine.local / "job" / "log" / "9" / "totals.0" / "database"
    database.mkdir(parents=True)
    files = after.files()
    assert files.read_state(kept) == DATA
    assert names(machine).count(name_of(needless)) == 1
    named(files, 1, kept)
    after.complete(1)
    assert names(machine) == sorted([name_of(kept), newer.name])
    assert database.is_dir()
    assert files.read_state(kept) == DATA
    assert machine.storage.reads == []


def test_what_earlier_logs_of_the_job_left_goes_but_not_what_is_of_a_job_elsewhere(machine: Machine) -> None:
    workers = [
        machine.attempt(5, "earlier"), machine.attempt(5, "elsewhere", "s3://other/flows"), machine.attempt(1, "own")
    ]  # fmt: skip
    for worker in workers:
        files = worker.files()
        named(files, 1, write(files, "1-0"))
        worker.complete(1)
    assert [path.relative_to(machine.local).parts[1] for path in machine.copies] == ["elsewhere", "own"]


# ---- in workers ------------------------------------------------------------------------------------------------------


def remote_bench(
    storage: MemoryStorage,
    local: Path,
    source: HandSource,
    sink: CollectionSink,
    parallelism: int,
    attempt: int,
    restored: list[RestoredOperator],
) -> Bench:
    options = msgspec.structs.replace(AT_ONCE, inline_limit=0, local_dir=str(local))
    bench = Bench(
        totals_job(source, sink), parallelism, options=options, storage=storage, attempt=attempt, restored=restored
    )
    bench._deploy = msgspec.structs.replace(bench._deploy, storage=REMOTE)
    return bench.deploy()


def test_workers_of_the_next_attempt_restore_from_this_machine_at_any_parallelism(tmp_path: Path) -> None:
    storage, source, sink = CountingStorage(), HandSource(), CollectionSink()
    records = [(f"k{number % 40}", number) for number in range(400)]
    restored: list[RestoredOperator] = []
    for attempt, parallelism in enumerate((2, 2, 3, 1), start=1):
        part = records[(attempt - 1) * 100 : attempt * 100]
        bench = remote_bench(storage, tmp_path, source, sink, parallelism, attempt, restored)
        split = f"split-{attempt}"
        source.put(split, *part)
        bench.assign([found for found in source.discover(None) if found.id == split])
        bench.finish()
        for checkpoint in (10 * attempt, 10 * attempt + 1):
            bench.checkpoint(checkpoint)
        restored = bench.restorable(10 * attempt + 1)
        handles = {handle for operator in restored for one in operator.snapshots for handle in one.all_handles}
        copies = tmp_path / "totals" / "log" / "copies"
        assert {path.name for path in copies.glob("*/*/*")} == {name_of(handle) for handle in handles}
        assert [path.name for path in copies.iterdir() if path.is_dir()] == [str(attempt)]
    assert storage.reads == []
    assert by_key(sink.committed) == totals_of(records)
