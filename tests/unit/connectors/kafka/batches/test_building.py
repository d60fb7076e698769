"""Columns become record batches that readers read back, keys land where Java's client puts them, order is kept."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_one

from tidegate.connectors.kafka.batches.building import SEQUENCES, Building, Compression, Sealed, halves
from tidegate.connectors.kafka.batches.grouping import Given, grouped
from tidegate.connectors.kafka.batches.partitioning import Partitioner
from tidegate.connectors.kafka.batches.reading import Batches, Reader, spans
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.connectors.kafka.client import Chunk, TopicPartition
from tidegate.connectors.kafka.client import Columns as Wanted

WHO = Producing(id=7, epoch=3, is_transactional=True)
ALL = Wanted(keys=True, timestamps=True, headers=True, offsets=True)


def read(batch: Sealed) -> Chunk:
    found = list(spans(batch.data))
    (span,) = found
    return Reader(ALL, "here").chunk(Batches(TopicPartition("t", 0), batch.data, found, 0, span.end_offset), 0)


def columns(count: int, size: int = 10) -> Columns:
    return Columns([b"%d" % index + b"v" * size for index in range(count)], None, [1000] * count, None)


rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=30),
        st.integers(1, 2**45),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=60,
)


@given(rows, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.booleans(), st.integers(100, 3000))
def test_what_is_written_is_read_back_in_order_whatever_fits_into_a_batch(
    given_rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    codec: str,
    with_headers: bool,
    limit: int,
) -> None:
    values, keys, timestamps, headers = map(list, zip(*given_rows, strict=True))
    whole = Columns(values, keys, timestamps, headers if with_headers else None)
    done, sequence, found = 0, 0, list[Chunk]()
    while done < len(values):
        building = Building(limit, WHO)
        done = building.add(whole, done)
        batch = building.seal(sequence, 0.0, Compression(codec))
        sequence += batch.records
        found.append(read(batch))
    assert [one for chunk in found for one in chunk.values] == values
    assert [one for chunk in found for one in chunk.keys or []] == keys
    assert [one for chunk in found for one in chunk.timestamps or []] == timestamps
    expected = headers if with_headers else [[] for _ in values]
    assert [one for chunk in found for one in chunk.headers or []] == expected


def test_a_batch_says_who_wrote_it_and_its_first_sequence_number() -> None:
    building = Building(1000, WHO)
    building.add(columns(3))
    batch = building.seal(40, 5.0)
    assert (batch.records, batch.sequence, batch.born, batch.largest) == (3, 40, 5.0, 11)
    attributes, producer_id, epoch, sequence = struct.unpack_from(">h20xqhi", batch.data, 21)
    assert (attributes & 0x10, producer_id, epoch, sequence) == (0x10, 7, 3, 40)


@pytest.mark.parametrize("rest", [columns(200, 10), columns(3, 900)])
def test_a_batch_is_never_larger_than_its_limit_but_for_one_record(rest: Columns) -> None:
    building = Building(1000, WHO)
    assert building.add(columns(2)) == 2
    added = building.add(rest)
    assert 0 <= added < len(rest.values)
    assert building.size <= 1000
    alone = Building(1000, WHO)
    assert alone.add(columns(1, 5000)) == 1
    assert alone.size > 5000


@pytest.mark.parametrize(("value", "headers"), [(5, None), (b"c", [None, 5])])
def test_what_cannot_be_built_leaves_a_batch_of_what_was_before_it(value: Any, headers: Any) -> None:
    building = Building(1000, WHO)
    building.add(Columns([b"a"], None, [1], None))
    with pytest.raises(TypeError):
        building.add(Columns([b"b", value], None, [1, 1], headers))
    building.add(Columns([b"d"], None, [1], None))
    batch = building.seal(0, 0.0)
    chunk = read(batch)
    assert (chunk.values, chunk.offsets, batch.records) == ([b"a", b"b", b"d"], range(3), 3)


@pytest.mark.parametrize("first", [0, 100, SEQUENCES - 2])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_halves_have_the_same_records_and_sequence_numbers(first: int, count: int) -> None:
    building = Building(10_000, WHO)
    building.add(columns(count))
    batch = building.seal(first, 1.5)
    parts = halves(batch, WHO)
    assert len(parts) == min(count, 2)
    assert [one for part in parts for one in read(part).values] == read(batch).values
    expected = first
    for part in parts:
        assert (part.sequence, part.born) == (expected, 1.5)
        expected = (expected + part.records) % SEQUENCES


def test_halves_of_a_batch_without_sequence_numbers_have_none() -> None:
    building = Building(10_000, Producing())
    building.add(columns(4))
    assert [part.sequence for part in halves(building.seal(-1, 0.0), Producing())] == [-1, -1]


# ---- partitions ----------------------------------------------------------------------------------------------------


@given(st.lists(st.none() | st.binary(max_size=30), max_size=50), st.integers(1, 1000))
def test_keys_land_where_javas_client_puts_them(keys: list[bytes | None], count: int) -> None:
    partitioner = Partitioner(count)
    for _ in range(2):
        for key, partition in zip(keys, partitioner.of(keys), strict=True):
            assert 0 <= partition < count
            assert key is None or partition == (murmur2_of_one(key) & 0x7FFFFFFF) % count


@pytest.mark.parametrize("key", ["text", 5, bytearray(b"k")])
def test_a_key_that_is_not_bytes_is_refused(key: Any) -> None:
    with pytest.raises(TypeError):
        Partitioner(3).of([b"k", key])


def test_records_of_one_partition_are_not_taken_apart() -> None:
    values, keys, times = [b"1", b"2", b"3"], [b"k", b"k", b"k"], [5, 6, 7]
    ((number, group),) = grouped(Given("t", values, keys, None, times, None), Partitioner(5), wall=1).items()
    assert number == (murmur2_of_one(b"k") & 0x7FFFFFFF) % 5
    assert (group.values, group.keys, group.timestamps) == (values, keys, times)
    assert group.values is values


@pytest.mark.parametrize("records", [1, 2, 3, 10, 1000])
def test_records_without_keys_are_spread_and_stay_in_runs(records: int) -> None:
    partitioner = Partitioner(3)
    found: dict[int, int] = {}
    for _ in range(30):
        runs = partitioner.ranges(records)
        assert sum(length for _, length in runs) == records
        assert len({number for number, _ in runs}) == len(runs)
        for number, length in runs:
            found[number] = found.get(number, 0) + length
    assert max(found.values()) - min(found.values()) <= max(found.values()) / 3


grouped_rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=2),
        st.integers(0, 4),
        st.integers(-2, 9),
        st.none() | st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
    ),
    max_size=60,
)


@given(grouped_rows, st.sampled_from(["keys", "partitions", "one partition", "neither"]), st.booleans(), st.booleans())
def test_grouping_loses_nothing_and_keeps_the_order_within_each_partition(
    rows: list[tuple[bytes | None, int, int, Any]], by: str, with_times: bool, with_headers: bool
) -> None:
    count = len(rows)
    values = [b"%d" % index for index in range(count)]
    keys = [row[0] for row in rows] if by == "keys" else None
    partitions = {"partitions": [row[1] for row in rows], "one partition": [3] * count}.get(by)
    times = [row[2] for row in rows] if with_times else None
    headers = [row[3] for row in rows] if with_headers else None
    groups = grouped(Given("t", values, keys, partitions, times, headers), Partitioner(5), wall=77)
    found: list[int] = []
    for number, group in groups.items():
        indexes = [int(value or b"") for value in group.values]
        assert indexes == sorted(indexes)
        for index in indexes:
            assert partitions is None or partitions[index] == number
            key = None if keys is None else keys[index]
            assert key is None or (murmur2_of_one(key) & 0x7FFFFFFF) % 5 == number
        assert group.keys is None if keys is None else list(group.keys or ()) == [keys[index] for index in indexes]
        expected = [77 if times is None or times[index] <= 0 else times[index] for index in indexes]
        assert list(group.timestamps) == expected
        found += indexes
        if headers is None:
            assert group.headers is None
        else:
            assert list(group.headers or ()) == [headers[index] for index in indexes]
    assert sorted(found) == list(range(count))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="a column of 1 beside 2 values"):
        grouped(Given("t", [b"a", b"b"], [b"k"], None, None, None), Partitioner(5), wall=1)
