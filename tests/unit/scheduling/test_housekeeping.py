"""What is removed of a job's folder: from the bottom up, never what an entry names, again when it was not confirmed."""

from collections.abc import Sequence

from tests.unit.scheduling.manifests import CREATED, completed, log, takeover
from tidegate.checkpoint.log import Body, CleanStop, Discarded, Unreadable
from tidegate.clock import Now
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, LogPosition
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.protocol import CleanedUp, CleanUp, CleanUpOrphans

ZERO = Now(0.0, 5.0)


def ledger(*bodies: Body) -> Ledger:
    return Ledger(log(*bodies), JobName("orders"), "mine", LogInstance("new"))


def discarded(*positions: int) -> Discarded:
    return Discarded(tuple(map(LogPosition, positions)), "asked for")


def clean_up(found: Ledger, retained: int, garbage: Sequence[str] = ()) -> list[CleanUp]:
    """What is asked for, and it is done."""
    keeping = Housekeeping(retained)
    asked = keeping.after_checkpoint(garbage, found)
    for one in asked:
        keeping.cleaned_up(CleanedUp(one.positions, one.files), found)
    return asked


def test_entries_beyond_the_retained_are_dropped_from_the_bottom_with_files_that_nobody_needs() -> None:
    found = ledger(CREATED, takeover(), completed(1, "a", "shared"), completed(2, "b", "shared"), completed(3, "c"))
    assert clean_up(found, 2, ["trash"]) == [CleanUp((LogPosition(2),), ("a", "trash"))]
    assert clean_up(found, 1) == [CleanUp((LogPosition(3),), ("b", "shared"))]
    assert clean_up(found, 1) == []


def test_what_was_not_confirmed_is_asked_for_again() -> None:
    found = ledger(CREATED, takeover(), completed(1, "a"), completed(2, "b"), completed(3, "c"))
    keeping = Housekeeping(2)
    asked = keeping.after_checkpoint(["trash"], found)
    assert asked == [CleanUp((LogPosition(2),), ("a", "trash"))]
    assert keeping.after_checkpoint([], found) == asked
    keeping.cleaned_up(CleanedUp((LogPosition(2),), ("a", "trash")), found)
    assert keeping.after_checkpoint([], found) == []


def test_garbage_that_a_retained_checkpoint_needs_is_kept() -> None:
    found = ledger(CREATED, takeover(), completed(1, "a"), completed(2, "b"))
    assert clean_up(found, 2, ["a", "b", "c"]) == [CleanUp((), ("c",))]


def test_files_of_discarded_checkpoints_are_needed_as_long_as_their_entries_are_there() -> None:
    bodies: list[Body] = [CREATED, takeover(), completed(1, "a"), completed(2, "b"), discarded(3), takeover()]
    found = ledger(*bodies, completed(3, "c"))
    assert clean_up(found, 2, ["b"]) == [CleanUp((LogPosition(1),), ())]
    assert clean_up(found, 1) == [CleanUp(tuple(map(LogPosition, (2, 3, 4))), ("a", "b"))]


def test_what_was_before_a_fresh_start_goes_with_the_first_checkpoint_after_it() -> None:
    found = ledger(CREATED, takeover(), completed(1, "a"), takeover(is_fresh=True))
    assert clean_up(found, 2) == [], "nothing of it goes before"
    found.append(completed(2, "b"), Attempt(2), ZERO)
    found.won()
    [cleaned] = clean_up(found, 2)
    assert cleaned.files == ("a",)
    assert LogPosition(0) not in cleaned.positions


def test_orphans_are_removed_unless_an_unreadable_entry_may_name_them() -> None:
    keeping = Housekeeping(1)
    found = ledger(CREATED, takeover(), completed(1, "a"))
    assert keeping.of_attempts_before(Attempt(2), found) == [CleanUpOrphans(Attempt(2), frozenset("a"))]
    damaged = Ledger(
        [*log(CREATED), Unreadable(LogPosition(1), "cut off")], JobName("orders"), "mine", LogInstance("new")
    )
    assert keeping.of_attempts_before(Attempt(2), damaged) == []


def test_in_the_end_files_of_ones_own_attempts_are_orphans_too() -> None:
    keeping = Housekeeping(1)
    found = ledger(CREATED, takeover())
    assert keeping.of_own_attempts(found) == [], "this process has won none"
    found.append(takeover(), Attempt(2), ZERO)
    found.won()
    assert keeping.of_own_attempts(found) == [CleanUpOrphans(Attempt(3), frozenset())]


# ---- pinned ----------------------------------------------------------------------------------------------------------


def test_what_a_savepoint_is_made_of_is_kept_though_its_entry_goes_and_is_dropped_when_it_is_released() -> None:
    one, two = completed(1, "a", "shared"), completed(2, "b", "shared")
    found = ledger(CREATED, takeover(), one, two, completed(3, "c"))
    keeping = Housekeeping(1)
    keeping.pin(one.manifest)
    assert keeping.after_checkpoint([], found) == [CleanUp((LogPosition(2), LogPosition(3)), ("b",))]
    keeping.cleaned_up(CleanedUp((LogPosition(2), LogPosition(3)), ("b",)), found)
    assert keeping.after_checkpoint([], found) == []
    assert keeping.of_attempts_before(Attempt(2), found) == [
        CleanUpOrphans(Attempt(2), frozenset({"a", "shared", "c"}))
    ]
    assert keeping.release(one.manifest.checkpoint, found) == [CleanUp((), ("a", "shared"))]
    assert keeping.of_attempts_before(Attempt(2), found) == [CleanUpOrphans(Attempt(2), frozenset({"c"}))]


def test_what_is_released_while_its_entry_is_being_removed_goes_behind_the_entry() -> None:
    one = completed(1, "a")
    found = ledger(CREATED, takeover(), one, completed(2, "b"))
    keeping = Housekeeping(1)
    keeping.pin(one.manifest)
    assert keeping.after_checkpoint([], found) == [CleanUp((LogPosition(2),), ())]
    assert keeping.release(one.manifest.checkpoint, found) == [CleanUp((LogPosition(2),), ("a",))]


def test_releasing_drops_nothing_that_a_checkpoint_names() -> None:
    one = completed(1, "a", "shared")
    found = ledger(CREATED, takeover(), one, completed(2, "shared"))
    keeping = Housekeeping(1)
    keeping.pin(one.manifest)
    [cleaned] = keeping.after_checkpoint([], found)
    assert isinstance(cleaned, CleanUp)
    assert cleaned.files == ()
    keeping.cleaned_up(CleanedUp(cleaned.positions, cleaned.files), found)
    assert keeping.release(one.manifest.checkpoint, found) == [CleanUp((), ("a",))]


def test_after_a_stop_that_keeps_nothing_everything_goes_but_what_is_pinned() -> None:
    one, two = completed(1, "a"), completed(2, "b")
    found = ledger(CREATED, takeover(), one, two, CleanStop(CheckpointId(2), keeps=False))
    keeping = Housekeeping(3)
    keeping.pin(two.manifest)
    assert keeping.after_checkpoint([], found) == [CleanUp((LogPosition(2), LogPosition(3)), ("a",))]
