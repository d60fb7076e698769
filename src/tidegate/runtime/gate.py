"""The input gate of a task: merges its input channels and their watermarks, and aligns barriers. `poll` gives batches,
the watermark of all channels together when it is a new one, `AlignedBarrier(n)` when barrier n has come through every
channel, and `Ended` when every input has ended; `abandon` is called when the JobManager gives a checkpoint up.

What must hold: between two aligned barriers the task sees, of each channel, exactly what lies between these barriers in
it. So a channel whose barrier has come is not read until the alignment ends: its records stay where they are, and its
sender runs out of credit. The gate never looks into batches, never buffers, and keeps no time.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.elements import MIN_WATERMARK, Barrier, Batch, Element, Watermark
from tidegate.errors import InternalError
from tidegate.event_time.watermarks import WatermarkMerger
from tidegate.graph.physical import ChannelId
from tidegate.ids import CheckpointId
from tidegate.runtime.channels import InputChannel


class AlignedBarrier(msgspec.Struct, frozen=True):
    """Barrier `checkpoint` has come through every channel: now the task's state is the state of this checkpoint."""

    checkpoint: CheckpointId


class Ended(msgspec.Struct, frozen=True):
    """All inputs have ended: no batch follows. Aligned barriers still do, until the job ends. `is_drained`: some of
    them by order."""

    is_drained: bool = False


class InputGate:
    """Reads `inputs` in turn. Barriers of checkpoints up to `last_checkpoint`, the restored one, are of the past.

    `inputs_of` says for each channel to which input of the operator it belongs; all to the first when left out.
    Barriers are aligned and ends awaited over all of them. `watermark` is what the restored task had reached.
    """

    def __init__(
        self,
        inputs: Mapping[ChannelId, InputChannel],
        last_checkpoint: CheckpointId,
        inputs_of: Sequence[int] = (),
        watermark: int = MIN_WATERMARK,
    ) -> None:
        if not inputs:
            raise InternalError("an input gate was made without channels")
        self._channels = list(inputs)
        self._inputs = list(inputs.values())
        self._inputs_of = list(inputs_of) or [0] * len(self._inputs)
        self._blocked = [False] * len(self._inputs)
        self._ended = [False] * len(self._inputs)
        self._watermarks = WatermarkMerger(len(self._inputs), watermark)
        self._is_drained = False
        self._turn = 0
        self._aligning: CheckpointId | None = None
        """The checkpoint whose barrier has come through some channels (those that are blocked)."""
        self._closed = last_checkpoint
        """Barriers up to this one do nothing: aligned, abandoned, or of the past."""

    def poll(self, *, without_records: bool = False) -> Batch | Watermark | AlignedBarrier | Ended | None:
        """What comes next; None when nothing has come, or only through blocked channels. `without_records`:
        batches stay where they are, and what stands behind them."""
        fruitless = 0
        while fruitless < len(self._inputs):
            position = self._turn
            self._turn = (position + 1) % len(self._inputs)
            channel = self._inputs[position]
            is_closed = self._blocked[position] or (without_records and channel.has_records)
            element = None if is_closed else channel.poll()
            if element is None:
                fruitless += 1
                continue
            fruitless = 0
            event = self._take(position, element)
            if event is not None:
                return event
        return None

    @property
    def has_records(self) -> bool:
        """Whether records have come that may be read now."""
        return any(
            channel.has_records and not is_blocked
            for channel, is_blocked in zip(self._inputs, self._blocked, strict=True)
        )

    def abandon(self, checkpoint: CheckpointId) -> None:
        """`checkpoint` will not complete: do not wait for its barriers, ignore them when they come."""
        if self._aligning is not None and self._aligning <= checkpoint:
            self._unblock()
        self._closed = max(self._closed, checkpoint)

    def _take(self, position: int, element: Element) -> Batch | Watermark | AlignedBarrier | Ended | None:
        if isinstance(element, Barrier):
            return self._barrier(position, element.checkpoint)
        if self._ended[position]:
            raise InternalError(f"{element!r} came through {self._channels[position]} after its end of input")
        if isinstance(element, Batch):
            return element.through(self._inputs_of[position]) if self._inputs_of[position] else element
        if isinstance(element, Watermark):
            return self._watermarks.advance(position, element)
        self._ended[position] = True
        self._is_drained = self._is_drained or element.is_drained
        if all(self._ended):
            return Ended(self._is_drained)
        # Event time goes on where a drained input is read on: it is not over there, and nobody may think so.
        return None if element.is_drained else self._watermarks.end(position)

    def _barrier(self, position: int, checkpoint: CheckpointId) -> AlignedBarrier | None:
        if checkpoint <= self._closed or (self._aligning is not None and checkpoint < self._aligning):
            return None
        if self._aligning is not None and checkpoint > self._aligning:
            # The sender skipped the older one, so that its barrier will never come from there.
            self.abandon(self._aligning)
        self._aligning = checkpoint
        self._blocked[position] = True
        if not all(self._blocked):
            return None
        self._unblock()
        self._closed = checkpoint
        return AlignedBarrier(checkpoint)

    def _unblock(self) -> None:
        self._aligning = None
        self._blocked = [False] * len(self._inputs)
