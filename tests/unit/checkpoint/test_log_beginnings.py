"""Where the log begins to count: a fresh start, a savepoint, a stop that kept nothing."""

import pytest

from tests.unit.checkpoint.records import INSTANCE, completed, entry, manifest
from tests.unit.checkpoint.test_log import CREATED, takeover
from tidegate.checkpoint.log import (
    CleanStop,
    Completed,
    Entry,
    ProcessRecord,
    SavepointOrigin,
    Takeover,
    prunable,
    view_log,
)
from tidegate.checkpoint.store import decode_entry, encode_entry
from tidegate.ids import Attempt, CheckpointId, LogInstance

ORIGIN = SavepointOrigin("/s", True, LogInstance("other"), Attempt(4), CheckpointId(9))


def begins(position: int, attempt: int) -> Entry:
    body = Takeover("host", ProcessRecord(7, 1), options={"from-savepoint": "/s"}, fresh=True, savepoint=ORIGIN)
    return entry(position, body, attempt=attempt)


def kept_nothing(position: int, checkpoint: int) -> Entry:
    return entry(position, CleanStop(CheckpointId(checkpoint), keeps=False))


BEFORE = [CREATED, takeover(1), completed(2, 1), completed(3, 2)]


def test_a_start_from_a_savepoint_makes_all_below_as_if_it_were_not() -> None:
    view = view_log([*BEFORE, begins(4, 2)])
    assert view.newest is None
    assert view.origin == view.unimported == ORIGIN


def test_later_attempts_begin_from_it_until_its_state_is_in_the_log() -> None:
    view = view_log([*BEFORE, begins(4, 2), takeover(5, 3), takeover(6, 4)])
    assert view.unimported == ORIGIN
    view = view_log([*BEFORE, begins(4, 2), takeover(5, 3), completed(6, 3)])
    assert view.unimported is None
    assert view.origin == ORIGIN
    assert view.newest is not None
    assert view.newest.checkpoint == 3


def test_another_beginning_takes_its_place() -> None:
    fresh = view_log([*BEFORE, begins(4, 2), takeover(5, 3, fresh=True)])
    assert (fresh.origin, fresh.unimported) == (None, None)
    assert view_log([*BEFORE, takeover(4, 2, fresh=True), begins(5, 3)]).unimported == ORIGIN


def test_where_the_job_began_is_forgotten_when_the_entry_is_pruned() -> None:
    stored = [CREATED, begins(1, 1), takeover(2, 2), completed(3, 1), completed(4, 2)]
    assert prunable(view_log(stored), 1) == (1, 3)
    left = [each for each in stored if each.position not in (1, 3)]
    assert view_log(left).origin is None
    assert view_log(left).newest is not None


def test_a_stop_that_kept_nothing_leaves_a_log_without_checkpoints_and_with_its_options() -> None:
    stored = [CREATED, takeover(1, options={"fresh": "a"}), completed(2, 1), completed(3, 2), kept_nothing(4, 2)]
    view = view_log(stored)
    assert view.newest is None
    assert view.is_settled
    assert prunable(view, 1) == (2, 3)
    left = view_log([each for each in stored if each.position not in (2, 3)])
    assert left.newest is None
    assert (left.options, left.attempt, left.next_position) == ({"fresh": "a"}, 1, 5)
    assert prunable(left, 1) == ()


def test_what_completes_after_a_stop_that_kept_nothing_counts_alone() -> None:
    view = view_log([*BEFORE, kept_nothing(4, 2), takeover(5, 2), completed(6, 3)])
    assert [found.checkpoint for found in view.manifests] == [3]
    assert prunable(view, 3) == (1, 2, 3, 4)


def test_an_ordinary_stop_keeps_what_was_completed() -> None:
    view = view_log([*BEFORE, entry(4, CleanStop(CheckpointId(2)))])
    assert view.newest is not None
    assert view.beginning is None


@pytest.mark.parametrize("found", [begins(4, 2), kept_nothing(4, 2)])
def test_both_are_read_as_they_were_written(found: Entry) -> None:
    assert decode_entry(found.position, encode_entry(found)) == found


def test_a_savepoint_is_known_again_by_who_wrote_it() -> None:
    own = SavepointOrigin("/s", False, INSTANCE, manifest(5).attempt, CheckpointId(5))
    assert own.is_of(manifest(5))
    assert not own.is_of(manifest(6))
    assert isinstance(completed(2, 1).body, Completed)
