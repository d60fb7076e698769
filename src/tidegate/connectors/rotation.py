"""A source reader that lets its splits take turns; connectors whose reads never wait share it.

It remembers where each split stands between two polls and nothing else: the engine's positions are the truth. It must
never read a split further than the records that it hands out.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from tidegate.checkpoint.protocol import SplitState
from tidegate.operators.contracts import Fetched

LOOKS = 64
"""So many splits without anything new are looked at in one poll: barriers wait for it, and there may be thousands."""

ReadSplit = Callable[[SplitState, int], Fetched | None]
"""Up to so many records of the split from its position on; None when there is nothing now. Does not wait."""


class RotatingReader:
    """A `SourceReader` over `read`. `release` is called once, by `close`."""

    def __init__(self, read: ReadSplit, release: Callable[[], None] = lambda: None) -> None:
        self._read = read
        self._release = release
        self._waiting: deque[SplitState] = deque()
        self._idle = 0
        """How many have had nothing, one after another."""
        self._paused: set[str] = set()
        self._left_out: dict[str, SplitState] = {}
        """Those of the paused ones whose turn has come."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._waiting.extend(splits)

    def pause_or_resume_splits(self, to_pause: Collection[str], to_resume: Collection[str]) -> None:
        self._paused.update(to_pause)
        self._paused.difference_update(to_resume)
        self._waiting.extend(self._left_out.pop(id) for id in to_resume if id in self._left_out)

    def poll(self, max_records: int) -> Fetched | None:
        for _ in range(min(LOOKS, len(self._waiting) - self._idle)):
            split = self._waiting[0]
            if split.id in self._paused:
                self._left_out[split.id] = self._waiting.popleft()
                continue
            fetched = self._read(split, max_records)
            self._waiting.popleft()
            if fetched is None:
                self._waiting.append(split)
                self._idle += 1
                continue
            self._idle = 0
            if not fetched.finished:
                self._waiting.append(msgspec.structs.replace(split, position=fetched.next_position))
            return fetched
        if self._idle >= len(self._waiting):
            self._idle = 0
            return None
        # Nothing new in this one; None would mean: in none of them.
        last = self._waiting[-1]
        return Fetched(last.id, [], last.position)

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        """Nobody outside wants to know."""

    def close(self) -> None:
        self._waiting.clear()
        self._left_out.clear()
        self._release()
