"""What every transactional sink must do, as tests: derive a class from `TransactionalSinkConformance` and let pytest
run it.

    class TestMySink(TransactionalSinkConformance):
        def sink(self): ...
        def read_committed(self): ...

The kit asks for the promises of `tidegate.operators.contracts.TransactionalSink` and `TransactionRecovery` and
nothing else. It never looks at how a sink works, and takes no error for an answer: what happened is what readers see
afterwards.
"""

import gc
import importlib
from collections.abc import Callable

import msgspec
import pytest

from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed, Lost, Outcome, Unknown
from tidegate.elements import Batch
from tidegate.errors import LostDataError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import TransactionRecovery
from tidegate.testing.conformance.sink_kit import (
    NOT_CERTAIN,
    commit_in_child,
    open_writer,
    prepare,
    prepare_in_child,
    write_in_child,
)
from tidegate.testing.conformance.sink_tools import SinkToolsConformance


class TransactionalSinkConformance(SinkToolsConformance):
    """The suite: each test is one promise. What to override is in `SinkKit`."""

    # ---- visibility ------------------------------------------------------------------------------------------------

    def test_nothing_is_visible_before_the_commit_and_all_of_it_after(self) -> None:
        writer = self.writer()
        txn = writer.begin(self.id())
        writer.write(txn, Batch(["a-1", "a-2"]))
        assert self.read_committed() == []
        committable = writer.prepare(txn)
        assert committable is not None
        assert self.read_committed() == []
        assert self.commit(writer, committable) == Committed()
        self.reads("a-1", "a-2")

    def test_prepared_records_are_in_the_system(self) -> None:
        self.prepared(self.id(), "a-1", "b-1")
        assert sorted(self.read_everything()) == ["a-1", "b-1"]

    def test_an_empty_transaction_has_nothing_to_commit(self) -> None:
        writer = self.writer()
        assert writer.prepare(writer.begin(self.id())) is None
        assert self.open_ids() == []

    def test_the_order_within_a_partition_is_the_order_of_writing(self) -> None:
        writer = self.writer()
        txn = writer.begin(self.id())
        texts = [f"{'abc'[number % 3]}-{number}" for number in range(500)]
        for start in range(0, 500, 7):
            writer.write(txn, Batch(texts[start : start + 7]))
        committable = writer.prepare(txn)
        assert committable is not None
        self.commit(writer, committable)
        self.reads(*texts)

    def test_a_large_transaction_is_there_as_a_whole(self) -> None:
        texts = [f"{'abc'[number % 3]}-{number}" for number in range(12_345)]
        committable = self.prepared(self.id(), *texts)
        assert self.read_committed() == []
        self.commit(self.writer(), committable)
        self.reads(*texts)

    def test_transactions_of_one_subtask_in_a_row_keep_their_order(self) -> None:
        writer = self.writer()
        expected: list[str] = []
        for number in range(20):
            texts = [f"a-{number}-{part}" for part in range(3)]
            committable = self.prepared(self.id(number % 4), *texts, writer=writer)
            assert self.commit(writer, committable) == Committed()
            expected += texts
        self.reads(*expected)

    def test_several_pending_transactions_are_committed_one_by_one(self) -> None:
        writer = self.writer()
        pending = [self.prepared(self.id(slot), f"a-{slot}", writer=writer) for slot in range(4)]
        writer.check(pending)
        assert len({committable.id for committable in pending}) == 4
        for committable in pending:
            assert self.commit(writer, committable) == Committed()
        self.reads("a-0", "a-1", "a-2", "a-3")

    def test_subtasks_do_not_disturb_each_other(self) -> None:
        writers = [self.writer(subtask) for subtask in range(3)]
        transactions = [writer.begin(self.id(subtask=subtask)) for subtask, writer in enumerate(writers)]
        for number in range(5):
            for subtask, writer in enumerate(writers):
                writer.write(transactions[subtask], Batch([f"{subtask}-{number}"]))
        for subtask, writer in enumerate(writers):
            committable = writer.prepare(transactions[subtask])
            assert committable is not None
            self.commit(writer, committable)
        self.reads(*(f"{subtask}-{number}" for subtask in range(3) for number in range(5)))

    def test_the_next_transaction_can_be_begun_before_the_last_one_is_prepared(self) -> None:
        writer = self.writer()
        current = writer.begin(self.id(0))
        writer.write(current, Batch(["a-1"]))
        following = writer.begin(self.id(1))
        writer.write(current, Batch(["a-2"]))
        first = writer.prepare(current)
        writer.write(following, Batch(["a-3"]))
        second = writer.prepare(following)
        assert first is not None
        assert second is not None
        writer.check([first, second])
        self.commit(writer, first)
        self.reads("a-1", "a-2")
        self.commit(writer, second)
        self.reads("a-1", "a-2", "a-3")

    # ---- commits, by whomever and again ----------------------------------------------------------------------------

    def test_a_second_commit_says_so_and_doubles_nothing(self) -> None:
        writer = self.writer()
        committable = self.prepared(self.id(), "a-1", writer=writer)
        assert self.commit(writer, committable) == Committed()
        for side in (writer, self.writer(attempt=2), self.recovery()):
            assert self.commit(side, committable) == AlreadyCommitted()
        self.reads("a-1")

    def test_a_committable_survives_being_written_as_json(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        stored = msgspec.json.decode(msgspec.json.encode(committable), type=Committable)
        assert stored == committable
        assert stored.id == str(self.id())
        self.writer().check([stored])
        assert self.commit(self.recovery(), stored) == Committed()
        self.reads("a-1")

    def test_recovery_commits_what_another_prepared(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        assert self.commit(self.recovery(), committable) == Committed()
        self.reads("a-1")

    def test_the_recovery_spec_leads_to_the_same_transactions(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        spec = self.sink().recovery_spec
        module, _, function = spec.factory.partition(":")
        recovery: TransactionRecovery = getattr(importlib.import_module(module), function)(**spec.arguments)
        self._opened.append(recovery)
        assert recovery.open_transactions(self.prefix, OperatorName("out")) == [self.id()]
        assert self.commit(recovery, committable) == Committed()
        self.reads("a-1")

    def test_a_prepared_transaction_outlives_a_killed_producer(self) -> None:
        committable = self.in_child(prepare_in_child, self.sink, self.id(), ["a-1", "a-2"])
        assert self.read_committed() == []
        self.writer().check([committable])
        assert self.commit(self.writer(attempt=2), committable) == Committed()
        self.reads("a-1", "a-2")

    def test_another_process_can_commit_and_this_one_learns_of_it(self) -> None:
        writer = self.writer()
        committable = self.prepared(self.id(), "a-1", writer=writer)
        assert self.in_child(commit_in_child, self.sink, committable) in (Committed(), AlreadyCommitted())
        assert self.commit(writer, committable) == AlreadyCommitted()
        self.reads("a-1")

    def test_a_killed_producer_leaves_what_it_had_not_prepared_invisible(self) -> None:
        self.in_child(write_in_child, self.sink, self.id(), [f"a-{number}" for number in range(5000)])
        recovery = self.recovery()
        for id in recovery.open_transactions(self.prefix, OperatorName("out")):
            recovery.abort(id)
        committable = self.prepared(self.id(attempt=2), "a-new")
        self.commit(self.writer(attempt=2), committable)
        self.reads("a-new")

    def test_committing_needs_a_permit(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        for side in (self.writer(), self.recovery()):
            without: Callable[..., Outcome] = side.commit
            with pytest.raises(TypeError):
                without(committable)
        assert self.read_committed() == []

    def test_a_transaction_that_was_aborted_is_lost(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        self.recovery().abort(self.id())
        for side in (self.writer(), self.recovery()):
            outcome = self.commit(side, committable)
            assert isinstance(outcome, Lost)
            assert outcome.why
        assert self.read_committed() == []

    def test_a_transaction_that_the_system_never_saw_is_unknown(self) -> None:
        committable = self.prepared(self.id(), "a-1")
        stranger = msgspec.structs.replace(committable, id=str(self.id(instance="never-seen")))
        outcome = self.commit(self.recovery(), stranger)
        assert isinstance(outcome, Unknown)
        assert outcome.why
        assert self.read_committed() == []

    def test_an_old_committable_never_commits_a_later_transaction_of_its_id(self) -> None:
        writer = self.writer()
        old = self.prepared(self.id(), "a-1", writer=writer)
        self.commit(writer, old)
        new = self.prepared(self.id(), "a-2", writer=writer)
        assert new != old
        assert not isinstance(self.commit(self.recovery(), old), Committed)
        self.reads("a-1")
        assert self.commit(writer, new) == Committed()
        self.reads("a-1", "a-2")

    # ---- nothing but begin and recovery aborts ---------------------------------------------------------------------

    def test_an_abandoned_transaction_stays_committable(self) -> None:
        writer = self.writer()
        txn = writer.begin(self.id())
        writer.write(txn, Batch(["a-1"]))
        committable = writer.prepare(txn)
        assert committable is not None
        writer.abandon(txn)
        writer.check([committable])
        assert self.commit(writer, committable) == Committed()
        self.reads("a-1")

    def test_closing_aborts_nothing_and_commits_nothing(self) -> None:
        writer = open_writer(self.sink())
        committable = self.prepared(self.id(0), "a-1", writer=writer)
        unfinished = writer.begin(self.id(1))
        writer.write(unfinished, Batch(["a-2"]))
        writer.close()
        assert self.read_committed() == []
        assert self.commit(self.writer(attempt=2), committable) == Committed()
        self.reads("a-1")

    def test_dropping_every_handle_aborts_nothing(self) -> None:
        committable = prepare(open_writer(self.sink()), self.id(), ["a-1"])
        gc.collect()
        assert self.commit(self.recovery(), committable) == Committed()
        self.reads("a-1")

    def test_a_write_that_failed_cannot_be_prepared(self) -> None:
        if self.unwritable is None:
            pytest.skip("this sink writes any value")
        writer = self.writer()
        txn = writer.begin(self.id())
        writer.write(txn, Batch(["a-1"]))
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever the format raises
            writer.write(txn, Batch(["a-2", self.unwritable]))
        with pytest.raises(NOT_CERTAIN):
            writer.prepare(txn)
        assert self.read_committed() == []

    # ---- fencing ---------------------------------------------------------------------------------------------------

    def test_begin_aborts_what_is_open_under_its_id_and_fences_the_producer(self) -> None:
        zombie = self.writer()
        old = zombie.begin(self.id())
        zombie.write(old, Batch(["a-old"]))
        writer = self.writer()
        new = writer.begin(self.id())
        self.fails(zombie, old)
        writer.write(new, Batch(["a-new"]))
        committable = writer.prepare(new)
        assert committable is not None
        assert self.commit(writer, committable) == Committed()
        self.reads("a-new")

    def test_begin_aborts_also_what_is_prepared_under_its_id(self) -> None:
        old = self.prepared(self.id(), "a-old")
        writer = self.writer()
        writer.begin(self.id())
        with pytest.raises(LostDataError):
            writer.check([old])
        assert isinstance(self.commit(writer, old), Lost)
        assert self.read_committed() == []

    @pytest.mark.parametrize("written", [0, 1, 5000])
    def test_abort_fences_a_live_producer_for_good(self, written: int) -> None:
        zombie = self.writer()
        txn = zombie.begin(self.id())
        if written:
            zombie.write(txn, Batch([f"a-old-{number}" for number in range(written)]))
        recovery = self.recovery()
        recovery.abort(self.id())
        self.fails(zombie, txn)
        committable = self.prepared(self.id(attempt=2), "a-new")
        self.commit(recovery, committable)
        self.reads("a-new")

    def test_aborting_what_is_not_open_is_harmless(self) -> None:
        recovery = self.recovery()
        committable = self.prepared(self.id(), "a-1")
        self.commit(recovery, committable)
        self.reads("a-1")
        recovery.abort(self.id())
        recovery.abort(self.id())
        recovery.abort(self.id(instance="never-seen"))
        self.reads("a-1")

    def test_an_earlier_attempt_that_wakes_up_touches_no_later_one(self) -> None:
        later = self.writer(attempt=2)
        committable = self.prepared(self.id(attempt=2), "a-prepared", writer=later)
        current = later.begin(self.id(1, attempt=2))
        later.write(current, Batch(["a-open"]))
        zombie = self.writer(attempt=1)
        zombie.write(zombie.begin(self.id(0)), Batch(["a-zombie"]))
        zombie.begin(self.id(1))
        recovery = self.recovery()
        recovery.abort(self.id(0))
        recovery.abort(self.id(1))
        later.check([committable])
        assert self.commit(later, committable) == Committed()
        following = later.prepare(current)
        assert following is not None
        assert self.commit(later, following) == Committed()
        self.reads("a-prepared", "a-open")

    # ---- check -----------------------------------------------------------------------------------------------------

    def test_check_passes_what_is_pending_and_nothing_else(self) -> None:
        writer = self.writer()
        first, second = (self.prepared(self.id(slot), f"a-{slot}", writer=writer) for slot in (0, 1))
        writer.check([])
        writer.check([first, second])
        self.recovery().abort(self.id(0))
        writer.check([second])
        for wrong in ([first], [second, first]):
            with pytest.raises(LostDataError):
                writer.check(wrong)
        with pytest.raises(LostDataError):
            writer.check([msgspec.structs.replace(second, id=str(self.id(instance="never-seen")))])

    def test_a_transaction_past_its_timeout_is_lost_and_check_tells(self) -> None:
        writer = self.writer()
        committable = self.prepared(self.id(), "a-1", writer=writer)
        self.time_out()
        with pytest.raises(LostDataError):
            writer.check([committable])
        assert isinstance(self.commit(writer, committable), Lost)
        assert self.read_committed() == []

    def test_a_transaction_that_timed_out_cannot_be_prepared(self) -> None:
        writer = self.writer()
        txn = writer.begin(self.id())
        writer.write(txn, Batch([f"a-{number}" for number in range(5000)]))
        self.time_out()
        self.fails(writer, txn)
        self.eventually(self.open_ids, [])
        assert self.read_committed() == []

    # ---- what is open ----------------------------------------------------------------------------------------------

    def test_open_transactions_are_found_by_the_parts_of_their_ids(self) -> None:
        writer = self.writer()
        ours = sorted(
            [
                self.id(0),
                self.id(1),
                self.id(0, subtask=7),
                self.id(0, attempt=2),
                self.id(0, attempt=10),
                self.id(0, instance="log-two"),
            ]
        )
        others = [self.id(prefix=f"{self.prefix}-1"), self.id(sink="out-1"), self.id(sink="ou")]
        for id in (*others, *reversed(ours)):
            self.prepared(id, "a-1", writer=writer)
        assert self.open_ids() == ours
        assert self.open_ids(prefix=f"{self.prefix}-1") == [others[0]]
        assert self.open_ids(sink="out-1") == [others[1]]
        assert self.open_ids(prefix=self.prefix[:-1]) == []

    def test_what_was_committed_or_aborted_is_not_open(self) -> None:
        writer = self.writer()
        recovery = self.recovery()
        committed, _, _ = (self.prepared(self.id(slot), f"a-{slot}", writer=writer) for slot in range(3))
        self.commit(recovery, committed)
        recovery.abort(self.id(1))
        self.eventually(self.open_ids, [self.id(2)])

    def test_aborting_all_that_is_open_lets_readers_go_on(self) -> None:
        for subtask in range(3):
            self.prepared(self.id(subtask=subtask), "a-left over")
        committable = self.prepared(self.id(attempt=2), "a-new")
        recovery = self.recovery()
        self.commit(recovery, committable)
        for subtask in range(3):
            recovery.abort(self.id(subtask=subtask))
        self.eventually(self.open_ids, [])
        self.reads("a-new")
