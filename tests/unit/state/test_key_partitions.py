"""Co-partitioned keys: the partition of a key is what producers' partitioners say, and its group follows from it."""

import sys
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import KeyGroup, SubtaskIndex
from tidegate.state.chain import columns_of
from tidegate.state.key_groups import (
    KeyChecker,
    group_of_bytes,
    grouping_of,
    groups_of,
    merge_key_types,
    subtask_of,
)
from tidegate.state.key_partitions import (
    CRC32,
    MURMUR2,
    PARTITIONERS,
    KeyPartitions,
    own_murmur2,
    partition_function,
    partitioned_key_type,
)
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.keys import encode_key
from tidegate.state.pieces import Column, Piece, write_piece

FOUR = KeyPartitions(4, MURMUR2)
TEXT = "str in 4 partitions by murmur2"
OTHERS = (
    "str",
    "bytes in 4 partitions by murmur2",
    "str in 5 partitions by murmur2",
    "str in 4 partitions by crc32",
)
"""Types that contradict it."""

partitions = st.builds(KeyPartitions, st.integers(1, 300), st.sampled_from(PARTITIONERS))
keys = st.text(max_size=8) | st.binary(max_size=20)

# ---- partitioners --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_javas_client(key: bytes, java: int) -> None:
    assert own_murmur2(key, 1 << 31) == java & 0x7FFFFFFF
    assert KeyPartitions(7, MURMUR2).of(key) == (java & 0x7FFFFFFF) % 7


@given(st.binary(max_size=40), st.integers(1, 32_768))
def test_our_own_murmur2_is_librdkafkas(key: bytes, count: int) -> None:
    compiled = pytest.importorskip("confluent_kafka.cimpl").murmur2
    assert partition_function(MURMUR2) is compiled
    assert own_murmur2(key, count) == compiled(key, count)


def test_without_librdkafka_our_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.cimpl", None)
    assert partition_function.__wrapped__(MURMUR2) is own_murmur2


def test_crc32_is_that_of_librdkafka() -> None:
    # The check value of the polynomial, and what consistent_random makes of it.
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert KeyPartitions(1000, CRC32).of("123456789") == 0xCBF43926 % 1000


@pytest.mark.parametrize(
    ("partitioner", "found"),
    [(MURMUR2, [1, 0, 1, 0, 0, 3, 0, 3, 2]), (CRC32, [0, 3, 3, 0, 2, 0, 0, 1, 0])],
)
def test_the_partitions_of_keys_never_change(partitioner: str, found: list[int]) -> None:
    some = ["", "a", "ä", "user-1", "user-2", "user-3", b"user-1", b"\xff\x00", "\ud800"]
    assert [KeyPartitions(4, partitioner).of(key) for key in some] == found


@pytest.mark.parametrize("wrong", [None, 1, True, ("a",), 1.5], ids=repr)
def test_only_str_and_bytes_have_a_partition(wrong: Any) -> None:
    with pytest.raises(InvalidError, match=f"type {type(wrong).__name__}"):
        FOUR.of(wrong)
    with pytest.raises(InvalidError):
        FOUR.group_of(wrong, 128)


# ---- groups --------------------------------------------------------------------------------------------------------


@given(keys, partitions, st.integers(1, 400))
def test_the_group_of_a_key_is_that_of_its_partition(key: str | bytes, given_: KeyPartitions, groups: int) -> None:
    text = partitioned_key_type(type(key).__name__, given_)
    if given_.count > groups:
        with pytest.raises(CorruptError, match=f"max_parallelism {groups}"):
            grouping_of(text, groups)
        return
    expected = given_.of(key) * groups // given_.count
    assert given_.group_of(key, groups) == expected
    assert grouping_of(text, groups).group_of(encode_key(key)) == expected


@given(partitions, st.data())
def test_partitions_are_spread_over_subtasks_as_evenly_as_can_be_and_each_has_a_group_of_its_own(
    given_: KeyPartitions, data: st.DataObject
) -> None:
    max_parallelism = data.draw(st.integers(given_.count, 400))
    parallelism = data.draw(st.integers(1, max_parallelism))
    groups = [given_.group_of_partition(one, max_parallelism) for one in range(given_.count)]
    assert sorted(set(groups)) == groups
    owners = [subtask_of(group, parallelism, max_parallelism) for group in groups]
    for group, owner in zip(groups, owners, strict=True):
        assert group in groups_of(owner, parallelism, max_parallelism)
    counts = [owners.count(SubtaskIndex(subtask)) for subtask in range(parallelism)]
    assert max(counts) - min(counts) <= 2
    assert max(counts) <= -(-given_.count // parallelism) + 1


@given(st.text(max_size=5), st.integers(1, 400), st.sampled_from(["", "str", "None"]))
def test_without_partitions_groups_are_what_they_always_were(key: str, groups: int, text: str) -> None:
    assert grouping_of(text, groups).group_of(encode_key(key)) == group_of_bytes(encode_key(key), groups)


@pytest.mark.parametrize("stored", [b"n", b"", b"i\x01", b"ya", b"tsa"], ids=repr)
def test_stored_bytes_of_another_type_have_no_group(stored: bytes) -> None:
    with pytest.raises(CorruptError, match=TEXT):
        grouping_of(TEXT, 128).group_of(stored)


def test_a_stored_key_in_the_group_of_another_partition_is_corrupt() -> None:
    key = encode_key("user-1")
    group = FOUR.group_of("user-1", 16)
    for other in range(16):
        piece = Piece(write_piece(range(16), 16, TEXT, ("total",), {KeyGroup(other): [Column(0, [key], [b"\x01"])]}))
        if other == group:
            assert [name for name, _ in columns_of(piece, group, None)] == ["total"]
            continue
        with pytest.raises(CorruptError, match=f"not of group {other}"):
            list(columns_of(piece, KeyGroup(other), None))


def test_partitions_need_as_many_groups() -> None:
    KeyPartitions(128, MURMUR2).require_groups(128)
    with pytest.raises(InvalidError, match=r"operator totals: 129 partitions by crc32 .* max_parallelism 128"):
        KeyPartitions(129, CRC32).require_groups(128, "operator totals")


# ---- their text ----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["str", "bytes"]), st.builds(KeyPartitions, st.integers(1, 32_768), st.sampled_from(PARTITIONERS))
)
def test_the_type_of_keys_names_the_partitions_and_is_read_again(key_type: str, given_: KeyPartitions) -> None:
    text = partitioned_key_type(key_type, given_)
    layout = parse_layout(text)
    assert (layout.name, layout.parts, layout.partitions, str(layout)) == (key_type, None, given_, text)
    assert KeyPartitions.parse(str(given_)) == given_


def test_the_text_never_changes() -> None:
    assert partitioned_key_type("str", FOUR) == TEXT
    assert partitioned_key_type("bytes", KeyPartitions(12, CRC32)) == "bytes in 12 partitions by crc32"


NONSENSE = """
str in 0 partitions by murmur2
str in 04 partitions by murmur2
str in -4 partitions by murmur2
str in 32769 partitions by murmur2
str in 99999999999999999999 partitions by murmur2
str in ٤ partitions by murmur2
str in 4 partitions by fnv1a
str in 4 partitions by
str in 4 partitions
str in 4 partitions by murmur2 in 4 partitions by murmur2
str in 4 partitions by murmur2!
str in ever
str  in 4 partitions by murmur2
 in 4 partitions by murmur2
int in 4 partitions by murmur2
None in 4 partitions by murmur2
tuple[str] in 4 partitions by murmur2
app:Key in 4 partitions by murmur2
tuple[str in 4 partitions by murmur2]
"""


@pytest.mark.parametrize("text", [*NONSENSE.strip("\n").split("\n"), f"{TEXT} ", f"{TEXT}\n", "str in "])
def test_text_that_names_no_partitions_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_layout(text)
    with pytest.raises(CorruptError):
        grouping_of(text, 128)
    with pytest.raises(CorruptError):
        KeyPartitions.parse(f"{text.removeprefix('str in ')}!")


def test_what_a_program_may_not_say() -> None:
    assert KeyPartitions.declared(4, "murmur2") == FOUR
    for count in (0, -1, 32_769, True, 4.0, "4", None):
        with pytest.raises(InvalidError, match="partitions="):
            KeyPartitions.declared(count, MURMUR2)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"'fnv1a'.*") as raised:
        KeyPartitions.declared(4, "fnv1a")
    assert "murmur2, crc32" in raised.value.failure.remedy
    for key_type in ("int", "tuple[str]", "", "app:Key[x: int]"):
        with pytest.raises(InvalidError, match="4 partitions by murmur2"):
            partitioned_key_type(key_type, FOUR)


def test_partitions_are_a_part_of_the_type_that_contradicts_others() -> None:
    for other in (*OTHERS, "None", "int"):
        assert merge_key_types(TEXT, other) is None
        assert merge_key_types(other, TEXT) is None
    assert merge_key_types(TEXT, TEXT) == merge_key_types("", TEXT) == merge_key_types(TEXT, "") == TEXT


def test_stored_keys_come_back_and_none_is_none_of_them() -> None:
    layout = parse_layout(TEXT)
    assert decode_keys([encode_key(key) for key in ("", "ä", "\ud800")], layout) == ["", "ä", "\ud800"]
    for wrong in (None, b"a", 1):
        with pytest.raises(CorruptError):
            decode_keys([encode_key("a"), encode_key(wrong)], layout)


# ---- the keys of an operator ---------------------------------------------------------------------------------------


def test_declared_partitions_admit_plain_keys_of_the_class_and_never_none() -> None:
    for checker in (KeyChecker("totals", str, FOUR), KeyChecker.of_type("totals", TEXT)):
        checker.check(["a", "b"])
        assert checker.admit("c") is True
        assert checker.key_type == TEXT
        for wrong in (None, b"a", 1, ("a",)):
            with pytest.raises(InvalidError, match=r"operator totals: a key of type .* in 4 partitions by murmur2"):
                checker.check(["a", wrong])
            with pytest.raises(InvalidError):
                checker.admit(wrong)
        checker.expect("")
        checker.expect(TEXT)
        checker.check(["d"])
        assert checker.key_type == TEXT


def test_none_is_refused_also_as_the_first_key() -> None:
    for keys_ in ([None], [None, "a"]):
        with pytest.raises(InvalidError, match="None"):
            KeyChecker("totals", str, FOUR).check(keys_)


def test_bytes_are_no_str() -> None:
    checker = KeyChecker("totals", bytes, FOUR)
    checker.check([b"a"])
    assert checker.key_type == "bytes in 4 partitions by murmur2"
    with pytest.raises(InvalidError):
        checker.check(["a"])


def test_stored_keys_of_other_partitions_contradict_and_partitions_must_have_been_declared() -> None:
    for one, other in [(TEXT, other) for other in OTHERS] + [(other, TEXT) for other in OTHERS]:
        with pytest.raises(InvalidError, match=f"stored keys of type {other} where keys are of type {one}"):
            KeyChecker.of_type("totals", one).expect(other)
    with pytest.raises(InvalidError, match="not co-partitioned") as raised:
        KeyChecker("totals").expect(TEXT)
    assert "partitions=4" in raised.value.failure.remedy


@pytest.mark.parametrize("declared", [None, int, tuple[str], str | int])
def test_partitions_of_other_keys_cannot_be_declared(declared: Any) -> None:
    with pytest.raises(InvalidError):
        KeyChecker("totals", declared, FOUR)


def test_a_group_is_a_number_of_its_own_kind() -> None:
    assert FOUR.group_of("a", 128) == KeyGroup(FOUR.of("a") * 32)
