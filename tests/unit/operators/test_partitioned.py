"""The check that every record came from the partition of its key, and where splits belong."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.bench import context
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.operators import partitioned
from tidegate.operators.partitioned import PartitionCheck, PartitionedSource, SplitPlaces
from tidegate.operators.stateless import KeyByOperator
from tidegate.operators.user_code import OnError
from tidegate.state.key_groups import KeyChecker, groups_of
from tidegate.state.key_partitions import KeyPartitions

FOUR = KeyPartitions(4, "murmur2")
KEYS = [f"user-{number}" for number in range(200)]


def of(partition: int, partitions: KeyPartitions = FOUR) -> list[str]:
    return [key for key in KEYS if partitions.of(key) == partition]


def check(
    subtask: int = 0, parallelism: int = 2, reading: Callable[[], int] | None = None, partitions: KeyPartitions = FOUR
) -> PartitionCheck:
    return PartitionCheck(partitions, SubtaskIndex(subtask), parallelism, 128, reading)


class Topics:
    def partition_of(self, split: str) -> tuple[str, int]:
        topic, _, number = split.rpartition("/")
        return topic, int(number)


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_of_another_partition_than_was_read_is_told_with_both_and_what_to_do() -> None:
    reading = [1]
    found = check(parallelism=1, reading=lambda: reading[0])
    found.check(of(1))
    reading[0] = 2
    found.check(of(2))
    wrong = of(3)[0]
    with pytest.raises(InvalidError) as caught:
        found.check([*of(2), wrong])
    failure = caught.value.failure
    assert failure.message == (
        f"key '{wrong}' came from partition 2, and of 4 partitions by murmur2 it belongs to partition 3"
    )
    assert "partitioner='crc32'" in failure.remedy
    assert "leave partitions= out" in failure.remedy


def test_a_key_that_was_right_in_one_partition_is_not_right_in_another_one() -> None:
    reading = [1]
    found = check(parallelism=1, reading=lambda: reading[0])
    found.check(of(1))
    reading[0] = 2
    with pytest.raises(InvalidError, match="came from partition 2"):
        found.check(of(1)[:1])


def test_where_the_partition_is_not_known_a_key_of_another_subtask_is_refused() -> None:
    found = check(subtask=1)
    found.check([*of(2), *of(3)])
    with pytest.raises(InvalidError, match=r"came from one of partitions 2, 3, .* belongs to partition 0"):
        found.check([*of(2), of(0)[0]])
    check(parallelism=1).check(KEYS)
    with pytest.raises(InvalidError, match="this subtask reads none"):
        check(subtask=2, parallelism=6).check(KEYS[:1])


def test_a_key_that_is_none_has_no_partition_at_any_parallelism() -> None:
    with pytest.raises(InvalidError, match="NoneType"):
        check(parallelism=1).check(["user-1", None])


@given(
    st.lists(st.text(max_size=5) | st.binary(max_size=5), max_size=30),
    st.integers(1, 9),
    st.sampled_from(["murmur2", "crc32"]),
    st.integers(1, 6),
    st.integers(1, 40),
)
def test_the_check_agrees_with_the_plain_rule_whatever_it_remembers(
    keys: list[Any], count: int, partitioner: str, parallelism: int, remembered: int
) -> None:
    partitions = KeyPartitions(count, partitioner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioned, "_REMEMBERED", remembered)
        for subtask in range(parallelism):
            own = groups_of(SubtaskIndex(subtask), parallelism, 128)
            found = check(subtask, parallelism, partitions=partitions)
            for start in range(0, len(keys), 7):
                batch = keys[start : start + 7]
                right = [key for key in batch if partitions.group_of(key, 128) in own]
                found.check(right)
                if right != batch:
                    with pytest.raises(InvalidError):
                        found.check(batch)


def test_key_by_says_where_the_wrong_key_was_and_on_error_does_not_hide_it() -> None:
    operator = KeyByOperator(lambda value: value, KeyChecker("by", str).check, OnError(skip=True))
    operator.open(msgspec.structs.replace(context(), check_keys=check(subtask=1).check))
    (out,) = operator.process(Batch(of(2)))
    assert out.keys == of(2)
    with pytest.raises(InvalidError) as caught:
        operator.process(Batch([*of(2), *of(1)]))
    assert caught.value.failure.where == "operator it, subtask 1, attempt 3"
    assert operator.records_skipped == 0


# ---- splits ----------------------------------------------------------------------------------------------------------


def test_a_split_is_read_by_the_subtask_that_has_the_state_of_its_keys() -> None:
    places = SplitPlaces(Topics(), FOUR, 128)
    for parallelism in range(1, 7):
        for partition in range(4):
            subtask = places.subtask(f"orders/{partition}", parallelism)
            groups = groups_of(subtask, parallelism, 128)
            assert all(FOUR.group_of(key, 128) in groups for key in of(partition))
    assert isinstance(Topics(), PartitionedSource)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, 2, 3, 4], "topic orders has 5 partitions"),
        ([0, 1, 2], "topic orders has 3 partitions"),
    ],
)
def test_a_topic_with_other_partitions_than_declared_is_refused(numbers: list[int], words: str) -> None:
    places = SplitPlaces(Topics(), FOUR, 128)
    splits = [f"orders/{number}" for number in numbers] + [f"returns/{number}" for number in range(4)]
    with pytest.raises(InvalidError) as caught:
        places.check(splits)
    assert words in caught.value.failure.message
    assert "4 partitions by murmur2" in caught.value.failure.message
    assert f"partitions={len(numbers)}" in caught.value.failure.remedy
    places.check([f"{topic}/{number}" for topic in ("orders", "returns") for number in range(4)])
    places.check([])
