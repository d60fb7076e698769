"""What runs a window function: it has a context, may write to side outputs, and may have state of its key and of the
single window.

State of the key means the same in all windows. State of a window is an entry of a map by window, and is removed with
the window, after `clear` was called. Nothing else is kept of a function between two windows.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.context import Context, OutputBuffer, SideOutput
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of
from tidegate.operators.time_to_live import TimeToLive
from tidegate.operators.timers import milliseconds
from tidegate.operators.user_code import NOT_RECORDS, describe, raise_user_error, refuse_outputs
from tidegate.serializers import Pickled, Serialized
from tidegate.state.descriptors import InternalMapState, StateDescriptor, ValueState
from tidegate.state.handles import MapHandle, ValueHandle

Key = TypeVar("Key", covariant=True)
T = TypeVar("T")
Value = TypeVar("Value")
_ABSENT: Any = object()


class WindowContext(Generic[Key]):
    """What a window function knows besides the records. Valid during one call; never kept."""

    __slots__ = ("_buffer", "_operator", "_watermark", "key", "timestamp", "window")

    def __init__(self, operator: OperatorContext, watermark: Callable[[], int]) -> None:
        """For the engine."""
        self._operator = operator
        self._watermark = watermark
        self._buffer = OutputBuffer((), timed=False)
        self.key: Key
        self.window: Any = None
        """Its bounds: a `TimeWindow`, in milliseconds since 1970, a `GlobalWindow` or a `CountWindow`."""
        self.timestamp: int | None = None
        """What the results get; None where they have none."""

    def current_watermark(self) -> int:
        """How far event time has come, in milliseconds since 1970; very small before the first watermark."""
        return self._watermark()

    def current_processing_time(self) -> int:
        """Now, in milliseconds since 1970, by the clock of the machine that this subtask runs on."""
        return milliseconds(self._operator.clock.now())

    def output(self, tag: SideOutput[Value], value: Value) -> None:
        """Send `value` to the side output `tag`. Raises InvalidError when the function does not declare it."""
        if not self._buffer.put_aside(tag.name, value, self.timestamp):
            raise InvalidError(
                f"operator {self._operator.operator} has no side output {tag.name!r}",
                remedy="Make it a class attribute of the function, or name it in side_outputs=[...].",
            )


class WindowState(Generic[T]):
    """One value for each window of each key, declared in a `ProcessWindowFunction`:
    `fired = tg.WindowState(int, default=0)`. It is there from one result of a window to the next, and gone with it.

    `type`, `default` and `default_factory` as with `ValueState`; the handle has `value()`, `update(value)`, `clear()`.
    """

    def __init__(
        self,
        type: type[T] | Pickled[T] | Serialized[T],
        default: T | None = None,
        *,
        default_factory: Callable[[], T] | None = None,
        name: str = "",
    ) -> None:
        # What a ValueState would refuse is refused here.
        checked = ValueState[Any](type, default, default_factory=default_factory, name=name)
        self.declared = type
        self.default = checked.default
        self.default_factory = default_factory
        self.name = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = self.name or attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> ValueHandle[T]: ...
    def __get__(self, instance: object | None, owner: type) -> Self | ValueHandle[T]:
        if instance is None:
            return self
        raise InvalidError(
            f"state {self.name} of {owner.__name__} is used where there is no window",
            remedy="Use it in process and clear (and what they call), never in open or before the job runs.",
        )


class _WindowValue:
    """The handle of a `WindowState`: means the window of the current call."""

    def __init__(self, state: WindowState[Any], entries: MapHandle[Any, Any], context: WindowContext[Any]) -> None:
        self._state = state
        self._entries = entries
        self._context = context

    def value(self) -> Any:
        found = self._entries.get(self._context.window, _ABSENT)
        if found is not _ABSENT:
            return found
        if self._state.default_factory is None:
            return self._state.default
        made = self._state.default_factory()
        self.update(made)
        return made

    def update(self, value: Any) -> None:
        self._entries.put(self._context.window, value)

    def clear(self) -> None:
        self._entries.remove(self._context.window)


class ProcessesWindows(Protocol):
    """A `ProcessWindowFunction`, as its operator sees it."""

    def open(self, ctx: Context) -> None: ...

    def close(self) -> None: ...

    def process(self, ctx: Any, records: Any) -> Iterable[Any] | None: ...

    def clear(self, ctx: Any) -> None: ...


class FunctionStates:
    """What a window function declares: `by_key` and `by_window`, each by attribute."""

    def __init__(
        self,
        by_key: dict[str, StateDescriptor[Any]],
        by_window: dict[str, tuple[WindowState[Any], InternalMapState[Any, Any]]],
    ) -> None:
        self.by_key = by_key
        self.by_window = by_window


class WindowFunction:
    """One window function in one subtask. records_of(accumulator): what its `process` gets, never the stored object."""

    def __init__(
        self,
        function: ProcessesWindows,
        records_of: Callable[[Any], list[Any]],
        tags: tuple[str, ...],
        states: FunctionStates,
    ) -> None:
        self._function = function
        self._records_of = records_of
        self.tags = tags
        self._states = states
        self._has_opened = False

    def open(self, operator: OperatorContext, watermark: Callable[[], int]) -> None:
        self._operator = operator
        self._context: WindowContext[Any] = WindowContext(operator, watermark)
        backend = backend_of(operator)
        self._time_to_live = TimeToLive(backend, operator.clock)
        for attribute, descriptor in self._states.by_key.items():
            vars(self._function)[attribute] = self._time_to_live.register(descriptor)
        self._of_windows: list[MapHandle[Any, Any]] = []
        for attribute, (state, descriptor) in self._states.by_window.items():
            entries = backend.register(descriptor)
            self._of_windows.append(entries)
            vars(self._function)[attribute] = _WindowValue(state, entries, self._context)
        self._process = self._time_to_live.telling(lambda records, ctx: self._function.process(ctx, records))
        try:
            self._function.open(Context(operator.operator, operator.subtask, operator.parallelism))
        except Exception as error:
            raise_user_error(error, operator, "in open")
        self._has_opened = True

    def collect_into(self, buffer: OutputBuffer) -> None:
        """Where side outputs go from now on."""
        self._context._buffer = buffer

    def emit(self, key: Any, window: Any, accumulator: Any, timestamp: int | None) -> Iterable[Any]:
        """The results of a window of the current key."""
        context = self._context
        context.key, context.window, context.timestamp = key, window, timestamp
        outputs: Any = self._process(self._records_of(accumulator), context)
        if outputs.__class__ in NOT_RECORDS:
            refuse_outputs(outputs)
        return () if outputs is None else outputs

    def clear(self, key: Any, window: Any) -> None:
        """The window of the current key is gone."""
        context = self._context
        context.key, context.window, context.timestamp = key, window, None
        try:
            self._function.clear(context)
        except Exception as error:
            raise_user_error(error, self._operator, f"in clear of window {describe(window)} of key {describe(key)}")
        for entries in self._of_windows:
            entries.remove(window)

    def around(self, outputs: Iterator[Batch], records: int) -> Iterator[Batch]:
        """`outputs`, of so many records that are still to be processed."""
        return self._time_to_live.around(outputs, records)

    def close(self) -> None:
        has_opened, self._has_opened = self._has_opened, False
        if has_opened:
            try:
                self._function.close()
            except Exception as error:
                raise_user_error(error, self._operator, "in close")
