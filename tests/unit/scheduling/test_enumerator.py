"""Which splits there are and who reads them: each is in exactly one place, with a number for a position."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduling.programs import READ
from tidegate.checkpoint.protocol import SplitState
from tidegate.errors import ErrorKind
from tidegate.ids import OperatorName
from tidegate.operators.partitioned import SplitPlaces
from tidegate.scheduling.enumerator import SplitEnumerator
from tidegate.state.key_partitions import KeyPartitions


def split(id: str, position: int = 0, finished: bool = False) -> SplitState:
    return SplitState(id, position, 9, finished=finished)


def make(
    parallelism: int = 2,
    restored: Sequence[SplitState] | None = None,
    rediscovers: bool = False,
    bounded: bool = True,
) -> SplitEnumerator:
    return SplitEnumerator(READ, parallelism, restored, rediscovers, bounded)


def given_to(found: SplitEnumerator) -> list[tuple[int, str, bool]]:
    return [(a.subtask, "".join(s.id for s in a.splits), a.no_more) for a in found.assign()]


def test_splits_go_to_the_readers_with_the_fewest_in_the_order_of_their_ids() -> None:
    found = make(rediscovers=True, bounded=False)
    found.discovered([split("c"), split("a"), split("b")])
    assert given_to(found) == [(0, "ac", False), (1, "b", False)]
    found.discovered([split("d"), split("e")])
    assert given_to(found) == [(0, "e", False), (1, "d", False)]


def test_a_split_is_in_the_enumerator_until_it_is_handed_out_and_never_again() -> None:
    found = make()
    found.discovered([split("a"), split("b")])
    assert [s.id for s in found.unassigned] == ["a", "b"]
    found.assign()
    assert found.unassigned == ()
    found.discovered([split("a"), split("b")])
    assert found.unassigned == ()
    assert found.known == {"a", "b"}


def test_only_the_first_look_of_all_knows_nothing() -> None:
    new = SplitEnumerator(OperatorName("read"), 1, restored=None, rediscovers=True, bounded=False)
    assert new.known is None
    new.discovered(())
    assert new.known == frozenset(), "a split found from now on starts at its beginning"
    restored = SplitEnumerator(OperatorName("read"), 1, restored=(), rediscovers=True, bounded=False)
    assert restored.known == frozenset()


def test_after_the_only_look_every_reader_hears_once_that_nothing_follows() -> None:
    found = make(parallelism=3)
    assert given_to(found) == [], "it has not looked yet"
    found.discovered([split("a")])
    assert given_to(found) == [(0, "a", True), (1, "", True), (2, "", True)]
    assert given_to(found) == []


def test_a_source_that_is_looked_at_again_never_says_that_nothing_follows() -> None:
    found = make(rediscovers=True, bounded=False)
    found.discovered([])
    assert not any(assignment.no_more for assignment in found.assign())
    found.discovered([])
    assert found.assign() == []


def test_every_reader_hears_of_the_first_look_so_that_one_without_splits_knows_it() -> None:
    found = make(rediscovers=True, bounded=False)
    found.discovered([split("a", 0)])
    assert [(a.subtask, len(a.splits), a.no_more) for a in found.assign()] == [(0, 1, False), (1, 0, False)]
    found.discovered([split("a", 0), split("b", 0)])
    assert [(a.subtask, len(a.splits)) for a in found.assign()] == [(1, 1)]


def test_a_restored_bounded_source_goes_on_with_what_it_knew_and_does_not_look_again() -> None:
    found = make(restored=[split("b", 4), split("a", 7, finished=True)])
    assert not found.needs_discovery
    assert [(s.id, s.position) for s in found.unassigned] == [("a", 7), ("b", 4)]
    assert given_to(found) == [(0, "a", True), (1, "b", True)]


def test_a_restored_bounded_source_without_splits_ends_at_once() -> None:
    found = make(restored=[])
    assert not found.needs_discovery
    assert given_to(found) == [(0, "", True), (1, "", True)]


def test_a_source_that_is_new_in_the_program_looks_although_others_are_restored() -> None:
    assert make(restored=None).needs_discovery


def test_a_restored_endless_source_looks_and_keeps_the_restored_position() -> None:
    found = make(restored=[split("a", 5)], rediscovers=True, bounded=False)
    assert found.needs_discovery
    found.discovered([split("a", 0), split("b", 0)])
    assert [(s.id, s.position) for s in found.unassigned] == [("a", 5), ("b", 0)]


@given(
    looks=st.lists(st.lists(st.sampled_from("abcdefgh")), max_size=5),
    parallelism=st.integers(1, 4),
    restored=st.none() | st.lists(st.sampled_from("abcdefgh"), unique=True),
)
def test_however_often_it_is_looked_each_split_is_handed_out_exactly_once(
    looks: list[list[str]], parallelism: int, restored: list[str] | None
) -> None:
    found = make(parallelism, None if restored is None else [split(id) for id in restored], True, False)
    handed: list[str] = []
    for look in looks:
        found.discovered([split(id) for id in look])
        handed += [s.id for a in found.assign() for s in a.splits]
    handed += [s.id for s in found.unassigned]
    assert sorted(handed) == sorted({*(restored or ()), *(id for look in looks for id in look)})


class Topics:
    """A source whose splits are partitions: 'orders/3'."""

    def partition_of(self, split: str) -> tuple[str, int]:
        topic, _, number = split.rpartition("/")
        return topic, int(number)


def by_partition(parallelism: int, restored: Sequence[SplitState] | None = None) -> SplitEnumerator:
    places = SplitPlaces(Topics(), KeyPartitions(4, "murmur2"), 128)
    return SplitEnumerator(READ, parallelism, restored, rediscovers=True, bounded=False, places=places)


def readers(found: SplitEnumerator) -> dict[str, int]:
    assert found.failure is None
    return {split.id: assignment.subtask for assignment in found.assign() for split in assignment.splits}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 6])
def test_splits_by_partition_go_to_the_subtask_of_their_keys_also_after_a_restore(parallelism: int) -> None:
    expected = {f"{t}/{n}": n * 32 * parallelism // 128 for t in ("orders", "returns") for n in range(4)}
    splits = [split(id) for id in expected]
    fresh = by_partition(parallelism)
    fresh.discovered(splits)
    assert readers(fresh) == expected
    assert readers(by_partition(parallelism, splits)) == expected
    late = by_partition(parallelism)
    late.discovered(splits[:4])
    assert readers(late) == dict(list(expected.items())[:4])
    late.discovered(splits)
    assert readers(late) == dict(list(expected.items())[4:])


def test_a_reader_without_a_partition_hears_of_the_first_look_too() -> None:
    found = by_partition(6)
    found.discovered([split(f"orders/{n}") for n in range(4)])
    assert [a.subtask for a in found.assign()] == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_has_grown_cannot_be_handed_out_and_nothing_of_it_is() -> None:
    found = by_partition(2)
    assert found.failure is None
    found.discovered([split(f"orders/{n}") for n in range(4)])
    found.assign()
    assert found.failure is None
    found.discovered([split("orders/4")])
    assert found.failure is not None
    assert (found.failure.kind, found.failure.where) == (ErrorKind.INVALID, "operator read")
    assert "topic orders has 5 partitions" in found.failure.message
    restored = by_partition(2, [split("orders/0")])
    assert restored.failure is not None
    assert "has 1 partition" in restored.failure.message
