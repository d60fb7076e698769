"""A KafkaSource read as a task reads it: positions kept by who reads, a checkpoint taken at any moment, a restart from
one."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import SplitState
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex
from tidegate.kafka import KafkaSource
from tidegate.operators.contracts import SourceContext

PATIENCE = 20.0
"""Seconds in which what is awaited must have come."""
CONTEXT = SourceContext(JobName("reading"), OperatorName("source"), SubtaskIndex(0), 1, Attempt(1))


class Reading:
    """`splits` are those of a checkpoint; without them the source is asked, as at the start of a job."""

    def __init__(self, source: KafkaSource, splits: Sequence[SplitState] | None = None) -> None:
        self.source = source
        self.splits: dict[str, SplitState] = {}
        self.values: dict[str, list[Any]] = defaultdict(list)
        self.timestamps: dict[str, list[int]] = defaultdict(list)
        self.reader = source.open_reader(CONTEXT)
        self.add(source.discover(None) if splits is None else splits)

    def add(self, splits: Sequence[SplitState]) -> None:
        self.splits.update((split.id, split) for split in splits)
        self.reader.add_splits([split for split in splits if not split.finished])

    def poll(self, max_records: int = 100) -> bool:
        """Whether there was something."""
        fetched = self.reader.poll(max_records)
        if fetched is None:
            return False
        split = self.splits[fetched.split]
        assert not split.finished, f"{split.id} was finished and brought {fetched}"
        assert fetched.next_position >= split.position, f"{split.id} went back from {split.position}: {fetched}"
        decode = self.source.deserializer
        self.values[split.id] += fetched.values if decode is None else decode.decode(fetched.values)
        self.timestamps[split.id] += fetched.timestamps or []
        self.splits[split.id] = msgspec.structs.replace(
            split, position=fetched.next_position, finished=fetched.finished
        )
        return True

    def until(self, done: Callable[["Reading"], bool], max_records: int = 100) -> "Reading":
        deadline = time.monotonic() + PATIENCE
        while not done(self):
            assert time.monotonic() < deadline, f"after {PATIENCE} s there is only {self.all} at {self.splits}"
            if not self.poll(max_records):
                time.sleep(0.002)
        return self

    def records(self, count: int, max_records: int = 100) -> "Reading":
        """Until there are so many."""
        return self.until(lambda reading: len(reading.all) >= count, max_records)

    def to_the_end(self) -> "Reading":
        self.until(lambda reading: all(split.finished for split in reading.splits.values()))
        self.close()
        return self

    def for_a_while(self, seconds: float = 0.4) -> "Reading":
        """Give a reader that reads too much the time to do so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.poll():
                time.sleep(0.002)
        return self

    @property
    def all(self) -> list[Any]:
        """The values of all splits, split by split."""
        return [value for split in sorted(self.values) for value in self.values[split]]

    def checkpoint(self) -> list[SplitState]:
        return [self.splits[id] for id in sorted(self.splits)]

    def crash(self) -> list[SplitState]:
        """The positions of the last checkpoint; what was read after it is forgotten with the reader."""
        taken = self.checkpoint()
        self.close()
        return taken

    def close(self) -> None:
        self.reader.close()


def positions(splits: Sequence[SplitState]) -> dict[str, int]:
    return {split.id: split.position for split in splits}


def stops(splits: Sequence[SplitState]) -> dict[str, int | None]:
    return {split.id: split.stop for split in splits}
