"""Records as a stream's values: what is asked for is filled, formats never see what is not there."""

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.client import Chunk, TopicPartition
from tidegate.connectors.kafka.records import (
    FIELDS,
    Beside,
    Field,
    KafkaRecord,
    RecordColumns,
    RecordValue,
    decode_present,
    deserializer_of,
    records_of,
)
from tidegate.formats import Json, String
from tidegate.operators.columns import keeps

CHUNK = Chunk(
    partition=TopicPartition("t", 3),
    values=[b"1", None],
    next_offset=9,
    keys=[None, b"k"],
    timestamps=[-1, 70],
    headers=[[], [("h", None), ("h", b"")]],
    offsets=[5, 7],
)


class Forgetful(String):
    """Drops the last value."""

    def decode(self, raw: list[Any]) -> list[Any]:
        return super().decode(raw)[:-1]


class Strict(Json):
    def decode(self, raw: list[Any]) -> list[Any]:
        assert None not in raw
        return super().decode(raw)


def test_all_fields_of_a_record_that_was_asked_for_everything() -> None:
    assert list(records_of(CHUNK, FIELDS)) == [
        KafkaRecord(b"1", None, None, (), "t", 3, 5),
        KafkaRecord(None, b"k", 70, (("h", None), ("h", b"")), "t", 3, 7),
    ]


def test_fields_that_were_not_asked_for_have_their_defaults_though_they_were_read() -> None:
    assert list(records_of(CHUNK, ["key"])) == [KafkaRecord(b"1"), KafkaRecord(None, b"k")]
    assert list(records_of(CHUNK, ["timestamp"])) == [KafkaRecord(b"1"), KafkaRecord(None, timestamp=70)]


@pytest.mark.parametrize("count", range(len(FIELDS) + 1))
def test_every_choice_of_fields_fills_those_and_no_others(count: int) -> None:
    whole = records_of(CHUNK, FIELDS)
    of_field: dict[Field, tuple[str, ...]] = {
        "key": ("key",),
        "timestamp": ("timestamp",),
        "headers": ("headers",),
        "position": ("topic", "partition", "offset"),
    }
    for include in combinations(FIELDS, count):
        names = [name for field in include for name in of_field[field]]
        expected = [KafkaRecord(one.value, **{name: getattr(one, name) for name in names}) for one in whole]
        assert list(records_of(CHUNK, include)) == expected
        assert list(records_of(CHUNK, include[::-1])) == expected


numbers = st.integers(-1, 2**40)
texts = st.none() | st.binary(max_size=3)
headers = st.lists(st.tuples(st.text(max_size=2), texts), max_size=2)
rows = st.lists(st.tuples(texts, texts, numbers, headers, numbers), max_size=8)


def chunk_of(made: list[Any]) -> Chunk:
    values, keys, times, names, offsets = map(list, zip(*made, strict=True)) if made else ([], [], [], [], [])
    return Chunk(TopicPartition("t", 3), values, 9, keys, times, names, offsets)


@given(rows, st.sets(st.sampled_from(FIELDS)), st.lists(st.integers(0, 9), max_size=4))
def test_columns_cut_and_joined_in_any_way_are_the_same_records(
    made: list[Any], include: set[Field], cuts: list[int]
) -> None:
    whole = records_of(chunk_of(made), include)
    records = [
        KafkaRecord(
            value,
            key if "key" in include else None,
            time if "timestamp" in include and time != -1 else None,
            tuple(names) if "headers" in include else (),
            *(("t", 3, offset) if "position" in include else ("", -1, -1)),
        )
        for value, key, time, names, offset in made
    ]
    assert len(whole) == len(records)
    assert list(whole) == records
    assert [whole[position] for position in range(len(records))] == records
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut <= len(records))})
    parts = [whole[begin:end] for begin, end in pairwise(bounds)] or [whole]
    assert [record for part in parts for record in part] == records
    assert list(RecordColumns.joined(parts)) == records
    assert list(RecordColumns.joined(parts)[1:3]) == records[1:3]


def test_a_record_that_is_not_there_cannot_be_had() -> None:
    records: Any = records_of(CHUNK, FIELDS)
    assert records[-1] == records[1]
    with pytest.raises(IndexError):
        records[2]


def test_the_values_of_records_are_written_through_a_format_and_tombstones_stay() -> None:
    records: list[Any] = [KafkaRecord(b"a", b"k"), KafkaRecord(None, b"k")]
    assert RecordValue().encode(records) == [b"a", None]
    assert RecordValue(Json()).encode([KafkaRecord({"a": 1}), KafkaRecord(None)]) == [b'{"a":1}', None]
    with pytest.raises(TypeError, match="writes bytes, not str"):
        RecordValue().encode([KafkaRecord("text")])
    with pytest.raises(AttributeError, match="'value'"):
        RecordValue().encode([b"a"])


def test_S16_values_and_keys_that_are_none_stay_none_and_no_format_sees_them() -> None:
    plain = deserializer_of(Strict(int), None, [])
    assert plain is not None
    assert plain.decode([b"1", None, b"2", None]) == [1, None, 2, None]
    assert [plain.decode_one(b"1"), plain.decode_one(None)] == [1, None]
    whole = deserializer_of(Strict(int), Strict(int), ["key"])
    assert whole is not None
    raw = [KafkaRecord(b"1", None), KafkaRecord(None, b"2"), KafkaRecord(None, None)]
    assert whole.decode(raw) == [KafkaRecord(1, None), KafkaRecord(None, 2), KafkaRecord(None, None)]
    assert whole.decode_one(raw[1]) == KafkaRecord(None, 2)
    columns: Any = RecordColumns([b"1", None, None], Beside([None, b"2", None]))
    assert whole.decode(columns) == whole.decode(raw)


def test_decoding_keeps_the_other_fields() -> None:
    whole = deserializer_of(String(), None, FIELDS)
    assert whole is not None
    columns: Any = records_of(CHUNK, FIELDS)
    assert whole.decode(columns)[0] == KafkaRecord("1", None, None, (), "t", 3, 5)


def test_ready_values_need_no_deserializer() -> None:
    assert deserializer_of(None, None, []) is None


def test_records_without_a_format_are_only_put_into_a_list() -> None:
    kept = deserializer_of(None, None, FIELDS)
    assert keeps(kept)
    assert kept is not None
    records: Any = records_of(CHUNK, FIELDS)
    assert kept.decode(records) == list(records)
    assert kept.decode_one(records[1]) == records[1]
    assert not keeps(deserializer_of(String(), None, FIELDS))
    assert not keeps(deserializer_of(None, String(), FIELDS))


def test_a_format_that_loses_a_value_between_tombstones_is_found_out() -> None:
    with pytest.raises(ValueError, match="made 1 values of 2"):
        decode_present(Forgetful(), [b"a", None, b"b"])
    whole = deserializer_of(Forgetful(), None, ["key"])
    columns: Any = RecordColumns([b"a"])
    assert whole is not None
    with pytest.raises(ValueError, match="made 0 values of 1"):
        whole.decode([KafkaRecord(b"a")])
    with pytest.raises(ValueError, match="made 0 values of 1"):
        whole.decode(columns)


def test_what_does_not_fit_the_format_raises() -> None:
    plain = deserializer_of(Json(int), None, [])
    assert plain is not None
    with pytest.raises(ValueError, match="Expected `int`"):
        plain.decode([None, b'"a"'])
