"""A JobManager's recoveries: the checks of a start, and what is told while a sink's system does not answer."""

import msgspec

from tests.unit.scheduling.manifests import manifest
from tests.unit.scheduling.programs import JOB, SPEC, WRITE, graph, job_settings
from tidegate.checkpoint import recovery
from tidegate.checkpoint.manifest import SinkRecord, SinkTarget
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, JobName, LogInstance, SubtaskIndex, TransactionalId
from tidegate.scheduling.deployment import sink_targets
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.protocol import Recover, Tell, WakeAt
from tidegate.scheduling.recovery_run import RecoveryRun

TARGETS = sink_targets(graph())
LEDGER = Ledger((), JobName("orders"), "nonce", LogInstance("i0"))
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "connection refused")
LIST = recovery.ListOpen(TARGETS[0])


def at(seconds: float) -> Now:
    return Now(seconds, 0.0)


def run(needed_timeout: float | None = None) -> RecoveryRun:
    return RecoveryRun(JOB, TARGETS, msgspec.structs.replace(job_settings(), needed_timeout=needed_timeout))


def test_a_start_checks_timeouts_and_neither_a_sweep_nor_the_last_clean_up_does() -> None:
    first = run(90.0).before_deploying(LEDGER, None, Attempt(1), at(0.0))
    assert first == [Recover(Attempt(1), 1, recovery.CheckTimeout(TARGETS[0], 90.0)), WakeAt(3.0)]
    for begun in (
        run(90.0).sweep(LEDGER, Attempt(2), Attempt(2), at(0.0)),
        run(90.0).as_the_next(LEDGER, Attempt(1), Attempt(2), at(0.0)),
    ):
        assert begun[0] == Recover(Attempt(2), 1, LIST)


def test_a_system_that_does_not_answer_at_all_is_told() -> None:
    found = run()
    found.before_deploying(LEDGER, None, Attempt(1), at(0.0))
    assert found.wake(at(2.9)) == []
    told, again = found.wake(at(3.0))
    assert isinstance(told, Tell)
    assert told.level == "warning"
    assert f"the external system, for sink {WRITE} (the list of open transactions)" in told.text
    assert told.text.endswith("no answer yet")
    assert again == WakeAt(13.0)


def test_asking_again_is_the_same_wait_and_its_last_reason_is_told() -> None:
    found = run()
    found.before_deploying(LEDGER, None, Attempt(1), at(0.0))
    seconds, told = 0.0, []
    while seconds < 25.0:
        found.answered(1, recovery.NoAnswer(UNAVAILABLE), at(seconds))
        seconds += 2.5
        told += [outcome for outcome in found.wake(at(seconds)) if isinstance(outcome, Tell)]
    assert [text.text.split(" s ")[0] for text in told] == ["waiting for 5", "waiting for 15", "waiting for 25"]
    assert all(text.text.endswith("connection refused") for text in told)


def test_each_step_is_a_wait_of_its_own_and_the_end_ends_it() -> None:
    found = run(90.0)
    found.before_deploying(LEDGER, None, Attempt(1), at(0.0))
    found.wake(at(5.0))
    found.answered(1, recovery.TimeoutChecked(TARGETS[0]), at(6.0))
    assert found.wake(at(8.9)) == []
    assert found.wake(at(9.0)) != []
    for _ in range(2):
        found.answered(1, recovery.Listed(TARGETS[0], ()), at(10.0))
    assert not found.is_under_way
    assert found.wake(at(60.0)) == []


def test_how_far_the_end_of_very_many_transactions_is_is_told_now_and_then() -> None:
    found = run()
    found.before_deploying(LEDGER, None, Attempt(2), at(0.0))
    found.answered(1, recovery.Listed(TARGETS[0], ()), at(0.0))
    ids = tuple(TransactionalId(JOB, LEDGER.instance, Attempt(1), WRITE, SubtaskIndex(i), 0) for i in range(500))
    found.answered(1, recovery.Listed(TARGETS[0], ids), at(0.0))
    told = [
        (number, outcome.text)
        for number, id in enumerate(ids)
        for outcome in found.answered(1, recovery.Aborted(id), at(0.035 * number))
        if isinstance(outcome, Tell)
    ]
    assert told == [
        (86, "recovery has ended 87 transactions and knows of 413 more"),
        (372, "recovery has ended 373 transactions and knows of 127 more"),
    ]


def test_a_dropped_recovery_is_not_waited_for() -> None:
    found = run()
    found.before_deploying(LEDGER, None, Attempt(1), at(0.0))
    found.drop()
    assert found.wake(at(60.0)) == []


def test_a_start_from_a_savepoint_looks_after_the_sinks_and_prefixes_of_then_too() -> None:
    """Under another prefix since: what earlier attempts left open under the old one holds readers back all the same."""
    [source, totals, sink] = manifest(5).operators
    then = SinkTarget(WRITE, SinkRecord("old-prefix", SPEC))
    savepoint = msgspec.structs.replace(
        manifest(5), operators=(source, totals, msgspec.structs.replace(sink, sink=then.record))
    )
    found = run()
    asked = [*found.before_deploying(LEDGER, savepoint, Attempt(2), at(0.0))]
    targets: list[SinkTarget] = []
    while isinstance(asked[0], Recover) and isinstance(asked[0].step, recovery.ListOpen):
        targets.append(asked[0].step.target)
        asked = [*found.answered(1, recovery.Listed(asked[0].step.target, ()), at(0.0))]
    assert targets == [TARGETS[0], then] * 2
    assert asked == [recovery.Done(0, 0, ())]


def test_the_sinks_of_a_savepoint_of_another_job_are_that_jobs() -> None:
    other = msgspec.structs.replace(manifest(5), job=JobName("another"))
    asked = run().before_deploying(LEDGER, other, Attempt(2), at(0.0))
    assert asked[0] == Recover(Attempt(2), 1, LIST)
