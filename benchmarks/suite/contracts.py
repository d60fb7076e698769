"""What the suite asks of a system that it measures, and what it hands to one: a workload, two topics, and how many
slots (workers, subtasks) may run beside each other. A system answers with a command; everything that is measured or
checked is the suite's own, and the same for all of them.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class Workload(StrEnum):
    """The three jobs, from one topic to another; each is also an example of the project."""

    FORWARD = "W0"
    """Keys and values as they are."""
    TOTALS = "W1"
    """For each order its user's new total."""
    WINDOWS = "W2"
    """A total for each user and window of 60 seconds of event time."""


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class JobRun(NamedTuple):
    """One run of one job."""

    workload: Workload
    bootstrap: str
    source: str
    sink: str
    slots: int
    records: int
    """In `source`, which is complete before the run begins."""
    checkpoint_seconds: float
    guarantee: Guarantee
    folder: Path
    """Empty, for this run alone: checkpoints, logs."""
    partitions: int | None = None
    """Of `source`, where each order is in the one that murmur2 gives its user, which is its key. None: nobody says."""


class Command(NamedTuple):
    """How to run it: a process of its own, whose children belong to the run as well."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    """Besides what this process has."""
    ends: bool
    """Whether it ends by itself, well, when the input is read; else it is stopped when its output is complete."""


class System(Protocol):
    """Something that runs the jobs. It never measures anything itself."""

    @property
    def name(self) -> str:
        """Short, in lower case, as on the command line: `flink`."""
        ...

    @property
    def title(self) -> str:
        """As in tables: `Apache Flink 2.3.0, DataStream API in Java`."""
        ...

    @property
    def workloads(self) -> frozenset[Workload]: ...

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The strongest one first."""
        ...

    def prepare(self) -> None:
        """Fetch, install or compile what it needs, into the user's cache; quick when that is there. Raises InvalidError
        or UnavailableError, which name the remedy."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Versions and what was tuned, for the report."""
        ...

    def command(self, run: JobRun) -> Command: ...


@runtime_checkable
class OwnCount(Protocol):
    """A system that is too slow for the records of the others. Rates can be compared all the same."""

    def records_of(self, workload: Workload) -> int:
        """At most so many."""
        ...


@runtime_checkable
class OwnSlots(Protocol):
    """A system that cannot use as many slots as there are."""

    @property
    def most_slots(self) -> int: ...
