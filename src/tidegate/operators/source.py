"""A source's two halves in a task: `SourceInput` keeps what is read and where, `SourceOperator` makes values of what
was read.

The position of a split is that of the last batch that was given to the chain, and a barrier is only put between
batches: so what a checkpoint holds is the first record not yet emitted, never what a reader has fetched ahead.
"""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import SplitState
from tidegate.elements import Batch
from tidegate.errors import InternalError
from tidegate.event_time.progress import EventTimeProgress
from tidegate.ids import CheckpointId
from tidegate.operators.columns import keeps
from tidegate.operators.contracts import Deserializer, PausingReader, SourceReader
from tidegate.operators.stateless import FAIL, FunctionOperator
from tidegate.operators.timestamps import Timestamper
from tidegate.operators.user_code import OnError, raise_user_error
from tidegate.operators.watching import watched_by

_logger = logging.getLogger(__name__)


class SourceInput:
    """The splits of one subtask, and their positions."""

    def __init__(self, reader: SourceReader, progress: EventTimeProgress | None = None) -> None:
        """`progress`: of event time, where the source's records are given any."""
        self._reader = reader
        self._pauses = reader.pause_or_resume_splits if isinstance(reader, PausingReader) else None
        self._progress = progress
        self.reading = ""
        """The split whose records were read last, and are given to the chain before more is read."""
        self._is_aligned = progress is not None and progress.strategy.alignment is not None
        self._splits: dict[str, SplitState] = {}
        self._unfinished = 0
        self._no_more = False
        self._captured: dict[CheckpointId, tuple[SplitState, ...]] = {}
        """What checkpoints hold that may still complete, oldest first."""

    @property
    def has_ended(self) -> bool:
        """Every split that this subtask will ever have is finished."""
        return self._no_more and self._unfinished == 0

    @property
    def splits(self) -> tuple[SplitState, ...]:
        """All splits, finished ones included, with the positions of now, by id."""
        found = tuple(self._splits[id] for id in sorted(self._splits))
        progress = self._progress
        if progress is None:
            return found
        return tuple(msgspec.structs.replace(split, watermark=progress.watermark_of(split.id)) for split in found)

    def assign(self, splits: Sequence[SplitState], no_more: bool) -> None:
        """The enumerator gives these; `no_more`: they are the last."""
        if splits and self._no_more:
            raise InternalError(f"split {splits[0].id} was assigned after it was said that no more would come")
        for split in splits:
            if split.id in self._splits:
                raise InternalError(f"split {split.id} was assigned twice")
            self._splits[split.id] = split
        unfinished = [split for split in splits if not split.finished]
        self._unfinished += len(unfinished)
        if unfinished:
            self._reader.add_splits(unfinished)
        self._no_more = self._no_more or no_more
        if self._progress is not None:
            self._progress.assigned({split.id: split.watermark for split in splits})
            for split in splits:
                if split.finished:
                    self._progress.ended(split.id)

    def poll(self, max_records: int) -> Batch | None:
        """The next records, raw; None when there are none now. An empty batch only moves a position."""
        if self._progress is not None:
            self._progress.polls += 1
            if self._is_aligned and self._has_to_wait():
                return None
        fetched = self._reader.poll(max_records)
        if fetched is None:
            return None
        split = self._splits.get(fetched.split)
        if split is None or split.finished:
            what = "was not given" if split is None else "had said to be finished"
            raise InternalError(f"the source's reader brought records of split {fetched.split}, which it {what}")
        self._unfinished -= fetched.finished
        self._splits[split.id] = msgspec.structs.replace(
            split, position=fetched.next_position, finished=fetched.finished
        )
        self.reading = split.id
        if self._progress is not None:
            self._progress.reading = split.id
            if fetched.finished:
                self._progress.ended(split.id)
        return Batch(fetched.values, None, fetched.timestamps)

    def watched(self) -> Sequence[int]:
        """On what arrives that for which the last `poll` found nothing; nothing where that is not known."""
        return () if self._is_aligned else watched_by(self._reader)

    def align(self, bound: int) -> None:
        """Splits whose watermark is beyond `bound` are not to be read until it is told anew."""
        if self._progress is not None:
            self._progress.align(bound)

    def _has_to_wait(self) -> bool:
        """Let the reader leave out what is too far ahead; if it cannot do that, it waits when all of it is."""
        assert self._progress is not None
        to_pause, to_resume = self._progress.pause_and_resume()
        if self._pauses is None:
            return self._progress.is_held
        if to_pause or to_resume:
            self._pauses(to_pause, to_resume)
        return False

    def capture(self, checkpoint: CheckpointId) -> tuple[SplitState, ...]:
        """`splits`, for this checkpoint; kept until it is completed or abandoned."""
        self._captured[checkpoint] = self.splits
        return self.splits

    def completed(self, checkpoint: CheckpointId) -> None:
        """Tell the reader. What it raises must not end the attempt: nothing depends on what it does with it."""
        captured = self._captured.get(checkpoint)
        self.abandoned(checkpoint)
        if captured is None:
            return
        try:
            self._reader.notify_checkpoint_complete(captured)
        except Exception:
            _logger.warning("a reader could not use that checkpoint %d completed", checkpoint, exc_info=True)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Neither it nor an earlier one will complete any more."""
        self._captured = {id: splits for id, splits in self._captured.items() if id > checkpoint}

    def close(self) -> None:
        self._reader.close()


class SourceOperator(FunctionOperator):
    """Emits the decoded values, with timestamps where there is a `timestamper`. The whole batch is decoded at once;
    only where that fails, one by one."""

    def __init__(
        self, deserializer: Deserializer | None, on_error: OnError = FAIL, timestamper: Timestamper | None = None
    ) -> None:
        super().__init__(deserializer.decode_one if deserializer else _as_it_is, on_error)
        self._deserializer = deserializer
        self._timestamper = timestamper
        self._leaves_columns = False

    def leave_columns(self) -> None:
        """Whoever gets the records takes them as the reader brings them, where those are the stream's values."""
        self._leaves_columns = self._timestamper is None and keeps(self._deserializer)

    def process(self, batch: Batch) -> list[Batch]:
        if self._leaves_columns:
            return [batch] if batch.values else []
        decoded, rejected = self._decoded(batch)
        if not decoded.values:
            return rejected
        stamped = decoded if self._timestamper is None else self._timestamper.stamp(decoded, self._context)
        return [stamped, *rejected]

    def _decoded(self, batch: Batch) -> tuple[Batch, list[Batch]]:
        if self._deserializer is None:
            return batch, []
        values = _decoded_at_once(self._deserializer, batch.values)
        if values is None:
            decoded, kept, rejected = self._call_each(batch)
            return Batch(decoded, None, kept.timestamps), rejected
        if len(values) != len(batch):
            wrong = ValueError(f"the deserializer made {len(values)} values of {len(batch)} records")
            raise_user_error(wrong, self._context, "when decoding")
        return Batch(values, None, batch.timestamps), []


def _decoded_at_once(deserializer: Deserializer, raw: list[Any]) -> list[Any] | None:
    """None where one of them cannot be decoded: which one is found outside of the `except`, so that the error is told
    once."""
    try:
        return deserializer.decode(raw)
    except Exception:
        return None


def _as_it_is(value: object) -> object:
    return value
