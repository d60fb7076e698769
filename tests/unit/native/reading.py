"""What reading makes of one batch, by the compiled part, by aiokafka's codec and by Kafka's own rules, whether these
are the same, and batches that somebody has been at."""

import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
from aiokafka import codec as codecs
from hypothesis import strategies as st

from tests.unit.native import model
from tests.unit.native.columns import HIGHEST, LOWEST, contents, names
from tests.unit.native.model import Row
from tidegate.connectors.kafka.batches import reading
from tidegate.connectors.kafka.batches.plain_records import decompressed
from tidegate.connectors.kafka.batches.reading import Batches, Reader, Span, spans
from tidegate.connectors.kafka.client import Chunk, Columns, TopicPartition
from tidegate.errors import CorruptError

PARTITION = TopicPartition("orders", 3)
ALL = Columns(keys=True, timestamps=True, headers=True, offsets=True)
EVERY = [Columns(*(bool(number & 1 << bit) for bit in range(4))) for number in range(16)]
REFUSED = "refused"
COMPRESS: list[Callable[[bytes], bytes]] = [
    bytes,
    codecs.gzip_encode,
    codecs.snappy_encode,
    codecs.lz4_encode,
    codecs.zstd_encode,
]

# ---- reading one batch ---------------------------------------------------------------------------------------------


def by_reader(data: bytes, span: Span, wanted: Columns, position: int, checks: bool) -> Chunk | str:
    """Any error but CorruptError is the test's."""
    try:
        chunk = Reader(wanted, "here", checks).chunk(Batches(PARTITION, data, [span], position, span.end_offset), 0)
    except CorruptError:
        return REFUSED
    # Those of a batch without gaps are a range.
    return msgspec.structs.replace(chunk, offsets=None if chunk.offsets is None else list(chunk.offsets))


def by_rules(data: bytes, span: Span, wanted: Columns, position: int) -> Chunk | str:
    """Of a batch whose checksum is right, or not looked at."""
    head = model.HEADER.unpack_from(data)
    attributes, first, latest = head[5], head[7], head[8]
    try:
        rows = model.rows(decompressed(attributes & 7, data[model.HEADER.size :]), span.records)
    except Exception:  # What codecs raise, too.
        return REFUSED
    offsets = [model.wrapped(span.first_offset + row.number) for row in rows]
    if span.is_dense:
        offsets = list(range(span.first_offset, span.end_offset))
    begin = bisect_left(offsets, position)
    times = [latest if attributes & model.BY_APPEND_TIME else model.wrapped(first + row.passed) for row in rows]
    headers = [[(name.decode(errors="backslashreplace"), value) for name, value in row.headers] for row in rows]
    return Chunk(
        PARTITION,
        [row.value for row in rows][begin:],
        span.end_offset,
        [row.key for row in rows][begin:] if wanted.keys else None,
        times[begin:] if wanted.timestamps else None,
        headers[begin:] if wanted.headers else None,
        offsets[begin:] if wanted.offsets else None,
    )


def by_aiokafka(data: bytes, span: Span, wanted: Columns, position: int, checks: bool) -> tuple[Chunk | str, bool]:
    """And whether the records were read in Python, which is for names of headers that are no text."""
    was_plain = False
    plain = reading._plain

    def noticed(*given: Any) -> Any:
        nonlocal was_plain
        was_plain = True
        return plain(*given)

    with patch.object(reading, "native", None), patch.object(reading, "_plain", noticed):
        return by_reader(data, span, wanted, position, checks), was_plain


def check_read(data: bytes, position: int = 0, wanted: Columns = ALL, checks: bool = True) -> tuple[Any, Any]:
    """`data`: a whole batch whose checksum is right, or is not looked at. The compiled part keeps Kafka's rules to the
    letter. aiokafka's codec does the same, but for what `is_excused` knows. Gives what was read by each."""
    (span,) = spans(data)
    own = by_reader(data, span, wanted, position, checks)
    assert own == by_rules(data, span, wanted, position), data
    other, was_plain = by_aiokafka(data, span, wanted, position, checks)
    assert own == other or is_excused(data, span, was_plain, own), (data, own, other)
    return own, other


def is_excused(data: bytes, span: Span, was_plain: bool, own: Chunk | str) -> bool:
    """Why aiokafka's may differ. None of it is ever written by a client or a broker.

    Read in Python, for the name of a header that is no text, records may have other lengths than they say, be more or
    less than the batch says, and have less than no headers: the compiled part refuses all of that. Also then, sums of
    timestamps or offsets are not those of 64 bits, and what a record says of its offset is believed where the batch has
    a record for each of its offsets, too. A record's attributes are a byte to Kafka, and to aiokafka a number, of more
    bytes where it is 128 or more.
    """
    head = model.HEADER.unpack_from(data)
    body = decompressed(head[5] & 7, data[model.HEADER.size :])
    if model.has_strange_attributes(body):
        return True
    if was_plain and own != REFUSED:
        rows = model.rows(body, span.records)
        sums = [*(head[0] + row.number for row in rows), *(head[7] + row.passed for row in rows)]
        is_out_of_place = span.is_dense and [row.number for row in rows] != list(range(len(rows)))
        return is_out_of_place or sums != list(map(model.wrapped, sums))
    return was_plain


# ---- batches -------------------------------------------------------------------------------------------------------

raw_names = names.map(str.encode) | st.sampled_from([b"\xff\xfe", b"sec\xed\xa0\x80", b"\xc0\x80"])


def rows_of(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Row]]:
    headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=3)
    passed = st.integers(-9, 1 << 40) | st.sampled_from([LOWEST, HIGHEST])
    found = st.builds(Row, st.integers(0, 3), passed, st.none() | st.binary(max_size=9), contents, headers, st.just(0))
    return st.lists(found, min_size=1, max_size=6)


@st.composite
def batches(draw: st.DrawFn, names: st.SearchStrategy[bytes] = raw_names) -> bytes:
    """With gaps or without; a row's own number is the gap before it."""
    dense, offset, placed = draw(st.booleans()), -1, list[Row]()
    for row in draw(rows_of(names)):
        offset += 1 if dense else 1 + row.number
        placed.append(row._replace(number=offset))
    return made(
        draw, b"".join(map(model.record, placed)), len(placed), offset + (0 if dense else draw(st.integers(0, 2)))
    )


def made(draw: st.DrawFn, body: bytes, count: int, last_delta: int) -> bytes:
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
    by_append_time = model.BY_APPEND_TIME if draw(st.booleans()) else 0
    # The reader has -1 for a batch whose records have times of their own.
    latest = draw(st.integers(LOWEST, HIGHEST))
    return model.batch(
        COMPRESS[codec](body),
        count,
        first=draw(st.integers(0, 1 << 40) | st.just(HIGHEST - (1 << 32))),
        last_delta=last_delta,
        times=(draw(st.integers(0, 1 << 41) | st.integers(LOWEST, HIGHEST)), latest),
        attributes=codec | by_append_time,
    )


LARGE_NUMBERS = [
    *(model.number(number) for number in (1, -1, -2, 63, 64, 1 << 31, (1 << 31) - 1, -(1 << 31), HIGHEST, LOWEST)),
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x7f",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 9 + b"\x00",
    b"\x80" * 30,
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Batches whose records were changed before they were compressed, with the checksum that belongs to them, and with
    other numbers in their headers."""
    data = draw(batches())
    attributes, count = model.HEADER.unpack_from(data)[5], model.HEADER.unpack_from(data)[-1]
    last_delta = model.HEADER.unpack_from(data)[6]
    body = bytearray(decompressed(attributes & 7, data[model.HEADER.size :]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["flip", "flip", "flip", "cut", "number", "insert", "append", "remove"])):
            case "flip" if at < len(body):
                body[at] ^= draw(st.sampled_from([1, 2, 0x10, 0x80, 0xFF]))
            case "cut":
                del body[at:]
            case "number":
                body[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(LARGE_NUMBERS))
            case "insert":
                body[at:at] = draw(st.binary(max_size=3))
            case "append":
                body += draw(st.binary(max_size=9) | st.just(bytes(body)))
            case _:
                del body[at : at + draw(st.integers(1, 4))]
    if draw(st.integers(0, 3)) == 0:
        count = draw(st.integers(0, 9) | st.sampled_from([count + 1, count - 1, (1 << 31) - 1, 1 << 20]))
    if draw(st.integers(0, 3)) == 0:
        last_delta = draw(st.integers(0, 9) | st.sampled_from([(1 << 31) - 1, 1 << 20]))
    found = made(draw, bytes(body), max(count, 0), last_delta)
    return model.sealed(_compressed_wrongly(draw, found) if draw(st.integers(0, 5)) == 0 else found)


def _compressed_wrongly(draw: st.DrawFn, data: bytes) -> bytes:
    """Something else behind the header than what it says, or another codec."""
    changed = bytearray(data)
    if draw(st.booleans()):
        at = draw(st.integers(model.HEADER.size, len(data)))
        changed[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    else:
        own = model.HEADER.unpack_from(data)[5]
        struct.pack_into(">h", changed, model.ATTRIBUTES_AT, own & ~7 | draw(st.integers(0, 7)))
    return bytes(changed)
