"""How long tasks stand still because of barriers, from the marks of a job.

Pure. A task's pause begins when it deals with a barrier and ends when it takes the next records: in between it captures
its state, and its sink swaps transactions, until which it takes nothing. Only barriers behind which records came count;
where the task had to wait for records, that is in it, too.
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


class _Begun(NamedTuple):
    begin: float
    captured: float
    flushed: float | None = None


def pauses(marks: Sequence[Mark]) -> list[Pause]:
    """In the order in which they ended."""
    begins: dict[tuple[int, str], float] = {}
    begun: dict[tuple[int, str], _Begun] = {}
    found = []
    for mark in marks:
        key = (mark.pid, mark.about)
        match mark.what:
            case "barrier":
                begins[key] = mark.at
            case "captured":
                begun[key] = _Begun(begins[key], mark.at)
            case "flushed":
                for own, one in begun.items():
                    if own[0] == mark.pid and one.flushed is None:
                        begun[own] = one._replace(flushed=mark.at)
            case "goes on":
                task, _, checkpoint = mark.about.rpartition(" ")
                begin, captured, flushed = begun.pop(key)
                ends = (captured, captured if flushed is None else flushed, mark.at)
                found.append(Pause(task, int(checkpoint), *(end - begin for end in ends)))
    return found


def with_longest_only(found: Sequence[Pause]) -> list[Pause]:
    """Of each barrier the task that stood still longest: more than one of a worker's tasks may."""
    longest: dict[int, Pause] = {}
    for pause in found:
        if pause.checkpoint not in longest or pause.whole > longest[pause.checkpoint].whole:
            longest[pause.checkpoint] = pause
    return list(longest.values())
