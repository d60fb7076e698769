"""One attempt: tasks are deployed after recovery, splits are handed out, checkpoints begin when everything is known."""

import msgspec
import pytest

from tests.unit.scheduling.manifests import INSTANCE, handle, manifest
from tests.unit.scheduling.programs import READ, TOTALS, WRITE, Splits, graph, job_settings, physical, task
from tidegate.checkpoint import coordinator as c
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointAbandoned,
    CheckpointCompleted,
    Decline,
    OperatorSnapshot,
    SplitState,
    TriggerCheckpoint,
)
from tidegate.checkpoint.recovery import PATIENCE
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.graph.logical import Fingerprint
from tidegate.ids import Attempt, CheckpointId, WorkerIndex
from tidegate.runtime.control import (
    AssignSplits,
    Deploy,
    TaskEnded,
    TaskFailed,
    TaskRunning,
    ToWorker,
    WorkerMetrics,
    WorkerReady,
)
from tidegate.scheduling.deployment import AllTasksRun, AttemptFailed, Deployment, Outcome, sink_targets
from tidegate.scheduling.protocol import Discover, SendToWorker, Tell, WakeAt

ATTEMPT = Attempt(2)
ZERO = Now(0.0, 0.0)
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "no answer")
TASKS = [task(vertex, i) for i in range(2) for vertex in (READ, TOTALS)]


class Attempted:
    """A deployment with short words for what happens to it."""

    def __init__(self, source: Splits) -> None:
        self.graph = graph(source)
        self.deployment = Deployment(
            self.graph, physical(self.graph), job_settings(), INSTANCE, ATTEMPT, self.graph.fingerprint()
        )

    def ready(self, worker: int) -> list[Outcome]:
        message = WorkerReady(WorkerIndex(worker), ATTEMPT, self.graph.fingerprint(), f"data-{worker}")
        return self.deployment.received(WorkerIndex(worker), message, ZERO)

    def received(self, message: object, now: Now = ZERO) -> list[Outcome]:
        return self.deployment.received(WorkerIndex(0), message, now)  # type: ignore[arg-type]

    def deployed(self, restored: Manifest | None = None) -> "Attempted":
        self.ready(0)
        self.ready(1)
        self.deployment.recovered(restored, CheckpointId(5))
        return self

    def running(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for each in TASKS:
            outcomes += self.received(TaskRunning(each))
        return outcomes

    def found(self, *ids: str, now: Now = ZERO) -> list[Outcome]:
        return self.deployment.discovered(READ, [SplitState(id, 0, 9) for id in ids], now)


def attempted(bounded: bool = True, discovery_interval: float | None = None) -> Attempted:
    return Attempted(Splits(bounded, discovery_interval))


def to(worker: int, message: ToWorker) -> SendToWorker:
    return SendToWorker(ATTEMPT, WorkerIndex(worker), message)


def test_tasks_are_deployed_only_when_recovery_is_done_and_every_worker_is_ready_in_either_order() -> None:
    first, second = attempted(), attempted()
    assert first.ready(0) == first.ready(1) == []
    early = first.deployment.recovered(None, CheckpointId(5))
    assert second.deployment.recovered(None, CheckpointId(5)) == []
    assert second.ready(0) == []
    late = second.ready(1)
    assert early == late
    assert [(o.worker, type(o.message)) for o in early if isinstance(o, SendToWorker)] == [(0, Deploy), (1, Deploy)]


def test_what_is_deployed_carries_identity_peers_and_the_restored_state_of_the_worker() -> None:
    found = attempted()
    found.ready(1)
    found.ready(0)
    restored = manifest(5, handles=[handle(0, 3, "low"), handle(4, 7, "high")])
    [zero, one] = found.deployment.recovered(restored, CheckpointId(6))
    for sent, path in ((zero, "low"), (one, "high")):
        assert isinstance(sent, SendToWorker)
        assert isinstance(sent.message, Deploy)
        message = sent.message
        assert (message.attempt, message.instance, message.peers) == (ATTEMPT, INSTANCE, ("data-0", "data-1"))
        assert message.last_checkpoint == 6
        assert [h.path for r in message.restored for s in r.snapshots for h in s.handles] == [path]


def test_a_worker_that_built_another_graph_ends_the_attempt_and_shows_the_difference() -> None:
    found = attempted()
    lines = (*found.graph.fingerprint().lines[:-1], "sink elsewhere")
    message = WorkerReady(WorkerIndex(0), ATTEMPT, Fingerprint("other", lines), "data-0")
    [failed] = found.received(message)
    assert isinstance(failed, AttemptFailed)
    assert (failed.failure.kind, failed.failure.exit_code) == (ErrorKind.INVALID, 2)
    assert "JobManager: sink write" in failed.failure.message
    assert "worker:     sink elsewhere" in failed.failure.message


def test_splits_are_looked_for_when_all_tasks_run_and_checkpoints_begin_when_they_are_found() -> None:
    found = attempted().deployed()
    assert found.running() == [Discover(ATTEMPT, READ, None), WakeAt(3.0), AllTasksRun()]
    outcomes = found.found("a", "b", "c")
    assert outcomes == [
        to(0, AssignSplits(READ, task(READ, 0), (SplitState("a", 0, 9), SplitState("c", 0, 9)), True)),
        to(1, AssignSplits(READ, task(READ, 1), (SplitState("b", 0, 9),), True)),
        WakeAt(10.0),
    ]


def test_a_restored_bounded_source_gets_its_splits_without_a_look_and_checkpoints_begin() -> None:
    restored = manifest(5, splits=[SplitState("a", 4, 9)], unassigned=[SplitState("b", 2, 9)])
    outcomes = attempted().deployed(restored).running()
    assert outcomes == [
        to(0, AssignSplits(READ, task(READ, 0), (SplitState("a", 4, 9),), True)),
        to(1, AssignSplits(READ, task(READ, 1), (SplitState("b", 2, 9),), True)),
        WakeAt(c.FIRST_INTERVAL),
        AllTasksRun(),
    ]


def test_a_task_that_reports_twice_does_not_stand_for_another() -> None:
    found = attempted().deployed()
    for _ in range(4):
        assert found.received(TaskRunning(TASKS[0])) == []
    assert found.running()[-1] == AllTasksRun()
    assert found.running() == []


def test_a_source_that_does_not_answer_before_its_first_splits_is_asked_again_and_fails_the_attempt_in_the_end() -> (
    None
):
    found = attempted().deployed()
    found.running()
    for seconds in range(int(PATIENCE)):
        now = Now(float(seconds), 0.0)
        assert found.deployment.discovery_failed(READ, UNAVAILABLE, now) == [WakeAt(seconds + 1.0)]
        assert Discover(ATTEMPT, READ, None) in found.deployment.wake(Now(seconds + 1.0, 0.0))
    placed = msgspec.structs.replace(UNAVAILABLE, where=f"operator {READ}, attempt {ATTEMPT}")
    assert found.deployment.discovery_failed(READ, UNAVAILABLE, Now(PATIENCE, 0.0)) == [AttemptFailed(placed)]


def test_a_source_that_refuses_fails_the_attempt_at_once() -> None:
    found = attempted().deployed()
    found.running()
    [failed] = found.deployment.discovery_failed(READ, Failure(ErrorKind.INVALID, "no such topic"), ZERO)
    assert isinstance(failed, AttemptFailed)
    assert (failed.failure.exit_code, failed.failure.where) == (2, f"operator {READ}, attempt {ATTEMPT}")


def test_waiting_for_a_source_is_told_after_some_seconds_and_then_now_and_again_until_it_answers() -> None:
    found = attempted().deployed()
    found.running()
    assert found.deployment.wake(Now(2.9, 0.0)) == []
    told, again = found.deployment.wake(Now(3.0, 0.0))
    assert told == Tell("warning", f"waiting for 3 s for the splits of source {READ}: no answer yet")
    assert again == WakeAt(13.0)
    found.deployment.discovery_failed(READ, UNAVAILABLE, Now(12.0, 0.0))
    told = found.deployment.wake(Now(13.0, 0.0))[0]
    assert told == Tell("warning", f"waiting for 13 s for the splits of source {READ}: no answer")
    found.found("a", now=Now(20.0, 0.0))
    assert not any(isinstance(outcome, Tell) for outcome in found.deployment.wake(Now(40.0, 0.0)))


def test_an_endless_source_is_looked_at_again_and_a_failed_look_only_warns() -> None:
    found = attempted(bounded=False, discovery_interval=30.0).deployed()
    found.running()
    assert WakeAt(30.0) in found.found("a")
    assert Discover(ATTEMPT, READ, frozenset("a")) not in found.deployment.wake(Now(29.9, 0.0))
    assert Discover(ATTEMPT, READ, frozenset("a")) in found.deployment.wake(Now(30.0, 0.0))
    told, again = found.deployment.discovery_failed(READ, UNAVAILABLE, Now(31.0, 0.0))
    assert isinstance(told, Tell)
    assert again == WakeAt(61.0)
    broken = Failure(ErrorKind.INVALID, "no such topic", where="the source's own words")
    assert found.deployment.discovery_failed(READ, broken, ZERO) == [AttemptFailed(broken)]


def test_a_split_found_later_goes_to_the_reader_with_the_fewest() -> None:
    found = attempted(bounded=False, discovery_interval=30.0).deployed()
    found.running()
    found.found("a")
    outcomes = found.found("a", "b", now=Now(30.0, 0.0))
    assert outcomes[0] == to(1, AssignSplits(READ, task(READ, 1), (SplitState("b", 0, 9),), False))


# ---- beginning at the end ------------------------------------------------------------------------------------------

AT_THE_END = Splits(starts_at_end=True)


def acknowledged(found: Attempted, checkpoint: int, *splits: SplitState) -> list[Outcome]:
    """By every task; reader 0 has `splits`."""
    outcomes: list[Outcome] = []
    for each in TASKS:
        names = (READ,) if str(each.vertex) == READ else (TOTALS, WRITE)
        has = splits if each == TASKS[0] else ()
        snapshots = tuple(OperatorSnapshot(name, splits=has if name == READ else ()) for name in names)
        outcomes += found.received(Acknowledge(ATTEMPT, CheckpointId(checkpoint), each, snapshots))
    return outcomes


def assignments(outcomes: list[Outcome]) -> list[AssignSplits]:
    messages = [outcome.message for outcome in outcomes if isinstance(outcome, SendToWorker)]
    return [message for message in messages if isinstance(message, AssignSplits)]


def test_S05_a_source_that_begins_at_its_end_is_read_only_when_a_checkpoint_has_where_it_begins() -> None:
    """Otherwise the next attempt would begin at a later end."""
    found = Attempted(AT_THE_END).deployed()
    found.running()
    outcomes = found.found("a", "b")
    assert assignments(outcomes) == []
    assert to(0, TriggerCheckpoint(CheckpointId(6))) in outcomes
    [append] = acknowledged(found, 6)
    assert isinstance(append, c.AppendManifest)
    record = append.manifest.operator(READ)
    assert record is not None
    assert {split.id: split.position for split in record.splits} == {"a": 0, "b": 0}
    completed = found.deployment.coordinate(c.AppendWon(), ZERO)
    assert [split.id for sent in assignments(completed) for split in sent.splits] == ["a", "b"]
    again = Attempted(AT_THE_END).deployed(append.manifest)
    again.running()
    assert [split.id for sent in assignments(again.found("a", "b")) for split in sent.splits] == ["a", "b"]


def test_S05_that_checkpoint_is_tried_again_when_it_fails_and_nothing_is_read_before() -> None:
    found = Attempted(AT_THE_END).deployed()
    found.running()
    found.found("a")
    refused = found.received(Decline(ATTEMPT, CheckpointId(6), TASKS[0], "disk full"), Now(1.0, 0.0))
    assert assignments(refused) == []
    assert to(0, TriggerCheckpoint(CheckpointId(7))) in found.deployment.wake(Now(2.0, 0.0))
    acknowledged(found, 7)
    completed = found.deployment.coordinate(c.AppendWon(), ZERO)
    assert [split.id for sent in assignments(completed) for split in sent.splits] == ["a"]


def test_S05_inputs_that_are_ended_before_that_checkpoint_are_not_begun_by_it() -> None:
    found = Attempted(AT_THE_END).deployed()
    found.running()
    found.found("a")
    found.deployment.drain(ZERO)
    acknowledged(found, 6)
    assert assignments(found.deployment.coordinate(c.AppendWon(), ZERO)) == []


def checkpointing() -> Attempted:
    """With checkpoint 6 triggered."""
    found = attempted().deployed()
    found.running()
    found.found("a")
    outcomes = found.deployment.wake(Now(10.0, 0.0))
    assert outcomes == [
        to(0, TriggerCheckpoint(CheckpointId(6))),
        to(1, TriggerCheckpoint(CheckpointId(6))),
        WakeAt(70.0),
    ]
    return found


def test_barriers_are_asked_for_at_the_sources_and_completion_is_told_to_all() -> None:
    found = checkpointing()
    outcomes: list[Outcome] = []
    for each in TASKS:
        names = (READ,) if str(each.vertex) == READ else (TOTALS, WRITE)
        snapshots = tuple(OperatorSnapshot(name) for name in names)
        outcomes += found.received(Acknowledge(ATTEMPT, CheckpointId(6), each, snapshots))
    [append] = outcomes
    assert isinstance(append, c.AppendManifest)
    sink = append.manifest.operator(WRITE)
    assert sink is not None
    assert (sink.sink, sink.parallelism) == (sink_targets(found.graph)[0].record, 2)
    completed = CheckpointCompleted(ATTEMPT, CheckpointId(6))
    assert found.deployment.coordinate(c.AppendWon(), ZERO)[:2] == [to(0, completed), to(1, completed)]
    assert not found.deployment.is_settled


def test_an_abandoned_checkpoint_is_told_to_all_and_to_the_person_who_watches() -> None:
    found = checkpointing()
    told, *sent = found.received(Decline(ATTEMPT, CheckpointId(6), TASKS[0], "disk full"), Now(11.0, 0.0))
    assert isinstance(told, Tell)
    assert "disk full" in told.text
    assert sent[:2] == [to(0, CheckpointAbandoned(CheckpointId(6))), to(1, CheckpointAbandoned(CheckpointId(6)))]
    assert found.deployment.highest_checkpoint == 6


def test_input_that_ends_everywhere_brings_the_last_checkpoint_at_once() -> None:
    found = attempted().deployed()
    found.running()
    found.found("a")
    for each in TASKS[:-1]:
        assert found.received(TaskEnded(each)) == found.received(TaskEnded(each)) == []
    assert found.received(TaskEnded(TASKS[-1]))[0] == to(0, TriggerCheckpoint(CheckpointId(6)))


@pytest.mark.parametrize("kind", [ErrorKind.USER_CODE, ErrorKind.LOST])
def test_a_failed_task_ends_the_attempt_with_its_failure(kind: ErrorKind) -> None:
    failure = Failure(kind, "it broke")
    assert attempted().deployed().received(TaskFailed(TASKS[0], failure)) == [AttemptFailed(failure)]


def test_messages_before_anything_is_deployed_do_nothing() -> None:
    found = attempted()
    assert found.received(Decline(ATTEMPT, CheckpointId(1), TASKS[0], "late")) == []
    assert found.received(WorkerMetrics(())) == []
    assert found.deployment.is_settled
    assert found.deployment.highest_checkpoint == 0
