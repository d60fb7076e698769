"""Rows in the order of their key groups, however many there are: what does not fit into memory waits on a disk."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from tidegate.errors import InvalidError
from tidegate.state.pieces import StoredRow

MEMORY_BYTES = 64 * 1024 * 1024
"""About how much is held before it goes to the disk."""

_ROW_BYTES = 250
"""What a row takes in memory besides its key and value."""
_BUCKETS = 64
_LENGTH_BYTES = 4
_ROW = msgspec.msgpack.Decoder(StoredRow)


def sort_by_group(
    rows: Iterable[StoredRow], max_parallelism: int, folder: Path, memory_bytes: int = MEMORY_BYTES
) -> Iterator[StoredRow]:
    """`rows` in ascending order of groups; what is held at once is `memory_bytes`, or a 64th of all rows.

    folder: exists, and holds what waits. Raises InvalidError when one key comes twice in a state.
    """
    buckets = [_Bucket(folder / f"rows-{number}") for number in range(min(_BUCKETS, max_parallelism))]
    held = 0
    for row in rows:
        held += buckets[row.group * len(buckets) // max_parallelism].add(row)
        if held >= memory_bytes:
            for bucket in buckets:
                bucket.spill()
            held = 0
    for bucket in buckets:
        yield from _once(bucket.take())


def _once(rows: list[StoredRow]) -> Iterator[StoredRow]:
    rows.sort(key=lambda row: row.group)
    seen: set[tuple[str, bytes]] = set()
    for row in rows:
        if (row.state, row.key) in seen:
            raise InvalidError(
                f"two rows give state {row.state} of one key, whose bytes are {row.key!r}",
                remedy="Give one row for each key and state: the whole list, the whole map, the final value.",
            )
        seen.add((row.state, row.key))
        yield row


class _Bucket:
    """The rows of neighbouring groups."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[StoredRow] = []

    def add(self, row: StoredRow) -> int:
        """About how many bytes more are held."""
        self._rows.append(row)
        return len(row.key) + len(row.value) + _ROW_BYTES

    def spill(self) -> None:
        if self._rows:
            with self._path.open("ab") as file:
                for row in self._rows:
                    data = msgspec.msgpack.encode(row)
                    file.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            self._rows = []

    def take(self) -> list[StoredRow]:
        rows, self._rows = self._rows, []
        if self._path.exists():
            with self._path.open("rb") as file:
                rows = [*_read(file), *rows]
            self._path.unlink()
        return rows


def _read(file: BinaryIO) -> Iterator[StoredRow]:
    while length := file.read(_LENGTH_BYTES):
        yield _ROW.decode(file.read(int.from_bytes(length, "big")))
