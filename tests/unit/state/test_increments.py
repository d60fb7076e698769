"""What a capture contains and names, over checkpoints that complete, are abandoned or are heard of late."""

from typing import Any

from tidegate.checkpoint.protocol import StateHandle
from tidegate.ids import CheckpointId
from tidegate.state.increments import REMOVED, Changes, Increment, Increments, Merged
from tidegate.state.runs import Run


def number(checkpoint: int) -> CheckpointId:
    return CheckpointId(checkpoint)


def run(name: str) -> Run:
    return Run((StateHandle(0, 7, 10, "checksum", name),), 10)


def stored(increments: Increments, checkpoint: int, changes: dict[str, Any]) -> Increment:
    """A capture of these changes of the state 's', stored as a run that is named after the checkpoint."""
    increment = increments.capture(number(checkpoint), {"s": changes})
    together = increment.merge_generations()
    increment.stored(together, run(str(checkpoint)) if together["s"] else None)
    return increment


def names(increment: Increment) -> list[str | None]:
    assert increment.chain is not None
    return [handle.path for one in increment.chain for handle in one.pieces]


def said(increment: Increment) -> Changes:
    return increment.merge_generations()


def test_each_capture_holds_what_changed_since_the_one_that_completed() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    two = stored(increments, 2, {"b": 2})
    assert (said(two), names(two)) == ({"s": {"b": 2}}, ["1", "2"])
    increments.completed(number(2))
    three = stored(increments, 3, {})
    assert names(three) == ["1", "2"]


def test_B01_what_an_abandoned_capture_held_is_in_the_next_one_in_a_new_file() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    stored(increments, 2, {"a": 2, "b": 2, "c": 2})
    increments.abandoned(number(2))
    three = stored(increments, 3, {"b": 3, "c": REMOVED})
    assert (said(three), names(three)) == ({"s": {"a": 2, "b": 3, "c": REMOVED}}, ["1", "3"])


def test_many_abandoned_captures_leave_one_generation() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    last = stored(increments, 2, {})
    increments.abandoned(number(2))
    for checkpoint in range(3, 50):
        last = stored(increments, checkpoint, {str(checkpoint % 3): checkpoint})
        increments.abandoned(number(checkpoint))
    assert len(last.generations) == 2
    assert said(last) == {"s": {"0": 48, "1": 49, "2": 47}}


def test_a_completion_that_is_heard_of_after_the_next_barrier_counts_when_that_one_is_decided() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    stored(increments, 2, {"b": 2})
    three = stored(increments, 3, {"c": 3})
    assert (said(three), names(three)) == ({"s": {"b": 2, "c": 3}}, ["1", "3"])
    increments.completed(number(2))
    increments.abandoned(number(3))
    four = stored(increments, 4, {})
    assert (said(four), names(four)) == ({"s": {"c": 3}}, ["1", "2", "4"])


def test_while_a_later_capture_is_undecided_nothing_is_named_that_it_does_not_name() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    stored(increments, 2, {"b": 2})
    stored(increments, 3, {"c": 3})
    increments.completed(number(2))
    four = stored(increments, 4, {"d": 4})
    assert names(four) == ["1", "4"]
    assert said(four) == {"s": {"b": 2, "c": 3, "d": 4}}


def test_a_completion_that_is_never_heard_of_leaves_the_changes_in_the_next_capture() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    stored(increments, 2, {"b": 2})
    stored(increments, 3, {"c": 3})
    increments.completed(number(3))
    four = stored(increments, 4, {"d": 4})
    assert (said(four), names(four)) == ({"s": {"d": 4}}, ["1", "3", "4"])


def needs_full(increments: Increments) -> bool:
    return increments.needs_full


def merged(increments: Increments) -> None:
    """Two checkpoints have completed; their files are merged."""
    for checkpoint in (1, 2):
        stored(increments, checkpoint, {str(checkpoint): checkpoint})
        increments.completed(number(checkpoint))
    increments.merge_finished(Merged(increments.chain, (run("merged"),)))


def test_the_next_capture_names_the_outcome_of_a_merge_in_place_of_what_was_merged() -> None:
    increments = Increments()
    merged(increments)
    assert names(stored(increments, 3, {"c": 3})) == ["merged", "3"]
    increments.completed(number(3))
    assert names(stored(increments, 4, {})) == ["merged", "3"]


def test_the_outcome_of_a_merge_that_only_an_abandoned_checkpoint_named_is_never_named_again() -> None:
    increments = Increments()
    merged(increments)
    stored(increments, 3, {"c": 3})
    increments.abandoned(number(3))
    assert not increments.needs_full
    assert increments.can_merge
    assert names(stored(increments, 4, {})) == ["1", "2", "4"]


def test_while_it_is_undecided_whether_a_merge_counts_a_capture_is_full() -> None:
    increments = Increments()
    merged(increments)
    stored(increments, 3, {"c": 3})
    assert needs_full(increments)
    four = stored(increments, 4, {"1": 1, "2": 2, "c": 3, "d": 4})
    assert (names(four), four.is_full) == (["4"], True)
    assert not needs_full(increments)
    five = stored(increments, 5, {"1": REMOVED})
    assert (names(five), five.is_full) == (["5"], True)
    increments.completed(number(5))
    assert names(stored(increments, 6, {})) == ["5"]


def test_after_a_full_capture_nothing_comes_back_that_was_gone_before_it() -> None:
    increments = Increments()
    stored(increments, 1, {"a": 1})
    increments.completed(number(1))
    stored(increments, 2, {"b": 2})
    increments.abandoned(number(2))
    increments.restart()
    stored(increments, 3, {"a": 1})
    increments.abandoned(number(3))
    four = stored(increments, 4, {"c": 4})
    assert (said(four), four.is_full, names(four)) == ({"s": {"a": 1, "c": 4}}, True, ["4"])


def test_a_merge_of_files_that_the_chain_no_longer_has_is_forgotten() -> None:
    increments = Increments()
    merged(increments)
    increments.restart()
    stored(increments, 3, {"a": 1})
    increments.completed(number(3))
    assert names(stored(increments, 4, {"b": 2})) == ["3", "4"]
    assert increments.can_merge
