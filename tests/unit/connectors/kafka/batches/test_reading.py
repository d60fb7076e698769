"""Bytes of record batches become columns, and what is no record batch becomes an error that says where."""

import struct
from collections.abc import Callable

import msgspec
import pytest
from aiokafka import codec as codecs
from aiokafka.record._crecords import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.kafka.batches.logs import Record, batch, marker, stamped, texts
from tidegate.connectors.kafka.batches.reading import Batches, Reader, spans
from tidegate.connectors.kafka.client import Chunk, Columns, TopicPartition
from tidegate.errors import CorruptError

PARTITION = TopicPartition("orders", 3)
ALL = Columns(keys=True, timestamps=True, headers=True, offsets=True)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": codecs.gzip_encode,
    "snappy": codecs.snappy_encode,
    "lz4": codecs.lz4_encode,
    "zstd": codecs.zstd_encode,
}


def read(data: bytes, position: int = 0, columns: Columns = ALL, end: int | None = None, checks: bool = True) -> Chunk:
    """The only batch of `data`."""
    found = list(spans(data))
    (span,) = found
    batches = Batches(PARTITION, data, found, position, span.end_offset if end is None else end)
    chunk = Reader(columns, "host:9092", checks).chunk(batches, 0)
    # Those of a batch without gaps are a range.
    return msgspec.structs.replace(chunk, offsets=None if chunk.offsets is None else list(chunk.offsets))


records = st.lists(
    st.builds(
        Record,
        offset=st.integers(0, 5),
        value=st.none() | st.binary(max_size=300),
        key=st.none() | st.binary(max_size=20),
        timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(records, st.sampled_from(sorted(CODECS)), st.integers(0, 2**40), st.integers(0, 30), st.booleans())
def test_every_column_comes_back_from_every_codec_gaps_or_not(
    given_records: list[Record], codec: str, first: int, skipped: int, dense: bool
) -> None:
    """The records' own offsets are taken for the gaps before them."""
    offset, placed = first, list[Record]()
    for record in given_records:
        offset += 0 if dense else record.offset
        placed.append(record._replace(offset=offset))
        offset += 1
    chunk = read(batch(placed, first=first, end=offset, codec=CODECS[codec]), first + skipped)
    expected = [record for record in placed if record.offset >= first + skipped]
    assert chunk == Chunk(
        PARTITION,
        [record.value for record in expected],
        offset,
        [record.key for record in expected],
        [record.timestamp for record in expected],
        [list(record.headers) for record in expected],
        [record.offset for record in expected],
    )
    values = read(batch(placed, first=first, end=offset, codec=CODECS[codec]), first + skipped, Columns(offsets=True))
    assert (values.values, values.offsets) == (chunk.values, chunk.offsets)
    assert (values.keys, values.timestamps, values.headers) == (None, None, None)


def test_what_compaction_left_at_the_end_is_passed_over() -> None:
    chunk = read(batch(texts(5, "a", "b"), end=20))
    assert (chunk.offsets, chunk.next_offset) == ([5, 6], 20)


def test_a_batch_that_compaction_emptied_has_no_records_and_an_end() -> None:
    data = bytearray(batch(texts(5, "a"), end=9))
    (span,) = spans(bytes(data))
    header = bytearray(data[:61])
    struct.pack_into(">i", header, 8, 61 - 12)
    struct.pack_into(">i", header, 57, 0)
    chunk = read(bytes(header), checks=False)
    assert (chunk.values, chunk.offsets, chunk.next_offset) == ([], [], span.end_offset)


def test_the_time_of_appending_is_that_of_the_batch() -> None:
    data = batch([Record(0, b"a", timestamp=7), Record(1, b"b", timestamp=9)], attributes=0x08)
    assert read(data).timestamps == [9, 9]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_the_formats_before_record_batches_are_read(magic: int, codec: int) -> None:
    if (magic, codec) == (0, 3):
        pytest.skip("this format has no lz4 that anybody wrote alike")
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, 1000 + offset, b"k", b"v%d" % offset)
    made = builder.build()
    if codec:
        # A broker gives what is compressed together the offset of its last record.
        struct.pack_into(">q", made, 0, 2)
    data = bytes(made)
    chunks = [
        Reader(ALL, "host:9092").chunk(Batches(PARTITION, data, [span], 1, span.end_offset), 0) for span in spans(data)
    ]
    assert [value for chunk in chunks for value in chunk.values] == [b"v1", b"v2"]
    assert [one for chunk in chunks for one in chunk.timestamps or []] == ([1001, 1002] if magic else [-1, -1])
    assert chunks[-1].next_offset == 3


def test_a_batch_that_is_cut_off_is_not_there() -> None:
    whole, cut = batch(texts(0, "a")), batch(texts(1, "b"))
    for length in range(len(cut)):
        assert [span.end_offset for span in spans(whole + cut[:length])] == [1]


@given(st.binary(min_size=17, max_size=200))
def test_what_is_no_batch_is_refused_or_not_complete(data: bytes) -> None:
    try:
        found = list(spans(data))
    except ValueError:
        return
    assert all(0 <= span.start < span.end <= len(data) for span in found)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_changed_byte_is_found_by_the_checksum(codec: str) -> None:
    data = batch(texts(4, "a" * 50, "b" * 50), codec=CODECS[codec])
    for place in range(21, len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        try:
            list(spans(bytes(changed)))
        except ValueError:
            continue
        with pytest.raises(CorruptError, match=r"orders/3 at host:9092: the record batch at offset 4 cannot be read"):
            read(bytes(changed))


def test_a_codec_that_nobody_knows_and_records_that_are_cut_are_errors_also_without_checksums() -> None:
    data = bytearray(batch(texts(0, "a", "b")))
    struct.pack_into(">h", data, 21, 6)
    with pytest.raises(CorruptError, match="cannot be read: UnsupportedCodecError"):
        read(bytes(data), checks=False)
    short = bytearray(batch(texts(0, "a", "b"))[:-3])
    struct.pack_into(">i", short, 8, len(short) - 12)
    with pytest.raises(CorruptError, match=r"cannot be read: (CorruptRecordException|ValueError)"):
        read(bytes(short), checks=False)


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("appended", [False, True])
def test_a_header_whose_name_is_no_text_holds_nothing_up(codec: str, appended: bool) -> None:
    written = [
        Record(7, b"a" * 200, b"k", 1000, [("first", b"v"), ("second", None)]),
        Record(8, None, None, 1007),
        Record(10, b"", b"", 1003, [("", b"")]),
    ]
    attributes = 0x08 if appended else 0
    raw = batch(written, first=6, end=12, attributes=attributes)
    plain = raw[61:].replace(b"second", b"sec\xff\xfed")
    data = bytearray(raw[:61]) + COMPRESS[codec](plain)
    struct.pack_into(">i", data, 8, len(data) - 12)
    data = bytearray(stamped(data, CODECS[codec], 5, 0))
    chunk = read(bytes(data), 8)
    assert chunk == Chunk(
        PARTITION, [None, b""], 12, [None, b""], [1007] * 2 if appended else [1007, 1003], [[], [("", b"")]], [8, 10]
    )
    (first, *_) = read(bytes(data)).headers or []
    assert first == [("first", b"v"), ("sec\\xff\\xfed", None)]
    assert read(bytes(data), columns=Columns()).values == [b"a" * 200, None, b""]


def test_a_marker_is_a_control_batch() -> None:
    (span,) = spans(marker(9, 7, commit=True))
    assert (span.is_control, span.is_transactional, span.producer_id, span.end_offset) == (True, True, 7, 10)
