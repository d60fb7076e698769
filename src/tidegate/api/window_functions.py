"""What makes the results of windows: `ProcessWindowFunction`, and how each kind of function that a program gives
becomes what a window operator calls. It holds no engine code and runs nothing."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from tidegate.api.functions import Context, SideOutput
from tidegate.api.validation import check_function, check_methods, declared_side_outputs, declared_states
from tidegate.errors import InvalidError
from tidegate.event_time.windows import SessionWindows, window_type
from tidegate.ids import OperatorName
from tidegate.operators.user_code import copy_function
from tidegate.operators.windows import Emit, EmitMany
from tidegate.operators.windows.functions import FunctionStates, WindowContext, WindowFunction, WindowState
from tidegate.state.descriptors import InternalMapState, StateDescriptor

Key = TypeVar("Key")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

METHODS = ("open", "process", "clear", "close")


class ProcessWindowFunction(ABC, Generic[Key, In, Out]):
    """Makes any number of records of type `Out` out of the records of a window: an object where a window function is
    wanted, with state and side outputs.

    States that are class attributes belong to the key and mean the same in all its windows; a `WindowState` belongs to
    one window and is removed with it:

        class Change(ProcessWindowFunction[str, int, int]):
            last = ValueState(int, default=0)
            times = WindowState(int, default=0)

            def process(self, ctx, records):
                self.times.update(self.times.value() + 1)
                yield sum(records) - self.last.value()
                self.last.update(sum(records))

    Each subtask works with its own copy of the object. Side outputs are class attributes, as in a `ProcessFunction`.
    """

    def open(self, ctx: Context) -> None:
        """Called once in each attempt before the first record. There is no key and no window."""

    @abstractmethod
    def process(self, ctx: WindowContext[Key], records: list[In]) -> Iterable[Out] | None:
        """Called for each result of a window. Yields the outputs, returns them, or returns None for none.

        `records`: all of them, which the function may keep; behind `aggregate` and `reduce` the one result in a list.
        """

    def clear(self, ctx: WindowContext[Key]) -> None:
        """Called when a window goes: it takes no more records. Its `WindowState` is still there, and is removed behind
        this call. Nothing can be emitted. State of the key that belongs to the window alone is removed here."""

    def close(self) -> None:
        """Called when the attempt ends in good order, after `open` succeeded; not when the process dies. For manners
        only."""


class Results(NamedTuple):
    """How results are made, and what that needs beside the windows."""

    emit: Emit
    """Used when there is no `function`."""
    function: Callable[[], WindowFunction] | None = None
    states: tuple[StateDescriptor[Any], ...] = ()
    tags: tuple[str, ...] = ()
    emit_many: EmitMany | None = None
    """What `emit` makes, one record a window, of many keys at once."""


def results_of_one(
    operator: OperatorName,
    function: Any,
    result: Callable[[Any], Any],
    side_outputs: Iterable[SideOutput[Any]],
    assigner: object,
) -> Results:
    """What `function(key, window, result)`, or an object, makes of the one result of a window; None: the result itself.
    Raises InvalidError."""
    if _is_object(operator, function):
        return _run(operator, function, lambda accumulator: [result(accumulator)], side_outputs, assigner)
    if list(side_outputs):
        raise InvalidError(
            f"operator {operator} has side outputs and no window function that could write to them",
            remedy="Give an object of a class derived from ProcessWindowFunction.",
        )
    if function is None:
        return Results(
            lambda key, window, accumulator: (result(accumulator),),
            emit_many=lambda keys, window, accumulators: map(result, accumulators),
        )
    check_function(operator, "the window function", function)
    return Results(
        lambda key, window, accumulator: (function(key, window, result(accumulator)),),
        emit_many=lambda keys, window, accumulators: map(function, keys, repeat(window), map(result, accumulators)),
    )


def results_of_all(
    operator: OperatorName, function: Any, side_outputs: Iterable[SideOutput[Any]], assigner: object
) -> Results:
    """What `function(context, records)`, or an object, makes of the records of a window. Raises InvalidError."""
    if not _is_object(operator, function):
        check_function(operator, "flat_map", function)
        function = _Plain(function)
    # A copy: the function may keep or change what it is given, and late records are still to come.
    return _run(operator, function, list, side_outputs, assigner)


class _Plain(ProcessWindowFunction[Any, Any, Any]):
    """A function that needs nothing else."""

    def __init__(self, function: Callable[[WindowContext[Any], list[Any]], Iterable[Any] | None]) -> None:
        self._function = function

    def process(self, ctx: WindowContext[Any], records: list[Any]) -> Iterable[Any] | None:
        return self._function(ctx, records)

    def __deepcopy__(self, memo: object) -> "_Plain":
        # Plain functions are never copied; only the handles of this object are the subtask's.
        return _Plain(self._function)


def _is_object(operator: OperatorName, function: object) -> bool:
    if isinstance(function, type) and issubclass(function, ProcessWindowFunction):
        raise InvalidError(
            f"operator {operator} was given the class {function.__name__} instead of a window function",
            remedy=f"Make an instance: {function.__name__}(...).",
        )
    return isinstance(function, ProcessWindowFunction)


def _run(
    operator: OperatorName,
    function: ProcessWindowFunction[Any, Any, Any],
    records_of: Callable[[Any], list[Any]],
    side_outputs: Iterable[SideOutput[Any]],
    assigner: object,
) -> Results:
    check_methods(operator, function, METHODS)
    states = _states(operator, function, assigner)
    tags = declared_side_outputs(operator, function, side_outputs)
    return Results(
        _nothing,
        lambda: WindowFunction(copy_function(function, operator), records_of, tags, states),
        (*states.by_key.values(), *(descriptor for _, descriptor in states.by_window.values())),
        tags,
    )


def _states(operator: OperatorName, function: object, assigner: object) -> FunctionStates:
    by_key = declared_states(operator, function)
    if strange := [name for name, state in by_key.items() if not state.is_keyed]:
        raise InvalidError(
            f"operator {operator}: {type(function).__name__} declares state ({', '.join(strange)}) without a key",
            remedy="Use state that belongs to a key, or a WindowState: windows belong to keys.",
        )
    found = {
        name: value
        for base in reversed(type(function).__mro__)
        for name, value in vars(base).items()
        if isinstance(value, WindowState)
    }
    if found and isinstance(assigner, SessionWindows):
        raise InvalidError(
            f"operator {operator}: {type(function).__name__} declares a WindowState ({', '.join(found)}), and sessions "
            "become one",
            remedy="Keep it in state of the key, or in the accumulator: nothing says what two of them become.",
        )
    by_window = {name: (state, _descriptor(operator, state, assigner)) for name, state in found.items()}
    return FunctionStates(by_key, by_window)


def _descriptor(operator: OperatorName, state: WindowState[Any], assigner: object) -> InternalMapState[Any, Any]:
    name = f".window-state-{state.name}-{spelled_in_name(assigner)}"
    try:
        return InternalMapState(window_type(assigner), state.declared, name=name)
    except InvalidError as error:
        raise InvalidError(f"operator {operator}: {error.failure.message}", remedy=error.failure.remedy) from error


def spelled_in_name(thing: object) -> str:
    """An assigner or a trigger in the name of a state, which says how windows are cut: what other windows have left is
    no state of these, and a checkpoint that has it is refused."""
    return re.sub("[^A-Za-z0-9]+", "-", str(thing))


def _nothing(key: Any, window: Any, accumulator: Any) -> Iterable[Any]:
    return ()
