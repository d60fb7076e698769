"""The articles' job: two source subtasks, one map task that writes down what it sees, and a sink.

The source reads up to given offsets and no further as long as a file is missing: so a checkpoint can be taken while
the offsets are exactly these. It gives out one record at a time, as slowly as the reader of the test needs.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.local import LocalSink, LocalSource
from tidegate.operators.contracts import Fetched, SourceContext, SourceReader

TOPIC = "letters"
HELD_AT = {f"{TOPIC}/0": 2, f"{TOPIC}/1": 1}
"""The first offset of each partition that is not read before the file is there."""


class HeldReader:
    """A reader that knows where to wait. See `SourceReader`."""

    def __init__(self, readers: dict[str, SourceReader], context: SourceContext, source: "HeldSource") -> None:
        self._readers = readers
        self._context = context
        self._source = source
        self._positions: dict[str, int] = {}

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._positions[split.id] = split.position
            self._readers[split.id] = self._source.open_inner(self._context)
            self._readers[split.id].add_splits([split])

    def poll(self, max_records: int) -> Fetched | None:
        for split, position in self._positions.items():
            if position >= HELD_AT[split] and not self._source.gate.exists():
                continue
            fetched = self._readers[split].poll(1)
            if fetched is not None:
                self._positions[split] = fetched.next_position
                return fetched
        return None

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class HeldSource(LocalSource):
    """A `LocalSource` that waits for the file `gate`."""

    def __init__(self, log: str, gate: Path) -> None:
        super().__init__(log, TOPIC, value=tg.String(), bounded=True)
        self.gate = gate

    def open_inner(self, context: SourceContext) -> SourceReader:
        return super().open_reader(context)

    def open_reader(self, context: SourceContext) -> SourceReader:
        return HeldReader({}, context, self)


def build(argv: list[str]) -> tg.Job:
    """`argv`: the log, the file to wait for, the file to write into."""
    log, gate, seen = argv

    def look(letter: str) -> str:
        with Path(seen).open("a") as file:
            file.write(f"{os.getpid()} {letter}\n")
        return letter

    job = tg.Job("articles")
    letters = job.source(HeldSource(log, Path(gate)), name="letters")
    letters.map(look, name="map", parallelism=1).sink(
        LocalSink(log, "out", value=tg.String(), partitions=1), name="out", parallelism=1
    )
    return job
