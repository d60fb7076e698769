"""How a stream is cut into windows and when these give their results: what a program says of that, checked, and what a
window operator is told. It adds nothing to the graph."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidegate.api.functions import SideOutput
from tidegate.api.validation import check_late
from tidegate.api.window_functions import Results, spelled_in_name
from tidegate.errors import InvalidError
from tidegate.event_time.composed_triggers import EventTimeTrigger, check_trigger
from tidegate.event_time.durations import seconds_of
from tidegate.event_time.triggers import ProcessingTimeTrigger, Trigger
from tidegate.event_time.windows import (
    CountWindows,
    GlobalWindows,
    SessionWindows,
    WindowAssigner,
    domain_of,
    window_type,
)
from tidegate.ids import OperatorName
from tidegate.operators.keyed import ByValue
from tidegate.operators.user_code import copy_function
from tidegate.operators.windows import TriggerSpec, WindowSpec, trigger_state
from tidegate.state.descriptors import FoldedMapState, InternalMapState

Assigner = WindowAssigner | SessionWindows | GlobalWindows | CountWindows
Functions = tuple[Callable[[], Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
"""create, add and merge of an aggregate."""


@dataclass(frozen=True)
class Windowing:
    """How a stream is cut into windows, and when these give their results."""

    assigner: Assigner
    trigger: Trigger | None
    """None: when they are complete."""
    lateness: int
    """Milliseconds."""
    late: SideOutput[Any] | None

    def __str__(self) -> str:
        return f"{self.assigner}" if self.trigger is None else f"{self.assigner}, {self.trigger}"


def windowing(assigner: Assigner, trigger: object, allowed_lateness: str | timedelta, late: object) -> Windowing:
    """What `KeyedStream.window` was given. Raises InvalidError when any of it cannot be, or not together."""
    lateness = check_windows(assigner, allowed_lateness, late)
    tag = late if isinstance(late, SideOutput) else None
    return Windowing(assigner, None if trigger is None else _checked_trigger(assigner, trigger), lateness, tag)


def check_windows(assigner: object, allowed_lateness: str | timedelta, late: object) -> int:
    """The allowed lateness in milliseconds. Raises InvalidError when any of the three cannot be."""
    if isinstance(assigner, type) or not (hasattr(assigner, "pane_of") or isinstance(assigner, SessionWindows)):
        raise InvalidError(
            f"window was given {assigner.__name__ if isinstance(assigner, type) else type(assigner).__name__}",
            remedy='Give an assigner, as TumblingEventTimeWindows("60s") is one.',
        )
    check_late(late)
    lateness = round(seconds_of("allowed_lateness", allowed_lateness) * 1000)
    if domain_of(assigner) != "event" and (lateness or late is not None):
        raise InvalidError(
            f"no record comes late to {assigner}", remedy="Leave allowed_lateness and late out: they are of event time."
        )
    return lateness


def _checked_trigger(assigner: Assigner, given: object) -> Trigger | None:
    """None for what the windows have without a trigger: that is the faster way."""
    trigger = check_trigger("window", given)
    domain = domain_of(assigner)
    if isinstance(assigner, SessionWindows) and not trigger.can_merge:
        raise InvalidError(
            f"{trigger} was given to {assigner} and cannot merge what it keeps of two of them",
            remedy="Define merge(self, one, other), and on_merge where it waits for something.",
        )
    if domain == "processing" and trigger.needs_event_time:
        raise InvalidError(
            f"{trigger} was given to {assigner}, which have no time in common",
            remedy="Use a trigger on processing time, or a CountTrigger, or windows of event time.",
        )
    is_plain = domain == "event" and type(trigger) is EventTimeTrigger and trigger.is_plain
    return None if is_plain or (domain == "processing" and type(trigger) is ProcessingTimeTrigger) else trigger


def state_name(assigner: object) -> str:
    """Of the accumulators. It says how the windows are cut: those of other windows are no state of these, and a
    checkpoint that has them is refused."""
    return f".windows-{spelled_in_name(assigner)}"


def window_spec(
    operator: OperatorName,
    windowing: Windowing,
    stored: Any,
    functions: Functions,
    results: Results,
    by_value: ByValue | None = None,
) -> WindowSpec:
    """What the operator is told: the `results` of aggregates that are made by `functions` and `stored` as that type.
    by_value: the function that adds a record, taken apart."""
    create, add, merge = functions
    assigner, trigger = windowing.assigner, windowing.trigger
    name, kind = state_name(assigner), window_type(assigner)
    if trigger is None:
        triggered = None
    else:
        name = f"{name}-{spelled_in_name(trigger)}"
        kept = _checked_state(operator, trigger, trigger_state(kind, trigger, name.replace("windows", "triggers", 1)))
        triggered = TriggerSpec(lambda: copy_function(trigger, operator), kept)
    is_cut_by_time = trigger is None and not isinstance(assigner, SessionWindows | CountWindows)
    return WindowSpec(
        state=(FoldedMapState if is_cut_by_time else InternalMapState)(kind, stored, name=name),
        create=create,
        adds=(add,),
        merge=merge,
        emit=results.emit,
        lateness=windowing.lateness,
        late_tag=None if windowing.late is None else windowing.late.name,
        function=results.function,
        trigger=triggered,
        emit_many=results.emit_many,
        by_value=by_value,
    )


def _checked_state(
    operator: OperatorName, trigger: Trigger, state: InternalMapState[Any, Any]
) -> InternalMapState[Any, Any]:
    if not state.immutable:
        raise InvalidError(
            f"operator {operator}: what {trigger} keeps is of the type {trigger.state_type}, whose values can change",
            remedy="Give state_type an immutable type: int, str, a tuple of such, a frozen struct.",
        )
    return state
