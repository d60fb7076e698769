"""What the entries of a checkpoint log mean together, and which of them nobody needs any more."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.checkpoint.histories import Manager, World
from tests.unit.checkpoint.records import INSTANCE, completed, entry, manifest
from tidegate.checkpoint.log import (
    CleanStop,
    Completed,
    Created,
    Discarded,
    Entry,
    Finished,
    LogCursor,
    ProcessRecord,
    StoredEntry,
    Takeover,
    Unreadable,
    prunable,
    view_log,
)
from tidegate.ids import Attempt, CheckpointId, LogPosition

CREATED = entry(0, Created(), attempt=0)


def takeover(
    position: int, attempt: int = 1, nonce: str = "mine", fresh: bool = False, options: dict[str, str] | None = None
) -> Entry:
    return entry(position, Takeover("host", ProcessRecord(7, 1), options=options or {}, fresh=fresh), nonce, attempt)


def discarded(position: int, *positions: int) -> Entry:
    return entry(position, Discarded(tuple(map(LogPosition, positions)), "asked for"))


def damaged(position: int) -> Unreadable:
    return Unreadable(LogPosition(position), "cut off")


def _positions(entries: tuple[StoredEntry, ...]) -> list[int]:
    return [each.position for each in entries]


# ---- what a log says -----------------------------------------------------------------------------------------------


def test_an_empty_log_has_no_instance_and_begins_at_zero() -> None:
    view = view_log([])
    assert (view.instance, view.attempt, view.next_position, view.newest, view.damage) == (None, 0, 0, None, None)
    assert prunable(view, 1) == ()


def test_a_log_says_who_runs_the_job_and_what_is_complete() -> None:
    view = view_log([CREATED, takeover(1, options={"fresh": "a"}), completed(2, 1), completed(3, 2)])
    assert (view.instance, view.attempt, view.next_position) == (INSTANCE, 1, 4)
    assert view.options == {"fresh": "a"}
    assert [each.checkpoint for each in view.manifests] == [1, 2]
    assert view.newest is view.manifests[-1]


@given(st.permutations([CREATED, takeover(1), completed(2, 1), takeover(3, 2), completed(4, 2, attempt=2)]))
def test_the_order_in_which_entries_are_read_does_not_matter(stored: list[StoredEntry]) -> None:
    assert view_log(stored) == view_log(sorted(stored, key=lambda each: each.position))


def test_what_is_below_a_gap_does_not_count() -> None:
    view = view_log([CREATED, completed(3, 90), completed(5, 7), completed(6, 8)])
    assert _positions(view.entries) == [5, 6]
    assert [each.checkpoint for each in view.manifests] == [7, 8]
    assert view.below_run == (0, 3)


def test_a_stray_write_right_below_the_run_does_not_count() -> None:
    """A process slept while others used the position and pruned it."""
    truth = LogCursor(LogPosition(5), "new", INSTANCE, previous="old")
    above = truth.begin(Completed(manifest(7)), Attempt(3), 0.0)
    for nonce, counts in (("old", True), ("new", False), ("stray", False)):
        view = view_log([CREATED, completed(4, 90, nonce), above])
        assert [each.checkpoint for each in view.manifests] == ([90, 7] if counts else [7])


def test_an_entry_whose_writer_could_not_read_the_one_below_takes_any() -> None:
    above = LogCursor(LogPosition(5), "new", INSTANCE, previous=view_log([damaged(4)]).newest_nonce)
    entry_above = above.begin(Created(), Attempt(3), 0.0)
    assert _positions(view_log([completed(4, 1, "any"), entry_above]).entries) == [4, 5]
    assert _positions(view_log([damaged(4), entry_above]).entries) == [4, 5]


def test_a_discarded_checkpoint_does_not_count_whether_it_can_be_read_or_not() -> None:
    stored: list[StoredEntry] = [CREATED, takeover(1), completed(2, 1), completed(3, 2), damaged(4)]
    assert view_log(stored).damage == damaged(4)
    view = view_log([*stored, discarded(5, 3, 4)])
    assert view.damage is None
    assert view.newest is not None
    assert view.newest.checkpoint == 1


def test_a_fresh_start_makes_all_below_as_if_it_were_not() -> None:
    view = view_log([CREATED, completed(1, 1), damaged(2), takeover(3, 2, fresh=True)])
    assert (view.newest, view.damage, view.attempt) == (None, None, 2)
    view = view_log([CREATED, completed(1, 1), takeover(2, 2, fresh=True), completed(3, 2, attempt=2)])
    assert [each.checkpoint for each in view.manifests] == [2]


@pytest.mark.parametrize("position", [3, 4])
def test_damage_above_the_newest_completed_entry_is_found(position: int) -> None:
    stored: list[StoredEntry] = [CREATED, takeover(1), completed(2, 1), takeover(3, 2), takeover(4, 3)]
    stored[position] = damaged(position)
    assert view_log(stored).damage == damaged(position)


def test_damage_below_the_newest_completed_entry_does_not_matter() -> None:
    assert view_log([CREATED, damaged(1), damaged(2), completed(3)]).damage is None


def test_damage_without_any_completed_entry_is_found() -> None:
    assert view_log([damaged(0)]).damage == damaged(0)
    assert view_log([CREATED, damaged(1), takeover(2, 2)]).damage == damaged(1)


def test_attempts_are_numbered_on_although_a_takeover_cannot_be_read() -> None:
    view = view_log([CREATED, takeover(1), damaged(2), completed(3, 1, attempt=2)])
    assert view.attempt == 2


def test_a_job_has_finished_until_something_completes_after_it() -> None:
    stored: list[StoredEntry] = [CREATED, takeover(1), completed(2, 1), entry(3, Finished(CheckpointId(1)))]
    assert view_log(stored).finished == Finished(CheckpointId(1))
    assert view_log([*stored, takeover(4, 2)]).finished == Finished(CheckpointId(1))
    assert view_log([*stored, takeover(4, 2, fresh=True)]).finished is None
    assert view_log([*stored, takeover(4, 2), completed(5, 2)]).finished is None
    assert view_log([*stored, discarded(4, 3)]).finished is None


def test_a_clean_stop_is_not_the_end_of_the_job() -> None:
    assert view_log([CREATED, completed(1, 1), entry(2, CleanStop(CheckpointId(1)))]).finished is None


# ---- pruning -------------------------------------------------------------------------------------------------------


def test_the_retained_newest_completed_entries_and_what_follows_them_stay() -> None:
    view = view_log([CREATED, takeover(1), *(completed(p, p) for p in range(2, 8)), takeover(8, 2, "other")])
    assert prunable(view, 1) == (1, 2, 3, 4, 5, 6)
    assert prunable(view, 3) == (1, 2, 3, 4)
    assert prunable(view, 100) == (1,)


def test_nothing_is_pruned_before_something_completed() -> None:
    assert prunable(view_log([CREATED, takeover(1), takeover(2, 2), takeover(3, 3)]), 1) == ()


def test_the_newest_takeover_stays_and_is_still_found_below_the_gap() -> None:
    stored: list[StoredEntry] = [CREATED, takeover(1, options={"fresh": "a"}), *(completed(p, p) for p in range(2, 8))]
    view = view_log(stored)
    gone = prunable(view, 2)
    assert gone == (2, 3, 4, 5)
    pruned = view_log([each for each in stored if each.position not in gone])
    assert (pruned.takeover, pruned.options, pruned.attempt) == (view.takeover, {"fresh": "a"}, 1)
    assert prunable(pruned, 2) == ()


def test_an_older_takeover_below_the_gap_goes_when_a_newer_one_has_completed_something() -> None:
    stored = [CREATED, takeover(1), completed(6, 6), takeover(7, 2, "other"), completed(8, 7, "other", attempt=2)]
    assert prunable(view_log(stored), 1) == (1, 6)


def test_a_stray_takeover_below_the_gap_is_not_taken_for_the_newest() -> None:
    view = view_log([CREATED, takeover(1), takeover(3, 9, "stray", options={"fresh": "b"}), completed(6, 6)])
    assert (view.takeover_position, view.attempt, view.options) == (1, 1, {})
    assert prunable(view, 1) == (3,)


def test_discarded_checkpoints_are_not_counted_among_the_retained() -> None:
    stored = [CREATED, takeover(1), *(completed(p, p) for p in (2, 3, 4, 5)), discarded(6, 4, 5)]
    assert prunable(view_log(stored), 1) == (2,)


# ---- who may append ------------------------------------------------------------------------------------------------


def test_a_cursor_gives_one_position_after_the_other() -> None:
    cursor = LogCursor(LogPosition(4), "mine", INSTANCE, previous="theirs")
    first = cursor.begin(CleanStop(CheckpointId(0)), Attempt(2), 1.5)
    assert first == Entry(LogPosition(4), "mine", INSTANCE, Attempt(2), 1.5, CleanStop(CheckpointId(0)), "theirs")
    assert cursor.pending is first
    assert cursor.won() is first
    assert cursor.next_position == 5
    assert cursor.begin(CleanStop(CheckpointId(0)), Attempt(2), 1.5).previous == "mine"


def test_a_cursor_has_one_undecided_entry_at_most() -> None:
    cursor = LogCursor(LogPosition(0), "mine", INSTANCE)
    with pytest.raises(AssertionError, match="nothing was appended"):
        cursor.won()
    cursor.begin(Created(), Attempt(0), 0.0)
    with pytest.raises(AssertionError, match="still undecided"):
        cursor.begin(Created(), Attempt(0), 0.0)


# ---- random histories ----------------------------------------------------------------------------------------------


class LogMachine(RuleBasedStateMachine):
    """Several job managers, any of which may sleep for as long as it likes between any two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def _pick(self, number: int) -> Manager:
        return self.world.managers[number % len(self.world.managers)]

    @rule()
    @precondition(lambda self: len(self.world.managers) < 6)
    def start(self) -> None:
        self.world.start()

    @rule(number=st.integers(0, 5), fresh=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: self.world.managers)
    def take_over(self, number: int, fresh: bool) -> None:
        manager = self._pick(number)
        if not manager.joined and not manager.fenced:
            self.world.take_over(manager, fresh)

    @rule(number=st.integers(0, 5), times=st.integers(1, 4))
    @precondition(lambda self: self.world.managers)
    def complete(self, number: int, times: int) -> None:
        manager = self._pick(number)
        for _ in range(times):
            if manager.joined and not manager.fenced:
                self.world.complete(manager)

    @rule(number=st.integers(0, 5))
    @precondition(lambda self: self.world.managers)
    def discard_newest(self, number: int) -> None:
        manager = self._pick(number)
        if manager.joined and not manager.fenced:
            self.world.discard_newest(manager)

    @rule(retained=st.integers(1, 3), limit=st.sampled_from([1, 2, 3, 1000]))
    @precondition(lambda self: self.world.leader is not None)
    def prune(self, retained: int, limit: int) -> None:
        assert self.world.leader is not None
        before = self.world.counting[-retained:]
        self.world.prune(self.world.leader, retained, limit)
        assert self.world.counting[-retained:] == before, "a retained checkpoint was pruned"

    def _stored(self) -> set[LogPosition]:
        return {each.position for each in self.world.store.read_log()}

    @invariant()
    def each_position_was_won_once(self) -> None:
        assert [each.position for each in self.world.history] == list(range(len(self.world.history)))

    @invariant()
    def only_the_newest_takeover_wins(self) -> None:
        if self.world.leader is not None:
            assert self.world.history[-1].nonce == self.world.leader.cursor.nonce

    @invariant()
    def the_log_says_what_happened(self) -> None:
        view, history, leader = self.world.view(), self.world.history, self.world.leader
        assert view.next_position == len(history)
        assert view.damage is None
        if history:
            assert LogPosition(0) in self._stored()
        if leader is not None:
            assert view.attempt == leader.attempt
            assert view.options == leader.options

    @invariant()
    def the_newest_completed_checkpoint_that_counts_is_found(self) -> None:
        newest = self.world.view().completed[-1:]
        assert [each.position for each in newest] == self.world.counting[-1:]
        assert all(isinstance(each.body, Completed) for each in newest)

    @invariant()
    def damage_from_the_newest_completed_checkpoint_on_is_found(self) -> None:
        """Whichever of these entries cannot be read: it may be, or may have said something of, a newer checkpoint."""
        stored = self.world.store.read_log()
        floor = self.world.counting[-1] if self.world.counting else LogPosition(0)
        for hurt in stored[-6:]:
            view = view_log([Unreadable(each.position, "hurt") if each is hurt else each for each in stored])
            if hurt.position >= floor and hurt in self.world.view().live:
                assert view.damage == Unreadable(hurt.position, "hurt")


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLogMachine = LogMachine.TestCase
