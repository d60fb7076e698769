"""What a task is made of, as `runtime.building` puts it together."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tidegate.clock import Clock
from tidegate.elements import MIN_WATERMARK
from tidegate.graph.physical import Vertex
from tidegate.ids import Attempt, OperatorName, TaskId
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.operators.source import SourceInput
from tidegate.runtime.asynchronous import AsyncStage
from tidegate.runtime.busyness import Condition
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
    gate: InputGate | AsyncStage | None
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
    stage: AsyncStage | None = None
    """Of a task whose first operator is asynchronous; it is then the gate, too."""
    stopwatch: Clock | None = None
    """What tells how long operators take, where somebody wants to know."""

    @property
    def is_ready(self) -> bool:
        """Whether everything that `start` began is open."""
        is_sink_open = self.sink_driver is None or self.sink_driver.is_open
        return is_sink_open and (self.stage is None or self.stage.is_open)

    def condition(self, can_go_on: bool, has_begun: bool, has_ended: bool) -> Condition:
        """Of a task that has done what it could: has it room for what comes of its work, begun work, any input?"""
        if can_go_on:
            # Input that nobody takes in waits for answers to what was taken before.
            return Condition.BUSY if self.stage is not None and self.stage.has_records else Condition.IDLE
        has_input = not has_ended and (self.gate is None or self.gate.has_records)
        return Condition.BACK_PRESSURED if has_begun or has_input else Condition.IDLE

    def start(self) -> None:
        """The operators are open: begin to open the sink's first transaction, and what is called asynchronously."""
        if self.sink_driver is not None:
            self.sink_driver.start()
        if self.stage is not None:
            self.stage.open()

    def close(self) -> None:
        """Let go of everything, also where something of it raises; what is open stays as it is."""
        with ExitStack() as last_first:
            if self.sink_driver is not None:
                last_first.callback(self.sink_driver.close)
            if self.source is not None:
                last_first.callback(self.source.close)
            last_first.callback(self.state.close)
            for _, operator, _ in reversed(self.operators):
                last_first.callback(operator.close)
            if self.stage is not None:
                last_first.callback(self.stage.close)
