"""What every `process` of the interface does: which class of function belongs to which kind of stream, what is checked
of a function, and the node that it becomes. It adds one operator to the graph and runs nothing."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SideOutput,
    TimerFunction,
)
from tidegate.api.validation import (
    check_is_process_function,
    check_methods,
    check_parallelism,
    declarations,
    declared_side_outputs,
    declared_states,
)
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.contracts import OperatorFactory
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.process import ProcessOperator
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS
from tidegate.operators.two_inputs import (
    BroadcastProcessOperator,
    CoProcessOperator,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)
from tidegate.operators.user_code import copy_function
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.operator_descriptors import BROADCAST


class ProcessKind(NamedTuple):
    """A class of process functions and what runs it."""

    function: type
    operator: Callable[..., ProcessOperator]
    is_keyed: bool
    has_broadcast: bool
    belongs_to: str
    """Where such a function is given, for errors."""


PROCESS = ProcessKind(ProcessFunction, ProcessOperator, False, False, "stream.process(...)")
KEYED = ProcessKind(KeyedProcessFunction, KeyedProcessOperator, True, False, "stream.key_by(...).process(...)")
CO = ProcessKind(CoProcessFunction, CoProcessOperator, False, False, "stream.connect(other).process(...)")
KEYED_CO = ProcessKind(
    KeyedCoProcessFunction, KeyedCoProcessOperator, True, False, "keyed.connect(other_keyed).process(...)"
)
BROADCAST_KIND = ProcessKind(
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    False,
    True,
    "stream.connect(other.broadcast()).process(...)",
)
KEYED_BROADCAST = ProcessKind(
    KeyedBroadcastProcessFunction,
    KeyedBroadcastProcessOperator,
    True,
    True,
    "keyed.connect(other.broadcast()).process(...)",
)
_KINDS = (PROCESS, KEYED, CO, KEYED_CO, BROADCAST_KIND, KEYED_BROADCAST)


def add_process(
    builder: GraphBuilder,
    kind: ProcessKind,
    function: Any,
    inputs: tuple[InputEdge, ...],
    name: str | None,
    parallelism: int | None,
    side_outputs: Iterable[SideOutput[Any]],
) -> OperatorName:
    """Add the operator that runs `function` on `inputs`. Returns its name. Raises InvalidError."""
    operator = builder.name("process", name)
    check_is_process_function(operator, function, kind.function, _remedy(function, kind))
    methods = kind.operator.methods  # type: ignore[attr-defined]
    check_methods(operator, function, (*methods, "on_timer"))
    states = declared_states(operator, function)
    _check_states(operator, function, kind, states)
    if states and name is None:
        raise InvalidError(
            f"operator {operator} has state ({', '.join(states)}) and no name",
            remedy="Give it a name=: its state is found again by it.",
        )
    timers = _has_timers(function)
    if timers:
        states = {**states, **{state.name: state for state in (PROCESSING_TIMERS, EVENT_TIMERS)}}
    tags = declared_side_outputs(operator, function, side_outputs)
    builder.add(
        LogicalNode(
            operator,
            "process",
            inputs,
            check_parallelism(operator, parallelism),
            factory=_factory(kind, function, operator, tags, timers),
            keyed=kind.is_keyed,
            states=declarations(states),
            side_outputs=tags,
        )
    )
    return operator


def _factory(
    kind: ProcessKind, function: Any, operator: OperatorName, tags: tuple[str, ...], timers: bool
) -> OperatorFactory:
    if timers:
        return lambda: kind.operator(copy_function(function, operator), tags, timers=True)
    return lambda: kind.operator(copy_function(function, operator), tags)


def _has_timers(function: object) -> bool:
    return isinstance(function, TimerFunction) and type(function).on_timer is not TimerFunction.on_timer


def _remedy(function: object, wanted: ProcessKind) -> str:
    """What to do where `function` is not of the kind that is wanted."""
    other = next((kind for kind in _KINDS if isinstance(function, kind.function)), None)
    name = wanted.function.__name__
    if other is None:
        return f"Derive a class from {name}; for a plain function use map or flat_map."
    if other is KEYED and wanted is PROCESS:
        return "Call key_by first: a keyed function needs a key."
    return f"Derive it from {name}, or give it where it belongs: {other.belongs_to}."


def _check_states(
    operator: OperatorName, function: object, kind: ProcessKind, states: dict[str, StateDescriptor[Any]]
) -> None:
    """Whether each declared state has what it needs: a key, or what is broadcast."""
    cls = type(function).__name__
    keyed = [name for name, state in states.items() if state.is_keyed]
    if keyed and not kind.is_keyed:
        raise InvalidError(
            f"operator {operator}: {cls} declares state ({', '.join(keyed)}) without a key",
            remedy="Call key_by first and derive from KeyedProcessFunction, or use an OperatorListState: this state "
            "belongs to a key.",
        )
    broadcast = [name for name, state in states.items() if state.kind == BROADCAST]
    if broadcast and not kind.has_broadcast:
        raise InvalidError(
            f"operator {operator}: {cls} declares broadcast state ({', '.join(broadcast)}) and nothing is broadcast to "
            "it",
            remedy=f"Derive it from {BROADCAST_KIND.function.__name__} or {KEYED_BROADCAST.function.__name__}, and "
            f"connect what is to be broadcast: {BROADCAST_KIND.belongs_to}.",
        )
    if kind.has_broadcast and not broadcast:
        raise InvalidError(
            f"operator {operator}: {cls} declares no broadcast state, so that all of what is broadcast would be "
            "forgotten at a restart",
            remedy="Declare it as a class attribute: rules = tg.BroadcastState(str, Rule).",
        )
