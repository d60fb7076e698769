"""The job that tests schedule: a source `read`, a keyed operator `totals`, a sink `write`; and how it is started."""

from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.checkpoint.log import ProcessRecord
from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.config.restart import FixedDelay, RestartStrategy
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning, StateDeclaration
from tidegate.graph.physical import PhysicalGraph, build_physical
from tidegate.ids import CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.operators.contracts import Operator
from tidegate.runtime.control import RuntimeOptions
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings

JOB = JobName("orders")
READ, TOTALS, WRITE = OperatorName("read"), OperatorName("totals"), OperatorName("write")
MAX_PARALLELISM = 8
SPEC = RecoverySpec("module:function", {"servers": "here"})


@dataclass(frozen=True)
class Splits:
    """A source, as far as the JobManager looks at it."""

    bounded: bool = False
    discovery_interval: float | None = None
    deserializer: None = None
    inspection_spec: RecoverySpec | None = None
    starts_at_end: bool = False

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        raise AssertionError("tests answer `Discover` themselves")

    def open_reader(self, context: Any) -> Any:
        raise AssertionError("nothing is read")


@dataclass(frozen=True)
class Target:
    """A sink, as far as the JobManager looks at it."""

    transaction_prefix: str | None = None
    recovery_spec: RecoverySpec = SPEC

    def open_writer(self, context: Any) -> Any:
        raise AssertionError("nothing is written")

    def open_recovery(self) -> Any:
        raise AssertionError("tests answer `Recover` themselves")


def graph(
    source: Splits | None = None, sinks: tuple[OperatorName, ...] = (WRITE,), states: tuple[str, ...] = ("sum",)
) -> LogicalGraph:
    """read → totals (keyed) → each of `sinks`."""
    declared = tuple(StateDeclaration(name, "value", "int") for name in states)
    nodes = [
        LogicalNode(READ, "source", source=source or Splits()),
        LogicalNode(
            TOTALS, "process", (InputEdge(READ, Partitioning.HASH),), factory=no_operator, keyed=True, states=declared
        ),
    ]
    nodes += [LogicalNode(name, "sink", (InputEdge(TOTALS, Partitioning.FORWARD),), sink=Target()) for name in sinks]
    return LogicalGraph(JOB, tuple(nodes))


def no_operator() -> Operator:
    """In place of a factory: nobody makes an operator here."""
    raise AssertionError("no operator is made")


def physical(logical: LogicalGraph, parallelism: int = 2) -> PhysicalGraph:
    return build_physical(logical, parallelism, MAX_PARALLELISM)


def job_settings(
    parallelism: int = 2,
    restart: RestartStrategy | None = None,
    tolerable: int = 1,
    fresh: str | None = None,
    from_checkpoint: int | None = None,
    accept_lost: bool = False,
    **more: Any,
) -> JobSettings:
    settings = JobSettings(
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
        checkpoints=CoordinatorSettings(interval=10.0, timeout=60.0, min_pause=0.0, tolerable_failures=tolerable),
        retained=2,
        restart=restart or FixedDelay(1000, 1.0),
        runtime=RuntimeOptions(),
        storage="memory://",
        fresh=fresh,
        from_checkpoint=None if from_checkpoint is None else CheckpointId(from_checkpoint),
        accept_lost=accept_lost,
    )
    return msgspec.structs.replace(settings, **more)


def identity(process: int = 0) -> JobManagerIdentity:
    return JobManagerIdentity(f"nonce-{process}", LogInstance(f"i{process}"), "host", ProcessRecord(100 + process, 1))


def task(vertex: OperatorName, subtask: int) -> TaskId:
    return TaskId(VertexName(vertex), SubtaskIndex(subtask))
