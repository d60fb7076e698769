"""The sources of a job under test: all of them read one list of elements, up to the place that the harness allows.

A position is an index into the whole list, the same for all splits of all sources. So whatever is read again after a
crash comes in the order in which it came before. Nothing here waits, and nothing is handed out that was not allowed.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.elements import MIN_WATERMARK
from tidegate.event_time.strategies import WatermarkGenerator, WatermarkStrategy
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext, SourceReader
from tidegate.testing.harness.elements import Element, Encoded, EndOfInput, Record

NEVER = 2**62
"""The stop of a split: its end is an element, and not a position that is known before."""


@dataclass(frozen=True)
class Fed:
    """One element and the source to which it belongs."""

    source: str
    element: Element


class Feed:
    """What all sources bring, in the order in which a test has sent it."""

    def __init__(self) -> None:
        self.elements: list[Fed] = []
        self.allowed = 0
        """So many of them may be read."""
        self.ends: dict[str, int] = {}
        """By source: which element ends it."""
        self.watermarks: dict[str, int] = {}
        """By operator: how far it was said to have come, as far as elements are allowed."""

    def add(self, source: str, element: Element) -> None:
        if isinstance(element, EndOfInput):
            self.ends[source] = len(self.elements)
        self.elements.append(Fed(source, element))

    def forget(self, begin: int) -> None:
        """What comes from `begin` on."""
        del self.elements[begin:]
        self.ends = {source: end for source, end in self.ends.items() if end < begin}

    def watermark(self, operator: str) -> int:
        return self.watermarks.get(operator, MIN_WATERMARK)


class FeedSource:
    """Stands in for the source called `name`."""

    bounded = True
    discovery_interval: float | None = None
    inspection_spec: RecoverySpec | None = None

    def __init__(self, feed: Feed, name: str, splits: int, own_format: Deserializer | None = None) -> None:
        """`own_format`: that of the source for which it stands in."""
        self.deserializer: Deserializer | None = None if own_format is None else _WhereEncoded(own_format)
        self._feed = feed
        self._name = name
        self._splits = splits

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return [SplitState(str(i), 0, NEVER) for i in range(self._splits) if str(i) not in (known or ())]

    def open_reader(self, context: SourceContext) -> SourceReader:
        return FeedReader(self._feed, self._name)


class PartitionedFeedSource(FeedSource):
    """One whose splits stand in for the partitions of a topic: the test says of each record in which it is."""

    def partition_of(self, split: str) -> tuple[str, int]:
        return self._name, int(split)


class _WhereEncoded:
    """The format of a source, for those of its values that a test gives as bytes."""

    def __init__(self, own_format: Deserializer) -> None:
        self._own_format = own_format

    def decode(self, raw: list[Any]) -> list[Any]:
        return list(map(self.decode_one, raw))

    def decode_one(self, raw: Any) -> Any:
        return self._own_format.decode_one(bytes(raw)) if isinstance(raw, Encoded) else raw


class FeedReader:
    """Reads the splits of one subtask; they take turns."""

    def __init__(self, feed: Feed, name: str) -> None:
        self._feed = feed
        self._name = name
        self._splits: deque[SplitState] = deque()
        self._paused: frozenset[str] = frozenset()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._splits.extend(splits)

    def pause_or_resume_splits(self, to_pause: Collection[str], to_resume: Collection[str]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)

    def poll(self, max_records: int) -> Fetched | None:
        for _ in range(len(self._splits)):
            split = self._splits.popleft()
            may_read = split.id not in self._paused and self._has_more(split)
            fetched = self._read(split, max_records) if may_read else None
            if fetched is None or not fetched.finished:
                moved = split.position if fetched is None else fetched.next_position
                self._splits.append(msgspec.structs.replace(split, position=moved))
            if fetched is not None:
                return fetched
        return None

    def _has_more(self, split: SplitState) -> bool:
        """Whether there is something, be it only the end."""
        has_ended = split.position > self._feed.ends.get(self._name, NEVER)
        return has_ended or split.position < self._feed.allowed

    def _read(self, split: SplitState, max_records: int) -> Fetched:
        """Records of `split` that are alike in having a timestamp or none."""
        values: list[Any] = []
        timestamps: list[int] = []
        position = split.position
        if position > self._feed.ends.get(self._name, NEVER):
            return Fetched(split.id, values, position, finished=True)
        while position < self._feed.allowed and len(values) < max_records:
            fed = self._feed.elements[position]
            if fed.source == self._name:
                element = fed.element
                if isinstance(element, EndOfInput):
                    return Fetched(split.id, values, position + 1, None, timestamps or None, finished=True)
                if isinstance(element, Record) and str(element.split) == split.id:
                    if values and (element.timestamp is not None) != bool(timestamps):
                        break
                    values.append(element.value)
                    timestamps += [] if element.timestamp is None else [element.timestamp]
            position += 1
        return Fetched(split.id, values, position, None, timestamps or None)

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        """Nobody outside wants to know."""

    def close(self) -> None:
        """Nothing is held."""


class _ToldGenerator:
    """The generator of a strategy, and beside it what the test says."""

    def __init__(self, generator: WatermarkGenerator, told: Callable[[], int]) -> None:
        self._generator = generator
        self._told = told

    def on_batch(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        self._generator.on_batch(values, timestamps)

    @property
    def watermark(self) -> int:
        return max(self._generator.watermark, self._told())


def told_strategy(strategy: WatermarkStrategy[Any], feed: Feed, operator: str) -> WatermarkStrategy[Any]:
    """`strategy`, whose watermarks are at least what the test has said of `operator`."""
    make = strategy.generator
    return replace(strategy, generator=lambda: _ToldGenerator(make(), lambda: feed.watermark(operator)))
