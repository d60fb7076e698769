"""The compiled hash gives each key the partition that Kafka's clients give it, and passes by no key that is elsewhere
or that it does not know."""

from collections import UserList, deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.native import native
from tidegate.state.key_partitions import CRC32, MURMUR2, KeyPartitions, own_murmur2

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")
if native is not None:
    partitions_of, first_elsewhere = native.partitions_of, native.first_elsewhere

LARGEST = (1 << 31) - 1
counts = st.integers(1, 9) | st.integers(1, 32_768) | st.sampled_from([1, LARGEST, LARGEST - 1])
data = st.binary(max_size=40) | st.binary(min_size=250, max_size=260)
texts = st.text(max_size=20)
halves = st.sampled_from(["\ud800", "a\udfff", "\udc80" * 4])


class Text(str):
    """A str that is not only that: a partitioner knows no such key."""

    __slots__ = ()


class Data(bytes):
    """As `Text`."""


def partition_of(key: Any, count: int) -> int | None:
    """None where nothing can be said of a key."""
    if type(key) is str:
        try:
            return own_murmur2(key.encode(), count)
        except UnicodeEncodeError:
            return None
    return own_murmur2(key, count) if type(key) is bytes else None


@given(st.lists(st.none() | data, max_size=30), counts, st.sampled_from([list, tuple]))
def test_a_key_has_the_partition_that_kafkas_hash_gives_it_and_no_key_has_none(
    keys: list[bytes | None], count: int, shape: Any
) -> None:
    found = partitions_of(shape(keys), count)
    assert found == [-1 if key is None else own_murmur2(key, count) for key in keys]


@pytest.mark.parametrize("size", range(13))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_every_rest_of_bytes_behind_the_last_word_is_hashed_as_unsigned(size: int, byte: int) -> None:
    key = bytes([byte]) * size
    assert partitions_of([key], LARGEST) == [own_murmur2(key, LARGEST)]


def test_a_subclass_of_bytes_is_hashed_as_bytes_where_it_goes_to_a_topic() -> None:
    assert partitions_of([Data(b"key")], 100) == [own_murmur2(b"key", 100)]


mixed = st.lists(
    texts | data | halves | st.none() | st.builds(Text, texts) | st.builds(Data, data) | st.integers() | st.booleans(),
    max_size=8,
)


@given(mixed, counts, st.integers(-1, 9), st.sampled_from([list, tuple]))
def test_the_first_key_of_which_it_cannot_be_said_that_it_is_there_is_found(
    keys: list[Any], count: int, partition: int, shape: Any
) -> None:
    expected = next((index for index, key in enumerate(keys) if partition_of(key, count) != partition), -1)
    assert first_elsewhere(shape(keys), partition, count) == expected


@given(st.lists(texts | data, min_size=1, max_size=40), st.integers(1, 4), st.data())
def test_keys_of_one_partition_are_all_there_until_another_one_is_among_them(
    keys: list[Any], count: int, draws: st.DataObject
) -> None:
    partition = partition_of(keys[0], count)
    assert partition is not None
    same = [key for key in keys if partition_of(key, count) == partition]
    assert first_elsewhere(same, partition, count) == -1
    assert first_elsewhere(same, partition + 1, count + 1 << 20) in (0, -1)
    at = draws.draw(st.integers(0, len(same)))
    for other in [*(key for key in keys if key not in same), "\ud800", None, Text("a"), Data(b"a"), 5]:
        assert first_elsewhere([*same[:at], other, *same[at:]], partition, count) == at


@given(mixed, st.integers(1, 4), st.integers(0, 3))
def test_what_is_said_to_be_in_a_partition_is_there_by_each_key(keys: list[Any], count: int, partition: int) -> None:
    """What a job's state rests on: by the compiled part none gets past the check that would not without it."""
    partitions = KeyPartitions(count, MURMUR2)
    if partitions.are_in(partition, keys):
        assert all(partitions.of(key) == partition for key in keys)
    assert not KeyPartitions(count, CRC32).are_in(partition, keys)


@pytest.mark.parametrize("partition", [-1, 3, 4, 1 << 31, (1 << 63) - 1, -(1 << 63)])
def test_no_key_is_in_a_partition_that_there_is_not(partition: int) -> None:
    assert first_elsewhere([b"a", b"b"], partition, 3) == 0


@pytest.mark.parametrize("empty", [[], ()])
def test_of_no_keys_there_is_no_partition_and_none_is_elsewhere(empty: Sequence[Any]) -> None:
    assert partitions_of(empty, 3) == []
    assert first_elsewhere(empty, 0, 3) == -1


@pytest.mark.parametrize("key", ["text", 5, 1.5, bytearray(b"k"), memoryview(b"k"), [b"k"], True])
@pytest.mark.parametrize("before", [0, 3])
def test_what_is_no_key_of_a_topic_is_refused(key: Any, before: int) -> None:
    with pytest.raises(TypeError, match="a key must be bytes or None"):
        partitions_of([b"k"] * before + [key], 3)


@pytest.mark.parametrize("count", [0, -1, 1 << 31, (1 << 63) - 1, -(1 << 63)])
def test_less_than_one_partition_and_more_than_kafka_counts_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="there is no partition"):
        partitions_of([b"k"], count)
    with pytest.raises(ValueError, match="there is no partition"):
        first_elsewhere([b"k"], 0, count)


@pytest.mark.parametrize("count", [1 << 63, -(1 << 63) - 1, "3", None, 1.5])
def test_what_is_no_number_of_partitions_is_refused(count: Any) -> None:
    with pytest.raises((OverflowError, TypeError)):
        partitions_of([b"k"], count)
    with pytest.raises((OverflowError, TypeError)):
        first_elsewhere([b"k"], 0, count)
    with pytest.raises((OverflowError, TypeError)):
        first_elsewhere([b"k"], count, 3)


@pytest.mark.parametrize("keys", [{b"k"}, {b"k": 1}, b"kkk", "kkk", iter([b"k"]), UserList([b"k"]), deque([b"k"]), 5])
def test_keys_that_are_no_list_and_no_tuple_are_refused(keys: Any) -> None:
    """Looking at any other might call what a caller has written."""
    with pytest.raises(TypeError, match="keys must be a list or a tuple"):
        partitions_of(keys, 3)
    with pytest.raises(TypeError, match="keys must be a list or a tuple"):
        first_elsewhere(keys, 0, 3)


def test_no_column_of_keys_at_all_is_refused() -> None:
    none: Any = None
    with pytest.raises(ValueError, match="there is no partition"):
        partitions_of(none, 3)
    with pytest.raises(ValueError, match="there is no partition"):
        first_elsewhere(none, 0, 3)
