"""Where the time went from a beginning (a kill, a start) to the first output that a reader could see, as steps that
follow upon each other and add up.

Pure: marks in, steps out. A step that nothing marks is an error, because its time would silently go to the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.suite.measures.marks import JOB_MANAGER, Mark
from benchmarks.suite.measures.quantiles import NoMeasure


class Boundary(NamedTuple):
    """The end of a step: when this place is reached, not before the step before it ended. `of_all`: by all processes
    that reach it, else by the first."""

    step: str
    text: str
    who: str = JOB_MANAGER
    """`JOB_MANAGER`, or WORKER for any worker."""
    of_all: bool = False
    is_loose: bool = False
    """The next one may be reached before this one is: then its step takes no time."""


class Step(NamedTuple):
    name: str
    seconds: float


class Breakdown(NamedTuple):
    steps: tuple[Step, ...]
    beside: tuple[Step, ...]
    """What went on at the same time as one of the steps, and is no step of its own."""
    until_later: float
    """Seconds until a reader had the result of something that was sent after the beginning: the first output may be of
    what had been sent before, and had to be read again."""

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


WORKER = "worker"

_BEHIND_DEPLOY = (
    Boundary("tasks are made", "make tasks ends", WORKER, of_all=True),
    Boundary("state is restored", "open tasks begins", WORKER, of_all=True),
    Boundary("tasks are opened, with the first transaction", "phase running"),
    Boundary("splits are found and assigned, the first records fetched", "first records", WORKER, is_loose=True),
    Boundary("the first checkpoint is due", "place trigger:after"),
    Boundary("the checkpoint is taken and recorded", "event AppendWon"),
    Boundary("its transaction's commit is asked for", "place commit:before", WORKER),
)

WORKER_KILLED = (
    Boundary("the death is noticed", "event WorkerDied"),
    Boundary("the other workers end", "phase waiting to restart"),
    Boundary("wait before the restart", "phase starting workers"),
    Boundary("workers start, import, and load the program", "message Deploy", WORKER, of_all=True),
    *_BEHIND_DEPLOY,
)
"""From SIGKILL of a worker."""

STARTED = (
    Boundary("Python starts", "python runs"),
    Boundary("the JobManager imports", "imported"),
    Boundary("it loads the program, opens the storage, reads the log", "phase starting workers"),
    Boundary("workers start, import, and load the program", "message Deploy", WORKER, of_all=True),
    *_BEHIND_DEPLOY,
)
"""From the start of the command."""

TAKEOVER = "beside the workers' start: takeover, transactions of the last attempt"
READER = "it is committed, and a reader has it"


def of(
    marks: Sequence[Mark], boundaries: Sequence[Boundary], begin: float, arrivals: Sequence[float], later: float
) -> Breakdown:
    """From `begin` to the first of the `arrivals` at a reader behind the last boundary. `later`: the arrival of the
    first result of something that was sent since. Raises NoMeasure when a boundary is missing, or nothing came behind
    it."""
    at, after = begin, begin
    steps: list[Step] = []
    for boundary in boundaries:
        reached = _reached(marks, boundary, after)
        if reached is None:
            raise NoMeasure(f"{boundary.text!r} of the {boundary.who} is not among the marks")
        steps.append(Step(boundary.step, max(reached - at, 0.0)))
        at = max(at, reached)
        after = after if boundary.is_loose else reached
    arrival = min((one for one in arrivals if one >= at), default=None)
    if arrival is None:
        raise NoMeasure("nothing came out behind the last of the marks")
    return Breakdown((*steps, Step(READER, arrival - at)), _beside(marks, begin), later - begin)


def _reached(marks: Sequence[Mark], boundary: Boundary, after: float) -> float | None:
    first: dict[int, float] = {}
    for mark in marks:
        is_meant = mark.is_worker == (boundary.who == WORKER) and mark.text == boundary.text
        if is_meant and mark.at >= after:
            first.setdefault(mark.pid, mark.at)
    if not first:
        return None
    return max(first.values()) if boundary.of_all else min(first.values())


def _beside(marks: Sequence[Mark], begin: float) -> tuple[Step, ...]:
    takeover = _reached(marks, Boundary("", "phase taking over"), begin)
    deploying = _reached(marks, Boundary("", "phase deploying"), begin)
    if takeover is None or deploying is None:
        raise NoMeasure("there was no takeover")
    return (Step(TAKEOVER, deploying - takeover),)


def median(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """The one of median length, as it was: steps of several do not add up."""
    return sorted(breakdowns, key=lambda one: one.seconds)[(len(breakdowns) - 1) // 2]
