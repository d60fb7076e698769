"""The output of a task over one edge of the graph: finds the channel of each record, collects records to batches, and
puts these into the channels. A task asks `has_room` before it begins work, `push`es what comes of it, and calls
`flush_due` when `next_deadline` has come; `broadcast` puts a watermark, a barrier or the end of input behind everything
pushed before.

Records of one key, and all records of one channel, keep their order. Batches are split column by column, or passed on
as they are where one channel takes them whole; no object is made per record. What is pushed is never refused: an output
takes one more batch whenever it had room, and only what waits for company waits for credit, too.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from tidegate.elements import Barrier, Batch, EndOfInput, Watermark
from tidegate.errors import InternalError
from tidegate.graph.logical import Partitioning
from tidegate.runtime.channels import OutputChannel
from tidegate.state.key_groups import SubtaskCache


class Output:
    """`channels`: index i leads to subtask i (one only for FORWARD). batch_size: records that are sent without
    waiting for more. linger: seconds after which fewer are sent. first_turn: where REBALANCE begins; different for
    each sending subtask, so that short inputs do not all go to one receiver."""

    def __init__(
        self,
        partitioning: Partitioning,
        channels: Sequence[OutputChannel],
        *,
        batch_size: int,
        linger: float,
        max_parallelism: int,
        first_turn: int = 0,
    ) -> None:
        if partitioning is Partitioning.FORWARD and len(channels) != 1:
            raise InternalError(f"a forward edge has {len(channels)} channels out of one subtask")
        self._buffers = [_Buffer(channel, batch_size, linger) for channel in channels]
        self._turn = first_turn % len(channels)
        self._is_broadcast = partitioning is Partitioning.BROADCAST
        self._router: _HashRouter | None = None
        if partitioning is Partitioning.HASH and len(channels) > 1:
            self._router = _HashRouter(len(channels), max_parallelism)

    @property
    def has_room(self) -> bool:
        """Whether every channel has credit, so that one more batch may be pushed, wherever its records go."""
        return all(buffer.channel.has_credit for buffer in self._buffers)

    @property
    def next_deadline(self) -> float | None:
        """When `flush_due` will have something to do; what waits for credit has no deadline."""
        return min((buffer.deadline for buffer in self._buffers if buffer.can_fall_due), default=None)

    def push(self, batch: Batch, now: float) -> None:
        """Send the records of `batch`. Its tag is used up: behind a side output's edge they are ordinary records."""
        if not batch.values:
            return
        if batch.tag is not None:
            batch = Batch(batch.values, batch.keys, batch.timestamps)
        if self._is_broadcast:
            for buffer in self._buffers:
                buffer.add(batch, now)
        elif self._router is None:
            self._buffers[self._turn].add(batch, now)
            self._turn = (self._turn + 1) % len(self._buffers)
        else:
            for target, part in self._router.split(batch):
                self._buffers[target].add(part, now)

    def flush_due(self, now: float) -> None:
        """Send what has waited for company for `linger`, where there is credit."""
        for buffer in self._buffers:
            if buffer.can_fall_due and now >= buffer.deadline:
                buffer.flush()

    def broadcast(self, element: Barrier | EndOfInput | Watermark) -> None:
        """Send everything that waits, then `element`, through every channel; also without credit."""
        for buffer in self._buffers:
            buffer.flush()
            buffer.channel.put(element)


class _Buffer:
    """Batches on their way to one channel, until they are enough for one."""

    def __init__(self, channel: OutputChannel, batch_size: int, linger: float) -> None:
        self.channel = channel
        self.deadline = 0.0
        """When the first record has waited long enough; means something only while records wait."""
        self._batch_size = batch_size
        self._linger = linger
        self._pieces: list[Batch] = []
        self._records = 0

    @property
    def can_fall_due(self) -> bool:
        return self._records > 0 and self.channel.has_credit

    def add(self, batch: Batch, now: float) -> None:
        if self._pieces and not self._joins(batch):
            self.flush()
        if not self._pieces:
            self.deadline = now + self._linger
        self._pieces.append(batch)
        self._records += len(batch)
        if self._records >= self._batch_size:
            self.flush()

    def flush(self) -> None:
        if self._pieces:
            self.channel.put(_joined(self._pieces))
            self._pieces = []
            self._records = 0

    def _joins(self, batch: Batch) -> bool:
        """Whether `batch` fits, and has the same columns, as those of two merged streams may not."""
        first = self._pieces[0]
        same_columns = (first.keys is None) == (batch.keys is None) and (first.timestamps is None) == (
            batch.timestamps is None
        )
        return same_columns and self._records + len(batch) <= self._batch_size


def _joined(pieces: list[Batch]) -> Batch:
    if len(pieces) == 1:
        return pieces[0]
    keys = [piece.keys for piece in pieces if piece.keys is not None]
    timestamps = [piece.timestamps for piece in pieces if piece.timestamps is not None]
    return Batch(
        list(chain.from_iterable(piece.values for piece in pieces)),
        list(chain.from_iterable(keys)) if keys else None,
        list(chain.from_iterable(timestamps)) if timestamps else None,
    )


class _HashRouter:
    """Splits batches by the key group of each key."""

    def __init__(self, parallelism: int, max_parallelism: int) -> None:
        self._parallelism = parallelism
        self._subtasks = SubtaskCache(parallelism, max_parallelism).subtasks

    def split(self, batch: Batch) -> list[tuple[int, Batch]]:
        """Target subtask and records, for each target that gets some; the batch itself when one gets all."""
        if batch.keys is None:
            raise InternalError("a batch without keys came to an edge that is partitioned by key")
        targets = self._subtasks(batch.keys)
        if targets.count(targets[0]) == len(targets):
            return [(targets[0], batch)]
        parts = self._distribute(batch, batch.keys, targets)
        return [(target, part) for target, part in enumerate(parts) if part.values]

    def _distribute(self, batch: Batch, keys: list[Any], targets: Sequence[int]) -> list[Batch]:
        columns: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(self._parallelism)]
        appends = [(values.append, part_keys.append) for values, part_keys in columns]
        for target, value, key in zip(targets, batch.values, keys, strict=True):
            append_value, append_key = appends[target]
            append_value(value)
            append_key(key)
        if batch.timestamps is None:
            return [Batch(values, part_keys) for values, part_keys in columns]
        stamps: list[list[int]] = [[] for _ in columns]
        append_stamp = [column.append for column in stamps]
        for target, stamp in zip(targets, batch.timestamps, strict=True):
            append_stamp[target](stamp)
        return [Batch(values, part_keys, column) for (values, part_keys), column in zip(columns, stamps, strict=True)]
