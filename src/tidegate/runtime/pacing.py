"""How much work a task takes at once, and how often it asks a source that has nothing. Pure arithmetic over measured times."""

from collections.abc import Iterator

from tidegate.elements import Batch

FIRST_LIMIT = 64
"""Records of the first batches, before anything is known about how long a record takes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.05
"""Seconds between two polls of a source that has nothing; the pause doubles."""


class BatchPacer:
    """Finds how many records fit into `target` seconds, at most `most`: slow user code then delays a barrier by one small step
    and not by a full batch."""

    def __init__(self, most: int, target: float) -> None:
        self._most = most
        self._target = target
        self.limit = min(FIRST_LIMIT, most)
        """Records that the next batch should have at most."""

    def observe(self, records: int, seconds: float) -> None:
        """So long took so many records."""
        if seconds > self._target:
            self.limit = max(1, min(self.limit, int(records * self._target / seconds)))
        elif records >= self.limit and seconds < self._target / 2:
            self.limit = min(self._most, self.limit * 2)

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """The batch in pieces of the present limit."""
        if len(batch) <= self.limit:
            yield batch
            return
        for start in range(0, len(batch), self.limit):
            yield batch.slice(start, start + self.limit)


class SourcePoll:
    """When to ask a source again. Times in monotonic seconds."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._pause = SHORTEST_PAUSE

    def is_due(self, now: float) -> bool:
        return now >= self._next_at

    def found_nothing(self, now: float) -> None:
        self._next_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def reset(self) -> None:
        """It had something: ask at once."""
        self._next_at = 0.0
        self._pause = SHORTEST_PAUSE

    def next_at(self, now: float) -> float:
        return max(now, self._next_at)
