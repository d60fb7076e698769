"""Group offsets are committed best effort: the newest that wait, one request at a time, and never in silence."""

from tidegate.connectors.kafka.batches.group_commits import PAUSE, CommitOffsets, FindCoordinator, GroupCommits
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.wire import Address

A = TopicPartition("orders", 0)
HERE, THERE = Address("here", 1), Address("there", 2)


def commits() -> tuple[GroupCommits, list[str]]:
    said: list[str] = []
    return GroupCommits("readers", said.append), said


def found(made: GroupCommits) -> None:
    assert made.next(0) == FindCoordinator("readers")
    made.found(0, HERE, 0)


def test_the_coordinator_is_looked_for_once_and_offsets_go_there() -> None:
    made, said = commits()
    assert made.next(0) is None
    assert not made.is_under_way
    made.want({A: 1})
    found(made)
    assert made.next(0) == CommitOffsets(HERE, "readers", {A: 1})
    made.committed([0], 0)
    made.want({A: 2})
    assert made.next(0) == CommitOffsets(HERE, "readers", {A: 2})
    made.committed([0], 0)
    assert (made.is_under_way, said) == (False, [])


def test_of_offsets_that_wait_only_the_newest_are_sent() -> None:
    made, _ = commits()
    made.want({A: 1})
    found(made)
    made.next(0)
    for offset in (2, 3, 4):
        made.want({A: offset})
        assert made.next(0) is None
    made.committed([0], 0)
    assert made.next(0) == CommitOffsets(HERE, "readers", {A: 4})


def test_a_coordinator_that_moved_is_looked_for_again_and_nothing_is_said() -> None:
    made, said = commits()
    made.want({A: 1})
    found(made)
    made.next(0)
    made.committed([16], 5.0)
    assert made.next(5.0) is None
    assert made.is_under_way
    assert made.next(5.0 + PAUSE) == FindCoordinator("readers")
    made.found(15, THERE, 6.0)
    assert made.next(6.0) is None
    assert made.next(6.0 + PAUSE) == FindCoordinator("readers")
    made.found(0, THERE, 7.0)
    assert made.next(7.0) == CommitOffsets(THERE, "readers", {A: 1})
    assert said == []


def test_newer_offsets_take_the_place_of_those_that_come_back() -> None:
    made, _ = commits()
    made.want({A: 1})
    found(made)
    made.next(0)
    made.want({A: 2})
    made.committed([16], 0)
    assert made.next(PAUSE) == FindCoordinator("readers")
    made.found(0, HERE, 1)
    assert made.next(1) == CommitOffsets(HERE, "readers", {A: 2})


def test_what_is_refused_is_said_and_not_tried_again() -> None:
    made, said = commits()
    made.want({A: 1})
    found(made)
    made.next(0)
    made.committed([0, 25], 0)
    assert not made.is_under_way
    assert said == ["offsets of group readers, which serve lag tools only, were not committed: UNKNOWN_MEMBER_ID"]


def test_a_group_that_may_not_be_used_is_said_once_for_each_commit() -> None:
    made, said = commits()
    for _ in range(2):
        made.want({A: 1})
        assert made.next(0) == FindCoordinator("readers")
        made.found(30, HERE, 0)
        assert not made.is_under_way
    assert len(said) == 2
    assert "GROUP_AUTHORIZATION_FAILED" in said[0]


def test_where_nobody_answers_it_is_said_and_tried_again_later() -> None:
    made, said = commits()
    made.want({A: 1})
    made.next(0)
    made.unanswered("no answer", 1.0)
    assert made.next(1.0) is None
    assert made.next(1.0 + PAUSE) == FindCoordinator("readers")
    assert "no answer" in said[0]
