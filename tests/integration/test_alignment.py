"""Two sources of very different speed, a window behind both: with aligned watermarks its state stays small."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.connectors.rotation import RotatingReader
from tidegate.operators.contracts import Fetched, SourceContext, SourceReader

Record = tuple[str, int]
"""Of which source, and the timestamp."""
WINDOW = 100
END = 20_000
"""Milliseconds of event time in both sources."""
FAST = [("fast", at) for at in range(0, END, 10)]
SLOW = [("slow", at) for at in range(0, END, 200)]


class SlowSource(CollectionSource):
    """Two polls of three bring nothing, and the third one record."""

    def open_reader(self, context: SourceContext) -> SourceReader:
        polls = 0

        def read(split: SplitState, most: int) -> Fetched | None:
            nonlocal polls
            polls += 1
            return self._read(split, 1) if polls % 3 == 0 or split.position == split.stop else None

        return RotatingReader(read)


class Window(NamedTuple):
    end: int
    records: int
    most_open: int
    """How many were open at once so far."""
    furthest: int
    """By how much a record was ahead of event time so far, which begins at 0."""


class OpenWindows(tg.KeyedProcessFunction[str, Record, Window]):
    """Counts records in windows by hand."""

    ends = tg.MapState(int, int)

    def __init__(self) -> None:
        self.most_open = 0
        self.furthest = 0

    def process_element(self, value: Record, ctx: tg.KeyedContext[str]) -> None:
        end = value[1] - value[1] % WINDOW + WINDOW
        self.ends.put(end, self.ends.get(end, 0) + 1)
        ctx.timer_service.register_event_time_timer(end)
        self.most_open = max(self.most_open, len(list(self.ends.keys())))
        self.furthest = max(self.furthest, value[1] - max(0, ctx.timer_service.current_watermark()))

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[Window]:
        yield Window(timestamp, self.ends.get(timestamp, 0), self.most_open, self.furthest)
        self.ends.remove(timestamp)


def run(folder: Path, strategy: tg.WatermarkStrategy[Record]) -> Window:
    """The last window."""
    sink = CollectionSink()
    config = tg.Config(checkpoint_dir=folder, checkpoint_interval="50ms", batch_size=10, watermark_interval="5ms")
    job = tg.Job("aligned", config=config)
    fast = job.source(CollectionSource(FAST), name="fast", watermarks=strategy)
    slow = job.source(SlowSource(SLOW), name="slow", watermarks=strategy)
    stream = fast.union(slow).key_by(lambda record: "all").process(OpenWindows(), name="windows")
    stream.sink(sink, name="out")
    job.run(in_process=True)
    assert [window.end for window in sink.committed] == list(range(WINDOW, END + 1, WINDOW))
    assert sum(window.records for window in sink.committed) == len(FAST) + len(SLOW)
    last: Window = sink.committed[-1]
    return last


@pytest.mark.parametrize("is_aligned", [True, False])
def test_aligned_sources_bound_the_skew_and_the_state_behind_them(tmp_path: Path, is_aligned: bool) -> None:
    strategy: tg.WatermarkStrategy[Record] = tg.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record: record[1]
    )
    if is_aligned:
        strategy = strategy.with_watermark_alignment("both", "2s", update_interval="10ms")
    last = run(tmp_path, strategy)
    assert (last.most_open < 50) is is_aligned
    assert (last.furthest < 5_000) is is_aligned
