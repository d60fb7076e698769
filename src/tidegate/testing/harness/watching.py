"""What operators under test keep, seen from outside: a stand-in for their state remembers the handles that it gives.

It changes nothing of what the operator sees. What is told is a copy.
"""

from copy import deepcopy
from typing import Any

import msgspec

from tidegate.errors import InvalidError
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.serializers.stamped import Stamped
from tidegate.state.descriptors import ListState, MapState, StateDescriptor

States = dict[str, dict[Any, Any]]
"""By name of a state: its values by key, by subtask for state without keys."""


class _Watched:
    """A `KeyedStateBackend` or an `OperatorStateBackend`."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.handles: dict[str, tuple[StateDescriptor[Any], Any]] = {}

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        handle = self._backend.register(descriptor)
        self.handles[descriptor.name] = descriptor, handle
        return handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def may_write_broadcast(self) -> bool:
        return bool(self._backend.may_write_broadcast)

    @may_write_broadcast.setter
    def may_write_broadcast(self, may: bool) -> None:
        self._backend.may_write_broadcast = may


class WatchedOperator:
    """One subtask of an operator. Its state is seen from `open` on."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._subtask = 0
        self._keyed: Any = None
        self._unkeyed: Any = None
        open_it = operator.open

        def opened(context: OperatorContext) -> None:
            self._subtask = context.subtask
            self._keyed = _Watched(context.state) if context.state is not None else None
            self._unkeyed = _Watched(context.operator_state)
            open_it(msgspec.structs.replace(context, state=self._keyed, operator_state=self._unkeyed))

        vars(operator)["open"] = opened

    def add_to(self, found: States) -> None:
        """Put what it has into `found`."""
        if self._keyed is not None:
            for name, (descriptor, handle) in self._keyed.handles.items():
                # Looked at from behind: reading through the handle counts as a use of a value that can change.
                kept = {key: _value(descriptor, value) for key, value in handle.kept.items()}
                found.setdefault(name, {}).update(deepcopy(kept))
        if self._unkeyed is not None:
            for name, (_, handle) in self._unkeyed.handles.items():
                value = dict(handle.items()) if hasattr(handle, "items") else handle.get()
                found.setdefault(name, {})[self._subtask] = deepcopy(value)


def state_named(states: States, operator: str, name: str) -> dict[Any, Any]:
    """Raises InvalidError where the operator has no such state."""
    if name not in states:
        there = ", ".join(states) or "none"
        raise InvalidError(f"operator {operator} has no state {name!r}", remedy=f"It has: {there}.")
    return states[name]


def _value(descriptor: StateDescriptor[Any], kept: Any) -> Any:
    """Without the times that a state with a time to live keeps beside each value."""
    if not isinstance(getattr(descriptor, "declared", None), Stamped):
        return kept
    match descriptor:
        case MapState():
            return {key: value for key, (_, value) in kept.items()}
        case ListState():
            return [value for _, value in kept]
        case _:
            return kept[1]
