"""Groups are spread over subtasks without gap or overlap, and remembered without being changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidError
from tidegate.ids import KeyGroup, SubtaskIndex
from tidegate.state.key_groups import SubtaskCache, groups_of, key_group, subtask_of


@given(st.integers(1, 300), st.data())
def test_every_group_belongs_to_exactly_one_subtask_and_ranges_are_contiguous(
    max_parallelism: int, data: st.DataObject
) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [groups_of(SubtaskIndex(i), parallelism, max_parallelism) for i in range(parallelism)]
    assert [group for groups in ranges for group in groups] == list(range(max_parallelism))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    for subtask, groups in enumerate(ranges):
        assert {subtask_of(KeyGroup(group), parallelism, max_parallelism) for group in groups} == {subtask}


@pytest.mark.parametrize("parallelism", [0, -1, 129])
def test_a_parallelism_beyond_the_groups_is_refused(parallelism: int) -> None:
    with pytest.raises(InvalidError, match="max_parallelism 128"):
        groups_of(SubtaskIndex(0), parallelism, 128)


@given(st.lists(st.text(max_size=3)))
def test_remembered_groups_are_the_groups(keys: list[str]) -> None:
    # With a subtask for each group.
    cache = SubtaskCache(128, 128, limit=4)
    for _ in range(2):
        assert cache.subtasks(keys) == [key_group(key, 128) for key in keys]
        assert len(cache) <= 4


def test_keys_are_spread_over_the_groups() -> None:
    groups = [key_group(f"user-{number}", 128) for number in range(12_800)]
    counts = [groups.count(KeyGroup(group)) for group in range(128)]
    assert min(counts) > 50
    assert max(counts) < 170


@pytest.mark.parametrize("parallelism", [1, 2, 3, 128])
def test_remembered_subtasks_are_those_of_the_groups(parallelism: int) -> None:
    keys = [f"user-{number}" for number in range(300)]
    cache = SubtaskCache(parallelism, 128, limit=100)
    for _ in range(2):
        assert cache.subtasks(keys) == [subtask_of(key_group(key, 128), parallelism, 128) for key in keys]
