"""Record batches as brokers send them: made by clients that nobody knows, and taken apart by compiled code."""

from typing import Any

from hypothesis import strategies as st

from tests.unit.enemy.decoder import Decoder
from tests.unit.native import model
from tests.unit.native.model import HEADER, Row
from tests.unit.native.test_reading import BROKEN
from tidegate.connectors.kafka.batches.reading import Batches, Reader, spans
from tidegate.connectors.kafka.client import Columns, TopicPartition
from tidegate.errors import CorruptError
from tidegate.native import native

ALL = Columns(keys=True, timestamps=True, headers=True, offsets=True)
FIRST, TIME = 70, 1_700_000_000_000
COUNTED = 4
"""Bytes of the number of records before them."""

fields = st.none() | st.binary(max_size=9)
values = st.lists(
    st.tuples(fields, fields, st.integers(0, 1 << 45), st.lists(st.tuples(st.text(max_size=4), fields), max_size=2)),
    max_size=4,
)
"""Key, value, timestamp and headers of each record."""
EXAMPLE = [(b"k", b"v", TIME, [("größe", b"h"), ("", None)]), (None, None, TIME - 5, []), (b"", b"x" * 70, 0, [])]


def _rows(records: list[Any]) -> list[Row]:
    return [
        Row(index, model.wrapped(time - TIME), key, value, [(name.encode(), data) for name, data in headers])
        for index, (key, value, time, headers) in enumerate(records)
    ]


def _batch_of(records: list[Any]) -> bytes:
    body = b"".join(map(model.record, _rows(records)))
    count = len(records)
    return model.batch(body, count, first=FIRST, last_delta=max(count - 1, 0), times=(TIME, TIME))


def _of_batch(data: bytes) -> list[Any]:
    """The only one. Where it lies is not under its checksum: that is the broker's to say."""
    (span,) = spans(data)
    chunk = Reader(ALL, "here").chunk(Batches(TopicPartition("orders", 3), data, [span], 0, span.end_offset), 0)
    assert chunk.offsets is not None
    return list(zip(chunk.keys or [], chunk.values, chunk.timestamps or [], chunk.headers or [], strict=True))


def _seal(data: bytes) -> bytes:
    return model.sealed(data) if len(data) >= HEADER.size else data


def _counted(records: list[Any]) -> bytes:
    return len(records).to_bytes(COUNTED, "big", signed=True) + b"".join(map(model.record, _rows(records)))


def _of_counted(data: bytes) -> list[Any]:
    """By the compiled part itself."""
    assert native is not None
    count = int.from_bytes(data[:COUNTED], "big", signed=True)
    wanted = native.KEYS | native.TIMESTAMPS | native.HEADERS
    begin = min(COUNTED, len(data))
    values, keys, times, headers, _ = native.read_records(data, begin, len(data), count, wanted, FIRST, TIME, -1)
    return list(zip(keys or [], values, times or [], headers or [], strict=True))


BATCHES: tuple[Decoder, ...] = (
    Decoder(
        "Kafka's record batch",
        values,
        (EXAMPLE, EXAMPLE[:1]),
        _batch_of,
        _of_batch,
        (CorruptError, ValueError),
        _seal,
        damage_shows=True,
        hostile=tuple(model.batch(body, count) for body, count in BROKEN.values()),
    ),
    *(
        ()
        if native is None
        else (
            Decoder(
                "records of a batch",
                values,
                (EXAMPLE, EXAMPLE[:1]),
                _counted,
                _of_counted,
                (ValueError,),
                hostile=tuple(count.to_bytes(COUNTED, "big") + body for body, count in BROKEN.values()),
            ),
        )
    ),
)
