"""What there is of Tidegate in compiled code, `_native.c`: what is done to every single record of Kafka's batches.

`native` is None where it could not be built, for want of a C compiler, and where TIDEGATE_NATIVE=0 leaves it out (the
compiled part looks at that itself). Whoever uses it can do the same in Python, and no result depends on which it was.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Protocol, cast

__all__ = ["Native", "native"]


class Native(Protocol):
    """What `_native.c` has. What reads bytes raises ValueError for whatever does not add up. Columns are lists or
    tuples."""

    KEYS: int
    TIMESTAMPS: int
    HEADERS: int
    OFFSETS: int
    APPENDED: int

    def read_records(
        self,
        data: bytes | bytearray | memoryview,
        start: int,
        end: int,
        count: int,
        columns: int,
        first_offset: int,
        first_timestamp: int,
        append_time: int,
        /,
    ) -> tuple[list[Any], list[Any] | None, list[int] | None, list[Any] | None, list[int] | None]:
        """The records of a batch of format 2, uncompressed and without its header, between `start` and `end`: values,
        keys, timestamps, headers, offsets. `columns`: which of these are wanted besides the values (KEYS | …).
        With APPENDED `append_time`, the broker's, is the time of all records. Names of headers that are no UTF-8 come
        with their bytes as escapes."""

    def append_records(
        self,
        batch: bytearray,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        timestamps: Sequence[int],
        headers: Sequence[Any] | None,
        begin: int,
        number: int,
        first_timestamp: int,
        latest_timestamp: int,
        limit: int,
        /,
    ) -> tuple[int, int, int]:
        """Records from index `begin` on, the first one as number `number` of the batch, as long as it has at most
        `limit` bytes; number 0 is added in any case. Returns the index behind the last one added, and the first and
        latest timestamp of the batch. For a record that cannot be written raises TypeError, OverflowError,
        UnicodeEncodeError or BufferError when it is the first one; else what comes before it is added, and nothing
        raised. Raises ValueError for a place that there is not, and columns of different lengths."""

    def partitions_of(self, keys: Sequence[Any], count: int, /) -> list[int]:
        """Of so many, by Kafka's murmur2; -1 for None. Raises TypeError for a key that is not bytes."""

    def first_elsewhere(self, keys: Sequence[Any], partition: int, count: int, /) -> int:
        """The index of the first key of which it cannot be said that its partition, of so many, is this one: another
        str or bytes, or something else. -1 when there is none."""


def _load() -> Native | None:
    try:
        return cast(Native, import_module("tidegate._native"))
    except ImportError:
        return None


native: Final = _load()
