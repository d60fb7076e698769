"""The compiled writer, aiokafka's builder and Kafka's own rules make the same bytes of the same columns, also where a
batch gets full, and where a record cannot be written."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.native import model
from tests.unit.native.columns import HIGHEST, LOWEST, columns, contents, keys, limits, parts, times, who
from tests.unit.native.writing import Make, Part, check_refused, check_written, trace
from tidegate.connectors.kafka.batches.writers import AiokafkaWriter, Columns, NativeWriter, Producing
from tidegate.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")

LARGE = 1 << 30
both = pytest.mark.parametrize("make", [NativeWriter, AiokafkaWriter])


@given(parts, limits, who, st.sampled_from([-1, 0, (1 << 31) - 1]))
def test_both_writers_make_the_same_bytes_of_the_same_columns(
    parts: Sequence[Part], limit: int, who: Producing, sequence: int
) -> None:
    check_written(parts, limit, who, sequence)


@given(columns(), st.integers(61, 400), who)
def test_what_does_not_fit_goes_on_in_the_next_batch(columns: Columns, limit: int, who: Producing) -> None:
    done, added = 0, 0
    while done < len(columns.values):
        written = check_written([(columns, done)], limit, who, 0)
        ((behind, records, size),) = written.steps
        assert behind is not None
        assert behind - done == records > 0
        assert size <= limit or records == 1
        done, added = behind, added + records
    assert added == len(columns.values)


def _one_by_one(count: int) -> Columns:
    return Columns([b"v" * index for index in range(count)], None, list(range(1, count + 1)), None)


@both
def test_a_batch_may_be_exactly_as_large_as_its_limit(make: Make) -> None:
    """As with Java's client: brokers, too, take what is as large as they allow."""
    given_columns = _one_by_one(5)
    whole = trace(make, [(given_columns, 0)], LARGE, Producing(), 0)
    ((_, _, size),) = whole.steps
    assert trace(make, [(given_columns, 0)], size, Producing(), 0) == whole
    assert trace(make, [(given_columns, 0)], size - 1, Producing(), 0).steps[0][:2] == (4, 4)


@pytest.mark.parametrize("limit", range(61, 150))
def test_batches_get_full_at_the_same_record_whatever_the_limit(limit: int) -> None:
    check_written([(_one_by_one(9), 0), (_one_by_one(9), 8)], limit, Producing(), 0)


@pytest.mark.parametrize("limit", [-(1 << 63), -1, 0, 61, 62, 1000])
def test_a_first_record_that_is_larger_than_the_limit_is_alone(limit: int) -> None:
    given_columns = Columns([b"v" * 5000, b"w"], [b"k", b""], [5, 6], None)
    written = check_written([(given_columns, 0), (given_columns, 1), (given_columns, 2)], limit, Producing(), 0)
    assert [step[:2] for step in written.steps] == [(1, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("first", [LOWEST, -2, 0, 1, HIGHEST])
@pytest.mark.parametrize("then", [LOWEST, -1, 0, 1_700_000_000_000, HIGHEST])
def test_timestamps_of_all_64_bits_are_written_the_same(first: int, then: int) -> None:
    """The difference of two of them may have more than 64 bits: then it goes around, and comes back when it is read."""
    check_written([(Columns([b"a", b"b"], None, [first, then], None), 0)], LARGE, Producing(), 0)


def test_a_first_timestamp_of_minus_one_is_a_timestamp_and_aiokafkas_builder_forgets_it() -> None:
    """Should this fail for want of a difference, `check_written` need not make one for it any more."""
    given_parts = [(Columns([b"a", b"b"], None, [-1, 5], None), 0)]
    right = check_written(given_parts, LARGE, Producing(), 0)
    assert right.batch is not None
    assert model.HEADER.unpack_from(right.batch)[7:9] == (-1, 5)
    assert trace(AiokafkaWriter, given_parts, LARGE, Producing(), 0) != right


@given(contents, keys, times, st.lists(st.integers(0, 30_000), min_size=1, max_size=3))
def test_records_whose_lengths_have_more_bytes_are_written_the_same(
    value: bytes | None, key: Any, time: int, sizes: list[int]
) -> None:
    """Of lengths and numbers: 63 takes one byte of a number, 64 takes two."""
    columns = Columns(
        [value, *(b"v" * size for size in sizes)],
        [key, *(b"k" * size for size in sizes)],
        [time or 1] * (len(sizes) + 1),
        [None, *([("n" * size, b"h" * size)] for size in sizes)],
    )
    check_written([(columns, 0)], LARGE, Producing(), 0)


def test_more_records_than_two_bytes_of_a_number_count_are_written_the_same() -> None:
    count = 9000
    given_columns = Columns([b"v"] * count, None, list(range(1, count + 1)), None)
    check_written([(given_columns, 0), (given_columns, 100)], LARGE, Producing(), 0)


BAD: dict[str, dict[str, Any]] = {
    "a value that is text": {"value": "text"},
    "a value that is a number": {"value": 5},
    "a value that is scattered": {"value": memoryview(b"abcdef")[::2]},
    "a key that is text": {"key": "text"},
    "a key that is a number": {"key": 5},
    "a timestamp that is text": {"time": "now"},
    "a timestamp that is too large": {"time": 1 << 63},
    "a timestamp that is too small": {"time": -(1 << 63) - 1},
    "headers that are a number": {"headers": 5},
    "a header that is a number": {"headers": [5]},
    "a header that is a list": {"headers": [["name", b""]]},
    "a header of half a character": {"headers": [("\ud800", b"")]},
    "a header whose name is bytes": {"headers": [(b"name", b"")]},
    "a header whose value is text": {"headers": [("name", b""), ("name", "text")]},
    "a header whose value is a bytearray": {"headers": [("name", bytearray(b"v"))]},
}
LENIENT = {"a header that is a list"}
"""Taken by the compiled part and refused by aiokafka's."""


def with_bad(index: int, count: int, bad: dict[str, Any]) -> Columns:
    whole = {"value": b"v", "key": b"k", "time": 5, "headers": [("a", b"b")]}
    rows = [{**whole, **(bad if one == index else {})} for one in range(count)]
    values, keys, times, headers = ([row[name] for row in rows] for name in whole)
    return Columns(values, keys, times, headers)


@pytest.mark.parametrize("name", [name for name in BAD if name not in LENIENT])
@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("limit", [1000, 61])
def test_what_cannot_be_written_is_refused_alike_and_what_was_before_it_is_kept(
    name: str, index: int, before: int, limit: int
) -> None:
    parts = [(_one_by_one(before), 0), (with_bad(index, 5, BAD[name]), 0), (_one_by_one(3), 1)]
    written = check_refused(parts, limit, Producing(), 0)
    refuses = limit == 1000 or (before == 0 and index <= 1) or (before > 0 and index == 0)
    assert len(written.raised) == refuses


@pytest.mark.parametrize("name", sorted(LENIENT))
def test_what_only_the_compiled_part_takes_is_written_as_if_it_were_right(name: str) -> None:
    right = {"headers": [tuple(one) for one in BAD[name]["headers"]]}
    native, aiokafka = (
        trace(make, [(with_bad(1, 3, BAD[name]), 0)], LARGE, Producing(), 0) for make in (NativeWriter, AiokafkaWriter)
    )
    assert native == trace(AiokafkaWriter, [(with_bad(1, 3, right), 0)], LARGE, Producing(), 0)
    assert aiokafka.raised == [TypeError]
