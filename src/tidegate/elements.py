"""What crosses a channel: batches of records, watermarks, barriers, the end of input.

Batches, not records, are the unit of work everywhere; a barrier cuts between two batches. A batch is columns of equal
length. Whoever receives a batch may keep it but must not change its columns: they may be shared with another consumer.
"""

from typing import Any

import msgspec

from tidegate.ids import CheckpointId


class Batch:
    """Records as columns.

    values: the records. keys: one key a record, present behind `key_by`. timestamps: milliseconds since 1970, present
    where a source was asked for them. tag: the side output that these records go to; None is the main output. input:
    through which of an operator's inputs they came, from 0; only its gate can say, so it never crosses a channel.
    """

    __slots__ = ("input", "keys", "tag", "timestamps", "values")

    def __init__(
        self,
        values: list[Any],
        keys: list[Any] | None = None,
        timestamps: list[int] | None = None,
        tag: str | None = None,
        input: int = 0,
    ) -> None:
        self.values = values
        self.keys = keys
        self.timestamps = timestamps
        self.tag = tag
        self.input = input

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        keyed = ", keyed" if self.keys is not None else ""
        tag = f", tag {self.tag}" if self.tag else ""
        return f"Batch({len(self.values)} records{keyed}{tag})"

    def slice(self, start: int, stop: int) -> "Batch":
        """Records start..stop-1, as a new batch."""
        return Batch(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            self.tag,
            self.input,
        )

    def through(self, input: int) -> "Batch":
        """The same records, having come through that input. A new batch: this one may be in other hands, too."""
        return Batch(self.values, self.keys, self.timestamps, self.tag, input)


class Barrier(msgspec.Struct, frozen=True):
    """Everything before it belongs to checkpoint `checkpoint`, nothing after it does."""

    checkpoint: CheckpointId


MIN_WATERMARK = -(2**63)
"""Nothing is known of event time."""
MAX_WATERMARK = 2**63 - 1
"""Event time is over: no record comes any more."""


class Watermark(msgspec.Struct, frozen=True):
    """No record with a timestamp of `timestamp` (milliseconds since 1970) or earlier is expected behind it. With
    `is_idle` the sender has nothing for now and is not to be waited for, until its next watermark."""

    timestamp: int
    is_idle: bool = False


class EndOfInput(msgspec.Struct, frozen=True):
    """No batch follows. Barriers still do: a task whose input has ended takes part in checkpoints until the job ends.
    `is_drained`: it ends by order, and a later start reads on, so that event time is not over."""

    is_drained: bool = False


Element = Batch | Watermark | Barrier | EndOfInput
