"""What a window operator is told to do with the records of a window."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.event_time.triggers import Trigger
from tidegate.operators.keyed import ByValue
from tidegate.operators.windows.functions import WindowFunction
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState

Add = Callable[[Any, Any], Any]
"""Accumulator and record to accumulator; may change the first."""
Emit = Callable[[Any, Any, Any], Iterable[Any]]
"""Key, window and accumulator to output records. It must not change the accumulator."""
EmitMany = Callable[[list[Any], Any, list[Any]], Iterable[Any]]
"""The same of several keys that have this window, for one output record a key: keys, window and accumulators, in
order."""


class Accumulators(Protocol):
    """Those of the current key by window or pane, as a MapHandle has them."""

    def get(self, key: Any, /) -> Any | None: ...

    def put(self, key: Any, value: Any, /) -> None: ...

    def remove(self, key: Any, /) -> None: ...

    def keys(self) -> list[Any]: ...

    def items(self) -> list[tuple[Any, Any]]: ...


@dataclass(frozen=True)
class TriggerSpec:
    """When windows give results, if not when they are complete."""

    create: Callable[[], Trigger]
    """A trigger for one subtask."""
    state: InternalMapState[Any, Any]
    """By window, what the trigger keeps and its timers; see `open_windows.trigger_state`."""


@dataclass(frozen=True)
class WindowSpec:
    """See the module. Either `emit` or `function` makes the results."""

    state: InternalMapState[Any, Any]
    """Accumulators by the bounds of their pane; of their window where there is a trigger."""
    create: Callable[[], Any]
    adds: tuple[Add, ...]
    """What adds a record of each input."""
    merge: Callable[[Any, Any], Any]
    """Two accumulators to one; may change the first."""
    emit: Emit
    lateness: int
    """Milliseconds for which a window that has been emitted still takes records."""
    late_tag: str | None
    function: Callable[[], WindowFunction] | None = None
    """Makes, for one subtask, what has a context and state of its own; it is used instead of `emit`."""
    by_value: ByValue | None = None
    """What the only one of `adds` does, taken apart."""
    trigger: TriggerSpec | None = None
    """None: they give results when they are complete."""
    emit_many: EmitMany | None = None
    """Where each window gives one record: what `emit` makes of them one by one."""

    @property
    def states(self) -> tuple[InternalMapState[Any, Any], ...]:
        """In which accumulators are kept."""
        return (self.state,)

    def accumulators(self, backend: KeyedStateBackend) -> Accumulators:
        """Those of the current key."""
        handle: Accumulators = backend.register(self.state)
        return handle
