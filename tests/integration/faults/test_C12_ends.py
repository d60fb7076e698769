"""The end of finite input, deaths while a checkpoint is under way, restarts that are counted, word of a checkpoint that
cannot be used (C12, C17, C18, C20)."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.faults.skewed import JOB, Skewed, positions
from tests.integration.programs import wait_until
from tests.integration.retaining import USERS, Totals
from tests.integration.running import KILLED, Bench
from tests.integration.totals_program import Total
from tidegate.checkpoint import transactions
from tidegate.checkpoint.log import Completed, Entry, Takeover, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.local.sink import LocalSinkWriter
from tidegate.connectors.rotation import RotatingReader
from tidegate.ids import TransactionalId

NO_OTHER = ("--checkpoint-interval", "2m")
"""No checkpoint but the last."""


# ---- finite input --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "parallelism"),
    [("log-append:after@jobmanager", "3"), ("log-append:before@jobmanager", "1"), ("commit:before@worker-1", "1")],
)
def test_C12_a_death_around_the_last_checkpoint_of_unequal_inputs_loses_and_repeats_nothing(
    bench: Bench, tmp_path: Path, place: str, parallelism: str
) -> None:
    job = Skewed(bench, tmp_path, [3000, 3, 0, 40], slow=3, pause=0.01)
    started = job.start(*NO_OTHER, fail_point=place)
    started.wait_for_fail_point()
    code = started.wait()
    assert code == (KILLED if "jobmanager" in place else 0), started.said
    while code == KILLED:
        code = (started := job.start(*NO_OTHER, "-p", parallelism)).wait()
    assert code == 0, started.said
    job.assert_right()
    assert bench.view(JOB).attempt == 2
    again = job.start(*NO_OTHER)
    assert again.wait() == 0, again.said
    assert "finished" in again.said
    job.assert_right()


@pytest.mark.slow
def test_C12_an_input_that_had_ended_is_not_read_again_by_a_start_at_another_parallelism(
    bench: Bench, tmp_path: Path
) -> None:
    job = Skewed(bench, tmp_path, [500, 120], slow=1, pause=0.05)
    started = job.start()
    started.wait_until(lambda: any(is_half_way(one) for one in job.manifests()), "the end of one input alone")
    started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED
    for parallelism in ("3", "1"):
        started = job.start("-p", parallelism)
        if parallelism == "3":
            covered = bench.view(JOB).next_position
            started.wait_until(lambda at=covered: bench.view(JOB).next_position >= at + 2, "a checkpoint")  # type: ignore[misc]
            started.send_to_all(signal.SIGKILL)
        started.wait()
    assert started.process.returncode == 0, started.said
    job.assert_right()


def is_half_way(manifest: Manifest) -> bool:
    read = positions(manifest)
    return read.get(0) == 500 and read.get(1, 0) < 120


# ---- deaths while one is under way ---------------------------------------------------------------------------------


def every_acknowledgement(number: int) -> list[str]:
    """Each place around each acknowledgement that the workers send for one checkpoint: two from each."""
    return [
        f"acknowledge:{side}:{count}@worker-{worker}"
        for worker in (0, 1)
        for count in (2 * number - 1, 2 * number)
        for side in ("before", "after")
    ]


def mixed(entries: Sequence[Entry]) -> list[str]:
    """Of which completed checkpoints something is of another attempt than the one that the log was in."""
    problems: list[str] = []
    attempt, last = 0, -1
    for entry in entries:
        # Where a takeover was pruned, only what is left can tell which attempt it began.
        if isinstance(entry.body, Takeover) or entry.position != last + 1:
            attempt = entry.attempt
        last = entry.position
        if isinstance(entry.body, Completed):
            found = {entry.attempt, entry.body.manifest.attempt, *attempts_of(entry.body.manifest)}
            problems += [f"position {entry.position}: {sorted(found)} in {attempt}"] if found != {attempt} else []
    return problems


def attempts_of(manifest: Manifest) -> set[int]:
    """Of its pending transactions."""
    ids = [TransactionalId.parse(one.committable.id) for record in manifest.operators for one in record.pending]
    return {id.attempt for id in ids if id is not None}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_C17_a_worker_that_dies_at_any_acknowledgement_mixes_no_two_attempts(bench: Bench, tmp_path: Path) -> None:
    places = every_acknowledgement(2)
    job = Skewed(bench, tmp_path, [4000, 250], slow=1, pause=0.02)
    started = job.start("--checkpoint-interval", "50ms", fail_point=",".join(places))
    for index in range(len(places)):
        started.wait_for_fail_point(index)
    assert started.wait() == 0, started.said
    # Both workers may die in one attempt.
    assert 1 + len(places) / 2 <= bench.view(JOB).attempt <= 1 + len(places)
    assert mixed([entry for entry in bench.view(JOB).entries if isinstance(entry, Entry)]) == []
    numbers = [manifest.checkpoint for manifest in job.manifests()]
    assert numbers == sorted(set(numbers))
    job.assert_right()


# ---- restarts ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [2, 8])
def test_C18_the_death_of_one_worker_is_one_failure_however_many_tasks_it_takes_along(
    bench: Bench, tmp_path: Path, parallelism: int
) -> None:
    job = Skewed(bench, tmp_path, [10_000] * parallelism, slow=0, pause=0.01)
    started = job.start("-p", str(parallelism), "--restart", "fixed-delay:1:20ms")
    for attempt, victim in ((1, parallelism - 1), (2, 0)):
        started.wait_until(lambda at=attempt: runs(bench, job, at), f"attempt {attempt}")  # type: ignore[misc]
        started.kill(bench.takeover(JOB).workers[victim].pid)
        if attempt == 1:
            wait_until(lambda: bench.view(JOB).attempt == 2, "the restart")
    assert started.wait() == 1, started.said
    assert bench.view(JOB).attempt == 2
    assert started.said.count("restart 1 in") == 1
    assert "restart 2 in" not in started.said


def runs(bench: Bench, job: Skewed, attempt: int) -> bool:
    return bench.view(JOB).attempt == attempt and any(one.attempt == attempt for one in job.manifests())


# ---- word that cannot be used --------------------------------------------------------------------------------------


def test_C20_a_reader_that_raises_when_it_hears_of_a_checkpoint_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = []

    def raises(_: RotatingReader, splits: Sequence[SplitState]) -> None:
        heard.append(splits)
        raise ValueError("no tool listens")

    monkeypatch.setattr(RotatingReader, "notify_checkpoint_complete", raises)
    job = Totals(tmp_path, "fs")
    job.feed(USERS)
    job.run_totals(2, 4)
    assert len(heard) >= 3
    assert "a reader could not use that checkpoint" in caplog.text
    job.assert_right()
    assert view_log(job.store.read_log()).attempt == 1


@pytest.mark.parametrize("patience", [60.0, 0.0])
def test_C20_a_commit_that_raises_is_asked_for_again_and_then_the_attempt_fails_and_the_next_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """What it raises is of no kind that the engine knows. The job goes on only when the commit is done."""
    failures = 0
    commit = LocalSinkWriter.commit

    def raises(*arguments: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise ZeroDivisionError("who knows")
        return commit(*arguments)

    monkeypatch.setattr(LocalSinkWriter, "commit", raises)
    monkeypatch.setattr(transactions, "COMMIT_PATIENCE", patience)
    job = Totals(tmp_path, "fs")
    job.feed(USERS)
    job.run_totals(2, 3)
    assert failures > 2
    job.assert_right()
    assert (view_log(job.store.read_log()).attempt > 1) is (patience == 0.0)
    assert len(job.output(Total)) == len(job.fed)


def test_C17_a_checkpoint_of_two_attempts_would_be_noticed(tmp_path: Path) -> None:
    job = Totals(tmp_path, "fs", retained=50)
    for _ in range(2):
        job.feed(200)
        job.run_totals(2, 2)
    entries = [entry for entry in job.store.read_log() if isinstance(entry, Entry)]
    assert mixed(entries) == []
    first, *_, last = (entry for entry in entries if isinstance(entry.body, Completed))
    place = entries.index(last)
    wrong = msgspec.structs.replace(last, body=first.body)
    assert mixed([*entries[:place], wrong, *entries[place + 1 :]]) == [f"position {last.position}: [1, 2] in 2"]
