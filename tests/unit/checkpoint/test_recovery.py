"""What is done with transactions before anything is deployed: look, commit, abort, in this order, and again."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.records import INSTANCE, manifest
from tidegate.checkpoint import recovery as r
from tidegate.checkpoint.manifest import Manifest, SinkRecord, SinkTarget
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    Committable,
    Committed,
    Lost,
    Outcome,
    PendingTransaction,
    RecoverySpec,
    Retry,
    Unknown,
)
from tidegate.checkpoint.recovery import PATIENCE, Recovery, RecoveryPlan, named_by
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, LogInstance, OperatorName, SubtaskIndex, TransactionalId

THEN = SinkTarget(
    OperatorName("write"), SinkRecord("app", RecoverySpec("module:function", {"servers": "localhost:9092"}))
)
"""As the manifest of `records` has it."""
NOW = SinkTarget(OperatorName("write"), SinkRecord("renamed", RecoverySpec("module:function", {"servers": "new"})))
ZERO = Now(0.0, 0.0)
UNAVAILABLE = Failure(ErrorKind.UNAVAILABLE, "no answer")


def id_of(
    attempt: int, slot: int = 0, instance: str = INSTANCE, prefix: str = "app", subtask: int = 0
) -> TransactionalId:
    return TransactionalId(
        prefix, LogInstance(instance), Attempt(attempt), OperatorName("write"), SubtaskIndex(subtask), slot
    )


def plan(
    found: Manifest | None = None,
    sinks: Iterable[SinkTarget] = (THEN,),
    attempt: int = 3,
    settled: bool = False,
    fresh: bool = False,
    accept_lost: bool = False,
) -> RecoveryPlan:
    return RecoveryPlan(INSTANCE, Attempt(attempt), tuple(sinks), found, settled, fresh, accept_lost)


def naming(*pending: tuple[int, TransactionalId]) -> Manifest:
    """A checkpoint that names these, each with the checkpoint at whose barrier it was prepared."""
    before = manifest(7, 2)
    prepared = tuple(PendingTransaction(CheckpointId(n), Committable(str(id))) for n, id in pending)
    sink = before.operators[2]
    subtask = sink.subtasks[0]
    snapshot = msgspec.structs.replace(subtask.snapshot, pending=prepared)
    sink = msgspec.structs.replace(sink, subtasks=(msgspec.structs.replace(subtask, snapshot=snapshot),))
    return msgspec.structs.replace(before, operators=(*before.operators[:2], sink))


def carry_out(
    wanted: RecoveryPlan, open_ids: Iterable[TransactionalId] = (), outcome: Outcome | None = None
) -> tuple[list[str], r.Command]:
    """What is done to which ids, with a world that answers; and how it ends."""
    there = list(open_ids)
    recovery = Recovery(wanted)
    [command] = recovery.handle(r.Begin(), ZERO)
    done: list[str] = []
    while isinstance(command, r.ListOpen | r.Commit | r.Abort):
        match command:
            case r.ListOpen(target):
                done.append(f"list {target.record.prefix}")
                listed = tuple(id for id in there if (id.prefix, id.sink) == (target.record.prefix, target.sink))
                [command] = recovery.handle(r.Listed(target, listed), ZERO)
            case r.Commit(_, committable, permit):
                assert wanted.manifest is not None
                assert permit.checkpoint == wanted.manifest.checkpoint
                done.append(f"commit {committable.id}")
                there = [id for id in there if str(id) != committable.id]
                [command] = recovery.handle(r.CommitAnswered(committable, outcome or Committed()), ZERO)
            case r.Abort(_, id):
                done.append(f"abort {id}")
                there.remove(id)
                [command] = recovery.handle(r.Aborted(id), ZERO)
    return done, command


def test_without_sinks_there_is_nothing_to_do() -> None:
    assert carry_out(plan(sinks=())) == ([], r.Done(0, 0, ()))


def test_it_looks_commits_in_order_and_only_then_aborts() -> None:
    second, first, stray = id_of(2, 1), id_of(2, 4), id_of(2, 2)
    done, end = carry_out(plan(naming((7, second), (6, first))), [stray, second, first])
    assert done == ["list app", f"commit {first}", f"commit {second}", "list app", f"abort {stray}"]
    assert end == r.Done(2, 1, ())


def test_what_is_open_in_another_log_stops_the_job_before_anything_is_touched() -> None:
    foreign = id_of(1, instance="other")
    done, end = carry_out(plan(naming((7, id_of(2)))), [foreign, id_of(2)])
    assert done == ["list app"]
    assert isinstance(end, r.Failed)
    assert (end.failure.kind, end.failure.exit_code) == (ErrorKind.UNKNOWN_OUTCOME, 3)
    assert str(foreign) in end.failure.message
    assert "--checkpoint-dir" in end.failure.remedy


def test_one_that_appears_in_another_log_while_committing_stops_it_too() -> None:
    recovery = Recovery(plan())
    recovery.handle(r.Begin(), ZERO)
    recovery.handle(r.Listed(THEN, ()), ZERO)
    [failed] = recovery.handle(r.Listed(THEN, (id_of(1, instance="other"),)), ZERO)
    assert isinstance(failed, r.Failed)


def test_a_fresh_start_aborts_what_other_logs_and_earlier_attempts_left_open() -> None:
    foreign, later_there, own, present = id_of(1, instance="other"), id_of(9, instance="other"), id_of(2), id_of(3)
    done, end = carry_out(plan(fresh=True), [foreign, later_there, own, present])
    assert done == ["list app", "list app", *(f"abort {id}" for id in (foreign, later_there, own))]
    assert end == r.Done(0, 3, ())


def test_ids_of_this_and_of_later_attempts_are_never_aborted() -> None:
    done, _ = carry_out(plan(attempt=3), [id_of(2), id_of(3), id_of(4)])
    assert done == ["list app", "list app", f"abort {id_of(2)}"]


@pytest.mark.parametrize("is_sweep", [False, True])
def test_an_id_that_the_checkpoint_names_is_never_aborted_even_when_something_is_open_under_it(is_sweep: bool) -> None:
    """A sweep takes all commits for done: they are reported. Nothing in the log says so yet."""
    named = id_of(2)
    wanted = plan(naming((7, named)), settled=is_sweep)
    recovery = Recovery(msgspec.structs.replace(wanted, is_sweep=is_sweep))
    [command] = recovery.handle(r.Begin(), ZERO)
    for _ in range(3):
        match command:
            case r.ListOpen(target):
                [command] = recovery.handle(r.Listed(target, (named,)), ZERO)
            case r.Commit(_, committable):
                [command] = recovery.handle(r.CommitAnswered(committable, AlreadyCommitted()), ZERO)
    assert isinstance(command, r.Done)
    assert command.aborted == 0


def test_leftovers_of_subtasks_that_no_longer_exist_are_aborted() -> None:
    gone = id_of(1, subtask=70)
    assert f"abort {gone}" in carry_out(plan(), [gone])[0]


def test_a_sink_that_the_program_no_longer_has_is_committed_and_cleaned_up_by_the_manifests_words() -> None:
    named, stray = id_of(2), id_of(2, 1)
    done, _ = carry_out(plan(naming((7, named)), sinks=()), [named, stray])
    assert done == ["list app", f"commit {named}", "list app", f"abort {stray}"]


def test_leftovers_are_looked_for_under_the_prefix_of_then_and_of_now() -> None:
    old, new = id_of(2, 1), id_of(1, prefix="renamed")
    done, _ = carry_out(plan(naming((7, id_of(2))), sinks=(NOW,)), [old, new])
    assert done[:2] == ["list renamed", "list app"]
    assert done[-4:] == ["list renamed", f"abort {new}", "list app", f"abort {old}"]


def test_a_settled_checkpoints_commits_are_skipped_and_leftovers_are_not() -> None:
    stray = id_of(2, 1)
    done, _ = carry_out(plan(naming((7, id_of(2))), settled=True), [stray])
    assert done == ["list app", "list app", f"abort {stray}"]


def test_what_is_open_under_an_id_of_a_settled_checkpoint_is_a_later_use_of_it_and_is_aborted() -> None:
    """An operator went back to a checkpoint behind which its slot had been used again. Left open, the later use would
    hold back every reader until it times out."""
    used_again = id_of(2)
    done, end = carry_out(plan(naming((7, used_again)), settled=True), [used_again])
    assert done == ["list app", "list app", f"abort {used_again}"]
    assert end == r.Done(0, 1, ())


def test_sinks_are_asked_for_their_timeout_before_anything_is_touched_and_old_ones_are_not() -> None:
    gone = SinkTarget(OperatorName("gone"), NOW.record)
    recovery = Recovery(msgspec.structs.replace(plan(naming((7, id_of(2))), sinks=(NOW, gone)), needed_timeout=80.0))
    assert recovery.handle(r.Begin(), ZERO) == [r.CheckTimeout(NOW, 80.0)]
    assert recovery.handle(r.TimeoutChecked(NOW), ZERO) == [r.CheckTimeout(gone, 80.0)]
    assert recovery.handle(r.TimeoutChecked(gone), ZERO) == [r.ListOpen(NOW)]


def test_a_timeout_that_is_too_short_stops_the_job_with_nothing_touched() -> None:
    recovery = Recovery(msgspec.structs.replace(plan(naming((7, id_of(2)))), needed_timeout=80.0))
    recovery.handle(r.Begin(), ZERO)
    refused = Failure(ErrorKind.INVALID, "too short")
    assert recovery.handle(r.NoAnswer(refused), ZERO) == [r.Failed(refused)]


def test_a_second_recovery_after_the_first_died_does_the_same_again_with_success() -> None:
    named = id_of(2)
    assert carry_out(plan(naming((7, named))), [], AlreadyCommitted())[1] == r.Done(1, 0, ())


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Lost("aborted"), ErrorKind.LOST), (Unknown("expired"), ErrorKind.UNKNOWN_OUTCOME)]
)
def test_a_lost_or_unknown_transaction_stops_the_job_and_nothing_is_aborted(outcome: Outcome, kind: ErrorKind) -> None:
    done, end = carry_out(plan(naming((7, id_of(2)))), [id_of(2, 1)], outcome)
    assert done == ["list app", f"commit {id_of(2)}"]
    assert isinstance(end, r.Failed)
    assert (end.failure.kind, end.failure.exit_code, end.failure.transaction) == (kind, 3, str(id_of(2)))


@pytest.mark.parametrize("outcome", [Lost("aborted"), Unknown("expired")])
def test_accepted_losses_are_named_and_the_rest_is_done(outcome: Outcome) -> None:
    stray = id_of(2, 1)
    done, end = carry_out(plan(naming((7, id_of(2))), accept_lost=True), [stray], outcome)
    assert done[-1] == f"abort {stray}"
    assert isinstance(end, r.Done)
    assert end.committed == 0
    assert [failure.transaction for failure in end.given_up] == [str(id_of(2))]


def test_what_does_not_answer_is_asked_again_with_the_same_command_until_patience_ends() -> None:
    recovery = Recovery(plan(naming((7, id_of(2)))))
    [listing] = recovery.handle(r.Begin(), ZERO)
    assert recovery.handle(r.NoAnswer(UNAVAILABLE), ZERO) == [r.WakeAt(0.05)]
    assert recovery.handle(r.Wake(), Now(0.04, 0.0)) == []
    assert recovery.handle(r.Wake(), Now(0.05, 0.0)) == [listing]
    assert recovery.handle(r.Wake(), Now(0.06, 0.0)) == []
    assert recovery.handle(r.NoAnswer(UNAVAILABLE), Now(PATIENCE - 1, 0.0)) == [r.WakeAt(PATIENCE + 1)]
    recovery.handle(r.Wake(), Now(PATIENCE + 1, 0.0))
    assert recovery.handle(r.NoAnswer(UNAVAILABLE), Now(PATIENCE + 1, 0.0)) == [r.Failed(UNAVAILABLE)]


def test_an_answer_restores_patience() -> None:
    recovery = Recovery(plan(naming((7, id_of(2)))))
    recovery.handle(r.Begin(), ZERO)
    recovery.handle(r.NoAnswer(UNAVAILABLE), ZERO)
    [commit] = recovery.handle(r.Listed(THEN, ()), Now(PATIENCE - 1, 0.0))
    assert isinstance(commit, r.Commit)
    retry = r.CommitAnswered(commit.committable, Retry("busy"))
    assert recovery.handle(retry, Now(PATIENCE + 1, 0.0)) == [r.WakeAt(PATIENCE + 1.05)]
    assert recovery.handle(r.Wake(), Now(PATIENCE + 2, 0.0)) == [commit]


def test_what_asking_again_cannot_mend_fails_at_once() -> None:
    recovery = Recovery(plan())
    recovery.handle(r.Begin(), ZERO)
    failure = Failure(ErrorKind.INVALID, "no such servers")
    assert recovery.handle(r.NoAnswer(failure), ZERO) == [r.Failed(failure)]


def test_a_checkpoint_names_all_that_was_pending_at_its_barrier() -> None:
    assert named_by(naming((6, id_of(2)), (7, id_of(2, 1)))) == {str(id_of(2)), str(id_of(2, 1))}
    assert named_by(None) == frozenset()


ids = st.builds(
    id_of,
    attempt=st.integers(1, 5),
    slot=st.integers(0, 2),
    instance=st.sampled_from([INSTANCE, "other"]),
    subtask=st.integers(0, 2),
)


@given(
    open_ids=st.lists(ids, unique=True),
    named=st.lists(ids, unique=True, max_size=3),
    fresh=st.booleans(),
    settled=st.booleans(),
)
def test_whatever_is_open_nothing_named_and_nothing_of_this_or_a_later_attempt_is_aborted(
    open_ids: list[TransactionalId], named: list[TransactionalId], fresh: bool, settled: bool
) -> None:
    found = naming(*((7, id) for id in named)) if named else None
    done, end = carry_out(plan(found, fresh=fresh, settled=settled), open_ids)
    aborted = {line.removeprefix("abort ") for line in done if line.startswith("abort")}
    spared = set() if settled else {str(id) for id in named}
    assert not aborted & spared
    assert not aborted & {str(id) for id in open_ids if id.instance == INSTANCE and id.attempt >= 3}
    if isinstance(end, r.Failed):
        assert not aborted
        assert not fresh
        assert any(id.instance != INSTANCE for id in open_ids)
    else:
        doomed = {str(id) for id in open_ids if id.attempt < 3 or id.instance != INSTANCE}
        assert aborted == doomed - spared
