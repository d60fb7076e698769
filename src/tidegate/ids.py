"""The numbers and names that must never be confused with one another, as distinct types.

Everything that leaves a process (message, transactional id, stored object) carries the `Attempt` it belongs to, so that
two deployments of a job never write under the same name. This module holds no logic beyond parsing and checking names.
"""

import re
from typing import NewType

import msgspec

JobName = NewType("JobName", str)
OperatorName = NewType("OperatorName", str)
"""The user's `name=` of an operator. State and transactions are found again by it."""
CheckpointId = NewType("CheckpointId", int)
"""Only grows within a job, also across restarts; 1 is the first."""
Attempt = NewType("Attempt", int)
"""One deployment of the job, numbered by the checkpoint log; 1 is the first."""
SubtaskIndex = NewType("SubtaskIndex", int)
WorkerIndex = NewType("WorkerIndex", int)
LogInstance = NewType("LogInstance", str)
"""A random id made when a job's checkpoint log is created."""
LogPosition = NewType("LogPosition", int)
VertexName = NewType("VertexName", str)
"""A chain of operators, named by its first operator."""
KeyGroup = NewType("KeyGroup", int)

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""A number as it is written into an id, and in no other way."""


def is_name(text: str) -> bool:
    """Whether `text` may name a job, an operator, a state or a side output."""
    return NAME_PATTERN.fullmatch(text) is not None


class TaskId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One subtask of one chain."""

    vertex: VertexName
    subtask: SubtaskIndex

    def __str__(self) -> str:
        return f"{self.vertex}[{self.subtask}]"


class TransactionalId(msgspec.Struct, frozen=True, order=True):
    """`<prefix>:<log instance>:<attempt>:<sink>:<subtask>:<slot>`: who opened a transaction.

    Attempts never share ids: a request sent by an earlier attempt that arrives late must not touch what a later one
    opened. Ids are parsed, never matched by a common beginning: `app` must not claim what belongs to `app-1`. Each id
    has one text: what somebody else called in a similar way, `app:…:07:…`, is not ours.
    """

    prefix: str
    instance: LogInstance
    attempt: Attempt
    sink: OperatorName
    subtask: SubtaskIndex
    slot: int

    def __str__(self) -> str:
        return f"{self.prefix}:{self.instance}:{self.attempt}:{self.sink}:{self.subtask}:{self.slot}"

    @classmethod
    def parse(cls, text: str) -> "TransactionalId | None":
        """The parts of `text`, or None when it is not an id of this form (then it is somebody else's)."""
        parts = text.split(":")
        if len(parts) != 6 or not all(map(_NUMBER.fullmatch, (parts[2], parts[4], parts[5]))):
            return None
        if not is_name(parts[0]) or not is_name(parts[1]) or not is_name(parts[3]):
            return None
        return cls(
            prefix=parts[0],
            instance=LogInstance(parts[1]),
            attempt=Attempt(int(parts[2])),
            sink=OperatorName(parts[3]),
            subtask=SubtaskIndex(int(parts[4])),
            slot=int(parts[5]),
        )
