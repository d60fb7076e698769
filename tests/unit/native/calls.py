"""Calls of the compiled part, all that it gives and all that it refuses, as a table: for what must hold of each,
whatever comes of it."""

from collections.abc import Callable
from typing import Any

from tests.unit.native import model
from tests.unit.native.model import Row
from tests.unit.native.test_errors import columns_of
from tests.unit.native.test_reading import BROKEN
from tests.unit.native.test_writing import BAD

LARGE = 1 << 30
ROWS = [
    Row(index, index * 1000, b"key %d" % index, b"value %d" % index * 9, [(b"name", b"h" * 40), (b"\xff", None)])
    for index in range(5)
]
BODY = b"".join(map(model.record, ROWS))
GIVEN = columns_of(6, 0, {})
OWN: list[tuple[str, tuple[Any, ...]]] = [
    *(
        ("read_records", (BODY, 0, len(BODY), 5, wanted, 1 << 40, 1 << 41, time))
        for wanted in range(16)
        for time in (-1, 1 << 42)
    ),
    *(
        ("read_records", (BODY[:-cut] + b"\x7f" * cut, 0, len(BODY), 5, 15, 1 << 40, 1 << 41, -1))
        for cut in range(1, len(BODY), 7)
    ),
    *(
        ("read_records", (BODY[:-cut], 0, len(BODY) - cut, 5, 15, 1 << 40, 1 << 41, 1 << 42))
        for cut in range(1, len(BODY), 7)
    ),
    *(("read_records", (body, 0, len(body), count, 15, 0, 0, -1)) for body, count in BROKEN.values()),
    ("read_records", (BODY, 0, len(BODY) + 1, 5, 15, 0, 0, -1)),
    ("read_records", (BODY, 0, len(BODY), 5, 15, 1 << 70, 0, -1)),
    ("read_records", ("text", 0, 1, 5, 15, 0, 0, -1)),
    *(
        ("append_records", (*columns_of(6, index, bad).values(), begin, number, 5, 6, limit))
        for bad in BAD.values()
        for index, begin in ((0, 0), (3, 0), (5, 5), (0, 1))
        for number, limit in ((0, LARGE), (7, 60))
    ),
    ("append_records", ([memoryview(b"v" * 9000)], [bytearray(b"k")], [5], [None], 0, 0, -1, -1, LARGE)),
    ("append_records", ([b"v"] * 2, None, [5] * 2, None, -1, 0, -1, -1, LARGE)),
    ("append_records", ([b"v"] * 2, None, [5], None, 0, 0, -1, -1, LARGE)),
    ("append_records", ([b"v"] * 2, {1}, [5] * 2, None, 0, 0, -1, -1, LARGE)),
    ("append_records", ([b"v"] * 2, None, [5] * 2, None, 0, 0, -1, -1, 1 << 70)),
    *(
        ("partitions_of", (keys, count))
        for keys in ([b"a" * 50, None] * 5, (b"a",), [b"a", 5], {1}, None)
        for count in (1 << 20, 0)
    ),
    *(
        ("first_elsewhere", (keys, partition, count))
        for keys in ([b"a", "a"] * 5, ["\ud800"], ("größe",), [None], {1}, None)
        for partition, count in ((0, 1), (1 << 40, 1 << 20), (0, 0))
    ),
]


def call(native: Any, name: str, given: tuple[Any, ...], batch: bytearray) -> Any:
    """What it gives, or the type of its error. `batch` is what records are appended to."""
    function: Callable[..., Any] = getattr(native, name)
    try:
        return function(batch, *given) if name == "append_records" else function(*given)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        return type(error)
