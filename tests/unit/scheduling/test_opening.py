"""What a new JobManager does with the log that it finds, for every command line that a supervisor may repeat."""

import pytest

from tests.unit.scheduling.manifests import CREATED, SUM, completed, handle, log, manifest, takeover
from tests.unit.scheduling.programs import graph, job_settings
from tidegate.checkpoint.log import (
    Body,
    CleanStop,
    Completed,
    Discarded,
    Finished,
    LogView,
    ProcessRecord,
    SavepointOrigin,
    Takeover,
    Unreadable,
    view_log,
)
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import Attempt, CheckpointId, LogInstance, LogPosition
from tidegate.scheduling.opening import Opening, decide_opening

TWO = (CREATED, takeover(), completed(1), completed(2))


def view(*bodies: Body, damaged_at: int | None = None) -> LogView:
    stored = log(*bodies)
    if damaged_at is not None:
        return view_log([e if e.position != damaged_at else Unreadable(e.position, "cut off") for e in stored])
    return view_log(stored)


def decide(found: LogView, fresh: str | None = None, from_checkpoint: int | None = None, **more: object) -> Opening:
    return decide_opening(found, job_settings(fresh=fresh, from_checkpoint=from_checkpoint, **more), graph())


def test_an_empty_log_and_one_with_checkpoints_are_simply_gone_on_with() -> None:
    assert decide(view_log([])) == Opening()
    assert decide(view(*TWO)) == Opening(highest=CheckpointId(2))


def test_fresh_counts_once_for_each_value() -> None:
    first = decide(view(*TWO), fresh="monday")
    assert (first.is_fresh, first.options, first.highest) == (True, {"fresh": "monday"}, 2)
    again = decide(view(*TWO, takeover(True, **first.options)), fresh="monday")
    assert (again.is_fresh, again.options) == (False, {"fresh": "monday"})
    assert any("carried out before" in note for note in again.notes)
    assert decide(view(*TWO, takeover(True, **first.options)), fresh="tuesday").is_fresh


def test_a_value_of_fresh_is_remembered_when_a_later_start_does_not_give_it() -> None:
    remembered = decide(view(*TWO, takeover(True, fresh="monday")))
    assert (remembered.is_fresh, remembered.options) == (False, {"fresh": "monday"})


def test_a_process_that_died_between_its_fresh_takeover_and_its_first_checkpoint_is_followed_by_one_without_state() -> (
    None
):
    found = view(*TWO, takeover(True, fresh="monday"))
    assert not decide(found, fresh="monday").is_fresh
    assert found.newest is None


def test_going_back_discards_what_is_newer_and_counts_once_for_each_value() -> None:
    first = decide(view(*TWO, takeover(), completed(3)), from_checkpoint=1)
    assert (first.discards, first.options) == ((3, 5), {"from-checkpoint": "1"})
    assert first.highest == 3, "ids only grow"
    assert any("put out again" in note for note in first.notes)
    gone_back = (*TWO, Discarded((LogPosition(3),), "asked for"), takeover(False, from_checkpoint="1"))
    again = decide(view(*gone_back), from_checkpoint=1)
    assert again.discards == ()
    assert any("carried out before" in note for note in again.notes)
    assert decide(view(*gone_back, completed(4)), from_checkpoint=4).options == {"from-checkpoint": "4"}


def test_a_process_that_died_between_discarding_and_its_takeover_is_followed_by_one_that_goes_back_too() -> None:
    found = view(*TWO, Discarded((LogPosition(3),), "asked for"))
    opening = decide(found, from_checkpoint=1)
    assert opening.options == {"from-checkpoint": "1"}
    assert found.newest is not None
    assert found.newest.checkpoint == 1


def test_going_back_to_the_newest_discards_nothing_that_completed() -> None:
    opening = decide(view(*TWO), from_checkpoint=2)
    assert opening.discards == ()
    assert any("is the newest" in note for note in opening.notes)


def test_going_back_to_a_checkpoint_that_is_not_there_says_which_are() -> None:
    with pytest.raises(InvalidError, match="there are: 1, 2") as raised:
        decide(view(*TWO), from_checkpoint=7)
    assert raised.value.exit_code == 2
    with pytest.raises(InvalidError, match="none"):
        decide(view_log([]), from_checkpoint=1)


def test_checkpoints_before_a_fresh_start_cannot_be_gone_back_to() -> None:
    with pytest.raises(InvalidError, match="there are: 3"):
        decide(view(*TWO, takeover(True), completed(3)), from_checkpoint=1)


def test_C10_a_damaged_entry_above_the_newest_checkpoint_stops_with_exit_code_3_and_says_what_to_do() -> None:
    with pytest.raises(CorruptError) as raised:
        decide(view(*TWO, completed(3), damaged_at=4))
    assert raised.value.exit_code == 3
    assert "00000000000000000004.json" in str(raised.value)
    assert "--from-checkpoint 2" in raised.value.failure.remedy
    with pytest.raises(CorruptError) as raised:
        decide(view(CREATED, takeover(), completed(1), damaged_at=2))
    assert "--fresh" in raised.value.failure.remedy


def test_a_damaged_entry_below_the_newest_checkpoint_does_no_harm() -> None:
    assert decide(view(*TWO, completed(3), damaged_at=2)) == Opening(highest=CheckpointId(3))


def test_damage_can_be_left_behind_by_going_back_or_beginning_fresh() -> None:
    damaged = view(*TWO, completed(3), damaged_at=4)
    assert decide(damaged, from_checkpoint=2).discards == (4,)
    assert decide(damaged, fresh="monday").is_fresh


def test_a_finished_job_is_finished_whatever_is_repeated_until_somebody_wants_it_again() -> None:
    finished = (*TWO, Finished(CheckpointId(2)))
    opening = decide(view(*finished))
    assert opening.is_finished
    assert any("finished" in note for note in opening.notes)
    assert decide(view(*finished), fresh="monday").is_fresh
    assert not decide(view(*finished), from_checkpoint=2).is_finished
    assert decide(view(*finished), from_checkpoint=2).discards == (4,)


def test_a_clean_stop_is_gone_on_from() -> None:
    assert decide(view(*TWO, CleanStop(CheckpointId(2)))) == Opening(highest=CheckpointId(2))


def test_a_program_that_does_not_fit_the_checkpoint_is_refused_unless_it_begins_fresh() -> None:
    other = Completed(manifest(3, handles=[handle(0, 7)], states=(SUM,)))
    found = view(CREATED, takeover(), other)
    for from_checkpoint in (None, 3):
        with pytest.raises(InvalidError, match="'sum'"):
            decide_opening(found, job_settings(from_checkpoint=from_checkpoint), graph(states=()))
    assert decide_opening(found, job_settings(fresh="now"), graph(states=())).is_fresh


# ---- savepoints ------------------------------------------------------------------------------------------------------

ORIGIN = SavepointOrigin("/s", False, LogInstance("i9"), Attempt(3), CheckpointId(7))
BEGUN = Takeover("host", ProcessRecord(7, 1), options={"from-savepoint": "/s"}, fresh=True, savepoint=ORIGIN)


def test_a_start_from_a_savepoint_counts_once_for_each_value() -> None:
    for found in (view_log([]), view(*TWO), view(*TWO, Finished(CheckpointId(2)))):
        first = decide(found, from_savepoint="/s")
        assert (first.is_fresh, first.savepoint, first.origin) == (True, "/s", None)
        assert first.options == {"from-savepoint": "/s"}
    done = view(*TWO, BEGUN, completed(3))
    again = decide(done, from_savepoint="/s")
    assert (again.is_fresh, again.savepoint) == (False, None)
    assert any("carried out before" in note for note in again.notes)
    assert decide(done, from_savepoint="/other").savepoint == "/other"


def test_a_savepoint_that_was_begun_from_and_is_not_in_the_log_is_begun_from_whatever_the_command_line_says() -> None:
    begun = view(*TWO, BEGUN, takeover(False, from_savepoint="/s"))
    for given in ({}, {"from_savepoint": "/s"}):
        opening = decide(begun, **given)
        assert (opening.is_fresh, opening.savepoint, opening.origin) == (False, "/s", ORIGIN)
        assert opening.highest == 2


def test_another_beginning_takes_the_place_of_a_savepoint_that_came_to_nothing() -> None:
    begun = view(*TWO, BEGUN)
    assert decide(begun, fresh="monday").savepoint is None
    assert decide(begun, from_savepoint="/other").origin is None
    with pytest.raises(InvalidError, match="there are: none"):
        decide(begun, from_checkpoint=1)


def test_damage_above_a_savepoint_that_was_begun_from_may_be_a_checkpoint_and_stops_the_start() -> None:
    with pytest.raises(CorruptError):
        decide(view(*TWO, BEGUN, completed(3), damaged_at=5))


@pytest.mark.parametrize("other", [{"fresh": "monday"}, {"from_checkpoint": 1}])
def test_two_places_to_begin_are_refused_also_when_both_were_carried_out(other: dict[str, object]) -> None:
    for found in (view(*TWO), view(*TWO, BEGUN, completed(3))):
        with pytest.raises(InvalidError, match="--from-savepoint") as raised:
            decide(found, from_savepoint="/s", **other)  # type: ignore[arg-type]
        assert raised.value.exit_code == 2


def test_state_that_the_program_has_no_place_for_is_dropped_by_name_where_that_is_allowed() -> None:
    found = view(CREATED, takeover(), Completed(manifest(3, handles=[handle(0, 7)], states=(SUM,))))
    opening = decide_opening(found, job_settings(allow_non_restored_state=True), graph(states=()))
    assert any("'sum'" in note and "dropped" in note for note in opening.notes)


def test_behind_a_stop_that_kept_nothing_the_job_begins_without_state_and_says_so() -> None:
    opening = decide(view(*TWO, CleanStop(CheckpointId(2), keeps=False)))
    assert opening.highest == 2
    assert any("kept no checkpoint" in note for note in opening.notes)
