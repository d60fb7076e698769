"""What a running job tells about itself, as data, and the port through which it tells it.

Nothing is measured here, and nothing is shown.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, VertexName

Level = Literal["info", "warning", "error"]


class CheckpointStatus(msgspec.Struct, frozen=True):
    """The newest completed checkpoint."""

    id: CheckpointId
    age: float
    """Seconds since it completed."""
    duration: float
    """Seconds from trigger to completion."""
    state_bytes: int


class OperatorStatus(msgspec.Struct, frozen=True):
    """One operator, over all of its subtasks. Records are those of this attempt."""

    name: OperatorName
    records_in: int
    records_out: int
    busy_time_ms_per_second: int
    """That it needs itself, its subtasks in the mean; what is missing of its vertex's is the engine's."""


class VertexStatus(msgspec.Struct, frozen=True):
    """One chain of operators, over all of its subtasks, in the last seconds. Busy, idle and back-pressured time is that
    of its subtasks in the mean, and adds up to 1000."""

    name: VertexName
    subtasks: int
    busy_time_ms_per_second: int
    idle_time_ms_per_second: int
    back_pressured_time_ms_per_second: int
    max_busy_time_ms_per_second: int
    """Of its busiest subtask: much more than the mean where keys are not spread evenly."""
    max_back_pressured_time_ms_per_second: int
    operators: tuple[OperatorStatus, ...]


class JobStatus(msgspec.Struct, frozen=True):
    """A job at one moment. Totals count from this start of the job on, rates are of the last seconds."""

    job: JobName
    attempt: Attempt
    state: str
    """What the job life cycle calls it: 'running', 'restarting', 'finished' …"""
    records_in: int = 0
    """Read by all sources."""
    records_out: int = 0
    """Written by all sinks, committed or not."""
    records_in_rate: float = 0.0
    """Records a second."""
    records_out_rate: float = 0.0
    restarts: int = 0
    checkpoint: CheckpointStatus | None = None
    note: str = ""
    """What somebody who watches should know now: 'waiting 4s before restart 3'."""
    vertices: tuple[VertexStatus, ...] = ()
    """What its chains of operators do with their time; none before they have told."""


class JobResult(msgspec.Struct, frozen=True):
    """How a run ended that did not fail."""

    attempts: int
    """The number of the last attempt, over all runs of the job."""
    restarts: int
    """In this run."""
    records_in: int
    records_out: int
    checkpoint: int
    """The newest checkpoint that this run completed, 0 for none."""


class Reporter(Protocol):
    """Who shows how a job is doing. Never raises because of where it writes to, and never decides anything."""

    def update(self, status: JobStatus) -> None:
        """How it is now. Called a few times a second; what to show of it is the reporter's choice."""
        ...

    def event(self, level: Level, text: str, **fields: object) -> None:
        """Something happened that is worth a line of its own. `fields` are JSON values for machines."""
        ...

    def close(self) -> None:
        """Nothing more will come; what was shown last stays."""
        ...


OpenReporter = Callable[[str], Reporter]
"""From the value of `log.format`, known only when the program is loaded, to the reporter."""
