"""Random runs of a job in a simulated world: whatever fails, each record is put out once, and the job ends.

The checks are in `world` and `outside`; each deliberate mistake at the end of this file is noticed by them.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.scheduling.programs import WRITE
from tests.unit.scheduling.runs import run
from tests.unit.scheduling.world import RECORDS, SPLITS, World
from tidegate.checkpoint import coordinator, recovery, transactions
from tidegate.checkpoint.coordinator import Coordinator
from tidegate.checkpoint.log import LogView
from tidegate.checkpoint.manifest import files_of
from tidegate.checkpoint.participant import Participant
from tidegate.checkpoint.protocol import Committable
from tidegate.checkpoint.recovery import Recovery
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.ids import CheckpointId, TransactionalId
from tidegate.scheduling import beginning
from tidegate.scheduling import protocol as p
from tidegate.scheduling.enumerator import SplitEnumerator
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.ledger import Ledger, manifests_in
from tidegate.scheduling.opening import FROM_SAVEPOINT

SEEDS = 300
EXPECTED = [(split, position) for split in SPLITS for position in range(RECORDS)]


def check_output(world: World) -> None:
    assert sorted(world.outside.output) == EXPECTED
    for split in SPLITS:
        positions = [position for name, position in world.outside.output if name == split]
        assert positions == sorted(positions), "the order within a split is kept"
    assert world.outside.list_open("orders", WRITE) == (), "nothing is left that holds readers back"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_each_record_is_put_out_once_and_the_job_ends(seed: int) -> None:
    check_output(run(seed))


def test_a_run_is_repeated_by_its_seed() -> None:
    first, second = run(3), run(3)
    assert first.outside.entries == second.outside.entries
    assert first.outside.output == second.outside.output


# ---- deliberate mistakes -------------------------------------------------------------------------------------------

Mistake = Callable[[pytest.MonkeyPatch], None]


def _commits_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "_committed", lambda self, event, now: [])
    original = Coordinator._completed

    def completed(self: Coordinator, now: Any) -> list[Any]:
        commands = original(self, now)
        self._uncommitted = set()
        return [*commands, *(self._settle(now) if self._phase is not coordinator._Phase.IDLE else [])]

    patch.setattr(Coordinator, "_completed", completed)


def _named_transactions_are_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "named_by", lambda manifest: frozenset())
    patch.setattr(Recovery, "_commits", lambda self: [])


def _nothing_is_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_may_abort", lambda self, id: False)


def _slots_are_reused_as_soon_as_committed(patch: pytest.MonkeyPatch) -> None:
    def free(self: SinkTransactions, committable: Committable) -> None:
        id = TransactionalId.parse(committable.id)
        assert id is not None
        self._slots[id.slot].state = transactions._SlotState.FREE

    patch.setattr(SinkTransactions, "_free_when_unlisted", free)


def _an_abandoned_checkpoints_transaction_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def abandoned(self: SinkTransactions, checkpoint: CheckpointId) -> list[Any]:
        self._snapshot = None
        self._pending = []
        return []

    patch.setattr(SinkTransactions, "_abandoned", abandoned)


def _acknowledged_before_the_sink_is_ready(patch: pytest.MonkeyPatch) -> None:
    original = Participant._begin

    def begin(self: Participant, checkpoint: CheckpointId) -> list[Any]:
        commands = original(self, checkpoint)
        self._pending = ()
        return commands

    patch.setattr(Participant, "_begin", begin)


def _restored_splits_begin_anew(patch: pytest.MonkeyPatch) -> None:
    original = SplitEnumerator.__init__

    def begin(self: SplitEnumerator, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **{**named, "restored": None})

    patch.setattr(SplitEnumerator, "__init__", begin)


def _an_undecided_append_is_given_up(patch: pytest.MonkeyPatch) -> None:
    def unanswered(self: Ledger, why: str, now: Any) -> list[Any]:
        self._cursor.pending = None
        return []

    patch.setattr(Ledger, "unanswered", unanswered)


def _workers_are_not_ended(patch: pytest.MonkeyPatch) -> None:
    original = JobManager._leave

    def leave(self: JobManager, phase: Any, grace: float) -> list[Any]:
        original(self, phase, grace)
        return self._workers_gone(self._at) if hasattr(self, "_at") else []

    handle = JobManager.handle

    def handled(self: JobManager, event: Any, now: Any) -> list[Any]:
        self._at = now  # type: ignore[attr-defined]
        return handle(self, event, now)

    patch.setattr(JobManager, "_leave", leave)
    patch.setattr(JobManager, "handle", handled)


def _garbage_is_deleted_whoever_needs_it(patch: pytest.MonkeyPatch) -> None:
    def after_checkpoint(self: Housekeeping, garbage: Any, ledger: Ledger) -> list[p.CleanUp]:
        return [p.CleanUp((), tuple(sorted(files_of(manifests_in(ledger.stored)))))]

    patch.setattr(Housekeeping, "after_checkpoint", after_checkpoint)


def _a_checkpoint_is_exported_before_it_has_settled(patch: pytest.MonkeyPatch) -> None:
    original = JobManager._completed

    def completed(self: JobManager, manifest: Any, now: Any) -> list[Any]:
        return [*original(self, manifest, now), *self._requests.settled(manifest, is_last=False)]

    patch.setattr(JobManager, "_completed", completed)


def _a_savepoint_is_begun_from_twice(patch: pytest.MonkeyPatch) -> None:
    original = beginning.decide_opening

    def decide(view: LogView, *others: Any) -> Any:
        options = {name: value for name, value in view.options.items() if name != FROM_SAVEPOINT}
        return original(msgspec.structs.replace(view, options=options), *others)

    patch.setattr(beginning, "decide_opening", decide)


def _drained_operators_have_ended(patch: pytest.MonkeyPatch) -> None:
    original = coordinator.make_manifest

    def made(plan: Any, gathered: Any, now: Any) -> Any:
        return original(plan, msgspec.structs.replace(gathered, counts_ends=True), now)

    patch.setattr(coordinator, "make_manifest", made)


def _a_request_is_forgotten_with_its_attempt(patch: pytest.MonkeyPatch) -> None:
    original = JobManager._leave

    def leave(self: JobManager, phase: Any, grace: float) -> list[Any]:
        self._requests._savepoints.clear()
        return original(self, phase, grace)

    patch.setattr(JobManager, "_leave", leave)


@pytest.mark.parametrize(
    "mistake",
    [
        _a_checkpoint_is_exported_before_it_has_settled,
        _a_savepoint_is_begun_from_twice,
        _drained_operators_have_ended,
        _a_request_is_forgotten_with_its_attempt,
        _commits_are_not_waited_for,
        _named_transactions_are_aborted,
        _nothing_is_aborted,
        _slots_are_reused_as_soon_as_committed,
        _an_abandoned_checkpoints_transaction_is_forgotten,
        _acknowledged_before_the_sink_is_ready,
        _restored_splits_begin_anew,
        _an_undecided_append_is_given_up,
        _workers_are_not_ended,
        _garbage_is_deleted_whoever_needs_it,
    ],
)
def test_a_mistake_is_noticed(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        check_all()


def check_all() -> None:
    for seed in range(SEEDS):
        check_output(run(seed))
