"""Windows: what the records of each key and window become, in state that is gone when the window is.

There is one operator for each way to be complete: by event time (`panes`, `sessions`), by the clock (`processing`), by
number (`counts`), and when a trigger says so (`triggered`), the only one that keeps windows that overlap apart.
"""

from typing import Any

from tidegate.event_time.windows import (
    CountWindows,
    GlobalWindows,
    SessionWindows,
    domain_of,
    keeps_apart,
)
from tidegate.operators.contracts import Operator
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS
from tidegate.operators.windows.counts import COUNTS, CountWindowOperator
from tidegate.operators.windows.open_windows import trigger_state
from tidegate.operators.windows.panes import (
    GlobalWindowOperator,
    OverlappingProcessingTimeWindowOperator,
    ProcessingTimeWindowOperator,
    WindowOperator,
)
from tidegate.operators.windows.sessions import ProcessingTimeSessionWindowOperator, SessionWindowOperator
from tidegate.operators.windows.spec import Add, Emit, EmitMany, TriggerSpec, WindowSpec
from tidegate.operators.windows.triggered import TriggeredWindowOperator
from tidegate.state.descriptors import StateDescriptor

__all__ = [
    "Add",
    "Emit",
    "EmitMany",
    "SessionWindowOperator",
    "TriggerSpec",
    "WindowOperator",
    "WindowSpec",
    "trigger_state",
    "window_operator",
    "window_states",
]


def window_operator(assigner: Any, spec: WindowSpec) -> Operator:
    """The operator for the windows of `assigner`."""
    if spec.trigger is not None:
        return TriggeredWindowOperator(assigner, spec)
    if isinstance(assigner, CountWindows):
        return CountWindowOperator(assigner, spec)
    if isinstance(assigner, GlobalWindows):
        return GlobalWindowOperator(assigner, spec)
    is_timed = domain_of(assigner) == "processing"
    if isinstance(assigner, SessionWindows):
        return (ProcessingTimeSessionWindowOperator if is_timed else SessionWindowOperator)(assigner, spec)
    if not is_timed:
        return WindowOperator(assigner, spec)
    apart = keeps_apart(assigner)
    return (ProcessingTimeWindowOperator if apart else OverlappingProcessingTimeWindowOperator)(assigner, spec)


def window_states(assigner: Any, spec: WindowSpec) -> dict[str, StateDescriptor[Any]]:
    """By name, what that operator keeps, but for the state of a window function."""
    states: list[StateDescriptor[Any]] = [*spec.states]
    if spec.trigger is not None:
        states += [spec.trigger.state, EVENT_TIMERS, PROCESSING_TIMERS]
    elif isinstance(assigner, CountWindows):
        states += [COUNTS]
    else:
        states += [PROCESSING_TIMERS if domain_of(assigner) == "processing" else EVENT_TIMERS]
    return {state.name: state for state in states}
