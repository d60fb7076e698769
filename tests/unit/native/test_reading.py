"""The compiled reader, aiokafka's codec and Kafka's own rules read the same from the same batch, and refuse the same of
what somebody has been at."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.connectors.kafka.batches import logs
from tests.unit.native import model
from tests.unit.native.columns import names, parts, who
from tests.unit.native.model import Row
from tests.unit.native.reading import ALL, EVERY, REFUSED, batches, by_reader, check_read, damaged
from tests.unit.native.writing import Part
from tidegate.connectors.kafka.batches.building import Building, Compression
from tidegate.connectors.kafka.batches.reading import spans
from tidegate.connectors.kafka.batches.writers import AiokafkaWriter, NativeWriter, Producing, Writer
from tidegate.connectors.kafka.client import Chunk, Columns
from tidegate.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
wanted = st.sampled_from(EVERY)
positions = st.integers(0, 20)


@given(batches(names.map(str.encode)), positions)
def test_both_read_the_same_columns_whichever_are_wanted(data: bytes, skipped: int) -> None:
    first = model.HEADER.unpack_from(data)[0]
    whole, _ = check_read(data, first + skipped)
    assert isinstance(whole, Chunk)
    for one in EVERY:
        own, other = check_read(data, first + skipped, one)
        assert own == other
        assert own.values == whole.values


@pytest.mark.parametrize("make", [NativeWriter, AiokafkaWriter])
@pytest.mark.parametrize("codec", CODECS)
def test_what_either_writes_both_read_with_every_codec(make: Any, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def writer(limit: int, who: Producing) -> Writer:
        made: Writer = make(limit, who)
        return made

    monkeypatch.setattr("tidegate.connectors.kafka.batches.building.writer", writer)

    @settings(max_examples=25)
    @given(parts, who, wanted)
    def whatever_it_is(parts: Sequence[Part], who: Producing, wanted: Columns) -> None:
        building = Building(1 << 30, who)
        values: list[Any] = []
        for columns, begin in parts:
            building.add(columns, begin)
            values += columns.values[begin:]
        if values:
            data = building.seal(0, 0.0, Compression(codec)).data
            own, other = check_read(data, wanted=wanted)
            assert own == other
            assert own.values == values

    whatever_it_is()


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("attributes", [0, model.BY_APPEND_TIME])
@pytest.mark.parametrize("position", [0, 5, 7, 8, 9, 30])
def test_what_compaction_left_is_read_the_same(codec: int, attributes: int, position: int) -> None:
    records = [
        logs.Record(7, b"a" * 200, b"k", 1000, [("first", b"v"), ("größe", None)]),
        logs.Record(8, None, None, 1007),
        logs.Record(10, b"", b"", 993, [("", b"")]),
    ]
    data = logs.batch(records, first=5, end=14, codec=codec, attributes=attributes)
    for one in EVERY:
        own, other = check_read(data, position, one)
        assert own == other
        assert own.next_offset == 14


@given(damaged(), positions, wanted, st.booleans())
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_what_somebody_has_been_at_is_read_the_same_or_refused(
    data: bytes, position: int, wanted: Columns, checks: bool
) -> None:
    check_read(data, model.HEADER.unpack_from(data)[0] + position, wanted, checks)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(damaged(), positions, wanted, st.booleans())
@settings(max_examples=5_000, suppress_health_check=list(HealthCheck))
def test_much_that_somebody_has_been_at_is_read_the_same_or_refused(
    data: bytes, position: int, wanted: Columns, checks: bool
) -> None:
    check_read(data, model.HEADER.unpack_from(data)[0] + position, wanted, checks)


def test_among_what_somebody_has_been_at_some_is_read_and_some_refused() -> None:
    """Else the tests above would say nothing."""
    found = {True: 0, False: 0}

    @given(damaged())
    @settings(suppress_health_check=list(HealthCheck))
    def count(data: bytes) -> None:
        own, _ = check_read(data)
        found[own == REFUSED] += 1

    count()
    assert min(found.values()) >= 10, found


@given(batches(), st.data())
def test_a_changed_byte_is_refused_for_the_checksum(data: bytes, draws: st.DataObject) -> None:
    changed = bytearray(data)
    changed[draws.draw(st.integers(model.CRC_AT, len(data) - 1))] ^= draws.draw(st.sampled_from([1, 0x80, 0xFF]))
    try:
        (span,) = spans(bytes(changed))
    except ValueError:
        return
    assert by_reader(bytes(changed), span, ALL, 0, checks=True) == REFUSED


RECORD = Row(0, 5, b"k", b"v", [(b"a", b"b")])
BROKEN: dict[str, tuple[bytes, int]] = {
    "a record of no bytes": (b"\x00", 1),
    "a record of less than no bytes": (model.number(-1) + b"\x00" * 9, 1),
    "a record that is longer than it should be": (model.number(12) + model.record(RECORD)[1:] + b"\x00", 1),
    "a record that is shorter than it should be": (model.number(10) + model.record(RECORD)[1:], 1),
    "a byte behind the last record": (model.record(RECORD) + b"\x00", 1),
    "a record more than there should be": (model.record(RECORD) * 2, 1),
    "a record less than there should be": (model.record(RECORD) * 2, 3),
    "more records than anybody has": (model.record(RECORD), (1 << 31) - 1),
    "a key without an end": (model.record(RECORD).replace(b"\x02k", model.number(1 << 62) + b"k"), 1),
    "a header without a name": (b"\x12\x00\x00\x00\x01\x01\x02\x01\x01\x00", 1),
    "less than no headers": (b"\x0c\x00\x00\x00\x01\x01\x01", 1),
    "more headers than bytes": (b"\x0e\x00\x00\x00\x01\x01\x06\x00", 1),
    "a number of eleven bytes": (b"\x22\x00" + b"\x80" * 10 + b"\x00" + b"\x00\x01\x01\x00", 1),
    "a number without an end": (b"\x04\x00\x80", 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_thing_that_does_not_add_up_is_refused_by_both(name: str) -> None:
    body, count = BROKEN[name]
    data = model.batch(body, count, last_delta=max(count - 1, 0))
    assert check_read(data) == (REFUSED, REFUSED)
    assert check_read(data, wanted=Columns()) == (REFUSED, REFUSED)


def test_a_number_of_ten_bytes_is_read_by_both() -> None:
    row = RECORD._replace(passed=-(1 << 63))
    own, other = check_read(model.batch(model.record(row), 1, times=(5, 5)))
    assert own == other
    assert own.timestamps == [5 - (1 << 63)]


@pytest.mark.parametrize("attributes", [0x80, 0xFF])
def test_attributes_of_a_record_are_a_byte_and_aiokafka_takes_them_for_a_number(attributes: int) -> None:
    """Should this fail for want of a difference, `is_excused` need not know of it any more."""
    own, other = check_read(model.batch(model.record(RECORD._replace(attributes=attributes)), 1))
    assert own.values == [b"v"]
    assert own != other


def test_a_name_that_is_no_text_makes_aiokafka_believe_what_the_compiled_part_does_not() -> None:
    """Should this fail for want of a difference, `is_excused` need not know of it any more."""
    body = model.record(RECORD._replace(headers=[(b"\xff", b"b")]))
    own, other = check_read(model.batch(body * 2, 1))
    assert own == REFUSED
    assert other.values == [b"v", b"v"]


def test_records_of_a_dense_batch_need_not_say_their_offsets_right() -> None:
    """Both believe the header: it has a record for each offset."""
    own, other = check_read(model.batch(model.record(RECORD._replace(number=5)) * 2, 2, first=70, last_delta=1))
    assert own == other
    assert own.offsets == [70, 71]


def test_a_batch_of_no_records_is_read_by_both() -> None:
    data = model.batch(b"", 0, first=5, last_delta=3)
    own, other = check_read(data)
    assert own == other
    assert (own.values, own.offsets, own.next_offset) == ([], [], 9)


def test_a_batch_in_the_middle_of_others_is_read_alone() -> None:
    """What is behind a batch's end is never looked at, whatever a number in it says."""
    data = model.batch(model.record(RECORD), 1)
    short = bytearray(data[:-1])
    struct.pack_into(">i", short, model.LENGTH_AT, len(short) - model.LENGTH_END)
    around = data + bytes(short) + data
    first, second, third = spans(around)
    (alone,) = spans(data)
    assert by_reader(around, first, ALL, 0, checks=True) == by_reader(data, alone, ALL, 0, checks=True)
    assert by_reader(around, second, ALL, 0, checks=False) == REFUSED
    assert by_reader(around, third, ALL, 0, checks=True) == by_reader(data, alone, ALL, 0, checks=True)
