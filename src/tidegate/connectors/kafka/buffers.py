"""What was fetched of one partition and not handed out yet: chunks one behind the other, and where each record's
position is.

Nothing is copied that need not be: a chunk that fits into a batch is handed out as it came. A position is that of the
next record that was not handed out, never counted through gaps.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.kafka.client import Chunk, partition_of
from tidegate.connectors.kafka.records import RecordColumns
from tidegate.operators.contracts import Fetched


class PartitionBuffer:
    """Of one split."""

    def __init__(self, split: SplitState) -> None:
        self.split = split.id
        self.partition = partition_of(split.id)
        self.records = 0
        """How many it has."""
        self._stop = split.stop
        self._position = split.position
        """Behind what was handed out."""
        self._end = split.position
        """Behind what was fetched."""
        self._has_finished = False
        self._pieces: deque[_Piece] = deque()

    @property
    def is_complete(self) -> bool:
        """Nothing needs to be fetched any more."""
        return self._stop is not None and self._end >= self._stop

    @property
    def rest(self) -> SplitState:
        """The split, behind what was handed out."""
        return SplitState(self.split, self._position, self._stop)

    @property
    def has_more(self) -> bool:
        """Whether there are records, a newer position, or the news of the end."""
        return not self._has_finished and (self._end > self._position or self.is_complete)

    def put(self, chunk: Chunk, values: Any) -> int:
        """Add a chunk with `values`, a list or RecordColumns, in place of its own; returns how many of them are before
        the stop."""
        offsets, timestamps = chunk.offsets or [], chunk.timestamps
        self._end = chunk.next_offset if self._stop is None else min(chunk.next_offset, self._stop)
        if self._end < chunk.next_offset:
            before = bisect_left(offsets, self._end)
            values, offsets = values[:before], offsets[:before]
            timestamps = None if timestamps is None else timestamps[:before]
        if values:
            self._pieces.append(_Piece(values, offsets, timestamps))
            self.records += len(values)
        return len(values)

    def take(self, max_records: int) -> Fetched:
        """The next records; only when `has_more`."""
        values: list[list[Any]] = []
        timestamps: list[list[int]] = []
        wanted = max_records
        while self._pieces and wanted:
            more, times = self._take_of(self._pieces[0], wanted)
            values.append(more)
            if times is not None:
                timestamps.append(times)
            wanted -= len(more)
        if not self._pieces:
            self._position = self._end
        self.records -= max_records - wanted
        self._has_finished = self._stop is not None and self._position >= self._stop
        joined = _joined(timestamps) if timestamps else None
        return Fetched(self.split, _joined(values), self._position, None, joined, self._has_finished)

    def _take_of(self, piece: "_Piece", most: int) -> tuple[list[Any], list[int] | None]:
        taken = piece.take(most)
        self._position = piece.position
        if piece.is_empty:
            self._pieces.popleft()
        return taken


class _Piece:
    """Records of one chunk. The lists are the chunk's own, and are not changed."""

    def __init__(self, values: list[Any], offsets: Sequence[int], timestamps: list[int] | None) -> None:
        self._values = values
        self._offsets = offsets
        self._timestamps = timestamps
        self._taken = 0

    @property
    def is_empty(self) -> bool:
        return self._taken == len(self._values)

    @property
    def position(self) -> int:
        """Behind the last record that was taken."""
        return self._offsets[self._taken - 1] + 1

    def take(self, most: int) -> tuple[list[Any], list[int] | None]:
        """The next records and their timestamps."""
        begin, end = self._taken, min(self._taken + most, len(self._values))
        self._taken = end
        if end - begin == len(self._values):
            return self._values, self._timestamps
        return self._values[begin:end], None if self._timestamps is None else self._timestamps[begin:end]


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if parts and isinstance(parts[0], RecordColumns):
        return RecordColumns.joined(parts)
    return list(chain.from_iterable(parts))
