"""What a task is made of, as `runtime.building` puts it together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.elements import MIN_WATERMARK
from tidegate.graph.physical import Vertex
from tidegate.ids import Attempt, OperatorName, TaskId
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.operators.source import SourceInput
from tidegate.runtime.event_time import WatermarkTurns
from tidegate.runtime.gate import InputGate
from tidegate.runtime.pacing import BatchPacer
from tidegate.runtime.router import Output
from tidegate.runtime.sink_driver import SinkDriver
from tidegate.runtime.task_state import TaskState


@dataclass
class TaskParts:
    """What a task is made of; see `runtime.building`. Exactly one of `source` and `gate` is there."""

    id: TaskId
    vertex: Vertex
    attempt: Attempt
    operators: Sequence[tuple[OperatorName, Operator, OperatorContext]]
    outputs: Mapping[tuple[OperatorName, str | None], list[Output]]
    source: SourceInput | None
    gate: InputGate | None
    state: TaskState
    ended: frozenset[OperatorName]
    """Operators that had ended in the restored checkpoint."""
    pacer: BatchPacer
    step_target: float
    watermark: int = MIN_WATERMARK
    """How far the restored task had come in event time."""
    watermark_turns: WatermarkTurns | None = None
    """Of a task that makes watermarks."""
    sink: OperatorName | None = None
    sink_driver: SinkDriver | None = field(default=None)
