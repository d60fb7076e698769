"""A source reader that lets its splits take turns; connectors whose reads never wait share it.

It remembers where each split stands between two polls and nothing else: the engine's positions are the truth. It must
never read a split further than the records that it hands out.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from tidegate.checkpoint.protocol import SplitState
from tidegate.operators.contracts import Fetched

ReadSplit = Callable[[SplitState, int], Fetched | None]
"""Up to so many records of the split from its position on; None when there is nothing now. Does not wait."""


class RotatingReader:
    """A `SourceReader` over `read`. `release` is called once, by `close`."""

    def __init__(self, read: ReadSplit, release: Callable[[], None] = lambda: None) -> None:
        self._read = read
        self._release = release
        self._waiting: deque[SplitState] = deque()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._waiting.extend(splits)

    def poll(self, max_records: int) -> Fetched | None:
        for _ in range(len(self._waiting)):
            split = self._waiting[0]
            fetched = self._read(split, max_records)
            self._waiting.popleft()
            if fetched is None:
                self._waiting.append(split)
                continue
            if not fetched.finished:
                self._waiting.append(msgspec.structs.replace(split, position=fetched.next_position))
            return fetched
        return None

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        """Nobody outside wants to know."""

    def close(self) -> None:
        self._waiting.clear()
        self._release()
