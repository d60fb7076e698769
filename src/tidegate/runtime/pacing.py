"""How much work a task takes at once, and how often it asks a source that has nothing. Pure arithmetic over measured
times."""

from collections.abc import Sequence

from tidegate.elements import Batch
from tidegate.errors import InternalError

FIRST_LIMIT = 64
"""Records of the first batches, before anything is known about how long a record takes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.05
"""Seconds between two polls of a source that has nothing; the pause doubles."""
WATCHED_PAUSE = 0.25
"""Seconds between two polls of a source that has nothing and is watched."""


class BatchPacer:
    """Finds how many records fit into `target` seconds, at most `most`: slow user code then delays a barrier by one
    small step and not by a full batch."""

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


class Pieces:
    """An input batch on its way into the chain. Each piece has the limit of the moment when it is taken, so that slow
    records make already the next piece of the same batch smaller."""

    def __init__(self, pacer: BatchPacer) -> None:
        self._pacer = pacer
        self._batch: Batch | None = None
        self._taken = 0

    def __bool__(self) -> bool:
        return self._batch is not None

    def put(self, batch: Batch) -> None:
        """Only when nothing is left of the last one, and with at least one record."""
        if self._batch is not None:
            raise InternalError(f"{batch} came before all of {self._batch} was taken")
        self._batch, self._taken = batch, 0

    def take(self) -> Batch:
        """The next records; only when there are some."""
        batch, start = self._batch, self._taken
        if batch is None:
            raise InternalError("a piece was taken where nothing is left")
        end = self._taken = start + self._pacer.limit
        if end >= len(batch):
            self._batch = None
        return batch if start == 0 and self._batch is None else batch.slice(start, end)


class SourcePoll:
    """When to ask a source again. Times in monotonic seconds.

    What is watched may stay readable although nothing is found, so it is never looked at more often than in the
    shortest pause.
    """

    def __init__(self) -> None:
        self._next_at = 0.0
        self._pause = SHORTEST_PAUSE
        self._asked_at = 0.0
        self._watched: Sequence[int] = ()

    def is_due(self, now: float) -> bool:
        return now >= self._next_at

    def found_nothing(self, now: float, watched: Sequence[int] = ()) -> None:
        """`watched`: the descriptors on which something will come."""
        self._asked_at, self._watched = now, watched
        self._next_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def reset(self) -> None:
        """It had something: ask at once."""
        self._next_at = 0.0
        self._pause = SHORTEST_PAUSE
        self._watched = ()

    def arrived(self) -> None:
        """On what is watched."""
        if self._watched:
            self._next_at = 0.0

    def next_at(self, now: float) -> float:
        return max(now, self._next_at)

    def watched(self, now: float) -> Sequence[int]:
        """What to look at until `patient_at`."""
        return self._watched if now >= self._asked_at + SHORTEST_PAUSE else ()

    def patient_at(self, now: float) -> float:
        """As `next_at`, for who says when something arrives."""
        if not self._watched or self._next_at == 0.0:
            return self.next_at(now)
        pause = WATCHED_PAUSE if now >= self._asked_at + SHORTEST_PAUSE else SHORTEST_PAUSE
        return max(now, self._asked_at + pause)


def earliest(*times: float | None) -> float | None:
    """None: never."""
    return min((at for at in times if at is not None), default=None)
