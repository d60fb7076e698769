"""How long tasks stand still because of barriers, from the marks of a job.

Pure. A task's pause is the longest time in which it took no records, from when it dealt with a barrier to the first
records behind the flush of its sink: it captures its state, and goes on with a few batches while the sink swaps
transactions. Only barriers behind which records came count; where the task had to wait for records, or worked on some,
that is in it, too. So the end of a bounded input is left out: there tasks wait because there is nothing left.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.suite.measures.marks import Mark


class Pause(NamedTuple):
    """Of one task at one barrier. Seconds since it began."""

    task: str
    checkpoint: int
    captured: float
    """Until the state was captured and the barrier was passed on."""
    flushed: float
    """Until the sink had written all that came before the barrier; as `captured` for a task without a sink."""
    whole: float
    """The longest time without taking records."""
    began: float = 0.0
    """On the clock of the marks."""


class _Begun(NamedTuple):
    begin: float
    captured: float
    last: float
    """When it took records last, or dealt with the barrier."""
    longest: float = 0.0
    """Between two such times."""
    flushed: float | None = None

    def takes(self, at: float) -> "_Begun":
        return self._replace(last=at, longest=max(self.longest, at - self.last))

    def pause(self, task: str, checkpoint: int) -> Pause:
        flushed = self.captured if self.flushed is None else self.flushed
        return Pause(task, checkpoint, self.captured - self.begin, flushed - self.begin, self.longest, self.begin)


def pauses(marks: Sequence[Mark]) -> list[Pause]:
    """In the order in which they began. What a task does behind its first records after a flush is no pause."""
    begins: dict[tuple[int, str], float] = {}
    begun: dict[tuple[int, str], _Begun] = {}
    over: set[tuple[int, str]] = set()
    for mark in marks:
        key = (mark.pid, mark.about)
        match mark.what:
            case "barrier":
                begins[key] = mark.at
            case "captured":
                begun[key] = _Begun(begins[key], mark.at, begins[key])
            case "flushed":
                for own, one in begun.items():
                    if own[0] == mark.pid and one.flushed is None:
                        begun[own] = one._replace(flushed=mark.at)
            case "goes on" if key not in over:
                begun[key] = begun[key].takes(mark.at)
                if begun[key].flushed is not None:
                    over.add(key)
    found = []
    for (_, about), one in begun.items():
        task, _, checkpoint = about.rpartition(" ")
        if one.longest:
            found.append(one.pause(task, int(checkpoint)))
    return found


def before_the_end(found: Sequence[Pause], marks: Sequence[Mark], seconds: float) -> list[Pause]:
    """Without those that began in so many seconds before any task of the job took records for the last time that is
    marked."""
    end = max((mark.at for mark in marks if mark.what == "goes on"), default=0.0)
    return [pause for pause in found if pause.began <= end - seconds]


def with_longest_only(found: Sequence[Pause]) -> list[Pause]:
    """Of each barrier the task that stood still longest: more than one of a worker's tasks may."""
    longest: dict[int, Pause] = {}
    for pause in found:
        if pause.checkpoint not in longest or pause.whole > longest[pause.checkpoint].whole:
            longest[pause.checkpoint] = pause
    return list(longest.values())
